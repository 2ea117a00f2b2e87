/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of slots and the sink that the table's bind functions speak to. */
#include "prune/channels.h"

#include <string.h>

/* --- values and their slots --- */

enum { LONGEST = 1 << 22 }; /* axes above it stay whole */

typedef struct pare_channel_entry {
    const pare_value *value;
    int slot[PARE_MAX_RANK];
    bool constant, known; /* known: all dims are */
} entry;

static entry *entry_find(const pare_channel_sets *u, const pare_value *value)
{
    const int at = pare_ptr_map_find(&u->places, value);
    return at < 0 ? NULL : &u->entry[at];
}

int pare_channel_sets_find_axis(const pare_channel_sets *sets, const pare_value *value, int axis)
{
    const entry *e = entry_find(sets, value);
    return e && axis >= 0 && axis < PARE_MAX_RANK ? e->slot[axis] : -1;
}

bool pare_channel_sets_constant(const pare_channel_sets *sets, const pare_value *value)
{
    const entry *e = entry_find(sets, value);
    return e && e->constant;
}

static pare_status slot_new(pare_channel_sets *u, pare_value *value, int axis,
                            const pare_node *node, int *out)
{
    if (!pare_arena_grow(u->arena, &u->slot, &u->slot_capacity, (size_t)u->slot_count,
                         sizeof *u->slot))
        return PARE_MEMORY;
    *out = u->slot_count;
    u->slot[u->slot_count++] = (pare_channel_set_axis){.value = value,
                                                       .axis = axis,
                                                       .parts = 1,
                                                       .extent = value->shape.dim[axis],
                                                       .constant = value->is_init,
                                                       .node = node};
    return PARE_OK;
}

static pare_status enter_value(pare_channel_sets *u, pare_value *value, const pare_node *node)
{
    if (!value || entry_find(u, value)) return PARE_OK;
    PARE_TRY(pare_ptr_map_put(&u->places, value, (int)u->entry_count));
    entry *e = &u->entry[u->entry_count++];
    *e = (entry){.value = value, .known = pare_shape_known(&value->shape)};
    e->constant = value->is_init;
    for (int i = 0; i < PARE_MAX_RANK; i++) e->slot[i] = -1;
    for (int i = 0; e->known && i < value->shape.rank; i++) {
        int64_t n = value->shape.dim[i];
        if (n > 1 && n <= LONGEST) PARE_TRY(slot_new(u, value, i, node, &e->slot[i]));
    }
    return PARE_OK;
}

/* A node makes a constant of constants. */
static bool makes_constant(const pare_channel_sets *u, const pare_node *node)
{
    bool some = false;
    if (!pare_op_of(node) || pare_node_has_graphs(node)) return false;
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        some = true;
        if (!pare_channel_sets_constant(u, node->in[i])) return false;
    }
    return some;
}

static pare_status enter_values(pare_channel_sets *u)
{
    pare_graph *g = u->sized->graph;
    size_t values = (size_t)g->in.count + (size_t)g->init.count + (size_t)g->out.count;
    for (int n = 0; n < g->node_count; n++) values += (size_t)g->node[n]->out_count;
    for (int n = 0; n < g->node_count; n++) values += (size_t)g->node[n]->in_count;
    pare_ptr_map_init(&u->places, u->arena);
    u->entry = pare_arena_alloc(u->arena, values, sizeof *u->entry);
    if (!u->entry) return PARE_MEMORY;
    for (int i = 0; i < g->in.count; i++) PARE_TRY(enter_value(u, g->in.item[i], NULL));
    for (int n = 0; n < g->node_count; n++) {
        const pare_node *node = g->node[n];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->graph == g) PARE_TRY(enter_value(u, node->in[i], node));
        for (int i = 0; i < node->out_count; i++) {
            PARE_TRY(enter_value(u, node->out[i], node));
            if (node->out[i] && makes_constant(u, node))
                entry_find(u, node->out[i])->constant = true;
        }
    }
    for (int i = 0; i < g->out.count; i++) PARE_TRY(enter_value(u, g->out.item[i], NULL));
    return PARE_OK;
}

/* --- sets --- */

int32_t pare_channel_sets_find(pare_channel_sets *sets, int32_t channel)
{
    int32_t *parent = sets->parent;
    while (parent[channel] != channel) channel = parent[channel] = parent[parent[channel]];
    return channel;
}

/* The lower number stays the set's; so does the earlier reason. */
static int32_t join(pare_channel_sets *u, int32_t a, int32_t b)
{
    a = pare_channel_sets_find(u, a);
    b = pare_channel_sets_find(u, b);
    if (a == b) return a;
    int32_t low = a < b ? a : b, high = a < b ? b : a;
    int32_t why = u->blocked[low], other = u->blocked[high];
    u->parent[high] = low;
    if (why < 0 || (other >= 0 && other < why)) u->blocked[low] = other;
    return low;
}

static int slot_of(const pare_channel_sets *u, const pare_axis_span *span)
{
    int at = pare_channel_sets_find_axis(u, span->value, span->axis);
    return at >= 0 && u->slot[at].parts == span->parts ? at : -1;
}

/* The same, noting that the node speaks of it. */
static int slot_spoken(const pare_channel_sets *u, const pare_node *node,
                       const pare_axis_span *span)
{
    int at = pare_channel_sets_find_axis(u, span->value, span->axis);
    if (at >= 0) u->slot[at].spoken = node;
    return slot_of(u, span);
}

/* Channels start .. start + length - 1 of a slot. */
static pare_status block_channels(pare_channel_sets *u, int slot, int64_t start, int64_t length,
                                  const pare_node *node, const char *why)
{
    pare_channel_set_axis *s = &u->slot[slot];
    bool noted = false;
    for (int64_t i = start; i < start + length; i++) {
        int32_t root = pare_channel_sets_find(u, s->first + (int32_t)i);
        if (u->blocked[root] >= 0) continue;
        if (!noted && !pare_arena_grow(u->arena, &u->block, &u->block_capacity, u->block_count,
                                       sizeof *u->block))
            return PARE_MEMORY;
        if (!noted) u->block[u->block_count++] = (pare_block){node, s->value, s->axis, why};
        noted = true;
        u->blocked[root] = (int32_t)u->block_count - 1;
    }
    return PARE_OK;
}

pare_status pare_channel_sets_block(pare_channel_sets *sets, const pare_node *node,
                                    const pare_value *value, const char *why)
{
    const entry *e = value ? entry_find(sets, value) : NULL;
    for (int i = 0; e && i < PARE_MAX_RANK; i++)
        if (e->slot[i] >= 0)
            PARE_TRY(block_channels(sets, e->slot[i], 0, sets->slot[e->slot[i]].extent, node, why));
    return PARE_OK;
}

/* --- the sink --- */

/* A weight's axis turns out to have parts. */
static pare_status declare(pare_channel_sets *u, const pare_node *node, const pare_axis_span *span)
{
    entry *e = entry_find(u, span->value);
    if (span->parts == 1 || !e) return PARE_OK;
    if (e->slot[span->axis] < 0)
        PARE_TRY(slot_new(u, (pare_value *)span->value, span->axis, node, &e->slot[span->axis]));
    pare_channel_set_axis *s = &u->slot[e->slot[span->axis]];
    s->parts = span->parts;
    s->extent = span->value->shape.dim[span->axis] * span->parts;
    return PARE_OK;
}

static bool is_blocked(pare_channel_sets *u, int slot, int64_t channel)
{
    return u->blocked[pare_channel_sets_find(u, u->slot[slot].first + (int32_t)channel)] >= 0;
}

/* Are all channels of the bound spans blocked, pair by pair? */
static bool all_blocked(pare_channel_sets *u, const pare_axis_span *a, const pare_axis_span *b)
{
    const pare_axis_span *side[] = {a, b};
    int64_t free_count = a->count;
    for (int64_t t = 0; t < a->count; t++) u->place[t] = 0;
    for (int k = 0; k < 2; k++) {
        int slot = slot_of(u, side[k]);
        if (slot < 0) return true;
        for (int64_t i = 0; i < side[k]->length; i++) {
            int64_t t = i / side[k]->inner % side[k]->count;
            if (u->place[t] || !is_blocked(u, slot, side[k]->start + i)) continue;
            u->place[t] = 1;
            free_count--;
        }
    }
    return free_count == 0;
}

static void join_spans(pare_channel_sets *u, int slot_a, const pare_axis_span *a, int slot_b,
                       const pare_axis_span *b)
{
    const pare_axis_span *side[] = {a, b};
    int slot[] = {slot_a, slot_b};
    for (int64_t t = 0; t < a->count; t++) u->place[t] = -1;
    for (int k = 0; k < 2; k++) {
        int32_t first = u->slot[slot[k]].first + (int32_t)side[k]->start;
        for (int64_t i = 0; i < side[k]->length; i++) {
            int32_t *place = &u->place[i / side[k]->inner % side[k]->count];
            *place = *place < 0 ? first + (int32_t)i : join(u, *place, first + (int32_t)i);
        }
    }
}

static bool fits(const pare_channel_sets *u, int slot, const pare_axis_span *s)
{
    return s->start >= 0 && s->length >= 0 && s->start + s->length <= u->slot[slot].extent;
}

static pare_status on_bind(void *user, const pare_node *node, const pare_axis_span *a,
                           const pare_axis_span *b)
{
    pare_channel_sets *u = user;
    if (u->mode == PARE_CHANNELS_DECLARE) {
        PARE_TRY(declare(u, node, a));
        return declare(u, node, b);
    }
    pare_channel_question *q = u->asked >= 0 ? &u->question[u->asked] : NULL;
    int slot_a = slot_spoken(u, node, a), slot_b = slot_spoken(u, node, b);
    bool same = a->count == b->count && a->count <= u->place_count;
    if (q && !q->has_bound) {
        q->bound = *a;
        q->has_bound = true;
        if (u->mode == PARE_CHANNELS_PROBE && (!same || all_blocked(u, a, b)))
            q->possible &= ~(1U << q->way);
    }
    if (u->mode == PARE_CHANNELS_PROBE) return PARE_OK;
    if (slot_a >= 0 && slot_b >= 0 && same && fits(u, slot_a, a) && fits(u, slot_b, b)) {
        join_spans(u, slot_a, a, slot_b, b);
        return PARE_OK;
    }
    const char *why = "has a single one on its other side";
    if (slot_a >= 0 && fits(u, slot_a, a))
        PARE_TRY(block_channels(u, slot_a, a->start, a->length, node, why));
    if (slot_b >= 0 && fits(u, slot_b, b))
        PARE_TRY(block_channels(u, slot_b, b->start, b->length, node, why));
    return PARE_OK;
}

static pare_status on_block(void *user, const pare_node *node, const pare_axis_span *span,
                            const char *why)
{
    pare_channel_sets *u = user;
    if (u->mode == PARE_CHANNELS_DECLARE) return declare(u, node, span);
    int slot = pare_channel_sets_find_axis(u, span->value, span->axis);
    if (u->mode == PARE_CHANNELS_PROBE || slot < 0) return PARE_OK;
    if (slot_spoken(u, node, span) < 0)
        return block_channels(u, slot, 0, u->slot[slot].extent, node, why);
    return fits(u, slot, span) ? block_channels(u, slot, span->start, span->length, node, why)
                               : PARE_OK;
}

static pare_status on_reads(void *user, const pare_node *node, const pare_value *value, int axis,
                            int64_t parts)
{
    pare_channel_sets *u = user;
    int slot = pare_channel_sets_find_axis(u, value, axis);
    (void)node, (void)parts;
    if (u->mode == PARE_CHANNELS_NEUTRAL && slot >= 0) u->slot[slot].reads = true;
    return PARE_OK;
}

static pare_status on_even(void *user, const pare_node *node, const pare_value *value, int axis,
                           int64_t blocks)
{
    pare_channel_sets *u = user;
    int slot = pare_channel_sets_find_axis(u, value, axis);
    (void)node;
    if (u->mode != PARE_CHANNELS_BIND || slot < 0) return PARE_OK;
    if (!pare_arena_grow(u->arena, &u->even, &u->even_capacity, u->even_count, sizeof *u->even))
        return PARE_MEMORY;
    u->even[u->even_count++] = (pare_channel_even){slot, u->asked, blocks};
    return PARE_OK;
}

static pare_status on_work(void *user, const pare_node *node, double factor,
                           const pare_axis_span *axes, int count)
{
    pare_channel_sets *u = user;
    pare_channel_work w = {.node = node, .factor = factor};
    if (u->mode != PARE_CHANNELS_NEUTRAL) return PARE_OK;
    for (int i = 0; i < count; i++) {
        int slot = slot_of(u, &axes[i]);
        if (slot >= 0)
            w.slot[w.count++] = slot;
        else
            w.factor *= (double)axes[i].length;
    }
    if (!pare_arena_grow(u->arena, &u->work, &u->work_capacity, u->work_count, sizeof *u->work))
        return PARE_MEMORY;
    u->work[u->work_count++] = w;
    return PARE_OK;
}

static pare_channel_question *question_of(pare_channel_sets *u, const pare_node *node, int part)
{
    for (size_t i = (size_t)node->mark; i > 0 && i <= u->question_count; i++) {
        pare_channel_question *q = &u->question[i - 1];
        if (q->node != node) return NULL;
        if (q->part == part) return q;
    }
    return NULL;
}

static int on_choose(void *user, const pare_node *node, int part, int count)
{
    pare_channel_sets *u = user;
    u->asked = -1;
    if (u->mode == PARE_CHANNELS_DECLARE || count > 32) return -1;
    if (u->mode == PARE_CHANNELS_NEUTRAL) {
        if (!pare_arena_grow(u->arena, &u->question, &u->question_capacity, u->question_count,
                             sizeof *u->question))
            return -1;
        u->question[u->question_count++] = (pare_channel_question){
            .node = node, .part = part, .count = count, .possible = (1U << count) - 1};
        if (!node->mark) ((pare_node *)node)->mark = (int)u->question_count;
        return -1;
    }
    pare_channel_question *q = question_of(u, node, part);
    if (!q) return -1;
    u->asked = (int)(q - u->question);
    q->has_bound = false;
    return q->way;
}

static bool on_constant(void *user, const pare_value *value)
{
    return pare_channel_sets_constant(user, value);
}

/* --- walks --- */

static bool knows_shapes(const pare_channel_sets *u, const pare_node *node)
{
    for (int i = 0; i < node->in_count + node->out_count; i++) {
        const pare_value *v = i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        const entry *e = v ? entry_find(u, v) : NULL;
        if (v && (!e || !e->known)) return false;
    }
    return node->out_count > 0 && node->out[0];
}

static pare_status stop(pare_channel_sets *u, const pare_node *node, const char *why)
{
    for (int i = 0; i < node->in_count; i++)
        PARE_TRY(pare_channel_sets_block(u, node, node->in[i], why));
    for (int i = 0; i < node->out_count; i++)
        PARE_TRY(pare_channel_sets_block(u, node, node->out[i], why));
    return PARE_OK;
}

/* What a node reads without saying how its channels follow others, it reads as a whole. */
static pare_status block_unspoken(pare_channel_sets *u, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        for (int axis = 0; node->in[i] && axis < node->in[i]->shape.rank; axis++) {
            int s = pare_channel_sets_find_axis(u, node->in[i], axis);
            if (s < 0 || u->slot[s].spoken == node) continue;
            PARE_TRY(block_channels(u, s, 0, u->slot[s].extent, node, "reads it as a whole"));
        }
    return PARE_OK;
}

static pare_status bind_node(pare_channel_sets *u, const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    bool declares = u->mode == PARE_CHANNELS_DECLARE;
    u->asked = -1;
    if (!op) return declares ? PARE_OK : stop(u, node, "is an operator without a rule for pruning");
    if (pare_node_has_graphs(node))
        return declares ? PARE_OK : stop(u, node, "runs a nested graph");
    if (!knows_shapes(u, node))
        return declares ? PARE_OK : stop(u, node, "has tensors of unknown shape");
    PARE_TRY(op->prune.bind(node, &u->sink));
    u->asked = -1;
    bool asks = node->mark > 0; /* and what it will say is not known yet */
    return u->mode == PARE_CHANNELS_NEUTRAL && !asks ? block_unspoken(u, node) : PARE_OK;
}

static pare_status bind_nodes(pare_channel_sets *u, pare_channel_mode mode)
{
    pare_graph *g = u->sized->graph;
    u->mode = mode;
    for (int n = 0; n < g->node_count; n++) PARE_TRY(bind_node(u, g->node[n]));
    return pare_ctx_poll(u->ctx);
}

static pare_status number_channels(pare_channel_sets *u)
{
    int64_t count = 0, longest = 1;
    for (int i = 0; i < u->slot_count; i++) {
        pare_channel_set_axis *s = &u->slot[i];
        s->first = (int32_t)count;
        count += s->extent;
        longest = s->extent > longest ? s->extent : longest;
        if (count > INT32_MAX / 2)
            return PARE_FAIL(u->ctx, UNSUPPORTED,
                             "%s: its tensors' axes have more than %d channels together",
                             u->model->path, INT32_MAX / 2);
    }
    size_t n = (size_t)count + 1;
    int32_t **array[] = {&u->parent, &u->blocked, &u->base_parent, &u->base_blocked};
    for (int i = 0; i < 4; i++)
        if (!(*array[i] = pare_arena_alloc(u->arena, n, sizeof **array[i]))) return PARE_MEMORY;
    u->place = pare_arena_alloc(u->arena, (size_t)longest + 1, sizeof *u->place);
    if (!u->place) return PARE_MEMORY;
    u->place_count = longest;
    u->channel_count = (int32_t)count;
    for (int32_t i = 0; i < u->channel_count; i++) {
        u->parent[i] = i;
        u->blocked[i] = -1;
    }
    return PARE_OK;
}

/* --- what the graph's edges block --- */

/* Values that a nested graph returns without a node of its own. */
static pare_status block_returned(pare_graph *graph, void *user)
{
    pare_channel_sets *u = user;
    for (int i = 0; graph->parent && i < graph->out.count; i++)
        if (graph->out.item[i]->graph == u->sized->graph)
            PARE_TRY(pare_channel_sets_block(u, NULL, graph->out.item[i],
                                             "is returned by a nested graph"));
    return PARE_OK;
}

static pare_status block_edges(pare_channel_sets *u)
{
    pare_graph *g = u->sized->graph;
    for (int i = 0; i < g->in.count; i++)
        PARE_TRY(pare_channel_sets_block(u, NULL, g->in.item[i], "is an input of the model"));
    bool outputs = u->options && u->options->outputs;
    for (int i = 0; i < g->out.count && !outputs; i++)
        PARE_TRY(pare_channel_sets_block(u, NULL, g->out.item[i], "is an output of the model"));
    for (size_t i = 0; i < u->entry_count; i++) {
        const pare_value *v = u->entry[i].value;
        for (int k = 0; v && k < v->user_count; k++)
            if (v->user[k]->graph != g)
                PARE_TRY(pare_channel_sets_block(u, NULL, v, "is read inside a nested graph"));
    }
    return pare_graph_each(g, block_returned, u);
}

/* What only the sized model holds as a constant is computed in the other. */
static pare_status block_foreign(pare_channel_sets *u)
{
    for (int i = 0; i < u->slot_count; i++) {
        const pare_channel_set_axis *s = &u->slot[i];
        const pare_value *own = pare_graph_find_own(u->model->graph, s->value->name);
        if (own && own->is_init == s->value->is_init) continue;
        PARE_TRY(
            block_channels(u, i, 0, s->extent, s->value->producer, "is made from sizes alone"));
    }
    return PARE_OK;
}

static pare_status block_kept(pare_channel_sets *u)
{
    const pare_groups_options *o = u->options;
    pare_graph *g = u->sized->graph;
    for (int n = 0; o && o->keep && n < g->node_count; n++) {
        if (!o->keep(o->keep_user, g->node[n])) continue;
        for (int i = 0; i < g->node[n]->out_count; i++)
            PARE_TRY(
                pare_channel_sets_block(u, g->node[n], g->node[n]->out[i], "is kept as asked"));
    }
    return PARE_OK;
}

pare_status pare_channel_sets_init(pare_channel_sets *sets)
{
    pare_channel_sets *u = sets;
    u->sink = (pare_prune_binder){u,       on_bind, on_block,  on_reads,
                                  on_even, on_work, on_choose, on_constant};
    for (int n = 0; n < u->sized->graph->node_count; n++) u->sized->graph->node[n]->mark = 0;
    PARE_TRY(enter_values(u));
    PARE_TRY(bind_nodes(u, PARE_CHANNELS_DECLARE));
    PARE_TRY(number_channels(u));
    PARE_TRY(block_kept(u));
    PARE_TRY(block_edges(u));
    PARE_TRY(block_foreign(u));
    PARE_TRY(bind_nodes(u, PARE_CHANNELS_NEUTRAL));
    size_t bytes = (size_t)u->channel_count * sizeof *u->parent;
    memcpy(u->base_parent, u->parent, bytes);
    memcpy(u->base_blocked, u->blocked, bytes);
    u->base_block_count = u->block_count;
    return PARE_OK;
}

pare_status pare_channel_sets_ask(pare_channel_sets *sets, pare_channel_mode mode)
{
    pare_channel_sets *u = sets;
    u->mode = mode;
    for (size_t i = 0; i < u->question_count; i++)
        if (!i || u->question[i].node != u->question[i - 1].node)
            PARE_TRY(bind_node(u, u->question[i].node));
    return PARE_OK;
}
