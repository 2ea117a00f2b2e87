/* SPDX-License-Identifier: Apache-2.0 */
/* Running a graph of graph.h on the microbatches of a batch (internal to distill/). */
#ifndef PARE_DISTILL_STEP_H
#define PARE_DISTILL_STEP_H

#include "distill/graph.h"
#include "distill/augmented.h"

/* Called in order of microbatches, one at a time. teacher[k]: what the teacher gave for the slice.
 */
typedef pare_status (*pare_microbatch_fn)(void *user, int slice, const pare_runner *runner,
                                          void *const *teacher);

typedef struct pare_microbatches {
    pare_ctx *ctx;
    const pare_train_graph *graph;
    pare_teacher *teacher;
    const pare_weights *weights;
    pare_replicas *pool;
    int count;                     /* microbatches of a batch */
    void **given;                  /* (count, wanted of the teacher) */
    size_t *sample;                /* (student's inputs): bytes of one sample */
    int input_count;               /* of the student */
    const void **input;            /* (count, inputs): where a slice's samples begin */
    float loss_scale;              /* of FP16; else 1 */
    pare_batch learnt;             /* what was learnt from last */
    struct pare_source *source_of; /* (source_count): where runners leave gradients on a device */
    int source_count;
    /* of the run in progress */
    const pare_batch *batch;
    const pare_augmented *pictures; /* with the batch they are made of; NULL: as read */
    const pare_loader_batch *source;
    const float *values;
    int full; /* microbatches that the batch has data for */
    pare_microbatch_fn take;
    void *user;
} pare_microbatches;

PARE_NODISCARD pare_status pare_microbatches_open(pare_ctx *ctx, pare_microbatches *out,
                                                  const pare_train_graph *graph,
                                                  pare_teacher *teacher,
                                                  const pare_weights *weights,
                                                  const pare_data *data, int count, int threads);
void pare_microbatches_free(pare_microbatches *microbatches);

/* Runs a batch with the weights of a block; the last microbatches of it may be missing, not a part
   of one. */
PARE_NODISCARD pare_status pare_microbatches_run(pare_microbatches *microbatches,
                                                 const pare_batch *batch, const float *values,
                                                 pare_microbatch_fn take, void *user);

/* The parts of it: chooses batch and weights; loads a slice into a runner of the graph's plan.
   worker: of the pool's threads, or 0. */
void pare_microbatches_select(pare_microbatches *microbatches, const pare_batch *batch,
                              const float *values);
PARE_NODISCARD pare_status pare_microbatches_load(pare_microbatches *microbatches, int slice,
                                                  pare_runner *runner, int worker);

/* Gradients and loss of a batch, its images augmented: the loss' sum over microbatches is added to
   *loss, gradients to the weights' block, or set where first is true. */
PARE_NODISCARD pare_status pare_microbatches_learn(pare_microbatches *microbatches,
                                                   pare_weights *weights,
                                                   const pare_loader_batch *batch,
                                                   const pare_augmented *pictures, bool first,
                                                   double *loss);

/* Fails with the first node whose result is not finite when the batch last learnt from is run
   again; what: the fact that made someone look ("step 3: the loss is NaN"); hint: what to do. */
PARE_NODISCARD pare_status pare_microbatches_find_nonfinite(pare_microbatches *microbatches,
                                                            const char *what, const char *hint);

#endif
