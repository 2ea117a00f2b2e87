/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks are made once: each graph's nodes in order with the slots of their tensors. Slots of
   initializers are filled for good. */
#include "runtime/exec/interpreter/interpreter.h"
#include "runtime/base/clock.h"
#include "runtime/passes/passes.h"

#include <stdlib.h>
#include <string.h>

/* --- slots --- */

static pare_status count_values(pare_graph *graph, void *user)
{
    size_t *count = user;
    *count += (size_t)graph->in.count + (size_t)graph->init.count;
    for (int i = 0; i < graph->node_count; i++) *count += (size_t)graph->node[i]->out_count;
    return PARE_OK;
}

static pare_status slot_add(pare_interpreter *it, pare_value *v)
{
    if (!v || pare_ptr_map_find(&it->index, v) >= 0) return PARE_OK;
    int slot = it->slot_count++;
    PARE_TRY(pare_ptr_map_put(&it->index, v, slot));
    if (!v->data || !pare_type(v->dtype)->bits) return PARE_OK;
    pare_view view = {0};
    size_t size = (size_t)pare_type(v->dtype)->bits / 8;
    pare_view_set(&view, v->dtype, &v->shape, false);
    view.data = (void *)v->data->data;
    if (size > 1 && v->data->bytes && (uintptr_t)view.data % size)
        view.data = pare_arena_memdup(&it->arena, view.data, v->data->bytes);
    if (v->data->bytes && !view.data) return PARE_MEMORY;
    it->slot[slot] = pare_object_borrow(&view);
    return PARE_OK;
}

static pare_status slots_add(pare_graph *graph, void *user)
{
    pare_interpreter *it = user;
    for (int i = 0; i < graph->in.count; i++) PARE_TRY(slot_add(it, graph->in.item[i]));
    for (int i = 0; i < graph->init.count; i++) PARE_TRY(slot_add(it, graph->init.item[i]));
    for (int i = 0; i < graph->node_count; i++)
        for (int k = 0; k < graph->node[i]->out_count; k++)
            PARE_TRY(slot_add(it, graph->node[i]->out[k]));
    return PARE_OK;
}

void pare_slot_set(pare_interpreter *it, int slot, pare_object object)
{
    if (slot < 0) {
        pare_object_drop(&object);
        return;
    }
    pare_object old = it->slot[slot];
    it->slot[slot] = object;
    pare_object_drop(&old);
}

/* --- blocks --- */

static pare_status slots_of(pare_interpreter *it, pare_value *const *values, int count, int **out)
{
    int *slot = pare_arena_alloc(&it->arena, (size_t)count + 1, sizeof *slot);
    if (!slot) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        slot[i] = values[i] ? pare_ptr_map_find(&it->index, values[i]) : -1;
        if (values[i] && slot[i] < 0)
            return PARE_FAIL(it->ctx, INPUT, "%s: tensor '%s' is computed by no node",
                             it->model->path, values[i]->name);
    }
    *out = slot;
    return PARE_OK;
}

static pare_status block_new(pare_interpreter *it, pare_scope **out, pare_graph *graph);

static pare_status body_add(pare_interpreter *it, pare_item *item, pare_graph *graph)
{
    return block_new(it, &item->body[item->body_count++], graph);
}

static pare_status bodies_new(pare_interpreter *it, pare_item *item)
{
    const pare_node *n = item->node;
    int most = 0;
    for (int a = 0; a < n->attr_count; a++)
        most += n->attr[a].kind == PARE_ATTR_GRAPH ? 1 : n->attr[a].count;
    item->body = pare_arena_alloc(&it->arena, (size_t)most + 1, sizeof *item->body);
    if (!item->body) return PARE_MEMORY;
    for (int a = 0; a < n->attr_count; a++)
        if (n->attr[a].kind == PARE_ATTR_GRAPH)
            PARE_TRY(body_add(it, item, n->attr[a].graph));
        else if (n->attr[a].kind == PARE_ATTR_GRAPHS)
            return PARE_FAIL_NODE(n, UNSUPPORTED, "attribute '%s' is a list of graphs",
                                  n->attr[a].name);
    return PARE_OK;
}

static pare_status item_new(pare_interpreter *it, pare_item *item, pare_node *node)
{
    *item = (pare_item){.node = node, .op = pare_op_of(node)};
    item->handler = pare_control_handler(node);
    if (!item->handler) item->handler = pare_sequence_handler(node);
    if (!item->handler && (!item->op || !item->op->cpu[0]))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "operator '%s%s%s' is not supported (`pare ops` lists what is)",
                              node->domain, node->domain[0] ? "." : "", node->op_type);
    PARE_TRY(slots_of(it, node->in, node->in_count, &item->in));
    PARE_TRY(slots_of(it, node->out, node->out_count, &item->out));
    return bodies_new(it, item);
}

/* Notes item `at` as the last reader of what the node, or a node of its bodies, reads. */
static void reads_note(const pare_interpreter *it, const pare_item *item, int *last, int at)
{
    for (int i = 0; i < item->node->in_count; i++)
        if (item->in[i] >= 0 && last[item->in[i]] != -2) last[item->in[i]] = at;
    for (int b = 0; b < item->body_count; b++) {
        const pare_scope *body = item->body[b];
        for (int i = 0; i < body->item_count; i++) reads_note(it, &body->item[i], last, at);
        for (int i = 0; i < body->out_count; i++)
            if (last[body->out[i]] != -2) last[body->out[i]] = at;
    }
}

/* After which item each slot of this block can be emptied. last: -2 for slots of others. */
static pare_status lasts_find(pare_interpreter *it, pare_scope *b, int *last)
{
    for (int s = 0; s < it->slot_count; s++) last[s] = -2;
    for (int i = 0; i < b->item_count; i++)
        for (int k = 0; k < b->item[i].node->out_count; k++)
            if (b->item[i].out[k] >= 0) last[b->item[i].out[k]] = i;
    for (int i = 0; i < b->item_count; i++) reads_note(it, &b->item[i], last, i);
    for (int i = 0; i < b->out_count; i++) last[b->out[i]] = -2;
    int *count = pare_alloc(it->ctx, (size_t)b->item_count + 1, sizeof *count);
    if (!count) return PARE_MEMORY;
    pare_status st = PARE_OK;
    for (int s = 0; s < it->slot_count; s++)
        if (last[s] >= 0) count[last[s]]++;
    for (int i = 0; i < b->item_count && st == PARE_OK; i++) {
        b->item[i].last = pare_arena_alloc(&it->arena, (size_t)count[i] + 1, sizeof(int));
        if (!b->item[i].last) st = PARE_MEMORY;
    }
    for (int s = 0; s < it->slot_count && st == PARE_OK; s++)
        if (last[s] >= 0) {
            pare_item *item = &b->item[last[s]];
            item->last[item->last_count++] = s;
        }
    pare_free(count);
    return st;
}

static pare_status block_new(pare_interpreter *it, pare_scope **out, pare_graph *graph)
{
    pare_scope *b = pare_arena_alloc(&it->arena, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    b->graph = graph;
    b->in_count = graph->in.count;
    b->out_count = graph->out.count;
    PARE_TRY(slots_of(it, graph->in.item, graph->in.count, &b->in));
    PARE_TRY(slots_of(it, graph->out.item, graph->out.count, &b->out));
    b->item = pare_arena_alloc(&it->arena, (size_t)graph->node_count + 1, sizeof *b->item);
    if (!b->item) return PARE_MEMORY;
    for (; b->item_count < graph->node_count; b->item_count++)
        PARE_TRY(item_new(it, &b->item[b->item_count], graph->node[b->item_count]));
    int *last = pare_alloc(it->ctx, (size_t)it->slot_count + 1, sizeof *last);
    pare_status st = last ? lasts_find(it, b, last) : PARE_MEMORY;
    pare_free(last);
    *out = b;
    return st;
}

static pare_status fill(pare_interpreter *it)
{
    pare_graph *g = it->model->graph;
    size_t count = 0;
    PARE_TRY(pare_graph_each(g, count_values, &count));
    it->slot = pare_arena_alloc(&it->arena, count + 1, sizeof *it->slot);
    if (!it->slot) return PARE_MEMORY;
    PARE_TRY(pare_graph_each(g, slots_add, it));
    return block_new(it, &it->main, g);
}

pare_status pare_interpreter_new(pare_ctx *ctx, pare_interpreter **out, const pare_model *model,
                                 const pare_plan_options *options)
{
    pare_interpreter *it = pare_alloc(ctx, 1, sizeof *it);
    if (!it) return PARE_MEMORY;
    it->ctx = ctx;
    it->threads = options->threads;
    it->reference = options->reference;
    pare_arena_init(&it->arena, ctx);
    pare_ptr_map_init(&it->index, &it->arena);
    pare_status st = pare_model_clone(ctx, &it->model, model);
    if (st == PARE_OK) st = fill(it);
    if (st != PARE_OK) {
        pare_interpreter_free(it);
        return st;
    }
    *out = it;
    return PARE_OK;
}

static void block_free(pare_scope *b)
{
    for (int i = 0; b && i < b->item_count; i++) {
        for (int k = 0; k < PARE_PREPARED_KEPT; k++) pare_prepared_free(b->item[i].prepared[k]);
        for (int k = 0; k < b->item[i].body_count; k++) block_free(b->item[i].body[k]);
    }
}

void pare_interpreter_free(pare_interpreter *it)
{
    if (!it) return;
    block_free(it->main);
    for (int i = 0; i < it->slot_count; i++) pare_object_drop(&it->slot[i]);
    free(it->scratch);
    pare_arena_free(&it->arena);
    pare_model_free(it->model);
    pare_free(it);
}

/* --- running --- */

static pare_status item_shown(pare_interpreter *it, const pare_item *item)
{
    for (int i = 0; i < item->node->out_count; i++) {
        const pare_object *y = item->out[i] >= 0 ? &it->slot[item->out[i]] : NULL;
        if (y && y->kind == PARE_OBJECT_TENSOR)
            PARE_TRY(it->made(it->user, item->node->out[i], &y->view));
    }
    return PARE_OK;
}

/* What a body is given for this turn. */
static pare_status inputs_shown(pare_interpreter *it, const pare_scope *body)
{
    for (int i = 0; i < body->in_count; i++) {
        const pare_object *x = &it->slot[body->in[i]];
        if (x->kind == PARE_OBJECT_TENSOR)
            PARE_TRY(it->made(it->user, body->graph->in.item[i], &x->view));
    }
    return PARE_OK;
}

pare_status pare_scope_run(pare_interpreter *it, pare_scope *block)
{
    if (it->made && block != it->main) PARE_TRY(inputs_shown(it, block));
    for (int i = 0; i < block->item_count; i++) {
        pare_item *item = &block->item[i];
        PARE_TRY(pare_ctx_poll(it->ctx));
        double start = it->timed ? pare_seconds() : 0;
        PARE_TRY(item->handler ? item->handler(it, item) : pare_item_run(it, item));
        if (it->timed) {
            item->seconds += pare_seconds() - start;
            item->turns++;
        }
        if (it->made) PARE_TRY(item_shown(it, item));
        for (int k = 0; k < item->last_count; k++) pare_object_drop(&it->slot[item->last[k]]);
    }
    return PARE_OK;
}

pare_status pare_interpreter_run(pare_interpreter *it, const pare_view *inputs)
{
    if (it->timed) pare_interpreter_reset(it);
    for (int i = 0; i < it->main->in_count; i++)
        pare_slot_set(it, it->main->in[i], pare_object_borrow(&inputs[i]));
    return pare_scope_run(it, it->main);
}

const pare_object *pare_interpreter_output(const pare_interpreter *it, int i)
{
    return &it->slot[it->main->out[i]];
}

/* --- for handlers --- */

const pare_object *pare_item_in(const pare_interpreter *it, const pare_item *item, int i)
{
    return i < item->node->in_count && item->in[i] >= 0 ? &it->slot[item->in[i]] : NULL;
}

static pare_status item_object(const pare_interpreter *it, const pare_item *item, int i,
                               pare_object_kind kind, const pare_object **out)
{
    *out = pare_item_in(it, item, i);
    if (*out && (*out)->kind == kind) return PARE_OK;
    if (!*out) return PARE_FAIL_NODE(item->node, INPUT, "input %d is missing", i);
    return PARE_FAIL_NODE(item->node, INPUT, "input '%s' must be a %s", item->node->in[i]->name,
                          kind == PARE_OBJECT_TENSOR ? "tensor" : "sequence");
}

pare_status pare_item_tensor(const pare_interpreter *it, const pare_item *item, int i,
                             const pare_object **out)
{
    return item_object(it, item, i, PARE_OBJECT_TENSOR, out);
}

pare_status pare_item_sequence(const pare_interpreter *it, const pare_item *item, int i,
                               const pare_object **out)
{
    return item_object(it, item, i, PARE_OBJECT_SEQUENCE, out);
}

pare_status pare_item_int(const pare_interpreter *it, const pare_item *item, int i, int64_t missing,
                          int64_t *out)
{
    const pare_object *x;
    *out = missing;
    if (!pare_item_in(it, item, i)) return PARE_OK;
    PARE_TRY(pare_item_tensor(it, item, i, &x));
    const pare_view *v = &x->view;
    if (pare_view_count(v) < 1)
        return PARE_FAIL_NODE(item->node, INPUT, "input '%s' is empty", item->node->in[i]->name);
    switch (v->dtype) {
    case PARE_bool: *out = *(const uint8_t *)v->data != 0; break;
    case PARE_s32: *out = *(const int32_t *)v->data; break;
    case PARE_s64: *out = *(const int64_t *)v->data; break;
    default:
        return PARE_FAIL_NODE(item->node, INPUT, "input '%s' must be an integer",
                              item->node->in[i]->name);
    }
    return PARE_OK;
}

void pare_item_give(pare_interpreter *it, const pare_item *item, int i, pare_object object)
{
    pare_slot_set(it, i < item->node->out_count ? item->out[i] : -1, object);
}

pare_scope *pare_item_body(const pare_item *item, const char *attr)
{
    const pare_attr *a = pare_node_attr(item->node, attr);
    for (int i = 0; i < item->body_count; i++)
        if (a && a->kind == PARE_ATTR_GRAPH && item->body[i]->graph == a->graph)
            return item->body[i];
    return NULL;
}
