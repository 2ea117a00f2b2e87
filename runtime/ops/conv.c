/* SPDX-License-Identifier: Apache-2.0 */
/* Conv, ConvTranspose and their integer forms: shapes, weights, gradients, prune rules.
   The gradient rules emit
     ConvGradInput (dY, W) -> dX     attributes of the Conv, `shape` of X
     ConvGradWeight (dY, X) -> dW    attributes of the Conv, `shape` of W; dW is of dY's type or of
                                     `output_dtype`
   Pruning: a weight makes the channels of the output along one axis and reads those of the input
   along another. */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/prune_bind.h"
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

pare_value *pare_grad_windowed(pare_grad *g, const pare_node *node, const char *op, pare_value *dy,
                               pare_value *other, const pare_shape *shape)
{
    pare_value *in[] = {dy, other};
    pare_node *made = pare_grad_begin(g, op, in, other ? 2 : 1, 1);
    pare_grad_attrs(g, made, node);
    pare_grad_shape(g, made, shape);
    return pare_grad_end(g, made);
}

/* A bias is added to every position of its channel. */
static void give_bias(pare_grad *g, const pare_value *bias, pare_value *dy)
{
    bool axis[PARE_MAX_RANK] = {true, false, true, true, true, true, true, true};
    if (!pare_grad_wants(g, bias)) return;
    pare_grad_give(g, bias, pare_grad_reshaped(g, pare_grad_summed(g, dy, axis), &bias->shape));
}

pare_status pare_grad_conv(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *w = node->in[1];
    if (pare_grad_wants(g, x))
        pare_grad_give(g, x, pare_grad_windowed(g, node, "ConvGradInput", dy, w, &x->shape));
    if (pare_grad_wants(g, w))
        pare_grad_give(g, w, pare_grad_windowed(g, node, "ConvGradWeight", dy, x, &w->shape));
    give_bias(g, pare_node_in(node, 2), dy);
    return g->status;
}

/* A ConvTranspose is a Conv's gradient, so that its own are that Conv and its weight's gradient. */
pare_status pare_grad_conv_transpose(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *w = node->in[1];
    pare_window window;
    int64_t pads[6];
    PARE_TRY(pare_window_read_transposed(node, &x->shape, w->shape.dim + 2, &window));
    const int first = 3 - window.nd;
    for (int i = 0; i < window.nd; i++) {
        int k = first + i;
        int64_t reach =
            (window.in[k] - 1) * window.stride[k] + (window.kernel[k] - 1) * window.dilation[k] + 1;
        pads[i] = window.begin[k];
        /* below 0 where output_padding made some of dY: the last window leaves that out */
        pads[window.nd + i] =
            reach - window.out[k] - pads[i] > 0 ? reach - window.out[k] - pads[i] : 0;
    }
    pare_node *conv = pare_grad_begin(g, "Conv", (pare_value *[]){dy, w}, 2, 1);
    pare_grad_int(g, conv, "group", pare_node_int(node, "group", 1));
    pare_grad_int_list(g, conv, "strides", window.stride + first, window.nd);
    pare_grad_int_list(g, conv, "dilations", window.dilation + first, window.nd);
    pare_grad_int_list(g, conv, "pads", pads, 2 * window.nd);
    pare_node *dw = NULL;
    if (pare_grad_wants(g, x)) pare_grad_give(g, x, pare_grad_end(g, conv));
    if (pare_grad_wants(g, w)) {
        dw = pare_grad_begin(g, "ConvGradWeight", (pare_value *[]){x, dy}, 2, 1);
        if (conv && dw) pare_grad_attrs(g, dw, conv);
        pare_grad_shape(g, dw, &w->shape);
        pare_grad_give(g, w, pare_grad_end(g, dw));
    }
    give_bias(g, pare_node_in(node, 2), dy);
    return g->status;
}

static const char slides[] = "slides its window over it";

/* The parts of a convolution. A transposed one has its input channels on the weight's axis 0. */
typedef struct conv_parts {
    const pare_value *x, *w, *b, *y;
    int64_t group, in, out; /* input and output channels in each group */
    bool transposed, constant;
} conv_parts;

static conv_parts conv_read(const pare_node *node, const pare_prune_binder *binder, bool transposed)
{
    conv_parts c = {.x = node->in[0], .w = node->in[1], .b = pare_node_in(node, 2)};
    c.y = node->out[0];
    c.group = pare_node_int(node, "group", 1);
    c.in = c.x->shape.dim[1] / c.group;
    c.out = c.y->shape.dim[1] / c.group;
    c.transposed = transposed;
    c.constant = binder->constant(binder->user, c.w);
    return c;
}

/* The weight's channels on axis 1, those of all groups one after the other. */
static pare_axis_span grouped_span(const conv_parts *c)
{
    int64_t n = c->w->shape.dim[1] * c->group;
    return (pare_axis_span){c->w, 1, c->group, 0, n, 1, n};
}

static pare_status conv_work(const pare_node *node, const pare_prune_binder *binder,
                             const conv_parts *c)
{
    const pare_value *over = c->transposed ? c->x : c->y;
    pare_axis_span axis[] = {pare_axis_all(c->w, 0), grouped_span(c)};
    double factor = (double)over->shape.dim[0] / (double)c->group;
    bool depthwise = c->in == 1 && c->group > 1;
    if (depthwise) axis[1] = pare_axis_all(c->w, 1), factor *= (double)c->group;
    for (int i = 2; i < over->shape.rank; i++)
        factor *= (double)over->shape.dim[i] * (double)c->w->shape.dim[i];
    return binder->work(binder->user, node, factor, axis, 2);
}

/* Input channel g with all that it alone makes. */
static pare_status bind_depthwise(const pare_node *node, const pare_prune_binder *binder,
                                  const conv_parts *c)
{
    pare_axis_span x = pare_axis_all(c->x, 1), y = pare_axis_all(c->y, 1);
    y.inner = c->out;
    y.count = c->group;
    PARE_TRY(binder->bind(binder->user, node, &x, &y));
    if (!c->transposed) return pare_bind_axes(binder, node, c->w, 0, c->y, 1);
    PARE_TRY(pare_bind_axes(binder, node, c->w, 0, c->x, 1));
    return pare_block_axis(binder, node, c->w, 1, "makes equally many channels of each group");
}

/* Channels of equal place in their group fall together. */
static pare_status tie_groups(const pare_node *node, const pare_prune_binder *binder,
                              const pare_value *value, int64_t in_group)
{
    pare_axis_span span = pare_axis_all(value, 1);
    span.count = in_group;
    return binder->bind(binder->user, node, &span, &span);
}

/* Several channels a group: either any of them, equally many of each group, or, where the graph
   cannot say so (its groups are joined with other channels), the same places in all groups. */
static pare_status bind_grouped(const pare_node *node, const pare_prune_binder *binder,
                                const conv_parts *c)
{
    const pare_value *plain = c->transposed ? c->x : c->y, *other = c->transposed ? c->y : c->x;
    pare_axis_span w = grouped_span(c), o = pare_axis_all(other, 1);
    PARE_TRY(pare_bind_axes(binder, node, c->w, 0, plain, 1));
    PARE_TRY(binder->bind(binder->user, node, &w, &o));
    if (!c->constant)
        return pare_block_axis(binder, node, c->x, 1, "no constant weight reads its groups");
    PARE_TRY(binder->reads(binder->user, node, c->w, !c->transposed, c->transposed ? 1 : c->group));
    int way = binder->choose(binder->user, node, 0, 2);
    if (way < 0) return PARE_OK;
    if (way == 0) {
        PARE_TRY(binder->even(binder->user, node, c->x, 1, c->group));
        return binder->even(binder->user, node, c->y, 1, c->group);
    }
    PARE_TRY(tie_groups(node, binder, c->x, c->in));
    return tie_groups(node, binder, c->y, c->out);
}

/* Conv (1 .. 22): W [M, C / group, ...]. ConvTranspose (1 .. 22): W [C, M / group, ...]. */
static pare_status bind_conv(const pare_node *node, const pare_prune_binder *binder,
                             bool transposed)
{
    conv_parts c = conv_read(node, binder, transposed);
    PARE_TRY(conv_work(node, binder, &c));
    PARE_TRY(pare_bind_axes(binder, node, c.x, 0, c.y, 0));
    PARE_TRY(pare_block_from(binder, node, c.x, 2, slides));
    PARE_TRY(pare_block_from(binder, node, c.y, 2, slides));
    PARE_TRY(pare_block_from(binder, node, c.w, 2, "is as wide as its window"));
    if (c.b) PARE_TRY(pare_bind_axes(binder, node, c.b, 0, c.y, 1));
    if (c.group > 1 && c.in == 1) return bind_depthwise(node, binder, &c);
    if (c.group > 1) return bind_grouped(node, binder, &c);
    PARE_TRY(pare_bind_axes(binder, node, c.w, transposed, c.y, 1));
    return pare_bind_summed(binder, node, c.x, 1, c.w, !transposed);
}

pare_status pare_prune_bind_conv(const pare_node *node, const pare_prune_binder *binder)
{
    return bind_conv(node, binder, false);
}

pare_status pare_prune_bind_conv_transpose(const pare_node *node, const pare_prune_binder *binder)
{
    return bind_conv(node, binder, true);
}

/* A group of one input channel leaves with it. */
pare_status pare_prune_cut_conv(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0];
    int64_t group = pare_node_int(node, "group", 1);
    if (group == 1 || group != x->shape.dim[1] || !pare_cut_changed(cut, x, 1)) return PARE_OK;
    return pare_node_set_int(node, "group", pare_cut_kept(cut, x, 1));
}
