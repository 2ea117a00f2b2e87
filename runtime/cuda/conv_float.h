/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution whose weights are computed, and its gradients, as matrix products of floats:
   launcher of conv_float.cu. */
#ifndef PARE_RUNTIME_CUDA_CONV_FLOAT_H
#define PARE_RUNTIME_CUDA_CONV_FLOAT_H

#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_cuda_conv_makes {
    PARE_CUDA_CONV_Y,  /* of x, w and, where it is not NULL, bias */
    PARE_CUDA_CONV_DX, /* of y (dY) and w */
    PARE_CUDA_CONV_DW, /* of y (dY) and x */
} pare_cuda_conv_makes;

/* Three window axes (missing ones of length 1); channels and filters of one group. Strides of X or
   dX and of Y or dY: N, C, window axes; of W or dW: filters, channels, window axes. f32, f16 or
   bf16, summed in float. */
typedef struct pare_cuda_conv_float {
    const void *x, *w, *y, *bias; /* what it is made of */
    void *to;
    float *part; /* of dW in splits > 1: (groups, splits, filters, channels taps) */
    pare_dtype dtype;
    pare_cuda_conv_makes makes;
    int n, groups, channels, filters, splits;
    int in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
    int64_t x_stride[5], y_stride[5], w_stride[5];
} pare_cuda_conv_float;

cudaError_t pare_cuda_conv_float_launch(const pare_cuda_conv_float *f, cudaStream_t stream);

/* The last of Conv's kernels: takes every one of floats, weights that are computed, too. */
extern const pare_kernel pare_cuda_conv_any;

#ifdef __cplusplus
}
#endif
#endif
