/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 whose factors chunks bring. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_F32_TILES_H
#define PARE_RUNTIME_CUDA_GEMM_GEMM_F32_TILES_H

#include "runtime/cuda/gemm/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products that the smallest tile is too large for stay with gemm_f32.cu, whose threads outside of
   a product do not work. */
enum { PARE_CUDA_F32_ROWS = 32, PARE_CUDA_F32_COLUMNS = 64 };
static inline bool pare_cuda_f32_is_large(const pare_cuda_gemm_args *p)
{
    return p->rows >= PARE_CUDA_F32_ROWS && p->columns >= PARE_CUDA_F32_COLUMNS;
}
static inline bool pare_cuda_f32_tiles_take(const pare_cuda_gemm_args *p)
{
    return p->x_step == 1 && p->w_step == 1 && p->weights.type == PARE_NOTYPE &&
           pare_cuda_f32_is_large(p) && pare_cuda_by_chunks(p);
}
/* p: one of these, of f32. By plain multiply-adds. */
cudaError_t pare_cuda_gemm_f32_tiles_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* On tensor cores, as TF32, of any size; chunks bring both factors, and W is rounded already. */
cudaError_t pare_cuda_gemm_tf32_tiles_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
