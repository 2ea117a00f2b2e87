/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of fused oneDNN nodes, in the order of epilogue.h: scales, residual sum, activation,
   zero point (applied last by oneDNN itself). */
#include "runtime/cpu/onednn/onednn.h"

/* Appends the activation; scale: 1 / s_y where it is curved and y has 8 bits, else 1. */
static bool append_act(dnnl_post_ops_t ops, const pare_act *act, float scale)
{
    dnnl_alg_kind_t kind = dnnl_alg_kind_undef;
    float alpha = 0, beta = 0;
    switch (act->kind) {
    case PARE_ACT_NONE: return true;
    case PARE_ACT_RELU: kind = dnnl_eltwise_relu; break;
    case PARE_ACT_LEAKY_RELU:
        kind = dnnl_eltwise_relu;
        alpha = act->alpha;
        break;
    case PARE_ACT_CLIP:
        kind = dnnl_eltwise_clip;
        alpha = act->alpha;
        beta = act->beta;
        break;
    case PARE_ACT_SIGMOID: kind = dnnl_eltwise_logistic; break;
    case PARE_ACT_TANH: kind = dnnl_eltwise_tanh; break;
    case PARE_ACT_SILU:
        kind = dnnl_eltwise_swish;
        alpha = 1;
        break;
    case PARE_ACT_HARDSWISH: kind = dnnl_eltwise_hardswish; break;
    case PARE_ACT_GELU: kind = dnnl_eltwise_gelu_erf; break;
    case PARE_ACT_GELU_TANH: kind = dnnl_eltwise_gelu_tanh; break;
    case PARE_ACT_HARDSIGMOID: /* a line, then held in [0, 1] */
        if (dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_linear, act->alpha, act->beta))
            return false;
        kind = dnnl_eltwise_clip, beta = 1;
        break;
    default: return false;
    }
    return dnnl_post_ops_append_eltwise(ops, scale, kind, alpha, beta) == dnnl_success;
}

static bool set_zero_points(dnnl_primitive_attr_t attr, const pare_dnnl_attr *in)
{
    int32_t x = in->q->x_zero, w = in->q->w_zero, y = (int32_t)in->epilogue->y_zero;
    if (x && dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_SRC, 1, 0, &x)) return false;
    if (w && dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_WEIGHTS, 1, 0, &w)) return false;
    return !y || !dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_DST, 1, 0, &y);
}

static bool append_ops(dnnl_post_ops_t ops, const pare_dnnl_attr *in)
{
    const pare_epilogue *e = in->epilogue;
    if (!in->q) {
        if (in->sum && dnnl_post_ops_append_sum(ops, 1)) return false;
        return append_act(ops, in->act, 1);
    }
    if (in->sum && e->to == PARE_f32) {
        if (dnnl_post_ops_append_sum(ops, 1)) return false;
    } else if (in->sum) {
        if (dnnl_post_ops_append_sum_v3(ops, e->z_scale, e->z_zero, pare_dnnl_type(e->z_type)))
            return false;
    }
    return append_act(ops, &e->act, e->curved ? 1 / e->y_scale : 1);
}

bool pare_dnnl_attr_make(const pare_dnnl_attr *in, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    if (dnnl_primitive_attr_create(out)) return false;
    bool ok = !dnnl_post_ops_create(&ops) &&
              !dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    ok = ok && append_ops(ops, in) && !dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ok && in->q)
        ok = set_zero_points(*out, in) &&
             !dnnl_primitive_attr_set_output_scales(*out, in->scale_count, in->mask, in->scale);
    if (ok && !in->q && in->alpha != 1)
        ok = !dnnl_primitive_attr_set_output_scales(*out, 1, 0, &in->alpha);
    if (ops) dnnl_post_ops_destroy(ops);
    if (!ok) dnnl_primitive_attr_destroy(*out);
    return ok;
}
