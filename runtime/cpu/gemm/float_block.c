/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/gemm/float_block.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* As in int8_simd.c: assembly keeps each sum in its register. */
#define FMA(sum, a, b, c) __asm__("vfmadd231ps %2, %1, %0" : c(sum) : a, b)

__attribute__((target("avx2,fma"), always_inline)) static inline void
rows_avx2(const pare_float_block *t, int rows)
{
    __m256 s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    const float *x[PARE_TILE_ROWS], *b = t->b;
    const int64_t step = t->step, b_step = t->b_step, acc_step = t->acc_step;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        x[r] = t->row[r];
        s0[r] = t->more ? _mm256_loadu_ps(t->acc + r * acc_step) : _mm256_setzero_ps();
        s1[r] = t->more ? _mm256_loadu_ps(t->acc + r * acc_step + 8) : _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < t->depth; k++, b += b_step) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m256 v = _mm256_broadcast_ss(x[r] + k * step);
            FMA(s0[r], "x"(v), "x"(b0), "+x");
            FMA(s1[r], "x"(v), "x"(b1), "+x");
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_ps(t->acc + r * acc_step, s0[r]);
        _mm256_storeu_ps(t->acc + r * acc_step + 8, s1[r]);
    }
}

__attribute__((target("avx512f"), always_inline)) static inline void
rows_avx512(const pare_float_block *t, int rows)
{
    __m512 s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    const float *x[PARE_TILE_ROWS], *b = t->b;
    const int64_t step = t->step, b_step = t->b_step, acc_step = t->acc_step;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        x[r] = t->row[r];
        s0[r] = t->more ? _mm512_loadu_ps(t->acc + r * acc_step) : _mm512_setzero_ps();
        s1[r] = t->more ? _mm512_loadu_ps(t->acc + r * acc_step + 16) : _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < t->depth; k++, b += b_step) {
        __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 v = _mm512_set1_ps(x[r][k * step]);
            FMA(s0[r], "v"(v), "v"(b0), "+v");
            FMA(s1[r], "v"(v), "v"(b1), "+v");
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_ps(t->acc + r * acc_step, s0[r]);
        _mm512_storeu_ps(t->acc + r * acc_step + 16, s1[r]);
    }
}

/* A copy for each number of rows, so that all sums are registers. */
#define BY_ROWS(name, rows_fn, isa)                                                                \
    __attribute__((target(isa))) static void name(const pare_float_block *t)                       \
    {                                                                                              \
        switch (t->rows) {                                                                         \
        case 1: rows_fn(t, 1); break;                                                              \
        case 2: rows_fn(t, 2); break;                                                              \
        case 3: rows_fn(t, 3); break;                                                              \
        case 4: rows_fn(t, 4); break;                                                              \
        case 5: rows_fn(t, 5); break;                                                              \
        default: rows_fn(t, 6); break;                                                             \
        }                                                                                          \
    }
BY_ROWS(block_avx2, rows_avx2, "avx2,fma")
BY_ROWS(block_avx512, rows_avx512, "avx512f")
#endif

static void block_portable(const pare_float_block *t)
{
    enum { COLUMNS = 16 };
    for (int r = 0; r < t->rows; r++) {
        float sum[COLUMNS], *acc = t->acc + r * t->acc_step;
        for (int j = 0; j < COLUMNS; j++) sum[j] = t->more ? acc[j] : 0;
        for (int64_t k = 0; k < t->depth; k++) {
            const float x = t->row[r][k * t->step], *b = t->b + k * t->b_step;
            for (int j = 0; j < COLUMNS; j++) sum[j] += x * b[j];
        }
        for (int j = 0; j < COLUMNS; j++) acc[j] = sum[j];
    }
}

pare_float_block_fn pare_float_block_of(pare_isa isa, int columns)
{
#if defined(__x86_64__)
    if (columns > 16) return block_avx512;
    if (isa >= PARE_ISA_AVX2) return block_avx2;
#endif
    (void)isa, (void)columns;
    return block_portable;
}
