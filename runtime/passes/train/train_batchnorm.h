/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization with the statistics of the batch instead of the running ones, for training. */
#ifndef PARE_RUNTIME_PASSES_TRAIN_TRAIN_BATCHNORM_H
#define PARE_RUNTIME_PASSES_TRAIN_TRAIN_BATCHNORM_H

#include "runtime/graph/graph.h"

/* A node that trains. Names and numbers are the model's. */
typedef struct pare_trained_norm {
    const char *sums; /* a new output, f64 [3, channels]: pare_trained_norm_moments reads it */
    const char *mean, *variance; /* the running statistics, (channels): initializers, or made of one
                                    by Identity, as exporters write tensors of equal content */
    const pare_tensor *mean0;    /* what `mean` holds now, which the sums are made against */
    float momentum;              /* running = running * momentum + batch's * (1 - momentum) */
} pare_trained_norm;

typedef struct pare_trained_norms {
    pare_trained_norm *norm; /* in order of the model's nodes */
    int count;
} pare_trained_norms;

/* Every BatchNormalization becomes BatchNormStats, SliceSum and BatchNormTrain (ops): in a plain
   run it uses the statistics of its batch, in a team (exec.h) those of all slices together. To be
   used before pare_pass_gradient, with keep_outputs: the sums are outputs after the model's own.
   Initializers of the mean must keep their content in plans of the model; those of the variance are
   read no more. A node whose running statistics are no f32 or f64 initializers stays as it is, and
   a warning names it. */
PARE_NODISCARD pare_status pare_pass_train_batchnorm(pare_model *model, pare_trained_norms *out);

/* The batch's mean and variance of a channel (of its n elements, not n - 1: ONNX
   BatchNormalization 15), from the content of the output `sums` and mean0's. */
void pare_trained_norm_moments(const double *sums, int64_t channels, int64_t channel, double mean0,
                               double *mean, double *variance);
#endif
