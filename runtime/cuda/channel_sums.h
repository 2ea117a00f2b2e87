/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the elements of each channel, in double and in an order that the shape alone decides;
   channel_sums.cu. */
#ifndef PARE_RUNTIME_CUDA_CHANNEL_SUMS_H
#define PARE_RUNTIME_CUDA_CHANNEL_SUMS_H

#include "runtime/cuda/tensor_iterator.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Levels of FakeQuantize; zero: the zero points' type, PARE_NOTYPE: there are none. */
typedef struct pare_cuda_levels {
    float low, high;
    pare_dtype zero;
} pare_cuda_levels;

/* Which two numbers are summed, and where they go. */
typedef enum pare_cuda_sums_kind {
    PARE_CUDA_SUMS_FAKE,  /* operands dy, x; scale, zero: of channel c. FakeQuantizeGrad's dScale */
    PARE_CUDA_SUMS_STATS, /* operand x; shift: mean0. BatchNormStats: doubles (3, channels) */
    PARE_CUDA_SUMS_GRAD,  /* operands dy, x; stats. BatchNormGradStats: doubles (2, channels),
                             dScale, dBias */
    PARE_CUDA_SUMS_LAYER  /* operands dy, x, stats of the row. LayerNormGrad's dScale, dBias */
} pare_cuda_sums_kind;

typedef struct pare_cuda_sums {
    pare_cuda_sums_kind kind;
    pare_dtype dtype, vectors; /* of the operands; of first and second */
    pare_cuda_iterator w;      /* the elements of channel 0 */
    int64_t channels, step[3]; /* of operand k from one channel to the next */
    int parts;                 /* blocks that share a channel */
    double *part;              /* scratch: (channels, parts, 2) */
    const double *stats;       /* (channels, or rows of LAYER; 2): mean, 1 / deviation */
    const float *shift;        /* (channels) */
    const float *scale;
    const void *zero;
    int64_t zero_step; /* 0: one zero point */
    pare_cuda_levels levels;
    double *sums;         /* out; NULL: none */
    void *first, *second; /* out: (channels); NULL: not asked for */
} pare_cuda_sums;

/* Sets walk, channels, steps and parts for operands of one shape; axis: of the channels, -1: there
   is one channel. Then bytes of `part`. */
size_t pare_cuda_sums_set(pare_cuda_sums *s, const pare_view *const *v, int operands, int axis);
cudaError_t pare_cuda_sums_launch(const pare_cuda_sums *s, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
