/* SPDX-License-Identifier: Apache-2.0 */
/* Pools over one to three window axes, any strides: launcher of pool.cu. */
#ifndef PARE_RUNTIME_CUDA_POOL_H
#define PARE_RUNTIME_CUDA_POOL_H

#include "runtime/ops/epilogue.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_cuda_pool_kind {
    PARE_CUDA_POOL_MAX,
    PARE_CUDA_POOL_AVERAGE,
    PARE_CUDA_POOL_LP /* (sum |x|^p)^(1/p); floats only */
} pare_cuda_pool_kind;

/* Axes N, C, then three of the window (missing ones of length 1). The window's lists are int: they
   are counts of taps and positions, checked to fit. */
typedef struct pare_cuda_pool {
    const void *x;
    void *y;
    pare_cuda_pool_kind kind;
    pare_dtype dtype; /* of x: f32, f16, bf16, s8, u8 */
    int64_t count;    /* outputs */
    int dim[5], in[3], kernel[3], stride[3], dilation[3], begin[3], end[3];
    int64_t x_stride[5], y_stride[5];
    bool include_pad;
    float p; /* of LP */
    /* averages of 8-bit numbers: v = (sum of (x - zero)) * factor / taps, then the epilogue */
    pare_epilogue epilogue;
    float factor;
    int zero;
} pare_cuda_pool;

cudaError_t pare_cuda_pool_launch(const pare_cuda_pool *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
