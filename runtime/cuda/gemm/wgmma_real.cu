/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of 8-bit integers on compute capability 9.0 (wgmma_tiles.cuh) whose epilogue is
   in real units: 8-bit integers behind the erf form of GELU; f32, f16 or bf16 with or without a
   residual of the same type; f32 or f16 with one of 8 bits, whose place leaves room for fewer
   stages. */
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

#define LAUNCH(TO, GELU, RESIDUAL, BN, KB, DEEP, ...)                                              \
    variant_launch<variant<KIND, TO, GELU, RESIDUAL, false, 1, BN, KB, DEEP, __VA_ARGS__>>(p,      \
                                                                                           stream)

template <int KIND>
static cudaError_t gelu_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->tile) {
    case PARE_CUDA_128X128: return LAUNCH(PARE_s8, true, false, 128, 128, 6, 1);
    case PARE_CUDA_128X192: return LAUNCH(PARE_s8, true, false, 192, 128, 5, 1);
    case PARE_CUDA_128X64: return LAUNCH(PARE_s8, true, false, 64, 64, 6, 2);
    case PARE_CUDA_256X128_4WG: return LAUNCH(PARE_s8, true, false, 128, 128, 4, 1, 4);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND, int TO, wgmma_residual RESIDUAL>
static cudaError_t floats_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { WIDE = TO == PARE_f32, BYTES = RESIDUAL == RESIDUAL_BYTES };
    if constexpr (!(WIDE && BYTES))
        if (p->tile == PARE_CUDA_128X192)
            return LAUNCH(TO, false, RESIDUAL, 192, 128, WIDE || BYTES ? 3 : 4, 1);
    switch (p->tile) {
    case PARE_CUDA_128X128:
        return LAUNCH(TO, false, RESIDUAL, 128, 128, WIDE ? 4 : BYTES ? 5 : 6, 1);
    case PARE_CUDA_128X64: return LAUNCH(TO, false, RESIDUAL, 64, 64, 6, 2);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND, int TO>
static cudaError_t residual_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (!p->z) return floats_choose<KIND, TO, RESIDUAL_NONE>(p, stream);
    if constexpr (TO != PARE_bf16)
        if (pare_type_is_int8(p->epilogue.z_type))
            return floats_choose<KIND, TO, RESIDUAL_BYTES>(p, stream);
    return floats_choose<KIND, TO, RESIDUAL_OF_Y>(p, stream);
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU) return gelu_choose<KIND>(p, stream);
    switch (p->y_type) {
    case PARE_f32: return residual_choose<KIND, PARE_f32>(p, stream);
    case PARE_f16: return residual_choose<KIND, PARE_f16>(p, stream);
    default: return residual_choose<KIND, PARE_bf16>(p, stream);
    }
}

extern "C" cudaError_t pare_cuda_wgmma_real_launch(const pare_cuda_gemm_args *p,
                                                   cudaStream_t stream)
{
    return p->x_type == PARE_s8 ? form_choose<PARE_s8>(p, stream) : form_choose<PARE_u8>(p, stream);
}
