/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of up to 6 rows x 2 vectors: per pair of the inner axis two loads of B, one broadcast of A
   per row, and two vpmaddwd and vpaddd per row, all sums in registers. */
#include "runtime/cpu/int8_simd.h"
#include "runtime/cpu/int8_rows.h"

#ifdef PARE_INT8_SIMD
#include <immintrin.h>

static inline int32_t pair_at(const int16_t *a)
{
    int32_t v;
    memcpy(&v, a, sizeof v);
    return v;
}

__attribute__((target("avx2"), always_inline)) static inline void
rows_avx2(int32_t *acc, int64_t acc_step, const int16_t *a, int64_t a_step, const int16_t *b,
          int64_t pairs, int rows)
{
    __m256i s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm256_setzero_si256();
    for (int64_t k = 0; k < pairs; k++) {
        __m256i b0 = _mm256_loadu_si256((const __m256i *)(b + k * 32));
        __m256i b1 = _mm256_loadu_si256((const __m256i *)(b + k * 32 + 16));
        for (int r = 0; r < rows; r++) {
            __m256i v = _mm256_set1_epi32(pair_at(a + r * a_step + 2 * k));
            s0[r] = _mm256_add_epi32(s0[r], _mm256_madd_epi16(v, b0));
            s1[r] = _mm256_add_epi32(s1[r], _mm256_madd_epi16(v, b1));
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_si256((__m256i *)(acc + r * acc_step), s0[r]);
        _mm256_storeu_si256((__m256i *)(acc + r * acc_step + 8), s1[r]);
    }
}

__attribute__((target("avx512f,avx512bw"), always_inline)) static inline void
rows_avx512(int32_t *acc, int64_t acc_step, const int16_t *a, int64_t a_step, const int16_t *b,
            int64_t pairs, int rows)
{
    __m512i s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm512_setzero_si512();
    for (int64_t k = 0; k < pairs; k++) {
        __m512i b0 = _mm512_loadu_si512(b + k * 64), b1 = _mm512_loadu_si512(b + k * 64 + 32);
        for (int r = 0; r < rows; r++) {
            __m512i v = _mm512_set1_epi32(pair_at(a + r * a_step + 2 * k));
            s0[r] = _mm512_add_epi32(s0[r], _mm512_madd_epi16(v, b0));
            s1[r] = _mm512_add_epi32(s1[r], _mm512_madd_epi16(v, b1));
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_si512(acc + r * acc_step, s0[r]);
        _mm512_storeu_si512(acc + r * acc_step + 16, s1[r]);
    }
}

/* One copy per number of rows, so that the sums are registers. */
#define BY_ROWS(name, isa)                                                                         \
    __attribute__((target(isa))) void pare_int8_tile_##name(                                       \
        int32_t *acc, int64_t acc_step, const int16_t *a, int64_t a_step, const int16_t *b,        \
        int64_t pairs, int rows)                                                                   \
    {                                                                                              \
        switch (rows) {                                                                            \
        case 1: rows_##name(acc, acc_step, a, a_step, b, pairs, 1); break;                         \
        case 2: rows_##name(acc, acc_step, a, a_step, b, pairs, 2); break;                         \
        case 3: rows_##name(acc, acc_step, a, a_step, b, pairs, 3); break;                         \
        case 4: rows_##name(acc, acc_step, a, a_step, b, pairs, 4); break;                         \
        case 5: rows_##name(acc, acc_step, a, a_step, b, pairs, 5); break;                         \
        default: rows_##name(acc, acc_step, a, a_step, b, pairs, 6); break;                        \
        }                                                                                          \
    }
BY_ROWS(avx2, "avx2")
BY_ROWS(avx512, "avx512f,avx512bw")

__attribute__((target("avx2"), always_inline)) static inline __m256i
load16(const void *x, int64_t at, bool is_signed, __m256i zero)
{
    __m128i v = _mm_loadu_si128((const __m128i *)((const char *)x + at));
    return _mm256_sub_epi16(is_signed ? _mm256_cvtepi8_epi16(v) : _mm256_cvtepu8_epi16(v), zero);
}

__attribute__((target("avx2"), always_inline)) static inline void
dw_rows(int32_t *acc, int64_t n, const void *const *x, int taps, int32_t zero, const int16_t *w,
        bool is_signed)
{
    __m256i z = _mm256_set1_epi16((int16_t)zero);
    for (int64_t c = 0; c < n; c += PARE_DW_LANES, w += PARE_DW_LANES * taps) {
        __m256i s0 = _mm256_setzero_si256(), s1 = s0;
        for (int t = 0; t < taps; t += 2) {
            __m256i a = load16(x[t], c, is_signed, z), b = load16(x[t + 1], c, is_signed, z);
            __m256i w0 = _mm256_loadu_si256((const __m256i *)(w + t * 16));
            __m256i w1 = _mm256_loadu_si256((const __m256i *)(w + t * 16 + 16));
            s0 = _mm256_add_epi32(s0, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w0));
            s1 = _mm256_add_epi32(s1, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w1));
        }
        _mm256_storeu_si256((__m256i *)(acc + c), _mm256_permute2x128_si256(s0, s1, 0x20));
        _mm256_storeu_si256((__m256i *)(acc + c + 8), _mm256_permute2x128_si256(s0, s1, 0x31));
    }
}

/* Reads and writes whole groups of 16 channels: the caller's buffers are that much longer. */
__attribute__((target("avx2"))) void pare_int8_dw_avx2(int32_t *acc, int64_t n,
                                                       const void *const *x, pare_dtype type,
                                                       int taps, int32_t zero, const int16_t *w,
                                                       int64_t channels)
{
    (void)channels;
    if (type == PARE_s8) dw_rows(acc, n, x, taps, zero, w, true);
    else dw_rows(acc, n, x, taps, zero, w, false);
}
#endif
