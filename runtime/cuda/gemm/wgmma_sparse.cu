/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers to 8-bit integers with weights of 2:4 on compute capability 9.0
   (wgmma_sparse.cuh). Others: wgmma_sparse_half.cu, wgmma_sparse_real.cu. */
#include "runtime/cuda/gemm/wgmma_sparse.cuh"

#define LAUNCH(ROWS, COLUMNS, DEEP, ...)                                                           \
    sparse_launch<                                                                                 \
        sparse_variant<KIND, PARE_s8, false, RESIDUAL, TAP, ROWS, COLUMNS, DEEP, __VA_ARGS__>>(    \
        p, meta, stream)

template <int KIND, int TAP, int RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    if constexpr (!TAP)
        if (p->tile == PARE_CUDA_256X128_4WG && p->columns > 128) return LAUNCH(128, 256, 5, 1, 4);
    if constexpr (!(TAP && RESIDUAL))
        if (p->tile == PARE_CUDA_256X128_4WG) return LAUNCH(128, 128, 4, 1, 4);
    switch (p->tile) {
    case PARE_CUDA_256X128: return LAUNCH(256, 128, 4, 1);
    case PARE_CUDA_128X128: return LAUNCH(128, 128, 6, 1);
    case PARE_CUDA_256X64: return LAUNCH(128, 64, 5, 1);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND, int TAP>
static cudaError_t residual_choose(const pare_cuda_gemm_args *p, const void *meta,
                                   cudaStream_t stream)
{
    return p->z ? tile_choose<KIND, TAP, RESIDUAL_OF_Y>(p, meta, stream)
                : tile_choose<KIND, TAP, RESIDUAL_NONE>(p, meta, stream);
}

/* Taps whose channels are not in whole lots of 128 bytes come by 64. */
template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    if (!p->picture) return residual_choose<KIND, 0>(p, meta, stream);
    return p->in.channels % 128 ? residual_choose<KIND, 64>(p, meta, stream)
                                : residual_choose<KIND, 128>(p, meta, stream);
}

extern "C" cudaError_t pare_cuda_wgmma_sparse_launch(const pare_cuda_gemm_args *p, const void *meta,
                                                     cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0) return cudaSuccess;
    if (!pare_type_is_int8(p->x_type)) return pare_cuda_wgmma_sparse_half_launch(p, meta, stream);
    if (p->epilogue.real) return pare_cuda_wgmma_sparse_real_launch(p, meta, stream);
    return p->x_type == PARE_s8 ? form_choose<PARE_s8>(p, meta, stream)
                                : form_choose<PARE_u8>(p, meta, stream);
}
