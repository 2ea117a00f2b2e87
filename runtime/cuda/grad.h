/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients element by element, and FakeQuantize: launchers of grad.cu. Sums are grad_sums.h's. */
#ifndef PARE_RUNTIME_CUDA_GRAD_H
#define PARE_RUNTIME_CUDA_GRAD_H

#include "runtime/cuda/fault.h"
#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* pare.UnaryGrad. Operands dx, g, v: what the derivative reads; row: of ops/grad_unary.inc, with
   its attributes. f32, f16 or bf16, computed in float. */
cudaError_t pare_cuda_unary_grad_launch(const pare_cuda_walk *w, pare_dtype dtype, int row, float a,
                                        float b, cudaStream_t stream);

/* Levels of FakeQuantize; zero: the zero points' type, PARE_NOTYPE: there are none. */
typedef struct pare_cuda_levels {
    float low, high;
    pare_dtype zero;
} pare_cuda_levels;

/* Operands y, x, scale, zero point (anything where there is none), f32. */
cudaError_t pare_cuda_fake_launch(const pare_cuda_walk *w, const pare_cuda_levels *levels,
                                  cudaStream_t stream);
/* Operands dx, dy, x, scale, zero point: dx = dy where x is inside, else 0. */
cudaError_t pare_cuda_fake_grad_launch(const pare_cuda_walk *w, const pare_cuda_levels *levels,
                                       cudaStream_t stream);

/* A pool's gradient: axes N, C, three of the window (missing ones of length 1). */
typedef struct pare_cuda_windows {
    const void *dy, *x; /* x: of maxima, else NULL */
    void *dx;
    pare_dtype dtype;
    int64_t count; /* of dx */
    int channels, in[3], out[3], kernel[3], stride[3], dilation[3], begin[3], end[3];
    int64_t x_stride[5], dx_stride[5], dy_stride[5];
    bool include_pad;
} pare_cuda_windows;
cudaError_t pare_cuda_pool_grad_launch(const pare_cuda_windows *p, cudaStream_t stream);

/* GatherGrad, row-major: dx (outer, n, inner), which is zero, gets dy (outer, count, inner). */
typedef struct pare_cuda_scattered {
    const void *dy, *index;
    void *dx;
    pare_dtype dtype, index_type;
    int64_t outer, n, count, inner;
    pare_cuda_fault fault;
} pare_cuda_scattered;
cudaError_t pare_cuda_gather_grad_launch(const pare_cuda_scattered *g, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
