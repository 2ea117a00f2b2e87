/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f16 and of bf16 with weights of 2:4 on compute capability 9.0 (wgmma_sparse.cuh),
   summed in f32: bounds with or without a residual of the same type, or the erf form of GELU. */
#include "runtime/cuda/gemm/wgmma_sparse.cuh"

#define LAUNCH(GELU, RESIDUAL, TAP, ROWS, COLUMNS, DEEP, ...)                                      \
    sparse_launch<                                                                                 \
        sparse_variant<KIND, KIND, GELU, RESIDUAL, TAP, ROWS, COLUMNS, DEEP, __VA_ARGS__>>(        \
        p, meta, stream)

template <int KIND, int TAP, int RESIDUAL>
static cudaError_t bounds_choose(const pare_cuda_gemm_args *p, const void *meta,
                                 cudaStream_t stream)
{
    if constexpr (!TAP)
        if (p->tile == PARE_CUDA_256X128_4WG && p->columns > 128)
            return LAUNCH(false, RESIDUAL, 0, 128, 256, 4, 1, 4);
    if constexpr (!(TAP && RESIDUAL))
        if (p->tile == PARE_CUDA_256X128_4WG)
            return LAUNCH(false, RESIDUAL, TAP, 128, 128, 3, 1, 4);
    switch (p->tile) {
    case PARE_CUDA_256X128: return LAUNCH(false, RESIDUAL, TAP, 256, 128, 3, 1);
    case PARE_CUDA_128X128: return LAUNCH(false, RESIDUAL, TAP, 128, 128, 6, 1);
    case PARE_CUDA_256X64: return LAUNCH(false, RESIDUAL, TAP, 128, 64, 5, 1);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND>
static cudaError_t gelu_choose(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    switch (p->tile) {
    case PARE_CUDA_256X128: return LAUNCH(true, RESIDUAL_NONE, 0, 256, 128, 3, 1);
    case PARE_CUDA_128X128: return LAUNCH(true, RESIDUAL_NONE, 0, 128, 128, 6, 1);
    case PARE_CUDA_256X128_4WG: return LAUNCH(true, RESIDUAL_NONE, 0, 128, 128, 3, 1, 4);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND, int TAP>
static cudaError_t residual_choose(const pare_cuda_gemm_args *p, const void *meta,
                                   cudaStream_t stream)
{
    return p->z ? bounds_choose<KIND, TAP, RESIDUAL_OF_Y>(p, meta, stream)
                : bounds_choose<KIND, TAP, RESIDUAL_NONE>(p, meta, stream);
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU) return gelu_choose<KIND>(p, meta, stream);
    return p->picture ? residual_choose<KIND, 128>(p, meta, stream)
                      : residual_choose<KIND, 0>(p, meta, stream);
}

extern "C" cudaError_t pare_cuda_wgmma_sparse_half_launch(const pare_cuda_gemm_args *p,
                                                          const void *meta, cudaStream_t stream)
{
    return p->x_type == PARE_f16 ? form_choose<PARE_f16>(p, meta, stream)
                                 : form_choose<PARE_bf16>(p, meta, stream);
}
