/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers to 8-bit integers on compute capability 10.0 (tcgen_tiles.cuh): bounds
   with or without a residual. Others: tcgen_real.cu, tcgen_half.cu, tcgen_f8.cu. */
#include "runtime/cuda/gemm/tcgen_tiles.cuh"

enum { KIND = PARE_s8 };

/* Steps of 64 bytes where a tap's depth is not in whole ones of 128. */
template <bool PICTURE, wgmma_residual RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
#define LAUNCH(BN, KB, DEEP) PARE_TCGEN_LAUNCH(PARE_s8, false, RESIDUAL, PICTURE, BN, KB, DEEP)
    if constexpr (PICTURE)
        if (p->in.channels % 128) switch (p->tile) {
            case PARE_CUDA_128X64: return LAUNCH(64, 64, 8);
            case PARE_CUDA_128X128: return LAUNCH(128, 64, 8);
            case PARE_CUDA_128X256: return LAUNCH(256, 64, 8);
            default: return cudaErrorInvalidValue;
            }
    switch (p->tile) {
    case PARE_CUDA_128X64: return LAUNCH(64, 128, 6);
    case PARE_CUDA_128X128: return LAUNCH(128, 128, 6);
    case PARE_CUDA_128X256: return LAUNCH(256, 128, 4);
    default: return cudaErrorInvalidValue;
    }
#undef LAUNCH
}

extern "C" const bool pare_cuda_tcgen_built = true;

extern "C" cudaError_t pare_cuda_tcgen_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0) return cudaSuccess;
    if (pare_type_is_f8(p->x_type)) return pare_cuda_tcgen_f8_launch(p, stream);
    if (!pare_type_is_int8(p->x_type)) return pare_cuda_tcgen_half_launch(p, stream);
    if (p->epilogue.real) return pare_cuda_tcgen_real_launch(p, stream);
    if (p->picture)
        return p->z ? tile_choose<true, RESIDUAL_OF_Y>(p, stream)
                    : tile_choose<true, RESIDUAL_NONE>(p, stream);
    return p->z ? tile_choose<false, RESIDUAL_OF_Y>(p, stream)
                : tile_choose<false, RESIDUAL_NONE>(p, stream);
}
