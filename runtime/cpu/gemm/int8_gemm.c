/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/cpu/gemm/float_gemm.h"
#include "runtime/cpu/gemm/int8_rows.h"
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

/* v in units of y, before its zero point, or in real units for f32; in place. */
static void act_row(const pare_epilogue *e, int64_t n, float *v)
{
    pare_act_row(&e->act, n, v);
    if (e->curved)
        for (int64_t i = 0; i < n; i++) v[i] /= e->y_scale;
}

static void store_row(const pare_epilogue *e, int64_t n, const float *v, void *y)
{
    if (e->to == PARE_f32)
        memcpy(y, v, (size_t)n * sizeof *v);
    else if (e->to == PARE_s8)
        store_s8(e, n, v, y);
    else
        store_u8(e, n, v, y);
}

/* At most PARE_ROW values to every stride-th element. */
static void scatter_row(const pare_epilogue *e, int64_t n, const float *v, void *y, int64_t stride)
{
    uint8_t bytes[PARE_ROW];
    if (e->to == PARE_f32) {
        for (int64_t i = 0; i < n; i++) ((float *)y)[i * stride] = v[i];
        return;
    }
    store_row(e, n, v, bytes);
    for (int64_t i = 0; i < n; i++) ((uint8_t *)y)[i * stride] = bytes[i];
}

void pare_row_store(const pare_epilogue *e, int64_t n, float *v, void *y, int64_t stride)
{
    act_row(e, n, v);
    if (stride == 1) {
        store_row(e, n, v, y);
        return;
    }
    for (int64_t i = 0; i < n; i += PARE_ROW)
        scatter_row(e, n - i < PARE_ROW ? n - i : PARE_ROW, v + i,
                    pare_element(y, e->to, i * stride), stride);
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

/* The portable tile: same packing, plain C; the compiler turns the inner loop into vectors. */
static void tile_portable(int32_t *acc, int64_t acc_step, const pare_tile *a, const int16_t *b,
                          int64_t blocks)
{
    enum { BLOCK = 16 };
    for (; blocks; blocks--, acc += BLOCK, b += a->runs * a->length * 2 * BLOCK)
        for (int r = 0; r < a->count; r++) {
            int32_t sum[BLOCK] = {0};
            const int16_t *p = b;
            for (int64_t i = 0; i < a->runs; i++) {
                const int16_t *x = (const int16_t *)a->row[r] + a->run[i];
                for (int64_t k = 0; k < a->length; k++, p += 2 * BLOCK) {
                    int32_t a0 = x[2 * k], a1 = x[2 * k + 1];
                    for (int j = 0; j < BLOCK; j++) sum[j] += a0 * p[2 * j] + a1 * p[2 * j + 1];
                }
            }
            memcpy(acc + r * acc_step, sum, sizeof sum);
        }
}

void pare_int8_gemm_init(pare_int8_gemm *g, pare_isa isa, int64_t pairs, int64_t columns)
{
    *g = (pare_int8_gemm){
        .columns = columns, .pairs = pairs, .block = 16, .isa = isa, .tile = tile_portable};
#ifdef PARE_INT8_SIMD
    if (isa >= PARE_ISA_AVX2) g->tile = pare_int8_tile_avx2;
    if (isa >= PARE_ISA_AVX512 && columns > 16) {
        g->tile = pare_int8_tile_avx512;
        g->block = 32;
    }
#endif
    g->blocks = (columns + g->block - 1) / g->block;
}

size_t pare_int8_packed_count(const pare_int8_gemm *g)
{
    return (size_t)(g->blocks * g->block * g->pairs * 2);
}

void pare_int8_widen(int16_t *dst, const void *src, pare_dtype type, int64_t n, int64_t stride,
                     int32_t zero)
{
    const int8_t *s = src;
    const uint8_t *u = src;
    if (stride == 1 && type == PARE_s8)
        pare_widen_s8(dst, s, n, zero);
    else if (stride == 1)
        pare_widen_u8(dst, u, n, zero);
    else if (type == PARE_s8)
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)(s[i * stride] - zero);
    else
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)(u[i * stride] - zero);
}

/* One row of b into one block: to[2 * j] = from[j * column] - zero. */
#define PACK_ROW(name, ctype)                                                                      \
    static void pack_row_##name(int16_t *to, const ctype *from, int64_t n, int64_t column,         \
                                int32_t zero)                                                      \
    {                                                                                              \
        for (int64_t j = 0; j < n; j++) to[2 * j] = (int16_t)(from[j * column] - zero);            \
    }
PACK_ROW(s8, int8_t)
PACK_ROW(u8, uint8_t)

void pare_int8_pack(const pare_int8_gemm *g, int16_t *packed, const void *b, pare_dtype type,
                    int64_t depth, int64_t row, int64_t column, int32_t zero)
{
    memset(packed, 0, pare_int8_packed_count(g) * sizeof *packed);
    for (int64_t first = 0; first < g->columns; first += g->block) {
        int64_t n = g->columns - first < g->block ? g->columns - first : g->block;
        for (int64_t k = 0; k < depth; k++) {
            int16_t *to = packed + first * g->pairs * 2 + k / 2 * 2 * g->block + k % 2;
            int64_t at = k * row + first * column;
            if (type == PARE_s8)
                pack_row_s8(to, (const int8_t *)b + at, n, column, zero);
            else
                pack_row_u8(to, (const uint8_t *)b + at, n, column, zero);
        }
    }
}

void pare_int8_job(const pare_int8_gemm *g, const pare_tile *tile, const int16_t *packed,
                   int64_t from, int64_t to, const pare_int8_tail *tail, int64_t channel)
{
    _Alignas(64) int32_t acc[PARE_TILE_ROWS][PARE_ROW];
    for (int64_t at = from; at < to; at += PARE_ROW) {
        int64_t n = to - at < PARE_ROW ? to - at : PARE_ROW;
        g->tile(acc[0], PARE_ROW, tile, packed + at * g->pairs * 2, (n + g->block - 1) / g->block);
        pare_int8_finish(tail, channel + at, n, acc[0], PARE_ROW, tile, at);
    }
}
