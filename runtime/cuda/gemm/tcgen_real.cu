/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of 8-bit integers on compute capability 10.0 (tcgen_tiles.cuh) whose epilogue is
   in real units: 8-bit integers behind the erf form of GELU; f32, f16 or bf16 with or without a
   residual of the same type; f32 or f16 with one of 8 bits. */
#include "runtime/cuda/gemm/tcgen_tiles.cuh"

enum { KIND = PARE_s8 };

template <int TO, bool GELU, wgmma_residual RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { DEEP = TO == PARE_f32 ? 4 : 5 };
    switch (p->tile) {
    case PARE_CUDA_128X64: return PARE_TCGEN_LAUNCH(TO, GELU, RESIDUAL, false, 64, 128, DEEP);
    case PARE_CUDA_128X128: return PARE_TCGEN_LAUNCH(TO, GELU, RESIDUAL, false, 128, 128, DEEP);
    default: return cudaErrorInvalidValue;
    }
}

template <int TO>
static cudaError_t residual_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (!p->z) return tile_choose<TO, false, RESIDUAL_NONE>(p, stream);
    if constexpr (TO != PARE_bf16)
        if (pare_type_is_int8(p->epilogue.z_type))
            return tile_choose<TO, false, RESIDUAL_BYTES>(p, stream);
    return tile_choose<TO, false, RESIDUAL_OF_Y>(p, stream);
}

extern "C" cudaError_t pare_cuda_tcgen_real_launch(const pare_cuda_gemm_args *p,
                                                   cudaStream_t stream)
{
    if (p->epilogue.act.kind == PARE_ACT_GELU)
        return tile_choose<PARE_s8, true, RESIDUAL_NONE>(p, stream);
    switch (p->y_type) {
    case PARE_f32: return residual_choose<PARE_f32>(p, stream);
    case PARE_f16: return residual_choose<PARE_f16>(p, stream);
    default: return residual_choose<PARE_bf16>(p, stream);
    }
}
