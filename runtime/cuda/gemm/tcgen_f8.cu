/* SPDX-License-Identifier: Apache-2.0 */
/* Products of FP8 on compute capability 10.0 (tcgen_tiles.cuh). E4M3: E4M3 with bounds and with or
   without a residual of E4M3, or behind the erf form of GELU; of matrices also f32, f16 or bf16
   with or without a residual of the same type or of E4M3. E5M2: matrices with bounds, to E5M2 or
   floats. The instruction's sums are not added up anew: with how many bits it
   adds was not measured. */
#include "runtime/cuda/gemm/tcgen_tiles.cuh"

template <int KIND, int TO, bool GELU, bool PICTURE, wgmma_residual RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { DEEP = TO == PARE_f32 ? 4 : 5 };
    switch (p->tile) {
    case PARE_CUDA_128X64: return PARE_TCGEN_LAUNCH(TO, GELU, RESIDUAL, PICTURE, 64, 128, DEEP);
    case PARE_CUDA_128X128: return PARE_TCGEN_LAUNCH(TO, GELU, RESIDUAL, PICTURE, 128, 128, DEEP);
    default: return cudaErrorInvalidValue;
    }
}

template <int TO>
static cudaError_t floats_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->x_type == PARE_f8e5m2)
        return tile_choose<PARE_f8e5m2, TO, false, false, RESIDUAL_NONE>(p, stream);
    if (!p->z) return tile_choose<PARE_f8e4m3, TO, false, false, RESIDUAL_NONE>(p, stream);
    if constexpr (TO != PARE_bf16)
        if (p->epilogue.z_type == PARE_f8e4m3)
            return tile_choose<PARE_f8e4m3, TO, false, false, RESIDUAL_BYTES>(p, stream);
    return tile_choose<PARE_f8e4m3, TO, false, false, RESIDUAL_OF_Y>(p, stream);
}

template <bool PICTURE>
static cudaError_t codes_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { E4M3 = PARE_f8e4m3 };
    return p->z ? tile_choose<E4M3, E4M3, false, PICTURE, RESIDUAL_OF_Y>(p, stream)
                : tile_choose<E4M3, E4M3, false, PICTURE, RESIDUAL_NONE>(p, stream);
}

extern "C" cudaError_t pare_cuda_tcgen_f8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { E4M3 = PARE_f8e4m3, E5M2 = PARE_f8e5m2 };
    switch (p->y_type) {
    case PARE_f32: return floats_choose<PARE_f32>(p, stream);
    case PARE_f16: return floats_choose<PARE_f16>(p, stream);
    case PARE_bf16: return floats_choose<PARE_bf16>(p, stream);
    default: break;
    }
    if (p->x_type == PARE_f8e5m2)
        return tile_choose<E5M2, E5M2, false, false, RESIDUAL_NONE>(p, stream);
    if (p->epilogue.act.kind == PARE_ACT_GELU)
        return tile_choose<E4M3, E4M3, true, false, RESIDUAL_NONE>(p, stream);
    return p->picture ? codes_choose<true>(p, stream) : codes_choose<false>(p, stream);
}
