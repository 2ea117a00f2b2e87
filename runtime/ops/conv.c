/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of Conv, ConvInteger, QLinearConv and ConvTranspose: y [N, M, spatial]. */
#include "runtime/ops/infer.h"
#include "runtime/ops/window.h"

#include <inttypes.h>

/* x [N, C, spatial] against w [M, C / group, kernel]; sets out 0. */
static pare_status infer_conv(pare_node *node, int w_at, int bias_at, pare_dtype dtype)
{
    pare_value *x, *w;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, w_at, &w));
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0 && w->shape.rank >= 0) {
        if (x->shape.rank != w->shape.rank)
            return PARE_FAIL_NODE(node, INPUT,
                                  "input has rank %d and weight rank %d, expected the same",
                                  x->shape.rank, w->shape.rank);
        if (x->shape.rank < 3)
            return PARE_FAIL_NODE(node, INPUT, "input has rank %d, expected N, C and spatial axes",
                                  x->shape.rank);
        int64_t group = pare_node_int(node, "group", 1), c = x->shape.dim[1], m = w->shape.dim[0];
        if (group < 1 || (m >= 0 && m % group))
            return PARE_FAIL_NODE(
                node, INPUT, "group %" PRId64 " does not divide the %" PRId64 " output channels",
                group, m);
        if (c >= 0 && w->shape.dim[1] >= 0 && c != w->shape.dim[1] * group)
            return PARE_FAIL_NODE(
                node, INPUT, "input '%s' has %" PRId64 " channels, weight '%s' expects %" PRId64,
                x->name, c, w->name, w->shape.dim[1] * group);
        pare_value *bias = bias_at >= 0 ? pare_node_in(node, bias_at) : NULL;
        if (bias && m >= 0 && bias->shape.rank >= 0 && pare_shape_count(&bias->shape) >= 0 &&
            pare_shape_count(&bias->shape) != m)
            return PARE_FAIL_NODE(node, INPUT,
                                  "bias '%s' has %" PRId64 " values, expected %" PRId64, bias->name,
                                  pare_shape_count(&bias->shape), m);
        pare_window window;
        PARE_TRY(pare_window_read(node, &x->shape, w->shape.dim + 2, &window));
        y = pare_shape_unknown(x->shape.rank);
        y.dim[0] = x->shape.dim[0];
        y.name[0] = x->shape.name[0];
        y.dim[1] = m;
        for (int i = 0; i < window.nd; i++) y.dim[2 + i] = window.out[3 - window.nd + i];
    }
    pare_infer_out(node, 0, dtype, &y);
    return PARE_OK;
}

pare_status pare_infer_conv(pare_node *node)
{
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    return infer_conv(node, 1, 2, pare_infer_dtype(node, 0));
}

pare_status pare_infer_conv_integer(pare_node *node) { return infer_conv(node, 1, -1, PARE_s32); }

/* Inputs: x, scale, zero point, w, scale, zero point, y scale, y zero point, bias (s32). */
pare_status pare_infer_qlinear_conv(pare_node *node)
{
    return infer_conv(node, 3, 8, pare_infer_dtype(node, 7));
}

/* x [N, C, spatial], w [C, M / group, kernel]. */
pare_status pare_infer_conv_transpose(pare_node *node)
{
    pare_value *x, *w;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &w));
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0 && w->shape.rank >= 0) {
        if (x->shape.rank != w->shape.rank || x->shape.rank < 3)
            return PARE_FAIL_NODE(node, INPUT,
                                  "input has rank %d and weight rank %d, expected the same, "
                                  "at least 3",
                                  x->shape.rank, w->shape.rank);
        int64_t group = pare_node_int(node, "group", 1), c = x->shape.dim[1];
        if (group < 1 || (c >= 0 && (c % group || (w->shape.dim[0] >= 0 && c != w->shape.dim[0]))))
            return PARE_FAIL_NODE(node, INPUT,
                                  "input has %" PRId64 " channels, the weight expects %" PRId64
                                  " in %" PRId64 " groups",
                                  c, w->shape.dim[0], group);
        pare_window window;
        PARE_TRY(pare_window_read_transposed(node, &x->shape, w->shape.dim + 2, &window));
        y = pare_shape_unknown(x->shape.rank);
        y.dim[0] = x->shape.dim[0];
        y.name[0] = x->shape.name[0];
        if (w->shape.dim[1] >= 0) y.dim[1] = w->shape.dim[1] * group;
        for (int i = 0; i < window.nd; i++) y.dim[2 + i] = window.out[3 - window.nd + i];
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

static void weighted(const pare_node *node, int axis, pare_weighted *out)
{
    const pare_value *w = pare_node_in(node, 1);
    *out = (pare_weighted){.x = 0,
                           .w = 1,
                           .bias = pare_node_in(node, 2) ? 2 : -1,
                           .takes = 2,
                           .axis = axis,
                           .alpha = 1,
                           .beta = 1,
                           .constant = w && w->data};
}

pare_status pare_weighted_conv(const pare_node *node, pare_weighted *out)
{
    weighted(node, 0, out);
    return PARE_OK;
}

pare_status pare_weighted_conv_transpose(const pare_node *node, pare_weighted *out)
{
    weighted(node, 1, out);
    return PARE_OK;
}
