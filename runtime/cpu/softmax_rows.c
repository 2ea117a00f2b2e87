/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/softmax_rows.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/vmath.h"

enum { LANES = 16, MOST = 2048 };

/* e^(x - top) / sum over whole vectors of x, padded with -Inf; 16 partial maxima and sums, always
   in the same order. */
PARE_CLONES_FMA static void padded_row(float *x, int64_t n)
{
    float tops[LANES], sums[LANES], top = -INFINITY, sum = 0;
    for (int j = 0; j < LANES; j++) tops[j] = -INFINITY, sums[j] = 0;
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) tops[j] = x[i + j] > tops[j] ? x[i + j] : tops[j];
    for (int j = 0; j < LANES; j++) top = tops[j] > top ? tops[j] : top;
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float e = pare_vexp(x[i + j] - top);
            x[i + j] = e;
            sums[j] += e;
        }
    for (int j = 0; j < LANES; j++) sum += sums[j];
    const float scale = 1 / sum;
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

/* Rows too long for the buffer. */
static void long_row(float *x, int64_t n)
{
    float top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) sum += x[i] = pare_vexp(x[i] - top);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

void pare_softmax_rows(float *x, int64_t rows, int64_t n)
{
    float row[MOST];
    int64_t whole = (n + LANES - 1) / LANES * LANES;
    for (int64_t r = 0; r < rows; r++, x += n) {
        if (whole == n)
            padded_row(x, n);
        else if (whole > MOST)
            long_row(x, n);
        else {
            memcpy(row, x, (size_t)n * sizeof *row);
            for (int64_t i = n; i < whole; i++) row[i] = -INFINITY;
            padded_row(row, whole);
            memcpy(x, row, (size_t)n * sizeof *row);
        }
    }
}
