/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers whose tiles are few (wgmma_swap.cuh): to 8 bits within bounds, with or
   without a residual, of matrices and pictures; of matrices also behind the erf form of GELU, and
   in real units as wgmma_real.cu has them. */
#include "runtime/cuda/gemm/wgmma_swap.cuh"

#define LAUNCH(TO, GELU, RESIDUAL, PICTURE, BN, DEEP)                                              \
    swap_variant_launch<swap_variant<KIND, TO, GELU, RESIDUAL, PICTURE, BN, DEEP>>(p, stream)

template <int KIND, bool GELU, wgmma_residual RESIDUAL, bool PICTURE>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->tile) {
    case PARE_CUDA_32X64: return LAUNCH(PARE_s8, GELU, RESIDUAL, PICTURE, 32, 8);
    case PARE_CUDA_64X64: return LAUNCH(PARE_s8, GELU, RESIDUAL, PICTURE, 64, 6);
    case PARE_CUDA_128X64: return LAUNCH(PARE_s8, GELU, RESIDUAL, PICTURE, 128, 4);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND, int TO>
static cudaError_t real_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->tile != PARE_CUDA_64X64) return cudaErrorInvalidValue;
    if (!p->z) return LAUNCH(TO, false, RESIDUAL_NONE, false, 64, 6);
    if constexpr (TO != PARE_bf16)
        if (pare_type_is_int8(p->epilogue.z_type))
            return LAUNCH(TO, false, RESIDUAL_BYTES, false, 64, 6);
    return LAUNCH(TO, false, RESIDUAL_OF_Y, false, 64, 5);
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU)
        return tile_choose<KIND, true, RESIDUAL_NONE, false>(p, stream);
    if (p->epilogue.real)
        return p->y_type == PARE_f32   ? real_choose<KIND, PARE_f32>(p, stream)
               : p->y_type == PARE_f16 ? real_choose<KIND, PARE_f16>(p, stream)
                                       : real_choose<KIND, PARE_bf16>(p, stream);
    if (p->picture)
        return p->z ? tile_choose<KIND, false, RESIDUAL_OF_Y, true>(p, stream)
                    : tile_choose<KIND, false, RESIDUAL_NONE, true>(p, stream);
    return p->z ? tile_choose<KIND, false, RESIDUAL_OF_Y, false>(p, stream)
                : tile_choose<KIND, false, RESIDUAL_NONE, false>(p, stream);
}

extern "C" cudaError_t pare_cuda_swap_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0) return cudaSuccess;
    if (!pare_type_is_int8(p->x_type)) return pare_cuda_swap_half_launch(p, stream);
    return p->x_type == PARE_s8 ? form_choose<PARE_s8>(p, stream) : form_choose<PARE_u8>(p, stream);
}
