/* SPDX-License-Identifier: Apache-2.0 */
/* First convolutions, whose pictures have few channels (conv_stem.cu). */
#ifndef PARE_RUNTIME_CUDA_CONV_CONV_STEM_H
#define PARE_RUNTIME_CUDA_CONV_CONV_STEM_H

#include "runtime/cuda/gemm/gemm.h"
#include "runtime/cuda/gemm/pack.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_CUDA_STEM_WINDOW = 8, /* pixels of a line of the window, with weights of 0 at its end */
    PARE_CUDA_STEM_LINE = PARE_CUDA_STEM_WINDOW * PARE_CUDA_STEM_CHANNELS
};

/* Of a convolution of one group, up to PARE_CUDA_STEM_CHANNELS channels that are together, windows
   of at most PARE_CUDA_STEM_WINDOW pixels across and dilation 1: has the kernel its epilogue, its
   number of filters, and room? depth: that of packed rows, which are (lines of the window,
   PARE_CUDA_STEM_WINDOW, PARE_CUDA_STEM_CHANNELS). Y's rows are multiples of 16 bytes. */
bool pare_cuda_stem_takes(const pare_cuda_gemm_args *p);
/* Sets what the kernel divides by. */
void pare_cuda_stem_tiles(pare_cuda_gemm_args *p);
cudaError_t pare_cuda_stem_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
