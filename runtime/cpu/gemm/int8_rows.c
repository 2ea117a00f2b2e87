/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/gemm/float_gemm.h"
#include "runtime/cpu/gemm/int8_simd.h"

#include <string.h>

#define WIDEN(name, ctype)                                                                         \
    PARE_CLONES_FMA void pare_widen_##name(int16_t *dst, const ctype *x, int64_t n, int32_t zero)  \
    {                                                                                              \
        int16_t z = (int16_t)zero;                                                                 \
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)((int16_t)x[i] - z);                     \
    }
WIDEN(s8, int8_t)
WIDEN(u8, uint8_t)

#define LOAD(name, ctype)                                                                          \
    PARE_CLONES_FMA static void load_##name(float *dst, int64_t n, const ctype *x, int32_t zero)   \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) dst[i] = (float)((int32_t)x[i] - zero);                    \
    }
LOAD(s8, int8_t)
LOAD(u8, uint8_t)

void pare_row_load(float *dst, int64_t n, const void *x, pare_dtype type, int64_t stride,
                   int32_t zero)
{
    if (type == PARE_f32)
        for (int64_t i = 0; i < n; i++) dst[i] = ((const float *)x)[i * stride];
    else if (stride == 1 && type == PARE_s8)
        load_s8(dst, n, x, zero);
    else if (stride == 1)
        load_u8(dst, n, x, zero);
    else if (type == PARE_s8)
        for (int64_t i = 0; i < n; i++) dst[i] = (float)(((const int8_t *)x)[i * stride] - zero);
    else
        for (int64_t i = 0; i < n; i++) dst[i] = (float)(((const uint8_t *)x)[i * stride] - zero);
}

#define STORE(name, ctype)                                                                         \
    PARE_CLONES_FMA static void store_##name(const pare_epilogue *e, int64_t n, const float *v,    \
                                             ctype *y)                                             \
    {                                                                                              \
        float zero = e->y_zero, low = e->low, high = e->high;                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float x = rintf(v[i] + zero);                                                          \
            x = x < low ? low : x;                                                                 \
            y[i] = (ctype)(int32_t)(x > high ? high : x);                                          \
        }                                                                                          \
    }
STORE(s8, int8_t)
STORE(u8, uint8_t)

void pare_row_store(const pare_epilogue *e, int64_t n, float *v, void *y, int64_t stride)
{
    if (stride != 1) {
        for (int64_t i = 0; i < n; i++) pare_epilogue_store(e, v[i], y, i * stride);
        return;
    }
    pare_act_row(&e->act, n, v);
    if (e->to == PARE_f32) {
        memcpy(y, v, (size_t)n * sizeof *v);
        return;
    }
    if (e->curved)
        for (int64_t i = 0; i < n; i++) v[i] /= e->y_scale;
    if (e->to == PARE_s8)
        store_s8(e, n, v, y);
    else
        store_u8(e, n, v, y);
}

void pare_row_table(const uint8_t *table, int64_t n, const uint8_t *x, int64_t xs, uint8_t *y,
                    int64_t ys)
{
    int64_t done = 0;
#ifdef PARE_INT8_SIMD
    if (xs == 1 && ys == 1 && n >= 64 && __builtin_cpu_supports("avx512vbmi"))
        done = pare_table_vbmi(table, n, x, y);
#endif
    if (xs == 1 && ys == 1)
        for (int64_t i = done; i < n; i++) y[i] = table[x[i]];
    else
        for (int64_t i = 0; i < n; i++) y[i * ys] = table[x[i * xs]];
}
