/* SPDX-License-Identifier: Apache-2.0 */
/* What RNN, GRU and LSTM do to the units of a block, in f32. */
#include "runtime/base/clones.h"
#include "runtime/cpu/recurrent.h"
#include "runtime/cpu/vmath.h"

#define ROW_OF(name, expression)                                                                   \
    PARE_CLONES static void name(float *v, int64_t n, float alpha, float beta)                     \
    {                                                                                              \
        (void)alpha, (void)beta;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = v[i];                                                                  \
            v[i] = expression;                                                                     \
        }                                                                                          \
    }
ROW_OF(row_relu, x > 0 ? x : 0)
ROW_OF(row_tanh, pare_vtanh(x))
ROW_OF(row_sigmoid, pare_vsigmoid(x))
ROW_OF(row_affine, alpha *x + beta)
ROW_OF(row_leaky_relu, x < 0 ? alpha * x : x)
ROW_OF(row_thresholded_relu, x >= alpha ? x : 0)
ROW_OF(row_scaled_tanh, alpha *pare_vtanh(beta *x))
ROW_OF(row_hard_sigmoid, fminf(1, fmaxf(0, alpha *x + beta)))
ROW_OF(row_elu, x < 0 ? alpha * expm1f(x) : x)
ROW_OF(row_softsign, x / (1 + fabsf(x)))
ROW_OF(row_softplus, x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)))

void pare_recurrent_apply(const pare_recurrent_function *f, float *v, int64_t n)
{
    static void (*const rows[PARE_RECURRENT_ACTS])(float *, int64_t, float, float) = {
        [PARE_RECURRENT_RELU] = row_relu,
        [PARE_RECURRENT_TANH] = row_tanh,
        [PARE_RECURRENT_SIGMOID] = row_sigmoid,
        [PARE_RECURRENT_AFFINE] = row_affine,
        [PARE_RECURRENT_LEAKY_RELU] = row_leaky_relu,
        [PARE_RECURRENT_THRESHOLDED_RELU] = row_thresholded_relu,
        [PARE_RECURRENT_SCALED_TANH] = row_scaled_tanh,
        [PARE_RECURRENT_HARD_SIGMOID] = row_hard_sigmoid,
        [PARE_RECURRENT_ELU] = row_elu,
        [PARE_RECURRENT_SOFTSIGN] = row_softsign,
        [PARE_RECURRENT_SOFTPLUS] = row_softplus,
    };
    rows[f->act](v, n, f->alpha, f->beta);
}

void pare_recurrent_clip(float clip, float *v, int64_t n)
{
    if (clip > 0)
        for (int64_t i = 0; i < n; i++) v[i] = fminf(clip, fmaxf(-clip, v[i]));
}

PARE_CLONES_SUMS void pare_lstm_usual(int64_t n, const float *restrict x,
                                      const float *restrict past, float *restrict cell,
                                      float *restrict to)
{
    for (int64_t k = 0; k < n; k++) {
        float i = pare_vsigmoid(x[k] + past[k]), o = pare_vsigmoid(x[n + k] + past[n + k]);
        float f = pare_vsigmoid(x[2 * n + k] + past[2 * n + k]);
        float c = pare_vtanh(x[3 * n + k] + past[3 * n + k]);
        float s = f * cell[k] + i * c;
        cell[k] = s;
        to[k] = pare_vtanh(s) * o;
    }
}

PARE_CLONES_SUMS void pare_gru_usual(int64_t n, const float *restrict x, const float *restrict past,
                                     const float *restrict own, const float *restrict h,
                                     float *restrict to)
{
    for (int64_t k = 0; k < n; k++) {
        float z = pare_vsigmoid(x[k] + past[k]), r = pare_vsigmoid(x[n + k] + past[n + k]);
        float y = pare_vtanh(x[2 * n + k] + r * (past[2 * n + k] + own[k]));
        to[k] = (1 - z) * y + z * h[k];
    }
}
