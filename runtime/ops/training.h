/* SPDX-License-Identifier: Apache-2.0 */
/* What a device does for training beside running graphs: sums over slices of a batch, gradients
   added up, steps of the optimizer on all weights at once. Everything is put into a stream; memory
   named here is the device's unless said otherwise. Sums have one order each, which sizes alone
   decide: the same bytes in every run. */
#ifndef PARE_RUNTIME_OPS_TRAINING_H
#define PARE_RUNTIME_OPS_TRAINING_H

#include "runtime/ops/kernel.h"
#include "runtime/ops/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[0] = ((x[0] + x[1]) + x[2]) + ..., and so every y: pare.SliceSum of one tensor. */
typedef struct pare_slice_sums {
    pare_dtype dtype; /* f32 or f64 */
    int64_t count;
    const void *const *x; /* (slices): in host memory, as is y */
    void *const *y;
    int slices;
} pare_slice_sums;

/* A tensor of weights in the blocks. */
typedef struct pare_train_tensor {
    int64_t at;           /* where it begins */
    int64_t zero;         /* where its mask begins; -1: none */
    float gradient_scale; /* of a scale that is learned, by steps relative to what it was; else 0 */
    int decays;
} pare_train_tensor;

/* A stretch of a tensor that one group of threads works on. */
typedef struct pare_train_piece {
    int64_t at; /* in its tensor */
    int count, tensor;
} pare_train_piece;

enum { PARE_TRAIN_PIECE = 4096 }; /* most elements of a piece */

typedef struct pare_train_blocks {
    float *value, *gradient, *first;
    float *second, *average; /* or NULL */
    const float *start;      /* values at the beginning, where scales are learned; or NULL */
    const uint8_t *zero;     /* masks; NULL: none */
    const pare_train_tensor *tensor;
    const pare_train_piece *piece; /* (pieces): in order, every element once */
    int pieces;
    double *sum; /* (pieces + 1): room; the result first */
} pare_train_blocks;

struct pare_training_table {
    pare_status (*slices)(pare_ctx *ctx, pare_stream *stream, const pare_slice_sums *sums);
    /* Adds from[tensor] to the block of gradients, or sets it. from: (tensors) on the device. */
    pare_status (*gather)(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks,
                          const float *const *from, bool set);
    /* Clears gradients of elements that stay 0, scales those of learned scales; sum[0] becomes the
       sum of all squares. */
    pare_status (*squares)(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks);
    /* One step; where there are averages, average += part (value - average) after it. */
    pare_status (*step)(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks,
                        const pare_train_rule *rule, float part);
};

#ifdef __cplusplus
}
#endif
#endif
