/* SPDX-License-Identifier: Apache-2.0 */
/* f32 in the tiles of tensor cores: by plain multiply-adds, each sum in order of depth whatever the
   tile, or as TF32. */
#include "runtime/cuda/gemm/gemm_f32_tiles.h"
#include "runtime/cuda/gemm/gemm_tiles.cuh"

template <int KIND, template <typename> class ROWS>
static cudaError_t f32_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->tile) {
    case PARE_CUDA_128X128: return tile_launch<KIND, tile_128x128, ROWS, EPILOGUE_ANY>(p, stream);
    case PARE_CUDA_128X64: return tile_launch<KIND, tile_128x64, ROWS, EPILOGUE_ANY>(p, stream);
    default: return tile_launch<KIND, tile_64x64, ROWS, EPILOGUE_ANY>(p, stream);
    }
}

template <int KIND>
static cudaError_t kind_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    return p->picture ? f32_launch<KIND, im2col_iterator>(p, stream)
                      : f32_launch<KIND, matrix_iterator>(p, stream);
}

extern "C" cudaError_t pare_cuda_gemm_f32_tiles_launch(const pare_cuda_gemm_args *p,
                                                       cudaStream_t stream)
{
    return kind_launch<PARE_f32>(p, stream);
}

extern "C" cudaError_t pare_cuda_gemm_tf32_tiles_launch(const pare_cuda_gemm_args *p,
                                                        cudaStream_t stream)
{
    return kind_launch<PARE_CUDA_TF32>(p, stream);
}
