/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of 8-bit integers with weights of 2:4 on compute capability 9.0
   (wgmma_sparse.cuh) whose epilogue is in real units, as wgmma_real.cu has them: 8-bit integers
   behind the erf form of GELU; f32, f16 or bf16 with or without a residual of the same type; f32 or
   f16 with one of 8 bits. */
#include "runtime/cuda/gemm/wgmma_sparse.cuh"

#define LAUNCH(TO, GELU, RESIDUAL, ROWS, DEEP, ...)                                                \
    sparse_launch<sparse_variant<KIND, TO, GELU, RESIDUAL, 0, ROWS, 128, DEEP, __VA_ARGS__>>(      \
        p, meta, stream)

template <int KIND>
static cudaError_t gelu_choose(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    switch (p->tile) {
    case PARE_CUDA_256X128: return LAUNCH(PARE_s8, true, RESIDUAL_NONE, 256, 4, 1);
    case PARE_CUDA_128X128: return LAUNCH(PARE_s8, true, RESIDUAL_NONE, 128, 6, 1);
    case PARE_CUDA_256X128_4WG: return LAUNCH(PARE_s8, true, RESIDUAL_NONE, 128, 4, 1, 4);
    default: return cudaErrorInvalidValue;
    }
}

/* f32 leave no room for bytes beside the larger tile. */
template <int KIND, int TO, wgmma_residual RESIDUAL>
static cudaError_t floats_choose(const pare_cuda_gemm_args *p, const void *meta,
                                 cudaStream_t stream)
{
    enum { WIDE = TO == PARE_f32, BYTES = RESIDUAL == RESIDUAL_BYTES };
    if constexpr (!(WIDE && BYTES))
        if (p->tile == PARE_CUDA_256X128) return LAUNCH(TO, false, RESIDUAL, 256, WIDE ? 2 : 3, 1);
    if (p->tile == PARE_CUDA_128X128) return LAUNCH(TO, false, RESIDUAL, 128, 5, 1);
    return cudaErrorInvalidValue;
}

template <int KIND, int TO>
static cudaError_t residual_choose(const pare_cuda_gemm_args *p, const void *meta,
                                   cudaStream_t stream)
{
    if (!p->z) return floats_choose<KIND, TO, RESIDUAL_NONE>(p, meta, stream);
    if constexpr (TO != PARE_bf16)
        if (pare_type_is_int8(p->epilogue.z_type))
            return floats_choose<KIND, TO, RESIDUAL_BYTES>(p, meta, stream);
    return floats_choose<KIND, TO, RESIDUAL_OF_Y>(p, meta, stream);
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU) return gelu_choose<KIND>(p, meta, stream);
    switch (p->y_type) {
    case PARE_f32: return residual_choose<KIND, PARE_f32>(p, meta, stream);
    case PARE_f16: return residual_choose<KIND, PARE_f16>(p, meta, stream);
    default: return residual_choose<KIND, PARE_bf16>(p, meta, stream);
    }
}

extern "C" cudaError_t pare_cuda_wgmma_sparse_real_launch(const pare_cuda_gemm_args *p,
                                                          const void *meta, cudaStream_t stream)
{
    return p->x_type == PARE_s8 ? form_choose<PARE_s8>(p, meta, stream)
                                : form_choose<PARE_u8>(p, meta, stream);
}
