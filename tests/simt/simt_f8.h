/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation of runtime/cuda/device/simt_f8.cuh: the same names. */
#ifndef PARE_SIMT_F8_H
#define PARE_SIMT_F8_H

#include "simt_device.h"

#include "runtime/base/f8.h"

/* Operands beside simt_device.h's. */
constexpr simt_operand SIMT_E4M3 = static_cast<simt_operand>(SIMT_TF32 + 1),
                       SIMT_E5M2 = static_cast<simt_operand>(SIMT_TF32 + 2);

static inline float simt_f8(uint8_t code, simt_operand type)
{
    return type == SIMT_E5M2 ? pare_f8e5m2_value(code) : pare_f8e4m3_value(code);
}

template <bool E5M2> static inline void simt_f8_to_floats(unsigned word, float v[4])
{
    for (int i = 0; i < 4; i++)
        v[i] = simt_f8(static_cast<uint8_t>(word >> 8 * i), E5M2 ? SIMT_E5M2 : SIMT_E4M3);
}

template <bool E5M2> static inline unsigned simt_floats_to_f8(const float v[4])
{
    unsigned word = 0;
    for (int i = 0; i < 4; i++)
        word |= static_cast<unsigned>(E5M2 ? pare_f8e5m2_code(v[i]) : pare_f8e4m3_code(v[i]))
                << 8 * i;
    return word;
}

void simt_mma_f8(float d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                 const char *file, int line);
SIMT_MMA(simt_mma_m16n8k32_e4m3, float, simt_mma_f8, SIMT_E4M3)
SIMT_MMA(simt_mma_m16n8k32_e5m2, float, simt_mma_f8, SIMT_E5M2)

#endif
