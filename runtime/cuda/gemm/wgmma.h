/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers, FP8, f16 and bf16 by the instructions of compute capability 9.0
   alone: stages are filled by tensor maps, matrices and windows of pictures alike, and two groups
   of four warps multiply a tile. Builds without code for it have wgmma_none.c instead, which takes
   nothing. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_H
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_H

#include "runtime/cuda/gemm/gemm.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The column that is row r of the packed W, where a number of Y has so many bytes: a thread's sums
   of two instructions' eight columns are then four neighbours, as line_column of tile.cuh has them
   for mma.sync, and what eight lanes (bytes: 32; halves: 16) write at once falls into different
   banks. */
static inline int64_t pare_wgmma_column(int64_t r, int y_bytes)
{
    const int64_t lane = r >> 1 & 3, pair = r >> 4, four = (r & 8) >> 2 | (r & 1);
    if (y_bytes == 1) return (r & ~(int64_t)15) | lane << 2 | four;
    if (y_bytes == 2)
        return (r & ~(int64_t)63) | (lane >> 1) << 5 | (pair & 3) << 3 | (lane & 1) << 2 | four;
    return (r & ~(int64_t)31) | lane << 3 | (pair & 1) << 2 | four;
}

/* Rows of the packed W: those behind the last column are not read where Y is. */
static inline int64_t pare_wgmma_rows(int64_t columns, int y_bytes)
{
    const int64_t lot = y_bytes == 1 ? 16 : y_bytes == 2 ? 64 : 32;
    return (columns + lot - 1) / lot * lot;
}

/* Entries of `four`: a tile reads those of columns behind the last, too. */
enum { PARE_WGMMA_WIDEST = 256 };
static inline int64_t pare_wgmma_fours(int64_t columns)
{
    return (columns + PARE_WGMMA_WIDEST) / 4;
}

/* The same of products with weights of 2:4, whose sums are the other way round: a thread has rows
   r and r + 8 of 16. */
static inline int64_t pare_wgmma_sparse_column(int64_t r)
{
    return (r & ~(int64_t)15) | (r & 7) << 1 | (r >> 3 & 1);
}
static inline int64_t pare_wgmma_sparse_rows(int64_t columns) { return (columns + 15) / 16 * 16; }

/* Can the node's device compute product p, whose epilogue is *e, in such tiles, and is it large
   enough? x_zero: X's zero point. */
bool pare_cuda_wgmma_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                          const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile);
/* p: one that fits, W's rows in that order. */
cudaError_t pare_cuda_wgmma_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* The same of f16 and bf16; of integers whose Y is in real units: floats, or behind a GELU. */
cudaError_t pare_cuda_wgmma_half_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_wgmma_real_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* The same of FP8. */
cudaError_t pare_cuda_wgmma_f8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_wgmma_f8e5m2_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* The same of weights of 2:4 (sparse.h). */
bool pare_cuda_wgmma_sparse_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                                 const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile);
cudaError_t pare_cuda_wgmma_sparse_launch(const pare_cuda_gemm_args *p, const void *meta,
                                          cudaStream_t stream);
cudaError_t pare_cuda_wgmma_sparse_half_launch(const pare_cuda_gemm_args *p, const void *meta,
                                               cudaStream_t stream);
cudaError_t pare_cuda_wgmma_sparse_real_launch(const pare_cuda_gemm_args *p, const void *meta,
                                               cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
