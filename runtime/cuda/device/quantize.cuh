/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear (25) of one number to 8 bits. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_QUANTIZE_CUH
#define PARE_RUNTIME_CUDA_DEVICE_QUANTIZE_CUH

#include "runtime/cuda/device/vec.cuh"

/* The lowest and highest code of s8 or u8. */
typedef struct code_limits {
    float low, high;
} code_limits;

SIMT_INLINE code_limits code_limits_of(pare_dtype type)
{
    const code_limits s8 = {-128.0f, 127.0f}, u8 = {0.0f, 255.0f};
    return type == PARE_s8 ? s8 : u8;
}

/* clamp(rint(x / scale) + zero), a true division, ties to even, NaN to the lowest. */
SIMT_INLINE uint8_t code_of(float x, float scale, float zero, const code_limits &l)
{
    float q = rintf(x / scale) + zero;
    q = q > l.low ? q : l.low;
    q = q < l.high ? q : l.high;
    return (uint8_t)(int)q;
}

/* v / s as the operator rounds it; inverse: 1 / s. Two steps of Newton's method on the quotient
   (Markstein 1990) take no branch, which the operator does. What saturates, and what
   is no number, is left as the product has it; s is no subnormal number. */
SIMT_INLINE float quotient_of(float v, float s, float inverse)
{
    float q = v * inverse;
    const bool saturates = !(fabsf(q) < 0x1p20f);
    q = saturates ? q : fmaf(fmaf(-q, s, v), inverse, q);
    return saturates ? q : fmaf(fmaf(-q, s, v), inverse, q);
}

#endif
