/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a step, and one step of an optimizer on one tensor of f32 master weights
   (internal to distill/). Every element is computed by itself: threads change nothing. */
#ifndef PARE_DISTILL_OPTIMIZER_H
#define PARE_DISTILL_OPTIMIZER_H

#include "distill/training.h"
#include "runtime/device/training.h"

typedef struct pare_schedule {
    pare_schedule_kind kind;
    double learning_rate; /* the highest */
    int64_t steps, warmup;
} pare_schedule;

/* The rate of step 0, 1, ... steps - 1. */
double pare_schedule_rate(const pare_schedule *schedule, int64_t step);

typedef struct pare_optimizer {
    pare_optimizer_kind kind;
    double beta1, beta2, epsilon; /* AdamW */
    double momentum;              /* SGD */
} pare_optimizer;

typedef struct pare_update {
    int64_t count;
    float *value;                /* (count) */
    const float *gradient;       /* (count), times scale */
    float *exp_avg, *exp_avg_sq; /* (count): moments, 0 before step 1; SGD has no second */
    const uint8_t *zero;         /* (count): elements that stay 0; NULL: none */
    double learning_rate, weight_decay, scale;
    int64_t step; /* 1, 2, ... */
    int threads;
} pare_update;

/* What its elements have in common in a step (1, 2, ...). */
pare_train_rule pare_optimizer_rule(const pare_optimizer *optimizer, double learning_rate,
                                    double weight_decay, double scale, int64_t step);

/* Elements as runtime/device/training.h has them. */
void pare_optimizer_step(const pare_optimizer *optimizer, const pare_update *update);

/* average += (1 - keep) (value - average), 0 where zero says so. */
void pare_ema_step(float *average, const float *value, int64_t count, double keep,
                   const uint8_t *zero);

/* The sum of squares, added up in order in double. */
double pare_square_sum(const float *x, int64_t count);

#endif
