/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 (base/f8.h) on the device: conversions of neighbours (PTX ISA, "cvt", from compute capability
   9.0 on; before it by moving bits), and products on tensor cores as products of f16, which holds
   all numbers of FP8. That is what ptxas makes of mma.sync of FP8 for 9.0 and 10.0, too, but there
   for each instruction anew, which takes more registers than there are; 8.9 has an instruction, one
   that keeps 14 bits of what it adds (ops/epilogue_f8.h). As simt.h: the emulation's functions
   elsewhere (tests/simt/simt_f8.h). */
#ifndef PARE_RUNTIME_CUDA_DEVICE_SIMT_F8_CUH
#define PARE_RUNTIME_CUDA_DEVICE_SIMT_F8_CUH

#include "runtime/base/f8.h"
#include "runtime/cuda/device/simt.h"

#ifndef __CUDACC__
#include <simt_f8.h>
#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SIMT_HAS_F8 1
#else
#define SIMT_HAS_F8 0
#endif

/* Codes 0 and 1 of a word, and 2 and 3, as pairs of f16. */
template <bool E5M2> SIMT_INLINE void simt_f8_to_halves(unsigned word, unsigned half[2])
{
#if SIMT_HAS_F8
    const uint16_t part[2] = {(uint16_t)word, (uint16_t)(word >> 16)};
    SIMT_UNROLL for (int i = 0; i < 2; i++)
    {
        if (E5M2)
            asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(half[i]) : "h"(part[i]));
        else
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(half[i]) : "h"(part[i]));
    }
#else
    if (E5M2) { /* the upper byte of an f16 */
        half[0] = __byte_perm(word, 0, 0x1404), half[1] = __byte_perm(word, 0, 0x3424);
        return;
    }
    const unsigned part[2] = {__byte_perm(word, 0, 0x4140), __byte_perm(word, 0, 0x4342)};
    SIMT_UNROLL for (int i = 0; i < 2; i++)
    { /* an f16's exponent is 8 more; 127 is no number */
        const unsigned size = part[i] & 0x007f007fu, sign = (part[i] & 0x00800080u) << 8;
        const unsigned nan = ((size + 0x00010001u) >> 7 & 0x00010001u) * 0x7e00u;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(half[i]) : "r"(sign | size << 7), "r"(0x5c005c00u));
        half[i] |= nan;
    }
#endif
}

/* A word's four codes as floats. */
template <bool E5M2> SIMT_INLINE void simt_f8_to_floats(unsigned word, float v[4])
{
    unsigned half[2];
    simt_f8_to_halves<E5M2>(word, half);
    SIMT_UNROLL for (int i = 0; i < 2; i++)
    {
        const __half2 h = *reinterpret_cast<const __half2 *>(&half[i]);
        v[2 * i] = __low2float(h), v[2 * i + 1] = __high2float(h);
    }
}

/* Four floats as codes, the first in the lowest byte: to nearest even, saturating. */
template <bool E5M2> SIMT_INLINE unsigned simt_floats_to_f8(const float v[4])
{
#if SIMT_HAS_F8
    uint16_t part[2];
    SIMT_UNROLL for (int i = 0; i < 2; i++)
    {
        if (E5M2)
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
                : "=h"(part[i])
                : "f"(v[2 * i + 1]), "f"(v[2 * i]));
        else
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
                : "=h"(part[i])
                : "f"(v[2 * i + 1]), "f"(v[2 * i]));
    }
    return part[0] | (unsigned)part[1] << 16;
#else
    unsigned word = 0;
    SIMT_UNROLL for (int i = 0; i < 4; i++) word |=
        (unsigned)(E5M2 ? pare_f8e5m2_code(v[i]) : pare_f8e4m3_code(v[i])) << 8 * i;
    return word;
#endif
}

/* A sum takes depth in any order: words of four codes are words of two f16 in two products. */
#define SIMT_MMA_F8(name, e5m2)                                                                    \
    SIMT_INLINE void name(float d[4], const unsigned a[4], const unsigned b[2])                    \
    {                                                                                              \
        SIMT_UNROLL for (int i = 0; i < 2; i++)                                                    \
        {                                                                                          \
            unsigned upper[2], lower[2], column[2];                                                \
            simt_f8_to_halves<e5m2>(a[2 * i], upper);                                              \
            simt_f8_to_halves<e5m2>(a[2 * i + 1], lower);                                          \
            simt_f8_to_halves<e5m2>(b[i], column);                                                 \
            const unsigned halves[4] = {upper[0], lower[0], upper[1], lower[1]};                   \
            simt_mma_m16n8k16_f16(d, halves, column);                                              \
        }                                                                                          \
    }
/* d (16 x 8, f32) += a (16 x 32, row) * b (32 x 8, column) */
SIMT_MMA_F8(simt_mma_m16n8k32_e4m3, false)
SIMT_MMA_F8(simt_mma_m16n8k32_e5m2, true)

#endif
#endif
