/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of up to 6 rows x 2 vectors: per pair of the inner axis two loads of B, one broadcast of A
   per row, and two vpmaddwd and vpaddd per row, all sums in registers. */
#include "runtime/cpu/gemm/int8_simd.h"
#include "runtime/cpu/gemm/int8_rows.h"

#ifdef PARE_INT8_SIMD
#include <immintrin.h>

#include <string.h>

/* sum += pairs of a * b. In assembly so that each sum stays in its register: a compiler that moves
   them about spills twelve of sixteen. */
#define MADD_AVX2(sum, a, b)                                                                       \
    do {                                                                                           \
        __m256i t_;                                                                                \
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"                                         \
                : "+x"(sum), "=&x"(t_)                                                             \
                : "x"(a), "x"(b));                                                                 \
    } while (0)
#define MADD_AVX512(sum, a, b)                                                                     \
    do {                                                                                           \
        __m512i t_;                                                                                \
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"                                         \
                : "+v"(sum), "=&v"(t_)                                                             \
                : "v"(a), "v"(b));                                                                 \
    } while (0)

static inline int32_t pair_at(const int16_t *a)
{
    int32_t v;
    memcpy(&v, a, sizeof v);
    return v;
}

__attribute__((target("avx2"), always_inline)) static inline __m256i load32(const int16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

__attribute__((target("avx2"), always_inline)) static inline void
rows_avx2(int32_t *acc, int64_t acc_step, const pare_tile *a, const int16_t *b, int64_t blocks,
          int rows)
{
    const int16_t *x[PARE_TILE_ROWS];
    __m256i s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    for (; blocks; blocks--, acc += 16) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm256_setzero_si256();
        for (int64_t i = 0; i < a->runs; i++) {
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) x[r] = (const int16_t *)a->row[r] + a->run[i];
            for (int64_t k = 0; k < a->length; k++, b += 32) {
                __m256i b0 = load32(b), b1 = load32(b + 16);
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    __m256i v = _mm256_set1_epi32(pair_at(x[r] + 2 * k));
                    MADD_AVX2(s0[r], v, b0);
                    MADD_AVX2(s1[r], v, b1);
                }
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            _mm256_storeu_si256((__m256i *)(acc + r * acc_step), s0[r]);
            _mm256_storeu_si256((__m256i *)(acc + r * acc_step + 8), s1[r]);
        }
    }
}

__attribute__((target("avx512f,avx512bw"), always_inline)) static inline void
rows_avx512(int32_t *acc, int64_t acc_step, const pare_tile *a, const int16_t *b, int64_t blocks,
            int rows)
{
    const int16_t *x[PARE_TILE_ROWS];
    __m512i s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    for (; blocks; blocks--, acc += 32) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm512_setzero_si512();
        for (int64_t i = 0; i < a->runs; i++) {
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) x[r] = (const int16_t *)a->row[r] + a->run[i];
            for (int64_t k = 0; k < a->length; k++, b += 64) {
                __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 32);
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    __m512i v = _mm512_set1_epi32(pair_at(x[r] + 2 * k));
                    MADD_AVX512(s0[r], v, b0);
                    MADD_AVX512(s1[r], v, b1);
                }
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            _mm512_storeu_si512(acc + r * acc_step, s0[r]);
            _mm512_storeu_si512(acc + r * acc_step + 16, s1[r]);
        }
    }
}

PARE_TILE_BY_ROWS(pare_int8_tile_avx2, rows_avx2, "avx2", int32_t, int16_t)
PARE_TILE_BY_ROWS(pare_int8_tile_avx512, rows_avx512, "avx512f,avx512bw", int32_t, int16_t)

/* QAdd: v = fmaf(b - z_b, factor b, (a - z_a) * factor a), then the epilogue's clamps. */
__attribute__((target("avx2,fma"), always_inline)) static inline __m256
eight(const void *x, int64_t i, bool is_signed, __m256i zero)
{
    __m128i v = _mm_loadl_epi64((const __m128i *)((const char *)x + i));
    __m256i wide = is_signed ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(wide, zero));
}

__attribute__((target("avx2,fma"))) int64_t
pare_int8_add_avx2(const pare_int8_pair *s, int64_t n, const void *a, const void *b, void *y)
{
    const pare_epilogue *e = &s->epilogue;
    bool relu = e->act.kind == PARE_ACT_RELU, clip = e->act.kind == PARE_ACT_CLIP;
    bool sa = s->a_type == PARE_s8, sb = s->b_type == PARE_s8;
    __m256i za = _mm256_set1_epi32(s->a_zero), zb = _mm256_set1_epi32(s->b_zero);
    __m256 ma = _mm256_set1_ps(s->a_factor), mb = _mm256_set1_ps(s->b_factor);
    __m256 zero = _mm256_set1_ps(e->y_zero);
    __m256 low = _mm256_set1_ps(e->low), high = _mm256_set1_ps(e->high);
    __m256 act_low = _mm256_set1_ps(relu ? 0 : clip ? e->act.alpha : -INFINITY);
    __m256 act_high = _mm256_set1_ps(clip ? e->act.beta : INFINITY);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(eight(a, i, sa, za), ma);
        v = _mm256_fmadd_ps(eight(b, i, sb, zb), mb, v);
        v = _mm256_min_ps(_mm256_max_ps(v, act_low), act_high);
        v = _mm256_min_ps(_mm256_max_ps(_mm256_add_ps(v, zero), low), high);
        __m256i whole = _mm256_cvtps_epi32(v);
        __m128i w =
            _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        _mm_storel_epi64((__m128i *)((char *)y + i),
                         e->to == PARE_s8 ? _mm_packs_epi16(w, w) : _mm_packus_epi16(w, w));
    }
    return i;
}

/* 64 entries at a time from a table of 256 in four registers: the upper two bits of an index choose
   the pair and the half. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) int64_t
pare_table_vbmi(const uint8_t *table, int64_t n, const uint8_t *x, uint8_t *y)
{
    __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i v = _mm512_loadu_si512(x + i);
        __m512i low = _mm512_permutex2var_epi8(t0, v, t1),
                high = _mm512_permutex2var_epi8(t2, v, t3);
        _mm512_storeu_si512(y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
    }
    return i;
}
#endif
