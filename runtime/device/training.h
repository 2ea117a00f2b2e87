/* SPDX-License-Identifier: Apache-2.0 */
/* What a device does for training beside running graphs: sums over slices of a batch, gradients
   added up, steps of the optimizer on all weights at once. Everything is put into a stream; memory
   named here is the device's unless said otherwise. Sums have one order each, which sizes alone
   decide: the same bytes in every run. */
#ifndef PARE_RUNTIME_DEVICE_TRAINING_H
#define PARE_RUNTIME_DEVICE_TRAINING_H

#include "runtime/base/both.h"
#include "runtime/base/tree_sum.h"
#include "runtime/base/types.h"
#include "runtime/device/device.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a step of an optimizer does to one element: one text for every backend.
   AdamW: Loshchilov, Hutter 2019, algorithm 2, in PyTorch's order of operations. SGD: buffer =
   momentum buffer + gradient, value -= learning_rate buffer, as PyTorch defines it, with decoupled
   decay instead of a term of the gradient. */
typedef struct pare_train_rule {
    bool adamw; /* else SGD */
    double learning_rate, weight_decay;
    double correction; /* AdamW: 1 - beta1^step */
    float root;        /* AdamW: sqrt(1 - beta2^step) */
    float scale;       /* of gradients */
    float one1, one2;  /* 1 - beta1, 1 - beta2 */
    float beta2, epsilon;
    float momentum; /* SGD */
} pare_train_rule;

/* What elements of one learning rate share. */
typedef struct pare_train_step {
    float decay_factor; /* of the value */
    float step_size;    /* AdamW: -learning_rate / correction; SGD: learning_rate */
} pare_train_step;

PARE_BOTH pare_train_step pare_train_step_of(const pare_train_rule *r, double learning_rate,
                                             bool decays)
{
    pare_train_step s;
    s.decay_factor = (float)(1 - learning_rate * (decays ? r->weight_decay : 0));
    s.step_size = r->adamw ? (float)(-learning_rate / r->correction) : (float)learning_rate;
    return s;
}

typedef struct pare_train_element {
    float value, exp_avg, exp_avg_sq; /* exp_avg_sq: AdamW only */
} pare_train_element;

PARE_BOTH pare_train_element pare_adamw_step(const pare_train_rule *r, pare_train_step s,
                                             float gradient, pare_train_element e)
{
    const float g = gradient * r->scale;
    const float m = e.exp_avg + r->one1 * (g - e.exp_avg);
    const float v = e.exp_avg_sq * r->beta2 + r->one2 * g * g;
    e.exp_avg = m;
    e.exp_avg_sq = v;
    e.value = e.value * s.decay_factor + s.step_size * m / (sqrtf(v) / r->root + r->epsilon);
    return e;
}

PARE_BOTH pare_train_element pare_sgd_step(const pare_train_rule *r, pare_train_step s,
                                           float gradient, pare_train_element e)
{
    const float m = r->momentum * e.exp_avg + gradient * r->scale;
    e.exp_avg = m;
    e.value = e.value * s.decay_factor - s.step_size * m;
    return e;
}

/* A learned scale stays within a factor of 16 of what it was, thus positive. */
PARE_BOTH float pare_train_hold(float value, float start)
{
    const float most = 16;
    return fminf(fmaxf(value, start / most), start * most);
}

/* Every y is the sum of all x in the tree of tree_sum.h: pare.SliceSum of one tensor. x[i] and y[i]
   may be the same. */
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
typedef struct pare_train_chunk {
    int64_t at; /* in its tensor */
    int count, tensor;
} pare_train_chunk;

enum {
    PARE_TRAIN_CHUNK = 4096, /* most elements of a chunk */
    PARE_TRAIN_LANES = 256   /* in which sums over chunks are made */
};

/* The sum over numbers of all chunks as `squares` makes it: a lane adds up every 256th, then halves
   of the lanes are added until one is left. */
static inline double pare_train_chunks_sum(const double *x, int count)
{
    double lane[PARE_TRAIN_LANES] = {0};
    for (int i = 0; i < count; i++) lane[i % PARE_TRAIN_LANES] += x[i];
    for (int apart = PARE_TRAIN_LANES / 2; apart; apart /= 2)
        for (int k = 0; k < apart; k++) lane[k] += lane[k + apart];
    return lane[0];
}

typedef struct pare_train_blocks {
    float *value, *gradient, *exp_avg;
    float *exp_avg_sq, *ema; /* or NULL */
    float *waiting;          /* (levels) blocks: sums of gradients; NULL: none waits */
    int64_t floats;          /* of a block */
    const float *start;      /* values at the beginning, where scales are learned; or NULL */
    const uint8_t *zero;     /* masks; NULL: none */
    const pare_train_tensor *tensor;
    const pare_train_chunk *chunk; /* (chunks): in order, every element once */
    int chunks;                    /* 0: there are no weights */
    double *sum;                   /* (chunks + 1): room; the result first */
} pare_train_blocks;

struct pare_training_table {
    pare_status (*slices)(pare_ctx *ctx, pare_stream *stream, const pare_slice_sums *sums);
    /* from[tensor], (tensors) on the device, are a term of the sum of gradients; NULL: the block of
       gradients is. The result waits, or is the block of gradients. */
    pare_status (*gather)(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks,
                          const float *const *from, pare_tree_term term);
    /* Clears gradients of elements that stay 0, scales those of learned scales; sum[1 + i] becomes
       the sum of the squares in chunk i, sum[0] that of all of them by pare_train_chunks_sum. */
    pare_status (*squares)(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks);
    /* One step; where there is an ema, ema += part (value - ema) after it. */
    pare_status (*step)(pare_ctx *ctx, pare_stream *stream, const pare_train_blocks *blocks,
                        const pare_train_rule *rule, float part);
};

#ifdef __cplusplus
}
#endif
#endif
