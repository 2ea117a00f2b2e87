/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions without a matrix product: one thread an output, or four neighbouring channels of a
   depthwise one. For groups of few channels, and for integers that tensor cores do not take. */
#ifndef PARE_RUNTIME_CUDA_DIRECT_H
#define PARE_RUNTIME_CUDA_DIRECT_H

#include "runtime/cuda/product.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_cuda_direct {
    pare_cuda_product p;  /* rows, in, y, z, scale, bias, epilogue, finish; columns: all filters */
    const void *x_zero;   /* on the device: one number of x's type; NULL: */
    int32_t x_zero_value; /* this one */
    int taps, group_columns; /* filters of a group */
    bool four;               /* depthwise, all channels in fours that lie together */
} pare_cuda_direct;

/* p.w: (taps, channels of a group, filters), of x's type, of 8-bit types s16 without zero point. */
cudaError_t pare_cuda_direct_launch(const pare_cuda_direct *d, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
