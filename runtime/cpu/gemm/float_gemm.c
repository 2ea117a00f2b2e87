/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/gemm/float_gemm.h"
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/vmath.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* As in int8_simd.c: assembly keeps each sum in its register. */
#define FMA(sum, a, b, c) __asm__("vfmadd231ps %2, %1, %0" : c(sum) : a, b)

__attribute__((target("avx2,fma"), always_inline)) static inline void
rows_avx2(float *acc, int64_t acc_step, const pare_tile *a, const float *b, int64_t blocks,
          int rows)
{
    __m256 s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    for (; blocks; blocks--, acc += 16) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm256_setzero_ps();
        for (int64_t i = 0; i < a->runs; i++) {
            const float *x[PARE_TILE_ROWS];
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) x[r] = (const float *)a->row[r] + a->run[i];
            for (int64_t k = 0; k < a->length; k++, b += 16) {
                __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    __m256 v = _mm256_broadcast_ss(x[r] + k * a->step);
                    FMA(s0[r], "x"(v), "x"(b0), "+x");
                    FMA(s1[r], "x"(v), "x"(b1), "+x");
                }
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            _mm256_storeu_ps(acc + r * acc_step, s0[r]);
            _mm256_storeu_ps(acc + r * acc_step + 8, s1[r]);
        }
    }
}

__attribute__((target("avx512f"), always_inline)) static inline void
rows_avx512(float *acc, int64_t acc_step, const pare_tile *a, const float *b, int64_t blocks,
            int rows)
{
    __m512 s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    for (; blocks; blocks--, acc += 32) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm512_setzero_ps();
        for (int64_t i = 0; i < a->runs; i++) {
            const float *x[PARE_TILE_ROWS];
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) x[r] = (const float *)a->row[r] + a->run[i];
            for (int64_t k = 0; k < a->length; k++, b += 32) {
                __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    __m512 v = _mm512_set1_ps(x[r][k * a->step]);
                    FMA(s0[r], "v"(v), "v"(b0), "+v");
                    FMA(s1[r], "v"(v), "v"(b1), "+v");
                }
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            _mm512_storeu_ps(acc + r * acc_step, s0[r]);
            _mm512_storeu_ps(acc + r * acc_step + 16, s1[r]);
        }
    }
}

/* One row has too few sums to keep the multipliers busy: four blocks of columns together. */
enum { TOGETHER = 4 };

__attribute__((target("avx2,fma"))) static void one_row_avx2(float *acc, const pare_tile *a,
                                                             const float *b)
{
    const int64_t step = a->runs * a->length * 16;
    __m256 s[2 * TOGETHER];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * TOGETHER; j++) s[j] = _mm256_setzero_ps();
    for (int64_t i = 0; i < a->runs; i++) {
        const float *x = (const float *)a->row[0] + a->run[i];
        for (int64_t k = 0; k < a->length; k++, b += 16) {
            const __m256 v = _mm256_broadcast_ss(x + k * a->step);
#pragma GCC unroll 8
            for (int j = 0; j < 2 * TOGETHER; j++) {
                __m256 w = _mm256_loadu_ps(b + j / 2 * step + j % 2 * 8);
                FMA(s[j], "x"(v), "x"(w), "+x");
            }
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 2 * TOGETHER; j++) _mm256_storeu_ps(acc + j * 8, s[j]);
}

__attribute__((target("avx512f"))) static void one_row_avx512(float *acc, const pare_tile *a,
                                                              const float *b)
{
    const int64_t step = a->runs * a->length * 32;
    __m512 s[2 * TOGETHER];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * TOGETHER; j++) s[j] = _mm512_setzero_ps();
    for (int64_t i = 0; i < a->runs; i++) {
        const float *x = (const float *)a->row[0] + a->run[i];
        for (int64_t k = 0; k < a->length; k++, b += 32) {
            const __m512 v = _mm512_set1_ps(x[k * a->step]);
#pragma GCC unroll 8
            for (int j = 0; j < 2 * TOGETHER; j++) {
                __m512 w = _mm512_loadu_ps(b + j / 2 * step + j % 2 * 16);
                FMA(s[j], "v"(v), "v"(w), "+v");
            }
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 2 * TOGETHER; j++) _mm512_storeu_ps(acc + j * 16, s[j]);
}

static PARE_TILE_BY_ROWS(many_avx2, rows_avx2, "avx2,fma", float,
                         float) static PARE_TILE_BY_ROWS(many_avx512, rows_avx512, "avx512f", float,
                                                         float)

#define TILE(isa, width)                                                                           \
    static void tile_##isa(float *acc, int64_t acc_step, const pare_tile *a, const float *b,       \
                           int64_t blocks)                                                         \
    {                                                                                              \
        const int64_t step = a->runs * a->length * width;                                          \
        for (; a->count == 1 && blocks >= TOGETHER; blocks -= TOGETHER) {                          \
            one_row_##isa(acc, a, b);                                                              \
            acc += TOGETHER * width;                                                               \
            b += TOGETHER * step;                                                                  \
        }                                                                                          \
        if (blocks) many_##isa(acc, acc_step, a, b, blocks);                                       \
    }
    TILE(avx2, 16) TILE(avx512, 32)
#endif

        static void tile_portable(float *acc, int64_t acc_step, const pare_tile *a, const float *b,
                                  int64_t blocks)
{
    enum { BLOCK = 16 };
    for (; blocks; blocks--, acc += BLOCK, b += a->runs * a->length * BLOCK)
        for (int r = 0; r < a->count; r++) {
            float sum[BLOCK] = {0};
            const float *p = b;
            for (int64_t i = 0; i < a->runs; i++) {
                const float *x = (const float *)a->row[r] + a->run[i];
                for (int64_t k = 0; k < a->length; k++, p += BLOCK)
                    for (int j = 0; j < BLOCK; j++) sum[j] += x[k * a->step] * p[j];
            }
            memcpy(acc + r * acc_step, sum, sizeof sum);
        }
}

void pare_float_gemm_init(pare_float_gemm *g, pare_isa isa, int64_t depth, int64_t columns)
{
    *g = (pare_float_gemm){.columns = columns, .depth = depth, .block = 16, .tile = tile_portable};
#if defined(__x86_64__)
    if (isa >= PARE_ISA_AVX2) g->tile = tile_avx2;
    if (isa >= PARE_ISA_AVX512 && columns > 16) {
        g->tile = tile_avx512;
        g->block = 32;
    }
#else
    (void)isa;
#endif
    g->blocks = (columns + g->block - 1) / g->block;
}

size_t pare_float_packed_count(const pare_float_gemm *g)
{
    return (size_t)(g->blocks * g->block * g->depth);
}

/* --- packing B --- */

enum { SIDE = 8 };
typedef float side __attribute__((vector_size(SIDE * sizeof(float))));

#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

/* Eight rows of eight floats become columns of to. */
PARE_CLONES static void turn_square(float *to, int64_t to_step, const char *from, int64_t step)
{
    side v[SIDE], w[SIDE];
    for (int i = 0; i < SIDE; i++)
        memcpy(&v[i], from + i * step * (int64_t)sizeof *to, sizeof v[i]);
    for (int i = 0; i < SIDE; i += 2) {
        w[i] = MIX(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        w[i + 1] = MIX(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int k = 0; k < 2; k++) {
            v[i + 2 * k] = MIX(w[i + k], w[i + 2 + k], 0, 1, 8, 9, 4, 5, 12, 13);
            v[i + 2 * k + 1] = MIX(w[i + k], w[i + 2 + k], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        w[i] = MIX(v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        w[i + 4] = MIX(v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < SIDE; i++) memcpy(to + i * to_step, &w[i], sizeof w[i]);
}

/* `columns` columns of a block, neighbours of a row `column` elements apart. */
static void pack_any(const pare_float_gemm *g, float *to, const char *b, pare_dtype type,
                     int64_t row, int64_t column, int64_t columns)
{
    for (int64_t k = 0; k < g->depth; k++, to += g->block)
        for (int64_t n = 0; n < g->block; n++)
            to[n] = n < columns ? pare_float_at(b, type, k * row + n * column) : 0;
}

/* Rows that are whole. */
static void pack_rows(const pare_float_gemm *g, float *to, const char *b, int64_t row,
                      int64_t columns)
{
    const size_t bytes = (size_t)columns * sizeof *to;
    if (columns == 16)
        for (int64_t k = 0; k < g->depth; k++, to += g->block)
            memcpy(to, b + k * row * 4, 16 * sizeof *to);
    else
        for (int64_t k = 0; k < g->depth; k++, to += g->block) {
            memcpy(to, b + k * row * 4, bytes);
            memset(to + columns, 0, (size_t)g->block * sizeof *to - bytes);
        }
}

/* Columns that are whole, by squares. */
static void pack_columns(const pare_float_gemm *g, float *to, const char *b, int64_t column,
                         int64_t columns)
{
    const int64_t whole = g->depth / SIDE * SIDE, squares = columns / SIDE * SIDE;
    if (squares < g->block) pack_any(g, to, b, PARE_f32, 1, column, columns);
    for (int64_t k = 0; k < whole; k += SIDE)
        for (int64_t n = 0; n < squares; n += SIDE)
            turn_square(to + k * g->block + n, g->block, b + (n * column + k) * 4, column);
    for (int64_t k = whole; k < g->depth; k++)
        for (int64_t n = 0; n < squares; n++)
            to[k * g->block + n] = pare_float_at(b, PARE_f32, n * column + k);
}

void pare_float_pack(const pare_float_gemm *g, float *packed, const void *b, pare_dtype type,
                     int64_t row, int64_t column)
{
    const int64_t size = pare_type(type)->bits / 8;
    for (int64_t n = 0; n < g->blocks * g->block; n += g->block) {
        const int64_t columns = g->columns - n < g->block ? g->columns - n : g->block;
        const char *from = (const char *)b + n * column * size;
        float *to = packed + n * g->depth;
        if (type == PARE_f32 && column == 1)
            pack_rows(g, to, from, row, columns);
        else if (type == PARE_f32 && row == 1)
            pack_columns(g, to, from, column, columns);
        else
            pack_any(g, to, from, type, row, column, columns);
    }
}

/* --- what follows the sums --- */

#define ACT_ROW(name, formula)                                                                     \
    PARE_CLONES_FMA static void name##_row(int64_t n, float *v, float alpha, float beta)           \
    {                                                                                              \
        (void)alpha, (void)beta;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float x = v[i];                                                                        \
            v[i] = formula;                                                                        \
        }                                                                                          \
    }
static inline float held(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}
ACT_ROW(relu, x < 0 ? 0 : x)
ACT_ROW(clip, held(x, alpha, beta))
ACT_ROW(leaky, x < 0 ? x * alpha : x)
ACT_ROW(sigmoid, pare_vsigmoid(x))
ACT_ROW(tanh, pare_vtanh(x))
ACT_ROW(silu, x *pare_vsigmoid(x))
ACT_ROW(hardswish, x *held(x / 6 + 0.5f, 0, 1))
ACT_ROW(hardsigmoid, held(alpha *x + beta, 0, 1))
ACT_ROW(gelu, pare_vgelu(x))
ACT_ROW(gelu_tanh, pare_vgelu_tanh(x))

void pare_act_row(const pare_act *act, int64_t n, float *v)
{
    static void (*const row[PARE_ACT_COUNT])(int64_t n, float *v, float alpha, float beta) = {
        [PARE_ACT_RELU] = relu_row,           [PARE_ACT_CLIP] = clip_row,
        [PARE_ACT_LEAKY_RELU] = leaky_row,    [PARE_ACT_SIGMOID] = sigmoid_row,
        [PARE_ACT_TANH] = tanh_row,           [PARE_ACT_SILU] = silu_row,
        [PARE_ACT_HARDSWISH] = hardswish_row, [PARE_ACT_HARDSIGMOID] = hardsigmoid_row,
        [PARE_ACT_GELU] = gelu_row,           [PARE_ACT_GELU_TANH] = gelu_tanh_row};
    if (row[act->kind]) row[act->kind](n, v, act->alpha, act->beta);
}

/* Elements of one type as floats, and back. */
PARE_CLONES static void f8e4m3_values(float *restrict to, const uint8_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = pare_f8e4m3_value(from[i]);
}

void pare_float_row(float *to, const void *data, pare_dtype type, int64_t from, int64_t n,
                    int64_t stride)
{
    if (type == PARE_f32 && stride == 1)
        memcpy(to, (const float *)data + from, (size_t)n * sizeof *to);
    else if (type == PARE_f8e4m3 && stride == 1)
        f8e4m3_values(to, (const uint8_t *)data + from, n);
    else
        for (int64_t i = 0; i < n; i++) to[i] = pare_float_at(data, type, from + i * stride);
}

static void row_store(pare_dtype type, int64_t n, float *v, void *y, int64_t step)
{
    if (type == PARE_f32 && step == 1) {
        if (y != v) memcpy(y, v, (size_t)n * sizeof *v);
    } else if (type == PARE_f32)
        for (int64_t i = 0; i < n; i++) ((float *)y)[i * step] = v[i];
    else if (pare_type_is_f8(type))
        for (int64_t i = 0; i < n; i++) ((uint8_t *)y)[i * step] = pare_f8_code(type, v[i]);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)y)[i * step] =
                type == PARE_f16 ? pare_f32_to_f16(v[i]) : pare_f32_to_bf16(v[i]);
}

/* Of factors of FP8. */
static void f8_row(const pare_float_tail *t, int64_t channel, int64_t n, float *v, const void *z,
                   int64_t z_step)
{
    const pare_epilogue *e = t->f8;
    const float *scale = t->scale + channel, *bias = t->bias;
    for (int64_t i = 0; i < n; i++) v[i] = (v[i] + (bias ? bias[channel + i] : 0)) * scale[i];
    if (z)
        for (int64_t i = 0; i < n; i++)
            v[i] = pare_f8_residual(e, v[i], pare_float_at(z, e->z_type, i * z_step));
    pare_act_row(&e->act, n, v);
    if (e->curved)
        for (int64_t i = 0; i < n; i++) v[i] /= e->y_scale;
}

static void float_row(const pare_float_tail *t, int64_t channel, int64_t n, float *sum,
                      const void *z, int64_t z_step)
{
    if (t->alpha != 1)
        for (int64_t i = 0; i < n; i++) sum[i] *= t->alpha;
    if (t->bias && t->type == PARE_f32 && t->bias_step && t->beta == 1) {
        const float *bias = (const float *)t->bias + channel;
        for (int64_t i = 0; i < n; i++) sum[i] += bias[i];
    } else if (t->bias) {
        for (int64_t i = 0; i < n; i++)
            sum[i] += t->beta * pare_float_at(t->bias, t->type, (channel + i) * t->bias_step);
    }
    if (z)
        for (int64_t i = 0; i < n; i++) sum[i] += pare_float_at(z, t->type, i * z_step);
    pare_act_row(&t->act, n, sum);
}

void pare_float_finish(const pare_float_tail *t, int64_t channel, int64_t n, float *acc,
                       int64_t acc_step, const pare_tile *to, int64_t column)
{
    const int64_t size = pare_type(t->type)->bits / 8;
    const int64_t z_size = pare_type(t->f8 ? t->f8->z_type : t->type)->bits / 8;
    for (int r = 0; r < to->count; r++) {
        const char *z = to->z;
        float *sum = acc + r * acc_step;
        if (z) z += (to->z_at[r] + column * to->z_step) * z_size;
        (t->f8 ? f8_row : float_row)(t, channel, n, sum, z, to->z_step);
        row_store(t->type, n, sum, (char *)to->y + (to->y_at[r] + column * to->y_step) * size,
                  to->y_step);
    }
}

void pare_float_job(const pare_float_gemm *g, const pare_tile *tile, const float *packed,
                    int64_t from, int64_t to, const pare_float_tail *tail, int64_t channel)
{
    _Alignas(64) float acc[PARE_TILE_ROWS][PARE_FLOAT_COLUMNS];
    for (int64_t at = from; at < to; at += PARE_FLOAT_COLUMNS) {
        int64_t n = to - at < PARE_FLOAT_COLUMNS ? to - at : PARE_FLOAT_COLUMNS;
        g->tile(acc[0], PARE_FLOAT_COLUMNS, tile, packed + at * g->depth,
                (n + g->block - 1) / g->block);
        pare_float_finish(tail, channel + at, n, acc[0], PARE_FLOAT_COLUMNS, tile, at);
    }
}
