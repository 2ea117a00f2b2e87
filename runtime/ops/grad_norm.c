/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of softmax and of normalizations, and the shape rules of what they emit:
     SoftmaxGrad (dY, Y) -> dX                      attributes axis, log
     LayerNormGrad (dY, X, scale) -> dX, dScale, dBias    attributes axis, epsilon
     CrossEntropy (logits, labels) -> loss, dlogits  the mean over rows of -log
   softmax(logits)[label]; labels absent: each row's own largest logit */
#include "runtime/ops/grad.h"

#include <string.h>

pare_status pare_grad_softmax(pare_grad *g, const pare_node *node)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), node->out[0]};
    pare_node *made = pare_grad_begin(g, "SoftmaxGrad", in, 2, 1);
    pare_grad_int(g, made, "axis", pare_node_int(node, "axis", -1));
    pare_grad_int(g, made, "log", !strcmp(node->op_type, "LogSoftmax"));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* LayerNormalization (17) with scale and bias of exactly the normalized axes. */
pare_status pare_grad_layer_norm(pare_grad *g, const pare_node *node)
{
    pare_value *x = node->in[0], *scale = node->in[1], *bias = pare_node_in(node, 2);
    pare_value *in[] = {pare_grad_of(g, node->out[0]), x, scale};
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank, &axis));
    int64_t size = pare_shape_product(&x->shape, axis, x->shape.rank);
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] && pare_grad_of(g, node->out[i]))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "it has no gradient rule for its mean and deviation");
    if (pare_shape_count(&scale->shape) != size || (bias && pare_shape_count(&bias->shape) != size))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has no gradient rule for a scale that is stretched");
    if (!in[0]) return g->status;
    pare_node *made = pare_grad_begin(g, "LayerNormGrad", in, 3, 3);
    pare_grad_int(g, made, "axis", axis);
    pare_grad_float(g, made, "epsilon", pare_node_float(node, "epsilon", 1e-5f));
    pare_grad_end(g, made);
    if (g->status != PARE_OK) return g->status;
    pare_grad_give(g, x, made->out[0]);
    pare_grad_give(g, scale, made->out[1]);
    if (bias) pare_grad_give(g, bias, pare_grad_reshaped(g, made->out[2], &bias->shape));
    return g->status;
}

/* A vector (C) as (1, C, 1, ...), to stand against x. */
static pare_value *per_channel(pare_grad *g, pare_value *v, const pare_value *x)
{
    pare_shape shape = {.rank = x->shape.rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = i == 1 ? x->shape.dim[1] : 1;
    return pare_grad_reshaped(g, v, &shape);
}

/* BatchNormalization (15) with the statistics it was trained with, which stay constants:
     Y = (X - mean) inv scale + bias, inv = 1 / sqrt(variance + epsilon) */
pare_status pare_grad_batch_norm(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *scale = node->in[1];
    pare_value *bias = node->in[2], *mean = node->in[3], *variance = node->in[4];
    bool axis[PARE_MAX_RANK] = {true, false, true, true, true, true, true, true};
    if (pare_node_int(node, "training_mode", 0))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule in training mode");
    double epsilon = (double)pare_node_float(node, "epsilon", 1e-5f);
    pare_value *spread =
        PARE_EMIT(g, "Add", variance, pare_grad_number(g, variance->dtype, epsilon));
    pare_value *inv = PARE_EMIT(g, "Reciprocal", PARE_EMIT(g, "Sqrt", spread));
    if (pare_grad_wants(g, x))
        pare_grad_give(g, x,
                       PARE_EMIT(g, "Mul", dy, per_channel(g, PARE_EMIT(g, "Mul", inv, scale), x)));
    if (pare_grad_wants(g, scale)) {
        pare_value *centred = PARE_EMIT(g, "Sub", x, per_channel(g, mean, x));
        pare_value *sum = pare_grad_summed(g, PARE_EMIT(g, "Mul", dy, centred), axis);
        pare_grad_give(g, scale,
                       PARE_EMIT(g, "Mul", pare_grad_reshaped(g, sum, &scale->shape), inv));
    }
    if (pare_grad_wants(g, bias))
        pare_grad_give(g, bias, pare_grad_reshaped(g, pare_grad_summed(g, dy, axis), &bias->shape));
    return g->status;
}

/* --- shapes --- */

pare_status pare_infer_layer_norm_grad(pare_node *node)
{
    pare_value *x, *scale;
    PARE_TRY(pare_infer_need(node, 1, &x));
    PARE_TRY(pare_infer_need(node, 2, &scale));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, x->dtype, &scale->shape);
    pare_infer_out(node, 2, x->dtype, &scale->shape);
    return PARE_OK;
}

pare_status pare_infer_cross_entropy(pare_node *node)
{
    pare_value *x;
    const pare_shape one = {.rank = 0};
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0 && x->shape.rank != 2)
        return PARE_FAIL_NODE(node, INPUT, "its logits have rank %d, expected [rows, classes]",
                              x->shape.rank);
    pare_infer_out(node, 0, x->dtype, &one);
    pare_infer_out(node, 1, x->dtype, &x->shape);
    return PARE_OK;
}
