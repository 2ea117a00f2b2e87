/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX Runtime's placement: Q/DQ after every Conv, Gemm, MatMul + Add with its clamp, and from
   every int8 tensor backwards through what can compute on int8: views, pools, joins, additions,
   products. */
#include "quant/internal.h"

static pare_status add_point(pare_quant_scheme *s, pare_value *value)
{
    int at;
    if (!pare_quant_is_activation(value)) return PARE_OK;
    PARE_TRY(pare_quant_point_add(s, value, &at));
    s->point[at].everyone = true;
    return PARE_OK;
}

/* Does a value reach graph outputs only, through nodes that move it? Then it stays float. */
static bool leaves(const pare_value *value)
{
    for (int hops = 0; hops < 64; hops++) {
        if (value->user_count == 0) return true;
        if (value->user_count > 1) return false;
        const pare_node *user = value->user[0];
        if (pare_quant_kind_of(user) != PARE_QUANT_PASS || user->in[0] != value) return false;
        value = user->out[0];
    }
    return false;
}

static pare_status place_job(pare_quant_scheme *s, const pare_quant_job *job)
{
    PARE_TRY(add_point(s, job->node->in[job->part.x]));
    if (!job->part.constant) return add_point(s, job->node->in[job->part.w]);
    pare_value *end = pare_quant_chain_end(job->node);
    return leaves(end) ? PARE_OK : add_point(s, end);
}

/* Two computed tensors of one rank: a factor or addend for all, constant or not, stays float. */
static bool joins_tensors(const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (!pare_quant_is_activation(node->in[i]) || node->in[i]->shape.rank == 0 ||
            node->in[i]->shape.rank != node->in[0]->shape.rank)
            return false;
    return true;
}

/* Inputs of the node that makes an int8 tensor, where that node can compute on int8. */
static pare_status place_before(pare_quant_scheme *s, pare_value *value)
{
    pare_node *node = value->producer;
    if (node && pare_quant_kind_of(node) == PARE_QUANT_CLAMP &&
        pare_value_only_user(node->in[0]) == node)
        node = node->in[0]->producer;
    if (!node || !pare_quant_is_chosen(s, node)) return PARE_OK;
    int first = 0, last = -1;
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_PASS:
    case PARE_QUANT_MEAN: last = 0; break;
    case PARE_QUANT_JOIN: last = node->in_count - 1; break;
    case PARE_QUANT_SUM:
    case PARE_QUANT_PRODUCT:
        if (!joins_tensors(node)) return PARE_OK;
        last = node->in_count - 1;
        break;
    default: break;
    }
    for (int i = first; i <= last && i < node->in_count; i++) PARE_TRY(add_point(s, node->in[i]));
    return PARE_OK;
}

pare_status pare_quant_place_onnxruntime(pare_quant_scheme *s)
{
    for (int i = 0; i < s->job_count; i++) PARE_TRY(place_job(s, &s->job[i]));
    for (int i = 0; i < s->point_count; i++) PARE_TRY(place_before(s, s->point[i].value));
    return PARE_OK;
}
