/* SPDX-License-Identifier: Apache-2.0 */
/* Float functions without branches or calls, so that loops over them become vector code. At most a
   few units in the last place from the exact value (tests/cpu/test_vmath.c); NaN stays NaN. */
#ifndef PARE_RUNTIME_CPU_VMATH_H
#define PARE_RUNTIME_CPU_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float pare_vbits_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t pare_vbits_u32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* e^x = 2^n e^r, n = rint(x / ln 2), |r| <= ln 2 / 2; e^r by its Taylor sum to r^7 (next term below
   2^-28). Adding 1.5 * 2^23 rounds and leaves n in the low bits. The power of two is applied in two
   halves, so that results reach down to subnormals and up to Inf. */
static inline float pare_vexp(float x)
{
    const float magic = 12582912.0f;
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504088896341f + magic;
    float n = t - magic;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t k = pare_vbits_u32(t) - pare_vbits_u32(magic) + 512; /* n + 512 > 0 */
    uint32_t half = k >> 1;
    float a = pare_vbits_f32((half - 256 + 127) << 23);
    float b = pare_vbits_f32((k - half - 256 + 127) << 23);
    return p * a * b;
}

static inline float pare_vsigmoid(float x) { return 1.0f / (1.0f + pare_vexp(-x)); }

/* tanh x = 1 - 2 / (e^2x + 1); below 0.35 its Taylor sum to x^11 (next term below 2^-27 of x). */
static inline float pare_vtanh(float x)
{
    float a = fabsf(x), s = a * a;
    float p = -1382.0f / 155925;
    p = p * s + 62.0f / 2835;
    p = p * s - 17.0f / 315;
    p = p * s + 2.0f / 15;
    p = p * s - 1.0f / 3;
    float small = a + a * s * p;
    float large = 1.0f - 2.0f / (pare_vexp(2.0f * a) + 1.0f);
    return copysignf(a < 0.35f ? small : large, x);
}

/* erf: below 1 its Taylor sum to x^21; above, Abramowitz and Stegun 7.1.26 (1.5e-7 absolute). */
static inline float pare_verf(float x)
{
    float a = fabsf(x), s = a * a;
    float p = 1.0f / (21 * 3628800.0f);
    p = p * s - 1.0f / (19 * 362880.0f);
    p = p * s + 1.0f / (17 * 40320.0f);
    p = p * s - 1.0f / (15 * 5040.0f);
    p = p * s + 1.0f / (13 * 720.0f);
    p = p * s - 1.0f / (11 * 120.0f);
    p = p * s + 1.0f / (9 * 24.0f);
    p = p * s - 1.0f / (7 * 6.0f);
    p = p * s + 1.0f / (5 * 2.0f);
    p = p * s - 1.0f / 3;
    p = p * s + 1.0f;
    float small = 1.12837916709551257f * a * p;
    float t = 1.0f / (1.0f + 0.3275911f * a);
    float q = 1.061405429f;
    q = q * t - 1.453152027f;
    q = q * t + 1.421413741f;
    q = q * t - 0.284496736f;
    q = q * t + 0.254829592f;
    float large = 1.0f - q * t * pare_vexp(-s);
    return copysignf(a < 1.0f ? small : large, x);
}

/* Gelu (ONNX 20): x / 2 (1 + erf(x / sqrt 2)), and its tanh approximation. */
static inline float pare_vgelu(float x)
{
    return 0.5f * x * (1.0f + pare_verf(x * 0.707106781186547524f));
}

static inline float pare_vgelu_tanh(float x)
{
    return 0.5f * x * (1.0f + pare_vtanh(0.797884560802865356f * (x + 0.044715f * x * x * x)));
}

#endif
