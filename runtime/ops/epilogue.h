/* SPDX-License-Identifier: Apache-2.0 */
/* What follows an integer sum, exactly as the runtime defines it (one rounding each, in this
   order): v = ((float)acc + b) * m       b: bias, of s32 or f32, as a float
     m = (s_x * s_w) / s_y, or s_x * s_w (see below)
     v = fmaf((float)(r - z_r), s_r / s_y, v)  residual
     v = act(v)                                relu, clip and leaky_relu in steps of y
     y = (int)clamp(rintf(v + (float)z_y), lo, hi)
   Curved activations and f32 outputs work in real units: m = s_x * s_w, the residual is dequantized
   ((r - z_r) * s_r) and added, v = act(v), and an integer output divides by s_y.
   This is the definition of correct on every backend, and on the CPU and the GPU the code itself.
 */
#ifndef PARE_RUNTIME_OPS_EPILOGUE_H
#define PARE_RUNTIME_OPS_EPILOGUE_H

#include "runtime/base/both.h"
#include "runtime/ops/fused.h"

#include <math.h>

PARE_BOTH float pare_act_unit(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

/* Formulas of ONNX Relu-14, Clip-13, LeakyRelu-16, Sigmoid-13, Tanh-13, HardSwish-14 (alpha 1/6,
   beta 1/2), HardSigmoid-6, Gelu-20; SiLU is x * sigmoid(x). NaN stays NaN. */
PARE_BOTH float pare_act_of(pare_act_kind kind, const pare_act *act, float x)
{
    switch (kind) {
    case PARE_ACT_RELU: return x < 0 ? 0 : x;
    case PARE_ACT_CLIP: x = x < act->alpha ? act->alpha : x; return x > act->beta ? act->beta : x;
    case PARE_ACT_LEAKY_RELU: return x < 0 ? x * act->alpha : x;
    case PARE_ACT_SIGMOID: return 1 / (1 + expf(-x));
    case PARE_ACT_TANH: return tanhf(x);
    case PARE_ACT_SILU: return x / (1 + expf(-x));
    case PARE_ACT_HARDSWISH: return x * pare_act_unit(x / 6 + 0.5f);
    case PARE_ACT_HARDSIGMOID: return pare_act_unit(act->alpha * x + act->beta);
    case PARE_ACT_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case PARE_ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    default: return x;
    }
}

PARE_BOTH float pare_act_apply(const pare_act *act, float x)
{
    return pare_act_of(act->kind, act, x);
}

typedef struct pare_epilogue {
    pare_act act;           /* clip's bounds in the units of v */
    bool real, curved;      /* v is in real units; v is divided by y_scale before rounding */
    pare_dtype to, z_type;  /* of y and of the residual, PARE_NOTYPE where there is none */
    float y_scale, z_scale; /* z_scale: what one step of the residual is in units of v */
    float y_zero, low, high;
    int32_t z_zero;
} pare_epilogue;

/* Real units wherever y is f32 or the activation curved. */
static inline void pare_epilogue_init(pare_epilogue *e, const pare_quant_args *q,
                                      const pare_act *act, pare_dtype z_type)
{
    e->act = *act;
    e->to = q->to;
    e->z_type = z_type;
    e->y_scale = q->y_scale;
    e->curved = q->to != PARE_f32 && pare_act_is_curved(act);
    e->real = e->curved || q->to == PARE_f32;
    e->z_scale = z_type == PARE_f32 ? 1 : q->z_scale;
    e->z_zero = z_type == PARE_f32 ? 0 : q->z_zero;
    if (!e->real) {
        e->z_scale = e->z_scale / q->y_scale;
        if (act->kind == PARE_ACT_CLIP) e->act.alpha /= q->y_scale, e->act.beta /= q->y_scale;
    }
    e->y_zero = q->to == PARE_f32 ? 0 : (float)q->y_zero;
    e->low = q->to == PARE_s8 ? -128 : 0;
    e->high = q->to == PARE_s8 ? 127 : 255;
}

/* m of a weight scale. */
static inline float pare_epilogue_scale(const pare_epilogue *e, float x_scale, float w_scale)
{
    return e->real ? x_scale * w_scale : (x_scale * w_scale) / e->y_scale;
}

PARE_BOTH float pare_epilogue_residual(const pare_epilogue *e, float v, const void *z, int64_t i)
{
    if (e->z_type == PARE_NOTYPE) return v;
    if (e->z_type == PARE_f32) {
        float r = ((const float *)z)[i];
        return e->real ? v + r : fmaf(r, e->z_scale, v);
    }
    int32_t r = e->z_type == PARE_s8 ? ((const int8_t *)z)[i] : ((const uint8_t *)z)[i];
    float f = (float)(r - e->z_zero);
    return e->real ? v + f * e->z_scale : fmaf(f, e->z_scale, v);
}

/* What an integer y holds of v behind its activation, as a float. */
PARE_BOTH float pare_epilogue_round(const pare_epilogue *e, float v)
{
    if (e->curved) v /= e->y_scale;
    v = rintf(v + e->y_zero);
    return v < e->low ? e->low : v > e->high ? e->high : v;
}

/* v in units of the epilogue -> what y holds, as a float. */
PARE_BOTH float pare_epilogue_value(const pare_epilogue *e, float v)
{
    if (e->act.kind != PARE_ACT_NONE) v = pare_act_apply(&e->act, v);
    return e->to == PARE_f32 ? v : pare_epilogue_round(e, v);
}

PARE_BOTH void pare_epilogue_store(const pare_epilogue *e, float v, void *y, int64_t i)
{
    v = pare_epilogue_value(e, v);
    if (e->to == PARE_f32)
        ((float *)y)[i] = v;
    else if (e->to == PARE_s8)
        ((int8_t *)y)[i] = (int8_t)v;
    else
        ((uint8_t *)y)[i] = (uint8_t)v;
}

#endif
