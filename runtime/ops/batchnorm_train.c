/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization (15) with the statistics of the batch, in parts between which slices of a
   batch are summed up (Ioffe, Szegedy 2015), and its gradient. Over the n elements of a channel,
   with d = X - mean0 for any constant mean0 near the mean:
     BatchNormStats (X, mean0) -> f64 [3, C]         sum d, sum d^2, n
     BatchNormTrain (X, scale, bias, sums, mean0) -> Y      (X - mean) inv scale + bias
     BatchNormGradStats (dY, X, sums, mean0) -> f64 [2, C], dScale, dBias
                                                     sum dY, sum dY (X - mean); the slice's own
     BatchNormGradInput (dY, X, scale, sums, mean0, gsums) -> dX
   mean = mean0 + sum d / n, inv = 1 / sqrt(variance + epsilon), with the variance of the n
   elements, sum d^2 / n - (sum d / n)^2. Attribute epsilon, but for the first. X, Y, dY and dX are
   of one type, f16 and bf16 among them; vectors of channels are of one type, X's or f32. */
#include "runtime/ops/grad.h"

/* A tensor of one axis is one channel. */
static int64_t channels_of(const pare_value *x)
{
    return x->shape.rank == 1 ? 1 : x->shape.rank > 1 ? x->shape.dim[1] : -1;
}

/* Inputs first..last are there. */
static pare_status need(const pare_node *node, int first, int last)
{
    for (int i = first; i <= last; i++) {
        pare_value *v;
        PARE_TRY(pare_infer_need(node, i, &v));
    }
    return PARE_OK;
}

/* f64 [rows, C] of the channels of x. */
static void sums_out(pare_node *node, const pare_value *x, int64_t rows)
{
    pare_shape shape = {.rank = 2, .dim = {rows, channels_of(x)}};
    pare_infer_out(node, 0, PARE_f64, &shape);
}

pare_status pare_infer_batch_norm_stats(pare_node *node)
{
    PARE_TRY(need(node, 0, 1));
    sums_out(node, node->in[0], 3);
    return PARE_OK;
}

pare_status pare_infer_batch_norm_train(pare_node *node)
{
    PARE_TRY(need(node, 0, 4));
    pare_infer_out(node, 0, node->in[0]->dtype, &node->in[0]->shape);
    return PARE_OK;
}

pare_status pare_infer_batch_norm_grad_stats(pare_node *node)
{
    PARE_TRY(need(node, 0, 3));
    const pare_value *x = node->in[1];
    const pare_shape vector = pare_shape_vector(channels_of(x));
    sums_out(node, x, 2);
    pare_infer_out(node, 1, node->in[3]->dtype, &vector);
    pare_infer_out(node, 2, node->in[3]->dtype, &vector);
    return PARE_OK;
}

pare_status pare_infer_batch_norm_grad_input(pare_node *node)
{
    PARE_TRY(need(node, 0, 5));
    pare_infer_out(node, 0, node->in[1]->dtype, &node->in[1]->shape);
    return PARE_OK;
}

/* What X does by way of the sums is part of dX. */
pare_status pare_grad_batch_norm_train(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *scale = node->in[1];
    pare_value *sums = node->in[3], *mean0 = node->in[4];
    float epsilon = pare_node_float(node, "epsilon", 1e-5f);
    pare_node *stats =
        pare_grad_begin(g, "BatchNormGradStats", (pare_value *const[]){dy, x, sums, mean0}, 4, 3);
    pare_grad_float(g, stats, "epsilon", epsilon);
    pare_value *own = pare_grad_end(g, stats);
    if (!own) return g->status;
    pare_grad_give(g, scale, pare_grad_reshaped(g, stats->out[1], &scale->shape));
    pare_grad_give(g, node->in[2], pare_grad_reshaped(g, stats->out[2], &node->in[2]->shape));
    if (!pare_grad_wants(g, x)) return g->status;
    pare_value *in[] = {dy, x, scale, sums, mean0, PARE_EMIT(g, "SliceSum", own)};
    pare_node *input = pare_grad_begin(g, "BatchNormGradInput", in, 6, 1);
    pare_grad_float(g, input, "epsilon", epsilon);
    pare_grad_give(g, x, pare_grad_end(g, input));
    return g->status;
}
