/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of convolutions and pools, and the shape rule of the operators they emit:
     ConvGradInput (dY, W) -> dX     attributes of the Conv, `shape` of X
     ConvGradWeight (dY, X) -> dW    attributes of the Conv, `shape` of W
     MaxPoolGrad (dY, X) -> dX       attributes of the MaxPool, `shape` of X; the first maximum
     AveragePoolGrad (dY) -> dX      attributes of the AveragePool, `shape` of X */
#include "runtime/ops/grad.h"
#include "runtime/ops/window.h"

static pare_value *windowed(pare_grad *g, const pare_node *node, const char *op, pare_value *dy,
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
        pare_grad_give(g, x, windowed(g, node, "ConvGradInput", dy, w, &x->shape));
    if (pare_grad_wants(g, w))
        pare_grad_give(g, w, windowed(g, node, "ConvGradWeight", dy, x, &w->shape));
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

/* --- pools --- */

pare_status pare_grad_max_pool(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0];
    if (!dy) return g->status; /* only the indices are read */
    pare_grad_give(g, x, windowed(g, node, "MaxPoolGrad", dy, x, &x->shape));
    return g->status;
}

pare_status pare_grad_average_pool(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0];
    pare_grad_give(g, x, windowed(g, node, "AveragePoolGrad", dy, NULL, &x->shape));
    return g->status;
}

/* One window that is the whole image. */
static pare_status global_pool(pare_grad *g, const pare_node *node, const char *op, bool reads)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), node->in[0]}, *x = node->in[0];
    pare_node *made = pare_grad_begin(g, op, in, reads ? 2 : 1, 1);
    pare_grad_int_list(g, made, "kernel_shape", x->shape.dim + 2, x->shape.rank - 2);
    pare_grad_shape(g, made, &x->shape);
    pare_grad_give(g, x, pare_grad_end(g, made));
    return g->status;
}

pare_status pare_grad_global_max_pool(pare_grad *g, const pare_node *node)
{
    return global_pool(g, node, "MaxPoolGrad", true);
}

pare_status pare_grad_global_average_pool(pare_grad *g, const pare_node *node)
{
    return global_pool(g, node, "AveragePoolGrad", false);
}

/* --- shapes --- */

pare_status pare_infer_shaped_grad(pare_node *node)
{
    pare_value *dy;
    int rank;
    const int64_t *dims = pare_node_ints(node, "shape", &rank);
    pare_shape shape = {.rank = rank};
    PARE_TRY(pare_infer_need(node, 0, &dy));
    if (!dims || rank > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, INPUT, "attribute shape is missing or too long");
    for (int i = 0; i < rank; i++) shape.dim[i] = dims[i];
    pare_infer_out(node, 0, dy->dtype, &shape);
    return PARE_OK;
}
