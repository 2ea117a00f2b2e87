/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 whose factors chunks bring. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_F32_TILES_H
#define PARE_RUNTIME_CUDA_GEMM_GEMM_F32_TILES_H

#include "runtime/cuda/gemm/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* p: pare_cuda_by_chunks, W too, of f32. By plain multiply-adds. */
cudaError_t pare_cuda_gemm_f32_tiles_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* The same on tensor cores, as TF32; W is rounded to it already. */
cudaError_t pare_cuda_gemm_tf32_tiles_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
