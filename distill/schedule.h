/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate as a function of the step (internal to distill/). */
#ifndef PARE_DISTILL_SCHEDULE_H
#define PARE_DISTILL_SCHEDULE_H

#include "distill/distill.h"

typedef struct pare_schedule {
    pare_schedule_kind kind;
    double rate; /* the highest */
    int64_t steps, warmup;
} pare_schedule;

/* The rate of step 0, 1, ... steps - 1. */
double pare_schedule_rate(const pare_schedule *schedule, int64_t step);

#endif
