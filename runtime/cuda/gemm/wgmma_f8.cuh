/* SPDX-License-Identifier: Apache-2.0 */
/* What products of FP8 add to wgmma_tiles.cuh. The instruction keeps 14 bits of what it adds
   (ops/epilogue_f8.h), so that sums of long depths lose what they grow by: the sums of a stage, 128
   numbers of depth or 64, are added to sums in f32 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
   While a group of warps adds, another one multiplies. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_F8_CUH
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_F8_CUH

#include "runtime/cuda/device/quantize.cuh"
#include "runtime/cuda/device/simt_sm90.cuh"
#include "runtime/cuda/gemm/epilogue_f8.cuh"

/* What is added to a sum: nothing, numbers of Y's type, or codes of 8 bits to floats. */
typedef enum wgmma_residual { RESIDUAL_NONE, RESIDUAL_OF_Y, RESIDUAL_BYTES } wgmma_residual;

template <int MI, int COUNT> SIMT_INLINE void sums_clear(float (&acc)[MI][COUNT])
{
    PARE_UNROLL for (int i = 0; i < MI; i++) PARE_UNROLL for (int j = 0; j < COUNT; j++) acc[i][j] =
        0;
}

/* part: a stage's. */
template <int MI, int COUNT>
SIMT_INLINE void sums_promote(float (&acc)[MI][COUNT], float (&part)[MI][COUNT])
{
    PARE_UNROLL for (int i = 0; i < MI; i++)
    {
        simt_wgmma_order(part[i]);
        PARE_UNROLL for (int j = 0; j < COUNT; j++) acc[i][j] += part[i][j];
    }
}

/* Four neighbours' sums, stored at `to`, where a residual of Y's type may be; returns bits of what
   is stored. V, CONSTANTS: wgmma_tiles.cuh's; z: codes of a residual beside floats; inverse: of Y's
   scale. */
template <typename V, typename CONSTANTS>
SIMT_INLINE unsigned four_f8(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                             const float sum[4], const CONSTANTS &k, unsigned z, char *to)
{
    constexpr bool E5M2 = V::KIND == (int)PARE_f8e5m2, CODES = (int)V::TO == (int)V::KIND,
                   ADDS = V::RESIDUAL != (int)RESIDUAL_NONE, BESIDE = V::BYTES_BESIDE != 0;
    unsigned *word = reinterpret_cast<unsigned *>(to);
    float v[4], r[4] = {};
    if (CODES && ADDS) z = *word;
    if (CODES ? ADDS : BESIDE) simt_f8_to_floats<E5M2>(z, r);
    PARE_UNROLL for (int i = 0; i < 4; i++)
    {
        v[i] = (sum[i] + k.bias[i]) * k.scale[i];
        if (CODES && ADDS) v[i] = fmaf(r[i], p.epilogue.z_scale, v[i]);
        if (BESIDE) v[i] += r[i] * p.epilogue.z_scale;
        if (V::GELU) v[i] = pare_act_of(PARE_ACT_GELU, NULL, v[i]);
        if (CODES && V::GELU) v[i] = quotient_of(v[i], p.epilogue.y_scale, inverse);
    }
    if constexpr (CODES) {
        PARE_UNROLL for (int i = 0; i < 4; i++) v[i] = clamped(v[i], l);
        return *word = simt_floats_to_f8<E5M2>(v);
    } else {
        floats_finish<V::TO, ADDS && !BESIDE>(l, v, to);
        return __float_as_uint(v[3]);
    }
}

#endif
