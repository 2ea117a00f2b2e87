/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the elements of each channel, in double and in an order that the shape alone decides;
   launchers of grad_sums.cu. */
#ifndef PARE_RUNTIME_CUDA_GRAD_SUMS_H
#define PARE_RUNTIME_CUDA_GRAD_SUMS_H

#include "runtime/cuda/grad.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    pare_dtype dtype;
    pare_cuda_walk w;          /* the elements of channel 0 */
    int64_t channels, step[3]; /* of operand k from one channel to the next */
    int parts;                 /* blocks that share a channel */
    double *part;              /* scratch: (channels, parts, 2) */
    const double *stats;       /* (channels, or rows of LAYER; 2): mean, 1 / deviation */
    const void *shift;         /* (channels) of dtype */
    const float *scale;
    const void *zero;
    int64_t zero_step; /* 0: one zero point */
    pare_cuda_levels levels;
    double *sums;         /* out; NULL: none */
    void *first, *second; /* out: (channels) of dtype; NULL: not asked for */
} pare_cuda_sums;

/* Sets walk, channels, steps and parts for operands of one shape; axis: of the channels, -1: there
   is one channel. Then bytes of `part`. */
size_t pare_cuda_sums_set(pare_cuda_sums *s, const pare_view *const *v, int operands, int axis);
cudaError_t pare_cuda_sums_launch(const pare_cuda_sums *s, cudaStream_t stream);

/* BatchNormalization in training (ops/train_batchnorm.c): what channels have from their sums. */
typedef struct pare_cuda_moments {
    const double *sums, *gsums; /* (3, channels), (2, channels) or NULL */
    const void *mean0, *scale;  /* (channels) of dtype; scale: with gsums */
    pare_dtype dtype;
    int64_t channels;
    double epsilon;
    double *stats;  /* out: (channels, 2) mean, 1 / deviation */
    double *slopes; /* out, with gsums: (channels, 3) f, p, q of dX = f dY + p (X - mean) + q */
} pare_cuda_moments;
cudaError_t pare_cuda_moments_launch(const pare_cuda_moments *m, cudaStream_t stream);

/* Operands y, x, scale, bias, stats (two doubles): (x - mean) inv scale + bias. */
cudaError_t pare_cuda_norm_train_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                        cudaStream_t stream);
/* Operands dx, dy, x, stats, slopes (three doubles). */
cudaError_t pare_cuda_norm_grad_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
