/* SPDX-License-Identifier: Apache-2.0 */
/* Dense rows between f32 and f16 or bf16; the same bits as pare_f16_to_f32 and its kin. */
#include "runtime/cpu/float16.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* Whole vectors of 8; returns how many elements were done. VCVTPS2PH keeps NaN and rounds to
   nearest even as pare_f32_to_f16 does, but for a NaN's payload, so NaNs are left to the caller. */
__attribute__((target("avx2,f16c"))) static int64_t widen_f16(float *dst, const uint16_t *src,
                                                              int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    return i;
}

__attribute__((target("avx2,f16c"))) static int64_t narrow_f16(uint16_t *dst, const float *src,
                                                               int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(src + i);
        if (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q))) break;
        __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(dst + i), h);
    }
    return i;
}

/* Asked for every row: the compiler's table costs nothing, CPUID is slow in virtual machines. */
static bool has_f16c(void)
{
#if !defined(__clang__) && __GNUC__ >= 11
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
    unsigned a, b, c, d; /* older compilers do not know "f16c" */
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
#endif
}
#else
static int64_t widen_f16(float *dst, const uint16_t *src, int64_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}
static int64_t narrow_f16(uint16_t *dst, const float *src, int64_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}
static bool has_f16c(void) { return false; }
#endif

static void widen_row(float *dst, const uint16_t *src, pare_dtype half, int64_t n)
{
    if (half == PARE_bf16) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)src[i] << 16;
            memcpy(dst + i, &bits, 4);
        }
        return;
    }
    int64_t i = has_f16c() ? widen_f16(dst, src, n) : 0;
    for (; i < n; i++) dst[i] = pare_f16_to_f32(src[i]);
}

static void narrow_row(uint16_t *dst, const float *src, pare_dtype half, int64_t n)
{
    if (half == PARE_bf16) {
        for (int64_t i = 0; i < n; i++) dst[i] = pare_f32_to_bf16(src[i]);
        return;
    }
    int64_t i = 0;
    while (i < n) {
        if (has_f16c()) i += narrow_f16(dst + i, src + i, n - i);
        for (int64_t stop = i + 8 < n ? i + 8 : n; i < stop; i++) dst[i] = pare_f32_to_f16(src[i]);
    }
}

void pare_round_to(float *x, pare_dtype half, int64_t count)
{
    enum { PART = 256 };
    uint16_t part[PART];
    for (int64_t i = 0; i < count; i += PART) {
        const int64_t n = count - i < PART ? count - i : PART;
        narrow_row(part, x + i, half, n);
        widen_row(x + i, part, half, n);
    }
}

enum { WORTH = 65536 }; /* elements below which a second thread does not pay */

void pare_widen(float *dst, const void *src, pare_dtype half, int64_t count, int threads)
{
    int parts = count < WORTH ? 1 : threads;
    if (parts <= 1) {
        widen_row(dst, src, half, count);
        return;
    }
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int t = 0; t < parts; t++) {
        int64_t from = count * t / parts, to = count * (t + 1) / parts;
        widen_row(dst + from, (const uint16_t *)src + from, half, to - from);
    }
}

void pare_narrow(void *dst, const float *src, pare_dtype half, int64_t count, int threads)
{
    int parts = count < WORTH ? 1 : threads;
    if (parts <= 1) {
        narrow_row(dst, src, half, count);
        return;
    }
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int t = 0; t < parts; t++) {
        int64_t from = count * t / parts, to = count * (t + 1) / parts;
        narrow_row((uint16_t *)dst + from, src + from, half, to - from);
    }
}
