/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f16 and of bf16 on compute capability 9.0 (wgmma_tiles.cuh), summed in f32: bounds
   with or without a residual of the same type, or the erf form of GELU. Steps of depth are of 64
   numbers, of the smallest tile of 32. */
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

#define LAUNCH(GELU, RESIDUAL, PICTURE, MI, BN, KB, DEEP, ...)                                     \
    variant_launch<variant<KIND, KIND, GELU, RESIDUAL, PICTURE, MI, BN, KB, DEEP, __VA_ARGS__>>(   \
        p, stream)

template <int KIND, bool PICTURE, bool RESIDUAL>
static cudaError_t bounds_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->tile == PARE_CUDA_128X128) return LAUNCH(false, RESIDUAL, PICTURE, 1, 128, 128, 6, 1);
    if (p->tile == PARE_CUDA_256X64) return LAUNCH(false, RESIDUAL, PICTURE, 2, 64, 128, 4, 1);
    if constexpr (!RESIDUAL)
        if (p->tile == PARE_CUDA_256X128) return LAUNCH(false, false, PICTURE, 2, 128, 128, 3, 1);
    if constexpr (!(PICTURE && RESIDUAL))
        if (p->tile == PARE_CUDA_256X128_4WG)
            return LAUNCH(false, RESIDUAL, PICTURE, 1, 128, 128, 3, 1, 4);
    if constexpr (!PICTURE) {
        if (p->tile == PARE_CUDA_128X192) return LAUNCH(false, RESIDUAL, false, 1, 192, 128, 4, 1);
        if (p->tile == PARE_CUDA_128X64) return LAUNCH(false, RESIDUAL, false, 1, 64, 64, 6, 2);
    }
    return cudaErrorInvalidValue;
}

template <int KIND>
static cudaError_t gelu_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->tile) {
    case PARE_CUDA_128X128: return LAUNCH(true, false, false, 1, 128, 128, 6, 1);
    case PARE_CUDA_128X192: return LAUNCH(true, false, false, 1, 192, 128, 4, 1);
    case PARE_CUDA_128X64: return LAUNCH(true, false, false, 1, 64, 64, 6, 2);
    case PARE_CUDA_256X128_4WG: return LAUNCH(true, false, false, 1, 128, 128, 3, 1, 4);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU) return gelu_choose<KIND>(p, stream);
    if (p->picture)
        return p->z ? bounds_choose<KIND, true, true>(p, stream)
                    : bounds_choose<KIND, true, false>(p, stream);
    return p->z ? bounds_choose<KIND, false, true>(p, stream)
                : bounds_choose<KIND, false, false>(p, stream);
}

extern "C" cudaError_t pare_cuda_wgmma_half_launch(const pare_cuda_gemm_args *p,
                                                   cudaStream_t stream)
{
    return p->x_type == PARE_f16 ? form_choose<PARE_f16>(p, stream)
                                 : form_choose<PARE_bf16>(p, stream);
}
