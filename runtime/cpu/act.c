/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/act.h"

#include <math.h>

static float unit(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Formulas of ONNX Relu-14, Clip-13, LeakyRelu-16, Sigmoid-13, Tanh-13, HardSwish-14 (alpha 1/6,
   beta 1/2), HardSigmoid-6, Gelu-20; SiLU is x * sigmoid(x). NaN stays NaN. */
float pare_act_apply(const pare_act *act, float x)
{
    switch (act->kind) {
    case PARE_ACT_RELU:
        return x < 0 ? 0 : x;
    case PARE_ACT_CLIP:
        x = x < act->alpha ? act->alpha : x;
        return x > act->beta ? act->beta : x;
    case PARE_ACT_LEAKY_RELU:
        return x < 0 ? x * act->alpha : x;
    case PARE_ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case PARE_ACT_TANH:
        return tanhf(x);
    case PARE_ACT_SILU:
        return x / (1 + expf(-x));
    case PARE_ACT_HARDSWISH:
        return x * unit(x / 6 + 0.5f);
    case PARE_ACT_HARDSIGMOID:
        return unit(act->alpha * x + act->beta);
    case PARE_ACT_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678f));
    case PARE_ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    default:
        return x;
    }
}
