/* SPDX-License-Identifier: Apache-2.0 */
/* A model in stages (stages.h) on the GPUs of one process: a runner for each stage, and what leaves
   it is copied from its GPU to the next one's. One run is queued on all GPUs at once, and waited
   for at its end; several chains keep all GPUs at work. */
#ifndef PARE_RUNTIME_EXEC_CHAIN_H
#define PARE_RUNTIME_EXEC_CHAIN_H

#include "runtime/exec/stages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan for each stage, in order; where there is one, it is of the whole model. */
typedef struct pare_chain_plan {
    pare_plan **stage; /* (count) */
    int count;
} pare_chain_plan;

/* Plans as pare_plan_new does, with a stage on each device, of which there are `count`; one may be
   NULL, the CPU, where it is the only one. Of the options `device`, `stage` and `stages` are not
   read. PARE_UNSUPPORTED: the model cannot be cut into so many stages, or the
   devices are not GPUs that copy to each other. */
PARE_NODISCARD pare_status pare_chain_plan_new(pare_ctx *ctx, pare_chain_plan **out,
                                               const pare_model *model,
                                               const pare_input_shape *shapes, int shape_count,
                                               const pare_plan_options *options,
                                               pare_device *const *device, int count);
void pare_chain_plan_free(pare_chain_plan *plan); /* NULL is fine */

typedef struct pare_chain pare_chain;
/* Of two stages or more. The plan may serve several chains. */
PARE_NODISCARD pare_status pare_chain_new(pare_ctx *ctx, pare_chain **out,
                                          const pare_chain_plan *plan);
void pare_chain_free(pare_chain *chain); /* it does not run; or NULL */

/* The runner that has the model's inputs, and the one that has its outputs. Neither is run alone.
 */
pare_runner *pare_chain_first(const pare_chain *chain);
pare_runner *pare_chain_last(const pare_chain *chain);

/* As pare_runner_run and its halves. After a failure nothing is at work any more; one of a GPU or
   of its memory names the stage and the GPU. */
PARE_NODISCARD pare_status pare_chain_run(pare_chain *chain);
PARE_NODISCARD pare_status pare_chain_start(pare_chain *chain);
PARE_NODISCARD pare_status pare_chain_wait(pare_chain *chain);
/* Of all its runners. */
bool pare_chain_is_recorded(const pare_chain *chain);

#ifdef __cplusplus
}
#endif
#endif
