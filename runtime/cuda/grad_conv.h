/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a convolution as matrix products of floats: launcher of grad_conv.cu. */
#ifndef PARE_RUNTIME_CUDA_GRAD_CONV_H
#define PARE_RUNTIME_CUDA_GRAD_CONV_H

#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Three window axes (missing ones of length 1); channels and filters of one group. Strides of X or
   dX and of dY: N, C, window axes; of W or dW: filters, channels, window axes. f32, f16 or bf16,
   summed in float. */
typedef struct pare_cuda_conv_grad {
    const void *dy, *with; /* with: W for dX, X for dW */
    void *to;
    float *part; /* of dW in splits > 1: (groups, splits, filters, channels taps) */
    pare_dtype dtype;
    bool weight; /* dW, else dX */
    int n, groups, channels, filters, splits;
    int in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
    int64_t x_stride[5], dy_stride[5], w_stride[5];
} pare_cuda_conv_grad;

cudaError_t pare_cuda_conv_grad_launch(const pare_cuda_conv_grad *g, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
