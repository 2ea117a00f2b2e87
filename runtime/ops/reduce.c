/* SPDX-License-Identifier: Apache-2.0 */
/* Shape and upgrade rules of reductions, ArgMax, ArgMin, CumSum and TopK. */
#include "runtime/ops/reduce.h"

#include <inttypes.h>
#include <string.h>

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
    pare_infer_out(node, 0, x->dtype, &out);
    return PARE_OK;
}

/* ReduceX (1, 11, 13): attribute axes; (18): input 1. ReduceSum took the input from 13 on. */
pare_status pare_up_reduce(pare_node *node, int64_t version)
{
    if (version >= 18 || !pare_node_attr(node, "axes")) return PARE_OK;
    PARE_TRY(pare_up_ints(node, "axes", 1));
    return pare_up_opset(node, 18);
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
pare_status pare_up_top_k(pare_node *node, int64_t version)
{
    if (version >= 10) return PARE_OK;
    int64_t k = pare_node_int(node, "k", 0);
    PARE_TRY(pare_up_constant(node, 1, "k", PARE_s64, 1, &(int64_t){1}, &k));
    pare_node_remove_attr(node, "k");
    return pare_up_opset(node, 10);
}
