/* SPDX-License-Identifier: Apache-2.0 */
/* Products of E4M3 on compute capability 9.0 (wgmma_tiles.cuh): E4M3 with bounds and with or
   without a residual of E4M3, or behind the erf form of GELU; of matrices also f32, f16 or bf16
   with or without a residual of the same type or of E4M3. Sums twice, of a stage and of all, leave
   registers for a group of 64 rows alone. */
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

enum { KIND = PARE_f8e4m3 };

#define LAUNCH(TO, GELU, RESIDUAL, PICTURE, MI, BN, KB, DEEP, BLOCKS)                              \
    variant_launch<variant<KIND, TO, GELU, RESIDUAL, PICTURE, MI, BN, KB, DEEP, BLOCKS>>(p, stream)

/* Steps of 64 bytes where a tap's depth is not in whole ones of 128. */
template <wgmma_residual RESIDUAL>
static cudaError_t picture_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const bool narrow = p->in.channels % 128 != 0;
    if (p->tile == PARE_CUDA_256X64) return LAUNCH(KIND, false, RESIDUAL, true, 2, 64, 64, 8, 1);
    if (p->tile != PARE_CUDA_128X128) return cudaErrorInvalidValue;
    return narrow ? LAUNCH(KIND, false, RESIDUAL, true, 1, 128, 64, 12, 1)
                  : LAUNCH(KIND, false, RESIDUAL, true, 1, 128, 128, 6, 1);
}

template <int TO, bool GELU, wgmma_residual RESIDUAL>
static cudaError_t matrix_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { WIDE = TO == PARE_f32, BYTES = RESIDUAL == RESIDUAL_BYTES };
    switch (p->tile) {
    case PARE_CUDA_128X128:
        return LAUNCH(TO, GELU, RESIDUAL, false, 1, 128, 128, WIDE ? 4 : BYTES ? 5 : 6, 1);
    case PARE_CUDA_128X64: return LAUNCH(TO, GELU, RESIDUAL, false, 1, 64, 64, 6, 2);
    default: return cudaErrorInvalidValue;
    }
}

template <int TO>
static cudaError_t floats_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (!p->z) return matrix_choose<TO, false, RESIDUAL_NONE>(p, stream);
    if (p->epilogue.z_type != PARE_f8e4m3)
        return matrix_choose<TO, false, RESIDUAL_OF_Y>(p, stream);
    if constexpr (TO != PARE_bf16) return matrix_choose<TO, false, RESIDUAL_BYTES>(p, stream);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t pare_cuda_wgmma_f8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->x_type == PARE_f8e5m2) return pare_cuda_wgmma_f8e5m2_launch(p, stream);
    if (p->picture)
        return p->z ? picture_choose<RESIDUAL_OF_Y>(p, stream)
                    : picture_choose<RESIDUAL_NONE>(p, stream);
    if (p->epilogue.act.kind == PARE_ACT_GELU)
        return matrix_choose<KIND, true, RESIDUAL_NONE>(p, stream);
    switch (p->y_type) {
    case PARE_f32: return floats_choose<PARE_f32>(p, stream);
    case PARE_f16: return floats_choose<PARE_f16>(p, stream);
    case PARE_bf16: return floats_choose<PARE_bf16>(p, stream);
    default:
        return p->z ? matrix_choose<KIND, false, RESIDUAL_OF_Y>(p, stream)
                    : matrix_choose<KIND, false, RESIDUAL_NONE>(p, stream);
    }
}
