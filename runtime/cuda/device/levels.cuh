/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on the grid of FakeQuantize (ops/fake_quantize.h). */
#ifndef PARE_RUNTIME_CUDA_DEVICE_LEVELS_CUH
#define PARE_RUNTIME_CUDA_DEVICE_LEVELS_CUH

#include "runtime/cuda/channel_sums.h"
#include "runtime/cuda/device/number.cuh"

SIMT_INLINE float pare_zero_at(const void *zero, pare_dtype type, int64_t at)
{
    return type == PARE_NOTYPE ? 0 : (float)pare_int_at(zero, type, at);
}

/* Clamped; NaN is below. */
SIMT_INLINE float pare_level_hold(float q, const pare_cuda_levels &l)
{
    q = q > l.low ? q : l.low;
    return q < l.high ? q : l.high;
}

#endif
