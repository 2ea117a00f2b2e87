/* SPDX-License-Identifier: Apache-2.0 */
/* A model that ranks share, to be measured: each rank has its stage or its shard of one plan. Rank
   0 runs its part by a runner as if it had the whole model; the others follow it, run by run, until
   it ends. */
#ifndef PARE_RUNTIME_EVAL_RELAY_H
#define PARE_RUNTIME_EVAL_RELAY_H

#include "runtime/eval/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_relay pare_relay;

/* Plans each rank's part for these shapes. All ranks call it, with a communicator that is not NULL.
   PARE_UNSUPPORTED, PARE_INPUT: as pare_plan_new of stages and shards. */
PARE_NODISCARD pare_status pare_relay_new(pare_ctx *ctx, pare_relay **out, pare_comm *comm,
                                          const pare_model *model, const pare_input_shape *shapes,
                                          int count, const pare_plan_options *options,
                                          pare_parallel how);
void pare_relay_free(pare_relay *relay);                   /* NULL is fine */
const pare_plan *pare_relay_plan(const pare_relay *relay); /* of this rank's part */
pare_shared_plan pare_relay_shared(const pare_relay *relay);

/* Of rank 0. From now on each run of this runner, one at a time, is one of the whole model. */
void pare_relay_lead(pare_relay *relay, pare_runner *runner);
/* Of rank 0, with stages: runs a second while as many are under way as keep all stages busy;
 *under_way says how many. */
PARE_NODISCARD pare_status pare_relay_rate(pare_relay *relay, pare_runner *runner,
                                           const pare_measure_options *options, double *rate,
                                           int *under_way);
/* Of the others: runs when rank 0 does, until it ends. */
PARE_NODISCARD pare_status pare_relay_follow(pare_relay *relay);
/* Of rank 0, at last: the others go on. status: what came of its runs. All ranks have the status of
   the first that failed. */
PARE_NODISCARD pare_status pare_relay_end(pare_relay *relay, pare_status status);

#ifdef __cplusplus
}
#endif
#endif
