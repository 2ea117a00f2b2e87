/* SPDX-License-Identifier: Apache-2.0 */
/* What follows the statistics of a normalization, element by element: launchers of norm.cu. All
   take f32, f16 or bf16 and compute in float. */
#ifndef PARE_RUNTIME_CUDA_NORM_H
#define PARE_RUNTIME_CUDA_NORM_H

#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operands y, x, statistics (two doubles: mean, 1 / deviation), scale, bias:
   y = (x - mean) / deviation * scale + bias. */
cudaError_t pare_cuda_center_launch(const pare_cuda_walk *w, pare_dtype dtype, cudaStream_t stream);

/* BatchNormalization's constants of n channels: factor[2c] = scale / sqrt(var + epsilon),
   factor[2c + 1] = B - mean factor[2c]. in: scale, B, mean, var, each (n) of its own float type. */
typedef struct pare_cuda_channels {
    const void *in[4];
    pare_dtype type[4];
    float *factor; /* (n, 2) */
    int64_t n;
    float epsilon;
} pare_cuda_channels;

cudaError_t pare_cuda_channels_launch(const pare_cuda_channels *c, cudaStream_t stream);

/* Operands y, x, factor and shift (two floats): y = x factor + shift. */
cudaError_t pare_cuda_affine_launch(const pare_cuda_walk *w, pare_dtype dtype, cudaStream_t stream);

/* Operands y, x, norm (double): y = x / norm, 0 where it is 0. */
cudaError_t pare_cuda_divide_launch(const pare_cuda_walk *w, pare_dtype dtype, cudaStream_t stream);

/* LRN (13). Operands y, x, and one whose offset is the channel's number. */
typedef struct pare_cuda_neighbours {
    pare_dtype dtype;
    int64_t channels, stride, before, after; /* of x's channels; neighbours on either side */
    float alpha, beta, bias;                 /* alpha by now divided by size */
} pare_cuda_neighbours;

cudaError_t pare_cuda_lrn_launch(const pare_cuda_walk *w, const pare_cuda_neighbours *lrn,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
