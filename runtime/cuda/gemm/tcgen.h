/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers, FP8, f16 and bf16 by the instructions of compute capability 10.0:
   stages are filled by tensor maps, matrices and windows of pictures alike, and sums are in tensor
   memory. Which products fit, wgmma.cu says (pare_cuda_tcgen_fits). Builds without code for it have
   tcgen_none.c instead. */
#ifndef PARE_RUNTIME_CUDA_GEMM_TCGEN_H
#define PARE_RUNTIME_CUDA_GEMM_TCGEN_H

#include "runtime/cuda/gemm/wgmma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is there code for compute capability 10.0 in this build? */
extern const bool pare_cuda_tcgen_built;
/* Was a first small product of the node's device right? It is run at the first question; where it
   was not, a warning says so, and no product fits. */
bool pare_cuda_tcgen_is_right(const pare_prep *prep);
/* As pare_cuda_wgmma_fits. */
bool pare_cuda_tcgen_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                          const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile);
/* p: one that fits; rows of W are columns in order. */
cudaError_t pare_cuda_tcgen_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* The same of f16 and bf16; of integers whose Y is in real units; of FP8. */
cudaError_t pare_cuda_tcgen_half_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_tcgen_real_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_tcgen_f8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
