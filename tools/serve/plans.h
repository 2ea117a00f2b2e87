/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a served model, one for each set of input shapes, with a replica for each instance.
   They compute deterministically, so that a sample's results do not depend on the samples beside
   it. Made at first use; of those that no one uses, the ones used last are kept. */
#ifndef PARE_TOOLS_SERVE_PLANS_H
#define PARE_TOOLS_SERVE_PLANS_H

#include "runtime/exec/batch.h"
#include "tools/serve/gpu/gpus.h"

typedef struct pare_plans pare_plans;
typedef struct pare_planned {
    pare_chain_plan *stages;
    const pare_plan *first, *last; /* of the stages: that has the inputs, the outputs */
    pare_replicas *replicas;       /* (instances) */
    /* of plans.c */
    pare_shape *shape; /* (plan inputs) */
    int users;
    uint64_t used;   /* when, in turns */
    bool is_dropped; /* no one gets it any more */
} pare_planned;

typedef struct pare_plans_options {
    pare_gpu *const *gpu; /* (gpu_count) different ones, borrowed: several have a stage of the model
                             each, and replicas are chains */
    int gpu_count;        /* 0: the CPU */
    size_t stage_weights; /* bytes of a stage's weights at most; 0: no limit */
    int instances;
} pare_plans_options;

/* The model is borrowed. On a GPU each replica has a stream of its own and has
   run twice on made-up inputs, so that its captured graph is there, when a plan is handed out,
   unless the model refuses these inputs. */
PARE_NODISCARD pare_status pare_plans_new(pare_ctx *ctx, pare_plans **out, const pare_model *model,
                                          const pare_plans_options *options);
void pare_plans_free(pare_plans *plans); /* no one uses any; or NULL */

/* The plan for these shapes, the caller's until pare_plans_put. Any thread may call; a failure's
   message is in the caller's context. */
PARE_NODISCARD pare_status pare_plans_get(pare_plans *plans, pare_ctx *ctx, pare_planned **out,
                                          const pare_input_shape *shapes, int count);
/* Runs once a replica of a plan that the caller has; a failure's message is in the replica's
   context. A run that may record waits until no one makes or frees anything on its GPUs, and no one
   does while it lasts; then work must not ask for a plan or give one back. */
PARE_NODISCARD pare_status pare_plans_run(pare_plans *plans, pare_replica *replica,
                                          const pare_batch_work *work);
void pare_plans_put(pare_plans *plans, pare_planned *planned);
/* The same where a run of it failed on the GPU: whoever asks for these shapes from now on is given
   a plan that was made anew. */
void pare_plans_drop(pare_plans *plans, pare_planned *planned);
#endif
