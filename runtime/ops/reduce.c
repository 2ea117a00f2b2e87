/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, ArgMax, ArgMin, CumSum, TopK: shapes, version conversion, gradients, prune rules. */
#include "runtime/ops/grad.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/reduce.h"

#include <inttypes.h>

pare_status pare_reduce_set(const pare_node *node, const int64_t *axes, int count, int rank,
                            pare_reduce *out)
{
    *out = (pare_reduce){.known = true};
    out->keepdims = pare_node_int(node, "keepdims", 1) != 0;
    if (count) return pare_infer_axes(node, axes, count, rank, out->axis);
    out->noop = pare_node_int(node, "noop_with_empty_axes", 0) != 0;
    for (int i = 0; i < rank; i++) out->axis[i] = !out->noop;
    return PARE_OK;
}

pare_status pare_reduce_read(const pare_node *node, int rank, pare_reduce *out)
{
    const int64_t *axes;
    int count;
    bool known;
    PARE_TRY(pare_infer_ints_or_attr(node, 1, "axes", &axes, &count, &known));
    if (known) return pare_reduce_set(node, axes, count, rank, out);
    *out = (pare_reduce){.keepdims = pare_node_int(node, "keepdims", 1) != 0};
    return PARE_OK;
}

/* The shape without its reduced axes, or with 1 in their place. */
static pare_shape reduced(const pare_shape *x, const pare_reduce *r)
{
    pare_shape out = {0};
    if (!r->known) return pare_shape_unknown(r->keepdims ? x->rank : -1);
    for (int i = 0; i < x->rank; i++) {
        if (r->axis[i] && !r->keepdims) continue;
        out.dim[out.rank] = r->axis[i] ? 1 : x->dim[i];
        out.name[out.rank++] = r->axis[i] ? NULL : x->name[i];
    }
    return out;
}

pare_dtype pare_reduce_output_type(const pare_node *node, const pare_value *x)
{
    const bool is_short = x->dtype == PARE_f16 || x->dtype == PARE_bf16;
    return is_short && pare_node_int(node, "output_dtype", x->dtype) == PARE_f32 ? PARE_f32
                                                                                 : x->dtype;
}

pare_status pare_infer_reduce(pare_node *node)
{
    pare_value *x;
    pare_reduce r;
    pare_shape out = pare_shape_unknown(-1);
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0) {
        PARE_TRY(pare_reduce_read(node, x->shape.rank, &r));
        out = reduced(&x->shape, &r);
    }
    pare_infer_out(node, 0, pare_reduce_output_type(node, x), &out);
    return PARE_OK;
}

/* ReduceX (1, 11, 13): attribute axes; (18): input 1. ReduceSum took the input from 13 on. */
pare_status pare_upgrade_reduce(pare_node *node, int64_t version)
{
    if (version >= 18 || !pare_node_attr(node, "axes")) return PARE_OK;
    PARE_TRY(pare_upgrade_ints(node, "axes", 1));
    return pare_upgrade_opset(node, 18);
}

pare_status pare_infer_arg_extreme(pare_node *node)
{
    pare_value *x;
    pare_shape out = pare_shape_unknown(-1);
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0) {
        pare_reduce r = {.known = true, .keepdims = pare_node_int(node, "keepdims", 1) != 0};
        int axis;
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
        r.axis[axis] = true;
        out = reduced(&x->shape, &r);
    }
    pare_infer_out(node, 0, PARE_s64, &out);
    return PARE_OK;
}

pare_status pare_infer_cum_sum(pare_node *node)
{
    pare_value *axis;
    PARE_TRY(pare_infer_need(node, 1, &axis));
    return pare_infer_same(node);
}

/* TopK (11): values and s64 indices, K elements along the axis. */
pare_status pare_infer_top_k(pare_node *node)
{
    pare_value *x;
    const int64_t *k;
    int count;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints(node, 1, &k, &count));
    pare_shape out = x->shape;
    if (out.rank >= 0) {
        int axis;
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), out.rank, &axis));
        if (k && (count != 1 || k[0] < 0 || (out.dim[axis] >= 0 && k[0] > out.dim[axis])))
            return PARE_FAIL_NODE(node, INPUT, "K must be one number from 0 to %" PRId64,
                                  out.dim[axis]);
        out.dim[axis] = k ? k[0] : -1;
        out.name[axis] = NULL;
    }
    pare_infer_out(node, 0, x->dtype, &out);
    pare_infer_out(node, 1, PARE_s64, &out);
    return PARE_OK;
}

/* TopK (1): attribute k; (10): input 1 of one element. */
pare_status pare_upgrade_top_k(pare_node *node, int64_t version)
{
    if (version >= 10) return PARE_OK;
    int64_t k = pare_node_int(node, "k", 0);
    PARE_TRY(pare_upgrade_constant(node, 1, "k", PARE_s64, 1, &(int64_t){1}, &k));
    pare_node_remove_attr(node, "k");
    return pare_upgrade_opset(node, 10);
}

typedef struct reduce_parts {
    pare_value *x, *y, *dy; /* y and dy with the reduced axes as 1 */
    int64_t count;          /* elements that one result is made of */
} reduce_parts;

static pare_status reduced_read(pare_grad *g, const pare_node *node, reduce_parts *out)
{
    pare_reduce reduce;
    pare_value *x = node->in[0];
    PARE_TRY(pare_reduce_read(node, x->shape.rank, &reduce));
    if (!reduce.known)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has no gradient rule for axes that are computed");
    pare_shape kept = x->shape;
    *out = (reduce_parts){.x = x, .count = 1};
    for (int i = 0; i < kept.rank; i++)
        if (reduce.axis[i] && !reduce.noop) {
            out->count *= kept.dim[i];
            kept.dim[i] = 1;
        }
    out->dy = pare_grad_reshaped(g, pare_grad_of(g, node->out[0]), &kept);
    out->y = pare_grad_reshaped(g, node->out[0], &kept);
    return g->status;
}

pare_status pare_grad_reduce_sum(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, pare_grad_expanded(g, r.dy, &r.x->shape));
    return g->status;
}

pare_status pare_grad_reduce_mean(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_value *dy = pare_grad_scaled(g, r.dy, 1 / (double)(r.count ? r.count : 1));
    pare_grad_give(g, r.x, pare_grad_expanded(g, dy, &r.x->shape));
    return g->status;
}

/* The largest (smallest) share the gradient where several are equal. */
pare_status pare_grad_reduce_extreme(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    bool axis[PARE_MAX_RANK] = {false};
    PARE_TRY(reduced_read(g, node, &r));
    for (int i = 0; i < r.x->shape.rank; i++) axis[i] = r.y->shape.dim[i] != r.x->shape.dim[i];
    pare_node *cast =
        pare_grad_begin(g, "Cast", (pare_value *[]){PARE_EMIT(g, "Equal", r.x, r.y)}, 1, 1);
    pare_grad_int(g, cast, "to", (int64_t)r.x->dtype);
    pare_value *mask = pare_grad_end(g, cast);
    pare_value *share = PARE_EMIT(g, "Div", r.dy, pare_grad_summed(g, mask, axis));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", mask, share));
    return g->status;
}

pare_status pare_grad_reduce_l1(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", PARE_EMIT(g, "Sign", r.x), r.dy));
    return g->status;
}

/* y = sqrt(sum x^2): dx = dy x / y */
pare_status pare_grad_reduce_l2(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", r.x, PARE_EMIT(g, "Div", r.dy, r.y)));
    return g->status;
}

pare_status pare_grad_reduce_sum_square(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", r.x, pare_grad_scaled(g, r.dy, 2)));
    return g->status;
}

/* y = ln sum x: dx = dy e^-y */
pare_status pare_grad_reduce_log_sum(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_value *inverse = PARE_EMIT(g, "Exp", PARE_EMIT(g, "Neg", r.y));
    pare_grad_give(g, r.x, pare_grad_expanded(g, PARE_EMIT(g, "Mul", r.dy, inverse), &r.x->shape));
    return g->status;
}

/* y = ln sum e^x: dx = dy e^(x - y) */
pare_status pare_grad_reduce_log_sum_exp(pare_grad *g, const pare_node *node)
{
    reduce_parts r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_value *part = PARE_EMIT(g, "Exp", PARE_EMIT(g, "Sub", r.x, r.y));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", part, r.dy));
    return g->status;
}

/* CumSum (11, 14): the axis is an input. */
pare_status pare_prune_bind_cum_sum(const pare_node *node, const pare_prune_binder *binder)
{
    const int64_t *axis;
    int count;
    PARE_TRY(pare_infer_ints(node, 1, &axis, &count));
    if (count != 1) return pare_block_all(binder, node, "its axis is known only while it runs");
    return pare_pass_beside(node, binder, axis[0]);
}

static pare_status bind_reduced(const pare_node *node, const pare_prune_binder *binder,
                                const pare_reduce *r)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    for (int i = 0, to = 0; i < x->shape.rank; i++) {
        if (r->axis[i] && !r->noop) {
            PARE_TRY(pare_block_axis(binder, node, x, i, pare_along));
            to += r->keepdims;
        } else {
            PARE_TRY(pare_bind_axes(binder, node, x, i, y, to++));
        }
    }
    return PARE_OK;
}

/* ReduceSum, ReduceMean ... (1 .. 18). */
pare_status pare_prune_bind_reduce(const pare_node *node, const pare_prune_binder *binder)
{
    pare_reduce r;
    PARE_TRY(pare_reduce_read(node, node->in[0]->shape.rank, &r));
    if (!r.known) return pare_block_all(binder, node, "its axes are known only while it runs");
    return bind_reduced(node, binder, &r);
}

/* ArgMax, ArgMin (1 .. 13). */
pare_status pare_prune_bind_arg_extreme(const pare_node *node, const pare_prune_binder *binder)
{
    pare_reduce r = {.known = true, .keepdims = pare_node_int(node, "keepdims", 1) != 0};
    int axis, rank = node->in[0]->shape.rank;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), rank, &axis));
    r.axis[axis] = true;
    return bind_reduced(node, binder, &r);
}
