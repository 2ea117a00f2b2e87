/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax to codes, a row at a time. Maxima are taken in LANES columns, sums of whole numbers in
   any order. */
#include "runtime/cpu/softmax_codes.h"
#include "runtime/base/clones.h"
#include "runtime/ops/softmax_codes.h"

enum { LANES = 16, CHUNK = 256 /* parts whose sum fits into 32 bits */ };

/* The largest of a row. */
PARE_CLONES_FMA static float row_top(const float *x, int64_t n)
{
    float tops[LANES], top = -INFINITY;
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) tops[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) tops[j] = x[i + j] > tops[j] ? x[i + j] : tops[j];
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int j = 0; j < LANES; j++) top = tops[j] > top ? tops[j] : top;
    return top;
}

/* Of a row that is not short. */
PARE_CLONES_FMA static uint64_t long_powers(float *x, int64_t n, float top, float less)
{
    const float low = pare_softmax_low(top), round = pare_softmax_round(top);
    uint64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = pare_softmax_power(x[i] - less, low, round);
        total += pare_softmax_part_of(x[i], n);
    }
    return total;
}

PARE_CLONES_FMA static uint64_t short_powers(float *x, int64_t n, float top, float less)
{
    const float low = pare_softmax_low(top), round = pare_softmax_round(top);
    uint64_t total = 0;
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t end = at + CHUNK < n ? at + CHUNK : n;
        uint32_t part = 0;
        for (int64_t i = at; i < end; i++) {
            x[i] = pare_softmax_power(x[i] - less, low, round);
            part += pare_softmax_part(1.0f + x[i]);
        }
        total += part;
    }
    return total;
}

/* Numbers become exponentials, of which `total` is returned. */
static float row_powers(float *x, int64_t n, float top)
{
    const float less = pare_softmax_less(top);
    const uint64_t sum =
        n > PARE_SOFTMAX_SHORT ? long_powers(x, n, top, less) : short_powers(x, n, top, less);
    return pare_softmax_total(sum, n);
}

PARE_CLONES_FMA static void row_steps(uint8_t *y, const float *x, int64_t n, float c, float most,
                                      float zero)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint8_t)(int32_t)(pare_softmax_step(x[i], c, most) + zero);
}

PARE_CLONES_FMA static void row_times(float *x, int64_t n, float c)
{
    for (int64_t i = 0; i < n; i++) x[i] *= c;
}

void pare_softmax_codes(uint8_t *y, pare_dtype to, float *x, int64_t n, float scale, float zero)
{
    const float top = row_top(x, n), high = to == PARE_s8 ? 127 : 255;
    const float total = row_powers(x, n, top);
    row_steps(y, x, n, pare_softmax_factor(top, total, scale), high - zero, zero);
}

void pare_softmax_probabilities(float *x, int64_t n)
{
    const float top = row_top(x, n), total = row_powers(x, n, top);
    row_times(x, n, pare_softmax_factor(top, total, 1));
}
