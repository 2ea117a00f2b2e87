/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization while training (internal to distill/). */
#ifndef PARE_DISTILL_BATCHNORM_H
#define PARE_DISTILL_BATCHNORM_H

#include "distill/weights.h"
#include "runtime/exec/exec.h"
#include "runtime/passes/train/train_batchnorm.h"

/* Is this input of the node a statistic (running mean or variance), which no gradient trains? */
bool pare_batchnorm_is_statistic(const pare_node *node, int input);

/* A node that normalizes by its batch, and the running statistics that follow. */
typedef struct pare_batchnorm {
    int sums;           /* the plan's output that holds its sums */
    int mean, variance; /* places among the weights; -1: it is not f32 and stays */
    int64_t channels;
    const pare_tensor *mean0; /* what the sums are made against */
    double momentum;
} pare_batchnorm;

/* Moves running statistics of the block towards those of the batch that was run:
     running = running * momentum + batch * (1 - momentum)     (ONNX BatchNormalization 15) */
void pare_batchnorm_follow(const pare_batchnorm *norm, const pare_weights *weights,
                           const pare_runner *runner);

#endif
