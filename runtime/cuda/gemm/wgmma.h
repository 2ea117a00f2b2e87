/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers by the instructions of compute capability 9.0 alone: stages are filled
   by tensor maps, matrices and windows of pictures alike, and two groups of four warps multiply a
   tile. Builds without code for it have wgmma_none.c instead, which takes nothing. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_H
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_H

#include "runtime/cuda/gemm/gemm.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The column that is row r of the packed W: a thread's sums of two instructions' eight columns are
   then four neighbours, as line_column of tile.cuh has them for mma.sync. */
static inline int64_t pare_wgmma_column(int64_t r)
{
    return (r & ~(int64_t)15) | (r & 6) << 1 | (r & 8) >> 2 | (r & 1);
}

/* Can the node's device compute product p, whose epilogue is *e (not read where X is floats), in
   such tiles, and is it large enough? x_zero: X's zero point. */
bool pare_cuda_wgmma_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                          const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile);
/* p: one that fits, W's rows in that order. */
cudaError_t pare_cuda_wgmma_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
