/* SPDX-License-Identifier: Apache-2.0 */
/* Types and shapes of every tensor, and constants folded on the way: a node whose inputs are all
   constant is run by its plain kernel, and its results become initializers. Shape and Size fold as
   soon as the dims they give are known. */
#include "runtime/ops/infer.h"
#include "runtime/passes/import/body_inputs.h"
#include "runtime/passes/passes.h"

#include <string.h>

void pare_infer_options_init(pare_infer_options *out) { *out = (pare_infer_options){0}; }

/* --- constant folding of one node --- */

static pare_status tensor_like(pare_value *value, pare_tensor **out)
{
    return pare_tensor_new(value->graph->model, out, value->name, value->dtype, value->shape.rank,
                           value->shape.dim, NULL);
}

/* --- nodes that are constant by what they say --- */

/* Constant (19): one of its attributes; strings are left alone. */
static pare_status constant_content(const pare_node *node, pare_tensor **out)
{
    pare_model *m = node->graph->model;
    const char *name = node->out[0]->name;
    const pare_attr *a = node->attr_count ? &node->attr[0] : NULL;
    const int64_t count = a ? a->count : 0;
    pare_tensor *t = NULL;
    if (!a) return PARE_OK;
    switch (a->kind) {
    case PARE_ATTR_TENSOR:
        t = pare_arena_memdup(&m->arena, a->tensor, sizeof *t);
        if (!t) return PARE_MEMORY;
        t->name = name;
        break;
    case PARE_ATTR_FLOAT: PARE_TRY(pare_tensor_new(m, &t, name, PARE_f32, 0, &count, &a->f)); break;
    case PARE_ATTR_INT: PARE_TRY(pare_tensor_new(m, &t, name, PARE_s64, 0, &count, &a->i)); break;
    case PARE_ATTR_FLOATS:
        PARE_TRY(pare_tensor_new(m, &t, name, PARE_f32, 1, &count, a->floats));
        break;
    case PARE_ATTR_INTS:
        PARE_TRY(pare_tensor_new(m, &t, name, PARE_s64, 1, &count, a->ints));
        break;
    default: break;
    }
    *out = t;
    return PARE_OK;
}

/* Shape (15): dims start .. end of the input, both held inside [0, rank]. */
static pare_status shape_content(const pare_node *node, pare_tensor **out)
{
    const pare_shape *s = &node->in[0]->shape;
    pare_tensor *t;
    if (s->rank < 0) return PARE_OK;
    int64_t start = pare_node_int(node, "start", 0), end = pare_node_int(node, "end", s->rank);
    start = start < 0 ? start + s->rank : start;
    end = end < 0 ? end + s->rank : end;
    start = start < 0 ? 0 : start > s->rank ? s->rank : start;
    end = end < start ? start : end > s->rank ? s->rank : end;
    for (int64_t i = start; i < end; i++)
        if (s->dim[i] < 0) return PARE_OK;
    PARE_TRY(pare_tensor_new(node->graph->model, &t, node->out[0]->name, PARE_s64, 1,
                             &(int64_t){end - start}, s->dim + start));
    *out = t;
    return PARE_OK;
}

static pare_status size_content(const pare_node *node, pare_tensor **out)
{
    int64_t count = pare_shape_count(&node->in[0]->shape);
    pare_tensor *t;
    if (count < 0) return PARE_OK;
    PARE_TRY(
        pare_tensor_new(node->graph->model, &t, node->out[0]->name, PARE_s64, 0, &count, &count));
    *out = t;
    return PARE_OK;
}

/* --- nodes that are run --- */

static pare_view view_of(pare_dtype dtype, const pare_shape *shape, const void *data)
{
    pare_view v = {0};
    pare_view_set(&v, dtype, shape, false);
    v.data = (void *)data;
    return v;
}

/* The payload where it is aligned for its type, else a copy: files do not align. */
static const void *aligned(const pare_tensor *t, pare_arena *arena)
{
    size_t size = (size_t)pare_type(t->dtype)->bits / 8;
    if (!t->bytes || size < 2 || (uintptr_t)t->data % size == 0) return t->data;
    return pare_arena_memdup(arena, t->data, t->bytes);
}

/* The plain kernel that takes the node: the definition of correct. */
static const pare_kernel *kernel_for(const pare_op *op, const pare_prep *prep)
{
    const pare_kernel *found = NULL;
    for (int i = 0; op->cpu[i]; i++) {
        bool plain = op->cpu[i]->flags & (PARE_KERNEL_REF | PARE_KERNEL_ALIAS);
        if (plain && (!op->cpu[i]->can || op->cpu[i]->can(prep))) found = op->cpu[i];
    }
    return found;
}

static pare_status kernel_run(const pare_kernel *k, pare_prep *prep)
{
    if (!k->run) {
        memcpy(prep->out[0].data, prep->in[0].data, pare_view_bytes(&prep->out[0]));
        return PARE_OK;
    }
    if (k->prepare) PARE_TRY(k->prepare(prep));
    pare_call call = {.ctx = prep->ctx, .node = prep->node, .in = prep->in, .out = prep->out};
    call.in_count = prep->in_count;
    call.out_count = prep->out_count;
    call.threads = 1;
    call.state = prep->state;
    call.scratch = pare_arena_alloc(prep->arena, prep->scratch + 1, 1);
    pare_status st = call.scratch ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK && k->bind) st = k->bind(&call, prep->arena);
    if (st == PARE_OK) st = k->run(&call);
    if (k->unbind && call.bound) k->unbind(call.bound);
    if (k->release && prep->state) k->release(prep->state);
    return st;
}

/* Runs the node on its constants into fresh tensors; *ran is false where no kernel takes it. */
static pare_status run_into(pare_node *node, pare_tensor **result, bool *ran, pare_arena *arena)
{
    const pare_op *op = pare_op_of(node);
    pare_view *in = pare_arena_alloc(arena, (size_t)node->in_count + 1, sizeof *in);
    pare_view *out = pare_arena_alloc(arena, (size_t)node->out_count + 1, sizeof *out);
    if (!in || !out) return PARE_MEMORY;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (!v) continue;
        in[i] = view_of(v->dtype, &v->shape, aligned(v->data, arena));
        if (v->data->bytes && !in[i].data) return PARE_MEMORY;
    }
    for (int i = 0; i < node->out_count; i++) {
        pare_value *v = node->out[i];
        if (!v) continue;
        out[i] = view_of(v->dtype, &v->shape, NULL);
    }
    pare_prep prep = {
        .ctx = arena->ctx, .node = node, .in = in, .out = out, .threads = 1, .share = -1};
    prep.in_count = node->in_count;
    prep.out_count = node->out_count;
    prep.arena = arena;
    const pare_kernel *k = kernel_for(op, &prep);
    *ran = k != NULL;
    if (!k) return PARE_OK;
    for (int i = 0; i < node->out_count; i++) {
        if (!node->out[i]) continue;
        PARE_TRY(tensor_like(node->out[i], &result[i]));
        out[i].data = (void *)result[i]->data;
    }
    return kernel_run(k, &prep);
}

static bool is_small(const pare_value *v, size_t limit)
{
    size_t bytes;
    return v->dtype && pare_shape_known(&v->shape) &&
           pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes) &&
           (!limit || bytes <= limit);
}

/* Do constants of at least so many bytes leave the graph with the node? */
static bool makes_smaller(const pare_node *node, const pare_value *made)
{
    size_t gone = 0, bytes;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (v && v->data && v->user_count == 1 && !v->is_input && !v->is_output)
            gone += v->data->bytes;
    }
    return is_small(made, 0) &&
           pare_type_bytes(made->dtype, pare_shape_count(&made->shape), &bytes) && bytes <= gone;
}

/* All inputs constant, at least one of them there, all results known in type and size. */
static bool can_run(const pare_node *node, const pare_infer_options *options)
{
    const pare_op *op = pare_op_of(node);
    bool some = false;
    if (!op || !op->cpu[0] || op->cpu[0]->flags & PARE_KERNEL_DRAWS) return false;
    if (pare_node_drops(node)) return false;
    if (options->keep_dequantize && pare_node_is(node, "DequantizeLinear")) return false;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (!v) continue;
        if (!v->data || v->shape.rank < 0 || !pare_type(v->dtype)->bits) return false;
        some = true;
    }
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && !is_small(node->out[i], options->fold_limit) &&
            !(options->fold_smaller && makes_smaller(node, node->out[i])))
            return false;
    for (int i = 0; i < node->attr_count; i++)
        if (node->attr[i].kind == PARE_ATTR_GRAPH || node->attr[i].kind == PARE_ATTR_GRAPHS)
            return false;
    return some;
}

/* --- putting results in place --- */

static bool makes_output(const pare_node *node)
{
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && node->out[i]->is_output) return true;
    return false;
}

/* A node that makes a graph output stays; its users read constants beside it. */
static pare_status replace_beside(pare_node *node, pare_tensor *const *result)
{
    pare_graph *g = node->graph;
    for (int i = 0; i < node->out_count; i++) {
        pare_value *old = node->out[i], *fresh;
        if (!old || !result[i] || !old->user_count) continue;
        const char *name = pare_arena_printf(&g->model->arena, "%s_constant", old->name);
        name = name ? pare_graph_fresh_name(g, name) : NULL;
        if (!name) return PARE_MEMORY;
        result[i]->name = name;
        PARE_TRY(pare_value_new(g, &fresh, name));
        PARE_TRY(pare_value_set_init(fresh, result[i]));
        PARE_TRY(pare_value_replace(old, fresh, false));
    }
    return PARE_OK;
}

static pare_status replace(pare_node *node, pare_tensor *const *result)
{
    pare_graph *g = node->graph;
    pare_value **in = node->in, **out = node->out;
    int in_count = node->in_count, out_count = node->out_count;
    pare_node_remove(node);
    for (int i = 0; i < out_count; i++) {
        if (!out[i] || !result[i]) continue;
        pare_values_remove(&g->info, out[i]);
        if (out[i]->user_count) PARE_TRY(pare_value_set_init(out[i], result[i]));
    }
    for (int i = 0; i < in_count; i++)
        if (in[i] && in[i]->is_init && !in[i]->is_input && !in[i]->user_count && !in[i]->is_output)
            pare_init_remove(in[i]);
    return PARE_OK;
}

/* The content of a node that says it; *content stays NULL for all others. */
static pare_status said_content(const pare_node *node, pare_tensor **content)
{
    if (!node->out[0]) return PARE_OK;
    if (pare_node_is(node, "Constant")) return constant_content(node, content);
    if (pare_node_is(node, "Shape")) return shape_content(node, content);
    if (pare_node_is(node, "Size")) return size_content(node, content);
    return PARE_OK;
}

static bool is_read(const pare_node *node)
{
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && node->out[i]->user_count) return true;
    return false;
}

/* Where the node's results are known now, they become initializers, the node leaves the graph (and
   constants only it read), and *folded is true. Nodes that make a graph output stay;
   what reads their results reads new constants beside them. */
static pare_status fold_node(pare_node *node, const pare_infer_options *options, bool *folded)
{
    enum { MOST = 16 };
    pare_tensor *result[MOST] = {0};
    pare_arena arena;
    bool stays = makes_output(node), done = false;
    *folded = false;
    if (node->out_count < 1 || node->out_count > MOST || (stays && !is_read(node))) return PARE_OK;
    PARE_TRY(said_content(node, result));
    done = result[0] != NULL;
    if (!done && can_run(node, options)) {
        pare_arena_init(&arena, node->graph->model->ctx);
        pare_status st = run_into(node, result, &done, &arena);
        pare_arena_free(&arena);
        PARE_TRY(st);
    }
    if (!done) return PARE_OK;
    *folded = !stays;
    return stays ? replace_beside(node, result) : replace(node, result);
}

/* --- the pass --- */

static pare_status infer_graph(pare_graph *graph, const pare_infer_options *options);

/* Bodies of If, Loop and Scan: their inputs may stay unknown. */
static pare_status infer_bodies(pare_node *node, const pare_infer_options *options)
{
    pare_infer_options body = *options;
    body.lenient = true;
    body.fold = options->fold_bodies;
    bool inferred;
    PARE_TRY(pare_infer_body_inputs(node, infer_graph, &body, &inferred));
    if (inferred && !body.fold) return PARE_OK;
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(infer_graph(attr->graph, &body));
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            PARE_TRY(infer_graph(attr->graphs[i], &body));
    }
    return PARE_OK;
}

static pare_status infer_node(pare_node *node, const pare_infer_options *options)
{
    const pare_op *op = pare_op_of(node);
    PARE_TRY(infer_bodies(node, options));
    if (op) return pare_op_infer(node);
    if (options->lenient) return PARE_OK;
    return PARE_FAIL_NODE(node, UNSUPPORTED, "operator '%s%s%s' is not supported", node->domain,
                          node->domain[0] ? "::" : "", node->op_type);
}

static pare_status infer_graph(pare_graph *graph, const pare_infer_options *options)
{
    for (int n = 0; n < graph->node_count;) {
        pare_node *node = graph->node[n];
        bool folded = false;
        PARE_TRY(infer_node(node, options));
        if (options->fold) PARE_TRY(fold_node(node, options, &folded));
        n += !folded;
    }
    return PARE_OK;
}

pare_status pare_pass_infer(pare_model *model, const pare_infer_options *options)
{
    PARE_TRY(pare_graph_sort(model->graph));
    return infer_graph(model->graph, options);
}
