/* SPDX-License-Identifier: Apache-2.0 */
/* One product that makes several tensors, each quantized with a scale of its own (attention's
   queries, keys and values), becomes one product for each: then every Q folds into its product, and
   nothing of it is ever float.

   Between the product and the parts only data moves: Reshape, Squeeze, Unsqueeze and Transpose,
   then a Split, or Gathers of one index each. The tensor there is followed as a view of the
   product's memory; the axis that is cut must be the outermost of the product's columns. Each part
   is then Reshape, Transpose, Reshape of its own product. */
#include "runtime/passes/int8/fold_qdq.h"

#include <string.h>

enum { PARTS = 8, STEPS = 16 };

/* A tensor as a view of the product's output. */
typedef struct view {
    int rank;
    int64_t dim[PARE_MAX_RANK], stride[PARE_MAX_RANK];
} view;

typedef struct part {
    pare_value *out;      /* what the Split or Gather makes */
    int64_t first, count; /* along the axis that is cut */
    view at;              /* of the value at the end of its moves, in its product's memory */
} part;

typedef struct cut {
    pare_node *product;
    pare_qweight weight;
    bool trans_b;
    int64_t depth, columns;
    view at; /* of the tensor that is cut */
    int axis;
    part part[PARTS];
    int parts;
} cut;

/* --- following the tensor --- */

static void view_init(view *v, const pare_shape *shape)
{
    int64_t stride = 1;
    v->rank = shape->rank;
    for (int i = shape->rank - 1; i >= 0; i--) {
        v->dim[i] = shape->dim[i];
        v->stride[i] = stride;
        stride *= shape->dim[i];
    }
}

/* Axes first .. last - 1 as one: is each as long a step as the next one is whole? */
static bool view_joins(const view *v, int first, int last)
{
    for (int i = first; i + 1 < last; i++)
        if (v->stride[i] != v->dim[i + 1] * v->stride[i + 1]) return false;
    return true;
}

static void view_squeeze(view *v)
{
    int rank = 0;
    for (int i = 0; i < v->rank; i++) {
        if (v->dim[i] == 1) continue;
        v->dim[rank] = v->dim[i];
        v->stride[rank++] = v->stride[i];
    }
    v->rank = rank;
}

/* The same elements with another shape: groups of old and new axes of equal length, the old ones of
   a group without gaps between them; false where there are gaps. */
static bool view_reshape(view *v, const pare_shape *shape)
{
    view old = *v, to = {.rank = shape->rank};
    int from = 0, i = 0;
    view_squeeze(&old);
    while (i < to.rank) {
        int first = from, at = i;
        int64_t have = 1, want = shape->dim[i++];
        while (have != want)
            if (have < want) {
                if (from == old.rank) return false;
                have *= old.dim[from++];
            } else {
                if (i == to.rank) return false;
                want *= shape->dim[i++];
            }
        if (!view_joins(&old, first, from)) return false;
        int64_t stride = from > first ? old.stride[from - 1] : 1;
        for (int k = i - 1; k >= at; k--) {
            to.dim[k] = shape->dim[k];
            to.stride[k] = stride;
            stride *= to.dim[k];
        }
    }
    *v = to;
    return from == old.rank;
}

static bool view_transpose(view *v, const pare_node *node)
{
    int count;
    const int64_t *perm = pare_node_ints(node, "perm", &count);
    view to = {.rank = v->rank};
    if (perm && count != v->rank) return false;
    for (int i = 0; i < v->rank; i++) {
        int64_t from = perm ? perm[i] : v->rank - 1 - i;
        to.dim[i] = v->dim[from];
        to.stride[i] = v->stride[from];
    }
    *v = to;
    return true;
}

static bool only_moves(const pare_node *node)
{
    static const char *const types[] = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (pare_node_is(node, types[i])) return true;
    return false;
}

/* The node that moves a value's elements and nothing else, or NULL. */
static pare_node *mover_of(const pare_value *value)
{
    pare_node *n = pare_value_only_user(value);
    return n && n->graph == value->graph && only_moves(n) && n->in[0] == value ? n : NULL;
}

/* Will the value be an int8 tensor once the pairs have moved? */
static bool is_int8(const pare_value *value)
{
    pare_qparam p;
    for (int step = 0; value && step < STEPS; step++) {
        if (pare_qdq_after(value, &p)) return pare_qparam_is_int8(&p);
        const pare_node *n = value->producer;
        if (!n || !only_moves(n)) return false;
        value = n->in[0];
    }
    return false;
}

/* Follows a tensor and its view as far as elements only move. */
static pare_value *follow(pare_value *y, view *v)
{
    for (int step = 0; step < STEPS; step++) {
        const pare_node *n = mover_of(y);
        if (!n || !pare_shape_known(&n->out[0]->shape)) return y;
        view next = *v;
        bool moved = pare_node_is(n, "Transpose") ? view_transpose(&next, n)
                                                  : view_reshape(&next, &n->out[0]->shape);
        if (!moved) return y;
        *v = next;
        y = n->out[0];
    }
    return y;
}

/* --- the parts --- */

/* Does the part continue to a Q, moved or scaled on the way? */
static bool ends_quantized(const pare_value *value)
{
    for (int step = 0; step < STEPS; step++) {
        pare_qparam p;
        pare_node *n = pare_value_only_user(value);
        if (!n || n->graph != value->graph) return false;
        if (pare_qdq_is_q(n, &p)) return true;
        if (pare_node_is(n, "Mul") && n->in_count == 2 && n->in[n->in[0] == value]->data)
            value = n->out[0];
        else if (mover_of(value))
            value = n->out[0];
        else
            return false;
    }
    return false;
}

static bool read_split(cut *c, const pare_node *split)
{
    int64_t first = 0;
    c->axis = pare_node_axis(split, 0, c->at.rank);
    if (c->axis < 0 || c->axis >= c->at.rank || split->out_count > PARTS) return false;
    for (int i = 0; i < split->out_count; i++) {
        pare_value *out = split->out[i];
        if (!out || !pare_shape_known(&out->shape) || out->shape.rank != c->at.rank) return false;
        int64_t count = out->shape.dim[c->axis];
        c->part[c->parts++] = (part){.out = out, .first = first, .count = count};
        first += count;
    }
    return first == c->at.dim[c->axis];
}

static bool read_gathers(cut *c, const pare_value *value)
{
    if (value->user_count > PARTS) return false;
    for (int i = 0; i < value->user_count; i++) {
        const pare_node *n = value->user[i];
        const pare_value *index = pare_node_in(n, 1);
        if (!pare_node_is(n, "Gather") || n->in[0] != value || !index || !index->data) return false;
        if (index->data->dtype != PARE_s64 || index->data->count != 1) return false;
        int axis = pare_node_axis(n, 0, c->at.rank);
        if (axis < 0 || axis >= c->at.rank || (i && axis != c->axis)) return false;
        c->axis = axis;
        int64_t at = *(const int64_t *)index->data->data;
        if (at < 0) at += c->at.dim[axis];
        if (at < 0 || at >= c->at.dim[axis] || !pare_shape_known(&n->out[0]->shape)) return false;
        c->part[c->parts++] = (part){.out = n->out[0], .first = at, .count = 1};
    }
    return true;
}

/* The part as a view of its own product, and on to where its moves end. */
static void move_part(const cut *c, part *p)
{
    p->at = c->at;
    p->at.dim[c->axis] = p->count;
    for (int i = 0; i < p->at.rank; i++)
        if (c->at.stride[i] >= c->columns)
            p->at.stride[i] = c->at.stride[i] / c->at.dim[c->axis] * p->count;
    if (!view_reshape(&p->at, &p->out->shape)) return;
    p->out = follow(p->out, &p->at);
}

static bool read_parts(cut *c)
{
    pare_value *y = c->product->out[0];
    view_init(&c->at, &y->shape);
    const pare_value *value = follow(y, &c->at);
    if (value->is_output || value->user_count == 0) return false;
    for (int i = 0; i < value->user_count; i++)
        if (value->user[i]->graph != y->graph) return false;
    const pare_node *split = pare_value_only_user(value);
    bool read =
        split && pare_node_is(split, "Split") ? read_split(c, split) : read_gathers(c, value);
    if (!read || c->parts < 2) return false;
    if (c->at.stride[c->axis] * c->at.dim[c->axis] != c->columns) return false;
    for (int i = 0; i < c->parts; i++)
        if (c->part[i].count < 1 || !ends_quantized(c->part[i].out)) return false;
    for (int i = 0; i < c->parts; i++) move_part(c, &c->part[i]);
    return true;
}

/* A product of an int8 tensor and a constant weight with a float bias, and nothing more. */
static bool read_product(cut *c)
{
    const pare_node *n = c->product;
    bool ours = !strcmp(n->domain, PARE_DOMAIN) && !strcmp(n->op_type, "FusedMatMul");
    bool gemm = pare_node_is(n, "Gemm") && pare_node_float(n, "beta", 1) == 1;
    if (!ours && !gemm && !pare_node_is(n, "MatMul")) return false;
    if (!is_int8(n->in[0]) || !pare_qdq_weight(n->in[1], &c->weight)) return false;
    if (strcmp(pare_node_string(n, "activation", "none"), "none") || pare_node_in(n, 3))
        return false;
    const pare_tensor *w = c->weight.q->data;
    const pare_shape *y = &n->out[0]->shape;
    c->trans_b = pare_node_int(n, "transB", 0) != 0;
    if (w->rank != 2 || !c->weight.centred || w->dtype != PARE_s8 || !pare_shape_known(y))
        return false;
    int axis = c->trans_b ? 0 : 1;
    c->columns = w->dims[axis];
    c->depth = w->dims[1 - axis];
    if (c->weight.count > 1 && c->weight.axis != axis) return false;
    const pare_value *bias = pare_node_in(n, 2);
    return !bias || (bias->data && bias->data->dtype == PARE_f32 &&
                     (bias->data->count == c->columns || bias->data->count == 1));
}

/* --- the products --- */

static pare_status constant(const cut *c, pare_value **out, const char *suffix, pare_dtype dtype,
                            int rank, const int64_t *dims, const void *data)
{
    pare_graph *graph = c->product->graph;
    char *wanted =
        pare_arena_printf(&graph->model->arena, "%s_%s", c->product->out[0]->name, suffix);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    return name ? pare_init_new(graph, out, name, dtype, rank, dims, data) : PARE_MEMORY;
}

/* Columns first .. first + count of the weight, after a DequantizeLinear. */
static pare_status weight_part(const cut *c, int64_t first, int64_t count, pare_value **out)
{
    pare_graph *graph = c->product->graph;
    const int8_t *from = c->weight.q->data->data;
    int8_t *q = pare_arena_alloc(&graph->model->arena, (size_t)(c->depth * count), 1);
    if (!q) return PARE_MEMORY;
    if (c->trans_b) memcpy(q, from + first * c->depth, (size_t)(c->depth * count));
    for (int64_t k = 0; k < c->depth && !c->trans_b; k++)
        memcpy(q + k * count, from + k * c->columns + first, (size_t)count);
    int64_t dims[] = {c->trans_b ? count : c->depth, c->trans_b ? c->depth : count};
    bool whole = c->weight.count == 1;
    pare_value *in[2];
    pare_node *dq;
    PARE_TRY(constant(c, &in[0], "weight", PARE_s8, 2, dims, q));
    PARE_TRY(constant(c, &in[1], "weight_scale", PARE_f32, whole ? 0 : 1, &count,
                      c->weight.scale + (whole ? 0 : first)));
    PARE_TRY(pare_qdq_value(graph, out, in[0], "dequantized", PARE_f32));
    PARE_TRY(pare_node_new(graph, &dq, pare_node_index(c->product), "DequantizeLinear", "",
                           (*out)->name, in, 2, out, 1));
    return pare_node_set_int(dq, "axis", c->trans_b ? 0 : 1);
}

static pare_status product_part(const cut *c, const part *p, pare_value **out)
{
    const pare_node *whole = c->product;
    pare_graph *graph = whole->graph;
    int64_t step = c->at.stride[c->axis], first = p->first * step, count = p->count * step;
    pare_value *in[3] = {whole->in[0], NULL, pare_node_in(whole, 2)};
    pare_node *made;
    PARE_TRY(weight_part(c, first, count, &in[1]));
    if (in[2] && in[2]->data->count > 1)
        PARE_TRY(constant(c, &in[2], "bias", PARE_f32, 1, &count,
                          (const float *)in[2]->data->data + first));
    PARE_TRY(pare_qdq_value(graph, out, p->out, "product", PARE_f32));
    pare_shape shape = whole->out[0]->shape;
    shape.dim[shape.rank - 1] = count;
    pare_value_set_type(*out, PARE_f32, &shape);
    PARE_TRY(pare_node_new(graph, &made, pare_node_index(whole), whole->op_type, whole->domain,
                           (*out)->name, in, in[2] ? 3 : 2, out, 1));
    for (int i = 0; i < whole->attr_count; i++) PARE_TRY(pare_node_set_attr(made, &whole->attr[i]));
    return PARE_OK;
}

/* --- from the product to the part --- */

static pare_status reshape(const cut *c, pare_value *x, pare_value **out, int rank,
                           const int64_t *dims)
{
    pare_graph *graph = c->product->graph;
    pare_value *in[2] = {x};
    pare_shape shape = {.rank = rank};
    memcpy(shape.dim, dims, (size_t)rank * sizeof *dims);
    PARE_TRY(constant(c, &in[1], "shape", PARE_s64, 1, &(int64_t){rank}, dims));
    if (!*out) PARE_TRY(pare_qdq_value(graph, out, x, "reshaped", PARE_f32));
    pare_value_set_type(*out, PARE_f32, &shape);
    return pare_node_new(graph, NULL, pare_node_index(c->product), "Reshape", "", (*out)->name, in,
                         2, out, 1);
}

static pare_status transpose(const cut *c, pare_value *x, pare_value **out, const int64_t *perm)
{
    pare_graph *graph = c->product->graph;
    pare_node *made;
    pare_shape shape = x->shape;
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = x->shape.dim[perm[i]];
    PARE_TRY(pare_qdq_value(graph, out, x, "transposed", PARE_f32));
    pare_value_set_type(*out, PARE_f32, &shape);
    PARE_TRY(pare_node_new(graph, &made, pare_node_index(c->product), "Transpose", "", (*out)->name,
                           &x, 1, out, 1));
    return pare_node_set_ints(made, "perm", perm, shape.rank);
}

/* The view's axes, longest stride first: the order in memory. order[i] is an axis of the view. */
static void memory_order(const view *v, int *order)
{
    for (int i = 0; i < v->rank; i++) {
        int at = i;
        for (; at > 0 && v->stride[order[at - 1]] < v->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

static pare_status emit(const cut *c, const part *p)
{
    const view v = p->at;
    int order[PARE_MAX_RANK];
    int64_t dims[PARE_MAX_RANK], perm[PARE_MAX_RANK];
    bool moved = false;
    memory_order(&v, order);
    for (int i = 0; i < v.rank; i++) {
        dims[i] = v.dim[order[i]];
        perm[order[i]] = i;
        moved = moved || order[i] != i;
    }
    pare_value *y = NULL, *x, *out = p->out;
    pare_shape shape = out->shape;
    PARE_TRY(product_part(c, p, &x));
    PARE_TRY(reshape(c, x, &y, v.rank, dims));
    if (moved) {
        x = y;
        PARE_TRY(transpose(c, x, &y, perm));
    }
    return reshape(c, y, &out, shape.rank, shape.dim);
}

/* What made the part no longer does; without readers it leaves at the next sweep. */
static void release(pare_value *out)
{
    pare_node *maker = out->producer;
    for (int i = 0; i < maker->out_count; i++)
        if (maker->out[i] == out) pare_node_set_out(maker, i, NULL);
}

pare_status pare_qdq_split_outputs(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) {
        cut c = {.product = graph->node[n]};
        if (!read_product(&c) || !read_parts(&c)) continue;
        for (int i = 0; i < c.parts; i++) {
            release(c.part[i].out);
            PARE_TRY(emit(&c, &c.part[i]));
        }
        n = pare_node_index(c.product);
    }
    pare_graph_sweep(graph);
    return PARE_OK;
}
