/* SPDX-License-Identifier: Apache-2.0 */
/* A depthwise convolution and the pointwise one behind it as one kernel (depthwise_tile.cuh). */
#ifndef PARE_RUNTIME_CUDA_CONV_DEPTHWISE_TILE_H
#define PARE_RUNTIME_CUDA_CONV_DEPTHWISE_TILE_H

#include "runtime/cuda/gemm/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_CUDA_DEPTHWISE_TAPS = 9,
    PARE_CUDA_DEPTHWISE_CHANNELS = 64, /* of 8 bits in a step of depth; half as many of 16 bits */
    PARE_CUDA_DEPTHWISE_STRIP = 8      /* neighbouring pixels of a line */
};

/* What a step of depth needs of the depthwise convolution: weights by taps, what sums begin with
   (the bits of 1.5 * 2^23 less the zero point's part: nine products are less than 2^22, so that a
   float counts them), biases and scales; behind the last channel 0. An absent bias is -0. */
typedef struct pare_cuda_depthwise_s8 {
    int8_t tap[PARE_CUDA_DEPTHWISE_TAPS][PARE_CUDA_DEPTHWISE_CHANNELS];
    int32_t start[2 * PARE_CUDA_DEPTHWISE_CHANNELS]; /* of two neighbours, twice */
    float bias[PARE_CUDA_DEPTHWISE_CHANNELS], scale[PARE_CUDA_DEPTHWISE_CHANNELS];
} pare_cuda_depthwise_s8;

/* The same of 16-bit types. */
typedef struct pare_cuda_depthwise_half {
    float tap[PARE_CUDA_DEPTHWISE_TAPS][PARE_CUDA_DEPTHWISE_CHANNELS / 2];
    float bias[PARE_CUDA_DEPTHWISE_CHANNELS / 2];
} pare_cuda_depthwise_half;

/* Of what pare_depthwise_pointwise_fits (ops/depthwise_pointwise.h) takes. */
typedef struct pare_cuda_separable {
    pare_cuda_gemm_args
        d; /* the depthwise convolution: x, in, fill, x_type, epilogue; w: records */
    pare_cuda_gemm_args p; /* the pointwise one: all but x; depth: channels */
    int images;
    /* set by pare_cuda_separable_set: */
    int columns;              /* of a block */
    int strips, across, down; /* of all pictures, of one: strips of 8 pixels by a few lines */
    bool wide;                /* Y is stored 16 bytes at once, not 8 */
    pare_cuda_fast_divisor by_across, by_down;
} pare_cuda_separable;

/* Where element k of a packed row of W is among the channels: integers come from tensor cores in
   an order of their own, of 16 channels each. */
static inline int64_t pare_cuda_separable_channel(int64_t k, int bytes)
{
    if (bytes > 1) return k;
    return (k & ~(int64_t)15) | (k & 4) << 1 | (k & 2) << 1 | (k & 8) >> 2 | (k & 1);
}

/* Lines of Y that a block makes, of each strip. */
static inline int pare_cuda_separable_lines(int stride) { return stride == 1 ? 8 : 4; }

void pare_cuda_separable_set(pare_cuda_separable *s);
cudaError_t pare_cuda_separable_launch(const pare_cuda_separable *s, cudaStream_t stream);
/* Of 8-bit and of 16-bit types. */
cudaError_t pare_cuda_separable_int8_launch(const pare_cuda_separable *s, cudaStream_t stream);
cudaError_t pare_cuda_separable_half_launch(const pare_cuda_separable *s, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
