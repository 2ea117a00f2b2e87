/* SPDX-License-Identifier: Apache-2.0 */
/* TensorRT's placement: Q/DQ on the inputs of weighted nodes and on the skip input of a residual
   addition; nothing between a convolution and the addition it is fused with, nothing around float
   operators, nothing on graph outputs. */
#include "quant/internal.h"

/* The tensor after the addition's clamp, where it has one. */
static const pare_value *behind_clamp(const pare_node *sum)
{
    const pare_value *y = sum->out[0];
    const pare_node *next = pare_value_only_user(y);
    return next && pare_quant_kind_of(next) == PARE_QUANT_CLAMP ? next->out[0] : y;
}

/* The input of a residual addition that is not computed by the weighted node it is fused with, or
   -1. Where two weighted nodes meet, the second input is the skip. */
static int skip_input(pare_quant_scheme *s, const pare_node *sum)
{
    bool main[2];
    for (int i = 0; i < 2; i++)
        main[i] = pare_value_only_user(sum->in[i]) && pare_quant_chain_start(s, sum->in[i]);
    return main[0] ? 1 : main[1] ? 0 : -1;
}

/* A skip tensor is worth its rounding only where the sum, or the tensor itself, is int8 anyway: in
   a float residual stream (LayerNorm after the addition) it stays float. */
static pare_status place_skip(pare_quant_scheme *s, pare_node *sum)
{
    if (sum->in_count != 2 || !pare_quant_is_chosen(s, sum)) return PARE_OK;
    if (!pare_quant_is_activation(sum->in[0]) || !pare_quant_is_activation(sum->in[1]))
        return PARE_OK;
    if (sum->in[0] == sum->in[1] || !pare_shape_equal(&sum->in[0]->shape, &sum->in[1]->shape))
        return PARE_OK;
    int skip = skip_input(s, sum);
    if (skip < 0) return PARE_OK;
    bool is_int8 = pare_quant_point_find(s, behind_clamp(sum)) >= 0 ||
                   pare_quant_point_find(s, sum->in[skip]) >= 0;
    return is_int8 ? pare_quant_use_add(s, sum, skip) : PARE_OK;
}

pare_status pare_quant_place_tensorrt(pare_quant_scheme *s)
{
    for (int i = 0; i < s->job_count; i++) {
        const pare_quant_job *job = &s->job[i];
        PARE_TRY(pare_quant_use_add(s, job->node, job->part.x));
        if (!job->part.constant) PARE_TRY(pare_quant_use_add(s, job->node, job->part.w));
    }
    for (int n = 0; n < s->graph->node_count; n++)
        if (pare_quant_kind_of(s->graph->node[n]) == PARE_QUANT_SUM)
            PARE_TRY(place_skip(s, s->graph->node[n]));
    return PARE_OK;
}
