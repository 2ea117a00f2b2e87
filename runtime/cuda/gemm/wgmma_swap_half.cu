/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f16 and of bf16 whose tiles are few (wgmma_swap.cuh), summed in f32: bounds with or
   without a residual of the same type, or, of matrices, the erf form of GELU. */
#include "runtime/cuda/gemm/wgmma_swap.cuh"

template <int KIND, bool GELU, wgmma_residual RESIDUAL, bool PICTURE>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
#define LAUNCH(BN, DEEP)                                                                           \
    swap_variant_launch<swap_variant<KIND, KIND, GELU, RESIDUAL, PICTURE, BN, DEEP>>(p, stream)
    switch (p->tile) {
    case PARE_CUDA_32X64: return LAUNCH(32, 8);
    case PARE_CUDA_64X64: return LAUNCH(64, 6);
    case PARE_CUDA_128X64: return LAUNCH(128, 4 - (RESIDUAL != RESIDUAL_NONE));
    default: return cudaErrorInvalidValue;
    }
#undef LAUNCH
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU)
        return tile_choose<KIND, true, RESIDUAL_NONE, false>(p, stream);
    if (p->picture)
        return p->z ? tile_choose<KIND, false, RESIDUAL_OF_Y, true>(p, stream)
                    : tile_choose<KIND, false, RESIDUAL_NONE, true>(p, stream);
    return p->z ? tile_choose<KIND, false, RESIDUAL_OF_Y, false>(p, stream)
                : tile_choose<KIND, false, RESIDUAL_NONE, false>(p, stream);
}

extern "C" cudaError_t pare_cuda_swap_half_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    return p->x_type == PARE_f16 ? form_choose<PARE_f16>(p, stream)
                                 : form_choose<PARE_bf16>(p, stream);
}
