/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of E5M2 on compute capability 9.0 (wgmma_tiles.cuh), with bounds and no residual:
   to E5M2, f32, f16 or bf16. */
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

template <int TO> static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { KIND = PARE_f8e5m2, NONE = RESIDUAL_NONE, DEEP = TO == PARE_f32 ? 4 : 6 };
    switch (p->tile) {
    case PARE_CUDA_128X128:
        return variant_launch<variant<KIND, TO, false, NONE, false, 1, 128, 128, DEEP, 1>>(p,
                                                                                           stream);
    case PARE_CUDA_128X64:
        return variant_launch<variant<KIND, TO, false, NONE, false, 1, 64, 64, 6, 2>>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t pare_cuda_wgmma_f8e5m2_launch(const pare_cuda_gemm_args *p,
                                                     cudaStream_t stream)
{
    if (p->picture || p->z || !act_is_bounds(p->epilogue.act)) return cudaErrorInvalidValue;
    switch (p->y_type) {
    case PARE_f32: return tile_choose<PARE_f32>(p, stream);
    case PARE_f16: return tile_choose<PARE_f16>(p, stream);
    case PARE_bf16: return tile_choose<PARE_bf16>(p, stream);
    default: return tile_choose<PARE_f8e5m2>(p, stream);
    }
}
