/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of operators that make a tensor from little: Constant, Shape, Size, ConstantOfShape,
   Range, EyeLike, NonZero, Trilu. */
#include "runtime/ops/constant.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/reduce.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static pare_status make(pare_arena *arena, pare_dtype dtype, int rank, int64_t count,
                        const void *data, size_t bytes, const pare_tensor **out)
{
    pare_tensor *t = pare_arena_alloc(arena, 1, sizeof *t);
    int64_t *dims = pare_arena_alloc(arena, 1, sizeof *dims);
    if (!t || !dims) return PARE_MEMORY;
    *dims = count;
    *t = (pare_tensor){.name = "",
                       .dtype = dtype,
                       .rank = rank,
                       .dims = dims,
                       .count = count,
                       .bytes = bytes,
                       .encoding = PARE_RAW};
    t->data = pare_arena_memdup(arena, data, bytes);
    *out = t;
    return t->data ? PARE_OK : PARE_MEMORY;
}

pare_status pare_constant_tensor(const pare_node *node, pare_arena *arena, const pare_tensor **out)
{
    static const float zero = 0;
    for (int i = 0; i < node->attr_count; i++) {
        const pare_attr *a = &node->attr[i];
        size_t n = (size_t)a->count;
        if (strncmp(a->name, "value", 5)) continue;
        switch (a->kind) {
        case PARE_ATTR_TENSOR: *out = a->tensor; return PARE_OK;
        case PARE_ATTR_FLOAT: return make(arena, PARE_f32, 0, 1, &a->f, sizeof a->f, out);
        case PARE_ATTR_INT: return make(arena, PARE_s64, 0, 1, &a->i, sizeof a->i, out);
        case PARE_ATTR_STRING: return make(arena, PARE_string, 0, 1, &a->s, sizeof a->s, out);
        case PARE_ATTR_FLOATS:
            return make(arena, PARE_f32, 1, a->count, a->floats, n * sizeof *a->floats, out);
        case PARE_ATTR_INTS:
            return make(arena, PARE_s64, 1, a->count, a->ints, n * sizeof *a->ints, out);
        case PARE_ATTR_STRINGS:
            return make(arena, PARE_string, 1, a->count, a->strings, n * sizeof *a->strings, out);
        default: break;
        }
    }
    if (pare_node_is(node, "ConstantOfShape"))
        return make(arena, PARE_f32, 1, 1, &zero, sizeof zero, out);
    return PARE_FAIL_NODE(node, UNSUPPORTED,
                          "it holds no dense value (sparse constants are not read)");
}

pare_status pare_infer_constant_node(pare_node *node)
{
    const pare_tensor *t;
    PARE_TRY(pare_constant_tensor(node, &node->graph->model->arena, &t));
    if (t->rank > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "its value has rank %d, at most %d can be computed with", t->rank,
                              PARE_MAX_RANK);
    pare_shape s = {.rank = t->rank};
    for (int i = 0; i < t->rank; i++) s.dim[i] = t->dims[i];
    pare_infer_out(node, 0, t->dtype, &s);
    return PARE_OK;
}

pare_status pare_infer_shape_input(const pare_node *node, int i, pare_shape *out)
{
    const int64_t *dims;
    int count;
    PARE_TRY(pare_infer_ints(node, i, &dims, &count));
    const pare_value *v = pare_node_in(node, i);
    if (!dims) {
        bool known = v && v->shape.rank == 1 && v->shape.dim[0] >= 0;
        if (known && v->shape.dim[0] > PARE_MAX_RANK)
            return PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %" PRId64 " is above %d",
                                  v->shape.dim[0], PARE_MAX_RANK);
        *out = pare_shape_unknown(known ? (int)v->shape.dim[0] : -1);
        return PARE_OK;
    }
    if (count > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %d is above %d", count, PARE_MAX_RANK);
    *out = (pare_shape){.rank = count};
    for (int k = 0; k < count; k++) {
        if (dims[k] < 0)
            return PARE_FAIL_NODE(node, INPUT, "shape '%s' has a negative dimension", v->name);
        out->dim[k] = dims[k];
    }
    return PARE_OK;
}

pare_status pare_infer_constant_of_shape(pare_node *node)
{
    const pare_tensor *t;
    pare_shape s;
    PARE_TRY(pare_constant_tensor(node, &node->graph->model->arena, &t));
    if (t->count != 1) return PARE_FAIL_NODE(node, INPUT, "its value must have one element");
    PARE_TRY(pare_infer_shape_input(node, 0, &s));
    pare_infer_out(node, 0, t->dtype, &s);
    return PARE_OK;
}

/* Shape 15: dims [start, end), both clamped. */
pare_status pare_infer_shape(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape s = pare_shape_vector(-1);
    if (x->shape.rank >= 0) {
        int64_t rank = x->shape.rank, start = pare_node_int(node, "start", 0);
        int64_t end = pare_node_int(node, "end", rank);
        if (start < 0) start += rank;
        if (end < 0) end += rank;
        start = start < 0 ? 0 : start > rank ? rank : start;
        end = end < start ? start : end > rank ? rank : end;
        s.dim[0] = end - start;
    }
    pare_infer_out(node, 0, PARE_s64, &s);
    return PARE_OK;
}

pare_status pare_infer_size(pare_node *node)
{
    pare_infer_out(node, 0, PARE_s64, &(pare_shape){.rank = 0});
    return PARE_OK;
}

/* Range 11: max(ceil((limit - start) / delta), 0) values. */
pare_status pare_infer_range(pare_node *node)
{
    const pare_tensor *t[3];
    pare_shape s = pare_shape_vector(-1);
    for (int i = 0; i < 3; i++) t[i] = pare_infer_constant(node, i);
    if (t[0] && t[1] && t[2]) {
        if (t[0]->count != 1 || t[1]->count != 1 || t[2]->count != 1)
            return PARE_FAIL_NODE(node, INPUT, "start, limit and delta must be scalars");
        double start = pare_tensor_number(t[0], 0), limit = pare_tensor_number(t[1], 0);
        double delta = pare_tensor_number(t[2], 0), n = ceil((limit - start) / delta);
        if (delta == 0 || !(n < 0x1p40))
            return PARE_FAIL_NODE(node, INPUT, "a delta of %g from %g to %g has no end", delta,
                                  start, limit);
        s.dim[0] = n > 0 ? (int64_t)n : 0;
    }
    pare_infer_out(node, 0, pare_infer_dtype(node, 0), &s);
    return PARE_OK;
}

pare_status pare_infer_eye_like(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0 && x->shape.rank != 2)
        return PARE_FAIL_NODE(node, INPUT, "its input has rank %d, expected 2", x->shape.rank);
    pare_infer_out(node, 0, (pare_dtype)pare_node_int(node, "dtype", x->dtype), &x->shape);
    return PARE_OK;
}

pare_status pare_infer_non_zero(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape s = pare_shape_unknown(2);
    s.dim[0] = x->shape.rank;
    const pare_tensor *t = pare_infer_constant(node, 0);
    if (t) {
        s.dim[1] = 0;
        for (int64_t i = 0; i < t->count; i++) s.dim[1] += pare_tensor_number(t, i) != 0;
    }
    pare_infer_out(node, 0, PARE_s64, &s);
    return PARE_OK;
}

pare_status pare_infer_trilu(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0 && x->shape.rank < 2)
        return PARE_FAIL_NODE(node, INPUT, "its input has rank %d, expected at least 2",
                              x->shape.rank);
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

/* The triangle that was kept. */
pare_status pare_grad_trilu(pare_grad *g, const pare_node *node)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), pare_node_in(node, 1)};
    pare_node *made = pare_grad_begin(g, "Trilu", in, in[1] ? 2 : 1, 1);
    pare_grad_int(g, made, "upper", pare_node_int(node, "upper", 1));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* Trilu (14) cuts by row and column. */
pare_status pare_prune_bind_trilu(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    PARE_TRY(pare_block_from(binder, node, x, x->shape.rank - 2, pare_along));
    PARE_TRY(pare_block_from(binder, node, y, x->shape.rank - 2, pare_along));
    return pare_bind_range(binder, node, x, 0, x->shape.rank - 2, y, 0);
}
