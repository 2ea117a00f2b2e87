/* SPDX-License-Identifier: Apache-2.0 */
/* First convolutions with the MaxPool behind them (conv_stem_pool.cu). */
#ifndef PARE_RUNTIME_CUDA_CONV_CONV_STEM_POOL_H
#define PARE_RUNTIME_CUDA_CONV_CONV_STEM_POOL_H

#include "runtime/cuda/conv/conv_stem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_CUDA_STEM_POOL_APART = 2 }; /* windows of the pool, and of the convolution */

/* Of what pare_conv_pool_fits (ops/conv_pool.h) takes. The picture and the convolution's positions
   are in pare_cuda_gemm_args, depth is PARE_CUDA_STEM_LINE a line of the window; Y is the pool's.
 */
typedef struct pare_cuda_stem_pool {
    int kernel[2], begin[2]; /* of the pool */
    int height, width;       /* of Y */
    int images;
    /* set by pare_cuda_stem_pool_set: */
    int strips, segments; /* blocks of an image: across, down */
    int lines;            /* of Y, of a block */
    unsigned above;       /* all bits, where the line above a step's two is in its windows */
    int next;             /* lanes to the one with a window's third position; 0: it has none */
    bool packed; /* pixels are three numbers one after the other, and four begin at words */
    pare_cuda_fast_divisor by_strips, by_segments;
} pare_cuda_stem_pool;

/* Kernel, begin, height, width and images are set; filters are packed as pare_cuda_stem_takes says.
 */
void pare_cuda_stem_pool_set(const pare_cuda_gemm_args *p, pare_cuda_stem_pool *s);
cudaError_t pare_cuda_stem_pool_launch(const pare_cuda_gemm_args *p, const pare_cuda_stem_pool *s,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
