/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/softmax_rows.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/vmath.h"

/* e^(x - top) / sum; 16 partial maxima and sums a row, always in the same order. */
PARE_CLONES_FMA void pare_softmax_rows(float *x, int64_t rows, int64_t n)
{
    enum { LANES = 16 };
    for (int64_t r = 0; r < rows; r++, x += n) {
        float tops[LANES], sums[LANES], top = -INFINITY, sum = 0;
        int64_t i = 0;
        for (int j = 0; j < LANES; j++) tops[j] = -INFINITY, sums[j] = 0;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) tops[j] = x[i + j] > tops[j] ? x[i + j] : tops[j];
        for (; i < n; i++) top = x[i] > top ? x[i] : top;
        for (int j = 0; j < LANES; j++) top = tops[j] > top ? tops[j] : top;
        for (i = 0; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) {
                float e = pare_vexp(x[i + j] - top);
                x[i + j] = e;
                sums[j] += e;
            }
        for (; i < n; i++) sum += x[i] = pare_vexp(x[i] - top);
        for (int j = 0; j < LANES; j++) sum += sums[j];
        const float scale = 1 / sum;
        for (i = 0; i < n; i++) x[i] *= scale;
    }
}
