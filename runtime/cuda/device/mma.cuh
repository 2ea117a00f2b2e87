/* SPDX-License-Identifier: Apache-2.0 */
/* Products by type. On tensor cores s8 and u8 with s8, sums in s32; f16, bf16, FP8 and f32 rounded
   to TF32, sums in f32. f32 that stay as they are have plain multiply-adds (tile.cuh). */
#ifndef PARE_RUNTIME_CUDA_DEVICE_MMA_CUH
#define PARE_RUNTIME_CUDA_DEVICE_MMA_CUH

#include "runtime/base/types.h"
#include "runtime/cuda/device/kind.h"
#include "runtime/cuda/device/simt.h"
#include "runtime/cuda/device/simt_f8.cuh"

/* A kind's elements and sums: a type's, or PARE_CUDA_TF32's. */
template <int KIND> struct kind_of;
template <> struct kind_of<PARE_s8> {
    typedef int sum;
    typedef int8_t element;
};
template <> struct kind_of<PARE_u8> {
    typedef int sum;
    typedef uint8_t element;
};
template <> struct kind_of<PARE_f8e4m3> {
    typedef float sum;
    typedef uint8_t element;
};
template <> struct kind_of<PARE_f8e5m2> : kind_of<PARE_f8e4m3> {
};
template <> struct kind_of<PARE_f16> {
    typedef float sum;
    typedef uint16_t element;
};
template <> struct kind_of<PARE_bf16> {
    typedef float sum;
    typedef uint16_t element;
};
template <> struct kind_of<PARE_f32> {
    typedef float sum;
    typedef uint32_t element;
};
template <> struct kind_of<PARE_CUDA_TF32> : kind_of<PARE_f32> {
};

template <int KIND>
constexpr bool kind_is_f8 = KIND == (int)PARE_f8e4m3 || KIND == (int)PARE_f8e5m2;

/* What `multiply` takes of words that memory holds: f32 become TF32. */
template <int KIND, int COUNT> SIMT_INLINE void factors_round(unsigned (&words)[COUNT])
{
    if constexpr (KIND == PARE_CUDA_TF32)
        SIMT_UNROLL for (int i = 0; i < COUNT; i++) words[i] =
            simt_to_tf32(__uint_as_float(words[i]));
}

/* d (16 x 8) += a (16 x 32 bytes of depth, row) * b (8 columns) */
template <int KIND> SIMT_INLINE void multiply(int d[4], const unsigned a[4], const unsigned b[2])
{
    if (KIND == PARE_s8)
        simt_mma_m16n8k32_s8s8(d, a, b);
    else
        simt_mma_m16n8k32_u8s8(d, a, b);
}

template <int KIND> SIMT_INLINE void multiply(float d[4], const unsigned a[4], const unsigned b[2])
{
    if (KIND == PARE_CUDA_TF32)
        simt_mma_m16n8k8_tf32(d, a, b);
    else if (KIND == PARE_f8e4m3)
        simt_mma_m16n8k32_e4m3(d, a, b);
    else if (KIND == PARE_f8e5m2)
        simt_mma_m16n8k32_e5m2(d, a, b);
    else if (KIND == PARE_f16)
        simt_mma_m16n8k16_f16(d, a, b);
    else
        simt_mma_m16n8k16_bf16(d, a, b);
}

#endif
