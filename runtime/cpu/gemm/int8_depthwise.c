/* SPDX-License-Identifier: Apache-2.0 */
/* Products channel by channel for depthwise convolutions: two taps are interleaved and multiplied
   into 32 bits at a time, three positions together so that weights are read once. */
#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/cpu/gemm/int8_simd.h"

#include <string.h>

enum { TOGETHER = 3 }; /* positions whose sums fit in registers */

/* Where the interleaving of two vectors leaves a channel: of each 8 lanes the first four in the
   first half of a group's sums, the others in the second. */
static int64_t place_of(int lanes, int64_t channel)
{
    int64_t lane = channel % lanes;
    return channel / lanes * lanes + lane / 4 % 2 * (lanes / 2) + lane / 8 * 4 + lane % 4;
}

static void sums_portable(const pare_int8_dw *d, int32_t *acc, int64_t acc_step,
                          const pare_tile *tile, int64_t from, int64_t n, bool is_signed)
{
    int64_t pairs = (d->taps + 1) / 2;
    for (int r = 0; r < tile->count; r++)
        for (int64_t c = from; c < from + n; c++) {
            int64_t place = place_of(d->lanes, c), group = c / d->lanes;
            const int16_t *w = d->weight + group * pairs * 2 * d->lanes + place % d->lanes * 2;
            int32_t sum = d->start[place];
            for (int64_t t = 0; t < d->taps; t++) {
                const char *x = (const char *)tile->row[r] + tile->run[t] + c;
                int32_t v = is_signed ? *(const int8_t *)x : *(const uint8_t *)x;
                sum += v * w[t / 2 * 2 * d->lanes + t % 2];
            }
            acc[r * acc_step + c - from] = sum;
        }
}

#ifdef PARE_INT8_SIMD
#include <immintrin.h>

__attribute__((target("avx2"), always_inline)) static inline __m256i load16(const char *x,
                                                                            bool is_signed)
{
    __m128i v = _mm_loadu_si128((const __m128i *)x);
    return is_signed ? _mm256_cvtepi8_epi16(v) : _mm256_cvtepu8_epi16(v);
}

/* One group of 16 channels of a few rows. */
__attribute__((target("avx2"), always_inline)) static inline void
group_avx2(const pare_int8_dw *d, int32_t *acc, int64_t acc_step, const pare_tile *tile, int first,
           int64_t c, bool is_signed, int rows)
{
    const __m256i *w = (const __m256i *)(d->weight + c * ((d->taps + 1) / 2 * 2));
    const __m256i *start = (const __m256i *)(d->start + c);
    __m256i s0[TOGETHER], s1[TOGETHER];
    for (int r = 0; r < rows; r++)
        s0[r] = _mm256_loadu_si256(start), s1[r] = _mm256_loadu_si256(start + 1);
    for (int64_t t = 0; t < d->taps; t += 2, w += 2) {
        int64_t one = tile->run[t] + c, two = tile->run[t + 1 < d->taps ? t + 1 : t] + c;
        __m256i w0 = _mm256_loadu_si256(w), w1 = _mm256_loadu_si256(w + 1);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) {
            const char *x = tile->row[first + r];
            __m256i a = load16(x + one, is_signed), b = load16(x + two, is_signed);
            __m256i p0 = _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w0);
            __m256i p1 = _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w1);
            s0[r] = _mm256_add_epi32(s0[r], p0);
            s1[r] = _mm256_add_epi32(s1[r], p1);
        }
    }
    for (int r = 0; r < rows; r++) {
        __m256i *to = (__m256i *)(acc + (first + r) * acc_step);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(s0[r], s1[r], 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(s0[r], s1[r], 0x31));
    }
}

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

VNNI __attribute__((always_inline)) static inline __m512i load32(const char *x, bool is_signed)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)x);
    return is_signed ? _mm512_cvtepi8_epi16(v) : _mm512_cvtepu8_epi16(v);
}

/* One group of 32. */
VNNI __attribute__((always_inline)) static inline void
group_vnni(const pare_int8_dw *d, int32_t *acc, int64_t acc_step, const pare_tile *tile, int first,
           int64_t c, bool is_signed, int rows)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const int16_t *w = d->weight + c * ((d->taps + 1) / 2 * 2);
    __m512i s0[TOGETHER], s1[TOGETHER];
    for (int r = 0; r < rows; r++) {
        s0[r] = _mm512_loadu_si512(d->start + c);
        s1[r] = _mm512_loadu_si512(d->start + c + 16);
    }
    for (int64_t t = 0; t < d->taps; t += 2, w += 64) {
        int64_t one = tile->run[t] + c, two = tile->run[t + 1 < d->taps ? t + 1 : t] + c;
        __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 32);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) {
            const char *x = tile->row[first + r];
            __m512i a = load32(x + one, is_signed), b = load32(x + two, is_signed);
            s0[r] = _mm512_dpwssd_epi32(s0[r], _mm512_unpacklo_epi16(a, b), w0);
            s1[r] = _mm512_dpwssd_epi32(s1[r], _mm512_unpackhi_epi16(a, b), w1);
        }
    }
    for (int r = 0; r < rows; r++) {
        int32_t *to = acc + (first + r) * acc_step;
        _mm512_storeu_si512(to, _mm512_permutex2var_epi32(s0[r], low, s1[r]));
        _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi32(s0[r], high, s1[r]));
    }
}

/* All groups, rows by threes. */
#define SUMS(isa, width, features)                                                                 \
    __attribute__((target(features), always_inline)) static inline void sums_##isa(                \
        const pare_int8_dw *d, int32_t *acc, int64_t acc_step, const pare_tile *tile,              \
        int64_t from, int64_t n, bool is_signed)                                                   \
    {                                                                                              \
        for (int64_t c = from; c < from + n; c += width, acc += width)                             \
            for (int r = 0; r < tile->count; r += TOGETHER) {                                      \
                int left = tile->count - r;                                                        \
                if (left >= TOGETHER)                                                              \
                    group_##isa(d, acc, acc_step, tile, r, c, is_signed, 3);                       \
                else if (left == 2)                                                                \
                    group_##isa(d, acc, acc_step, tile, r, c, is_signed, 2);                       \
                else                                                                               \
                    group_##isa(d, acc, acc_step, tile, r, c, is_signed, 1);                       \
            }                                                                                      \
    }
SUMS(avx2, 16, "avx2")
SUMS(vnni, 32, "avx512f,avx512bw,avx512vl,avx512vnni")
#endif

/* One copy for each type of x. */
#define BY_TYPE(isa, attributes)                                                                   \
    attributes static void isa##_s8(const pare_int8_dw *d, int32_t *acc, int64_t acc_step,         \
                                    const pare_tile *tile, int64_t from, int64_t n)                \
    {                                                                                              \
        sums_##isa(d, acc, acc_step, tile, from, n, true);                                         \
    }                                                                                              \
    attributes static void isa##_u8(const pare_int8_dw *d, int32_t *acc, int64_t acc_step,         \
                                    const pare_tile *tile, int64_t from, int64_t n)                \
    {                                                                                              \
        sums_##isa(d, acc, acc_step, tile, from, n, false);                                        \
    }
BY_TYPE(portable, )
#ifdef PARE_INT8_SIMD
BY_TYPE(avx2, __attribute__((target("avx2"))))
BY_TYPE(vnni, VNNI)
#endif

static void kernel_choose(pare_int8_dw *d, pare_isa isa, bool is_signed)
{
    d->lanes = 16;
    d->sums = is_signed ? portable_s8 : portable_u8;
#ifdef PARE_INT8_SIMD
    if (isa >= PARE_ISA_AVX2) d->sums = is_signed ? avx2_s8 : avx2_u8;
    if (isa >= PARE_ISA_VNNI && d->channels > 16) {
        d->sums = is_signed ? vnni_s8 : vnni_u8;
        d->lanes = 32;
    }
#else
    (void)isa;
#endif
}

pare_status pare_int8_dw_init(pare_int8_dw *d, pare_arena *arena, pare_isa isa, pare_dtype x,
                              int32_t zero, const int8_t *w, int64_t channels, int64_t taps)
{
    *d = (pare_int8_dw){.channels = channels, .taps = taps};
    kernel_choose(d, isa, x == PARE_s8);
    int64_t pairs = (taps + 1) / 2, whole = (channels + d->lanes - 1) / d->lanes * d->lanes;
    int16_t *weight = pare_arena_alloc(arena, (size_t)(whole * pairs * 2) + 1, sizeof *weight);
    int32_t *start = pare_arena_alloc(arena, (size_t)whole + 1, sizeof *start);
    if (!weight || !start) return PARE_MEMORY;
    memset(weight, 0, (size_t)(whole * pairs * 2) * sizeof *weight);
    memset(start, 0, (size_t)whole * sizeof *start);
    for (int64_t c = 0; c < channels; c++) {
        int64_t place = place_of(d->lanes, c), group = c / d->lanes;
        int16_t *to = weight + group * pairs * 2 * d->lanes + place % d->lanes * 2;
        for (int64_t t = 0; t < taps; t++) {
            to[t / 2 * 2 * d->lanes + t % 2] = w[c * taps + t];
            start[place] -= zero * w[c * taps + t];
        }
    }
    d->weight = weight;
    d->start = start;
    return PARE_OK;
}
