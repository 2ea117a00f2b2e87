/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f16 and of bf16 on compute capability 10.0 (tcgen_tiles.cuh), summed in f32: bounds
   with or without a residual of the same type, or the erf form of GELU. */
#include "runtime/cuda/gemm/tcgen_tiles.cuh"

template <int KIND, bool GELU, bool PICTURE, wgmma_residual RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
#define LAUNCH(BN, DEEP) PARE_TCGEN_LAUNCH(KIND, GELU, RESIDUAL, PICTURE, BN, 128, DEEP)
    switch (p->tile) {
    case PARE_CUDA_128X64: return LAUNCH(64, 6);
    case PARE_CUDA_128X128: return LAUNCH(128, 5);
    case PARE_CUDA_128X256: return LAUNCH(256, 3);
    default: return cudaErrorInvalidValue;
    }
#undef LAUNCH
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU)
        return tile_choose<KIND, true, false, RESIDUAL_NONE>(p, stream);
    if (p->picture)
        return p->z ? tile_choose<KIND, false, true, RESIDUAL_OF_Y>(p, stream)
                    : tile_choose<KIND, false, true, RESIDUAL_NONE>(p, stream);
    return p->z ? tile_choose<KIND, false, false, RESIDUAL_OF_Y>(p, stream)
                : tile_choose<KIND, false, false, RESIDUAL_NONE>(p, stream);
}

extern "C" cudaError_t pare_cuda_tcgen_half_launch(const pare_cuda_gemm_args *p,
                                                   cudaStream_t stream)
{
    return p->x_type == PARE_f16 ? form_choose<PARE_f16>(p, stream)
                                 : form_choose<PARE_bf16>(p, stream);
}
