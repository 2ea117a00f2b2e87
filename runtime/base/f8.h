/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 as products read and make it: FLOAT8E4M3FN and FLOAT8E5M2 (Micikevicius and others 2022,
   arXiv 2209.05433), without branches, so that compilers make vectors of loops over them. Of every
   code and every number the results are those of minifloat.h, saturating. */
#ifndef PARE_RUNTIME_BASE_F8_H
#define PARE_RUNTIME_BASE_F8_H

#include "runtime/base/both.h"
#include "runtime/base/types.h"

static inline bool pare_type_is_f8(pare_dtype t) { return t == PARE_f8e4m3 || t == PARE_f8e5m2; }

/* The largest finite numbers. */
#define PARE_F8E4M3_MOST 448.0f
#define PARE_F8E5M2_MOST 57344.0f

typedef union pare_f32_bits {
    float f;
    uint32_t u;
} pare_f32_bits;

PARE_BOTH float pare_f32_of_bits(uint32_t u)
{
    pare_f32_bits b;
    b.u = u;
    return b.f;
}

PARE_BOTH uint32_t pare_bits_of_f32(float f)
{
    pare_f32_bits b;
    b.f = f;
    return b.u;
}

/* A code's exponent and mantissa, moved to where a float has them, are the number times 2^-120 (of
   E5M2 2^-112), subnormal ones among them. */
PARE_BOTH float pare_f8e4m3_value(uint8_t code)
{
    const uint32_t size = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    const float v = pare_f32_of_bits(sign | size << 20) * 0x1p120f;
    return size == 0x7f ? pare_f32_of_bits(sign | 0x7fc00000u) : v;
}

PARE_BOTH float pare_f8e5m2_value(uint8_t code)
{
    const uint32_t size = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    const float v = pare_f32_of_bits(sign | size << 21) * 0x1p112f;
    return size < 0x7c ? v : pare_f32_of_bits(sign | (size == 0x7c ? 0x7f800000u : 0x7fc00000u));
}

/* To nearest even; what is too large, infinities too, becomes the largest finite number. Where a
   number is normal in FP8, half of its last bit is added to the float's bits; where it is not, it
   is added to a power of two whose last bit is the smallest subnormal number. */
PARE_BOTH uint8_t pare_f8e4m3_code(float v)
{
    const uint32_t bits = pare_bits_of_f32(v), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    const float held = size < 0x43e00000u ? pare_f32_of_bits(size) : PARE_F8E4M3_MOST;
    const uint32_t u = pare_bits_of_f32(held);
    const uint32_t normal = ((u + 0x7ffffu + (u >> 20 & 1u)) >> 20) - (120u << 3);
    const uint32_t small = pare_bits_of_f32(held + 0x1p14f) - 0x46800000u;
    const uint32_t code = held < 0x1p-6f ? small : normal;
    return (uint8_t)(sign | (size > 0x7f800000u ? 0x7fu : code));
}

PARE_BOTH uint8_t pare_f8e5m2_code(float v)
{
    const uint32_t bits = pare_bits_of_f32(v), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    const float held = size < 0x47600000u ? pare_f32_of_bits(size) : PARE_F8E5M2_MOST;
    const uint32_t u = pare_bits_of_f32(held);
    const uint32_t normal = ((u + 0xfffffu + (u >> 21 & 1u)) >> 21) - (112u << 2);
    const uint32_t small = pare_bits_of_f32(held + 0x1p7f) - 0x43000000u;
    const uint32_t code = held < 0x1p-14f ? small : normal;
    return (uint8_t)(sign | (size > 0x7f800000u ? 0x7eu : code));
}

PARE_BOTH float pare_f8_value(pare_dtype type, uint8_t code)
{
    return type == PARE_f8e4m3 ? pare_f8e4m3_value(code) : pare_f8e5m2_value(code);
}

PARE_BOTH uint8_t pare_f8_code(pare_dtype type, float v)
{
    return type == PARE_f8e4m3 ? pare_f8e4m3_code(v) : pare_f8e5m2_code(v);
}

#endif
