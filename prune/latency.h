/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds of a run as a cost of removals, and the search that comes to a part of the dense model's
   time.

   Every step of the dense model's plan has a time, measured in place. A step with weights has it
   multiplied by what a table of times per shape says of it at the kept counts against the dense
   ones; between the table's counts times are linear. All other steps follow their bytes. */
#ifndef PARE_PRUNE_LATENCY_H
#define PARE_PRUNE_LATENCY_H

#include "prune/target.h"
#include "runtime/exec/step_times.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_latency pare_latency;

typedef struct pare_latency_options {
    const pare_plan *dense; /* of groups->model at the shapes the groups assume */
    const double *seconds;  /* (its steps) of one run */
    pare_step_times *times;
    void (*progress)(void *user, int64_t done, int64_t all); /* shapes measured, 0; or NULL */
    void *progress_user;
} pare_latency_options;

/* Plan, seconds and times are still to be set. */
void pare_latency_options_init(pare_latency_options *out);

/* Groups, plan and times must outlive it; seconds are copied. */
PARE_NODISCARD pare_status pare_latency_new(pare_ctx *ctx, pare_latency **out,
                                            const pare_groups *groups,
                                            const pare_latency_options *options);
void pare_latency_free(pare_latency *latency);

/* A pare_prune_target.cost: user is the pare_latency. 0 once a measurement failed: see the status.
 */
double pare_latency_cost(void *user, const pare_prune_plan *removal);
PARE_NODISCARD pare_status pare_latency_status(const pare_latency *latency);
/* Seconds of the steps that no removal makes shorter. */
double pare_latency_fixed(const pare_latency *latency);
/* The shape that the forecast takes for input i of a step, for tests; false where it knows none. */
bool pare_latency_shape(const pare_latency *latency, const pare_prune_plan *removal, int step,
                        int i, pare_shape *out);

/* A pare_prune_target.round_of: kernels work in blocks of channels; a layer of so many keeps a
   multiple of what this says. */
int64_t pare_latency_block(int64_t channels);

/* The counts of the table on an axis of n channels, ascending, the last is n: multiples of a block
   and of `unit`, at most PARE_LATENCY_COUNTS. Returns how many. */
enum { PARE_LATENCY_COUNTS = 12 };
int pare_latency_counts(int64_t n, int64_t unit, int64_t *count);

typedef struct pare_latency_goal {
    double ratio;     /* of the dense model's time, to be kept */
    double dense;     /* the cost where nothing is removed */
    double tolerance; /* what is measured may be off by so much */
    int rounds;       /* at most */
    /* The time of what is left as a part of the dense model's, measured. */
    pare_status (*measure)(void *user, const pare_prune_plan *removal, double *ratio);
    void *user;
} pare_latency_goal;

typedef struct pare_latency_facts {
    double forecast, measured; /* parts of the dense model's time */
    double lowest; /* the forecast where nothing more can go; 0: it did not come to that */
    int rounds;    /* searches until there */
} pare_latency_facts;

/* pare_target_reach with a cost in seconds, until what is measured is near the goal: the search's
   own goal is corrected by what was measured, and each search starts from the removal as it was
   given. Ends with the nearest. target: goal is not read. */
PARE_NODISCARD pare_status pare_latency_reach(pare_ctx *ctx, pare_prune_plan *removal,
                                              const double *score, const pare_prune_target *target,
                                              const pare_latency_goal *goal,
                                              pare_latency_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
