/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of Gather, GatherElements, GatherND, ScatterND, ScatterElements, OneHot. */
#include "runtime/ops/infer.h"

#include <inttypes.h>

/* Puts dims [from, to) of s at the end of y. */
static void append(pare_shape *y, const pare_shape *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        y->dim[y->rank] = s->dim[i];
        y->name[y->rank++] = s->name[i];
    }
}

static pare_status check_rank(const pare_node *node, int rank)
{
    return rank <= PARE_MAX_RANK
               ? PARE_OK
               : PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %d is above %d", rank, PARE_MAX_RANK);
}

/* Gather 1: data's axis is replaced by the indices' shape. */
pare_status pare_infer_gather(pare_node *node)
{
    pare_value *x, *at;
    int axis;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0)
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.rank >= 0 && at->shape.rank >= 0) {
        PARE_TRY(check_rank(node, x->shape.rank - 1 + at->shape.rank));
        y.rank = 0;
        append(&y, &x->shape, 0, axis);
        append(&y, &at->shape, 0, at->shape.rank);
        append(&y, &x->shape, axis + 1, x->shape.rank);
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* GatherElements and ScatterElements: on every axis but one an index counts for its own position.
 */
static pare_status check_inside(const pare_node *node, const pare_shape *at, const pare_shape *x,
                                int axis)
{
    if (pare_shape_count(at) == 0) return PARE_OK;
    for (int a = 0; a < x->rank; a++)
        if (a != axis && x->dim[a] >= 0 && at->dim[a] > x->dim[a])
            return PARE_FAIL_NODE(node, INPUT, "indices are larger than data on axis %d", a);
    return PARE_OK;
}

/* GatherElements 11: the indices' shape. */
pare_status pare_infer_gather_elements(pare_node *node)
{
    pare_value *x, *at;
    int axis = 0;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    if (x->shape.rank >= 0)
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.rank >= 0 && at->shape.rank >= 0 && x->shape.rank != at->shape.rank)
        return PARE_FAIL_NODE(node, INPUT, "indices have rank %d, expected %d", at->shape.rank,
                              x->shape.rank);
    if (x->shape.rank >= 0 && at->shape.rank >= 0)
        PARE_TRY(check_inside(node, &at->shape, &x->shape, axis));
    pare_infer_out(node, 0, x->dtype, &at->shape);
    return PARE_OK;
}

/* GatherND 12: indices [batch..., more..., k] name slices of data behind batch + k axes. */
pare_status pare_infer_gather_nd(pare_node *node)
{
    pare_value *x, *at;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    pare_shape y = pare_shape_unknown(-1);
    int q = at->shape.rank;
    int64_t batch = pare_node_int(node, "batch_dims", 0);
    if (x->shape.rank >= 0 && q >= 1 && at->shape.dim[q - 1] >= 0) {
        int64_t k = at->shape.dim[q - 1];
        if (batch < 0 || batch >= q || batch + k > x->shape.rank)
            return PARE_FAIL_NODE(node, INPUT,
                                  "%" PRId64 " batch axes and indices of %" PRId64
                                  " values do not fit data of rank %d",
                                  batch, k, x->shape.rank);
        PARE_TRY(check_rank(node, q - 1 + x->shape.rank - (int)(batch + k)));
        y.rank = 0;
        append(&y, &at->shape, 0, q - 1);
        append(&y, &x->shape, (int)(batch + k), x->shape.rank);
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* ScatterND and ScatterElements: data with some elements replaced. */
pare_status pare_infer_scatter(pare_node *node)
{
    pare_value *x, *at, *updates;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    PARE_TRY(pare_infer_need(node, 2, &updates));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    int r = x->shape.rank, q = at->shape.rank, u = updates->shape.rank;
    if (pare_node_is(node, "ScatterND")) {
        int64_t k = q >= 1 ? at->shape.dim[q - 1] : -1;
        if (r >= 0 && k >= 0 && (k > r || (u >= 0 && u != q - 1 + r - k)))
            return PARE_FAIL_NODE(node, INPUT,
                                  "data, indices and updates of ranks %d, %d and %d do "
                                  "not fit each other",
                                  r, q, u);
        for (int i = 0; r >= 0 && k >= 0 && i < u; i++) {
            int64_t n = updates->shape.dim[i];
            int64_t want = i < q - 1 ? at->shape.dim[i] : x->shape.dim[k + i - (q - 1)];
            if (n >= 0 && want >= 0 && n != want)
                return PARE_FAIL_NODE(node, INPUT,
                                      "updates have %" PRId64 " on axis %d, expected %" PRId64, n,
                                      i, want);
        }
    } else {
        int axis = 0;
        if (r >= 0) PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), r, &axis));
        bool equal = pare_shape_equal(&at->shape, &updates->shape);
        if (r >= 0 && q >= 0 && u >= 0 &&
            (q != r || u != r ||
             (!equal && pare_shape_known(&at->shape) && pare_shape_known(&updates->shape))))
            return PARE_FAIL_NODE(node, INPUT,
                                  "indices and updates must have one shape and data's rank");
        if (r >= 0 && q >= 0) PARE_TRY(check_inside(node, &at->shape, &x->shape, axis));
    }
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

/* Inputs indices, depth, values [off, on]; axis is a new one. */
pare_status pare_infer_one_hot(pare_node *node)
{
    pare_value *x;
    const int64_t *depth;
    int count, axis;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints(node, 1, &depth, &count));
    if (depth && (count != 1 || depth[0] < 0))
        return PARE_FAIL_NODE(node, INPUT, "depth must be one value, at least 0");
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0) {
        PARE_TRY(check_rank(node, x->shape.rank + 1));
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank + 1, &axis));
        y.rank = 0;
        append(&y, &x->shape, 0, axis);
        append(&y, &(pare_shape){.rank = 1, .dim = {depth ? depth[0] : -1}}, 0, 1);
        append(&y, &x->shape, axis, x->shape.rank);
    }
    pare_infer_out(node, 0, pare_infer_dtype(node, 2), &y);
    return PARE_OK;
}
