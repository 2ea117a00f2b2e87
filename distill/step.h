/* SPDX-License-Identifier: Apache-2.0 */
/* Running a graph of graph.h on the slices of a batch (internal to distill/). */
#ifndef PARE_DISTILL_STEP_H
#define PARE_DISTILL_STEP_H

#include "distill/graph.h"
#include "distill/pictures.h"

/* Called in order of slices, one at a time. teacher[k]: what the teacher gave for the slice. */
typedef pare_status (*pare_slice_fn)(void *user, int slice, const pare_runner *runner,
                                     void *const *teacher);

typedef struct pare_slices {
    pare_ctx *ctx;
    const pare_train_graph *graph;
    pare_teacher *teacher;
    const pare_weights *weights;
    pare_replicas *pool;
    int count;                     /* slices of a batch */
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
    const pare_pictures *pictures; /* with the batch they are made of; NULL: as read */
    const pare_stream_batch *source;
    const float *values;
    int full; /* slices that the batch has data for */
    pare_slice_fn take;
    void *user;
} pare_slices;

PARE_NODISCARD pare_status pare_slices_open(pare_ctx *ctx, pare_slices *out,
                                            const pare_train_graph *graph, pare_teacher *teacher,
                                            const pare_weights *weights, const pare_data *data,
                                            int count, int threads);
void pare_slices_free(pare_slices *slices);

/* Runs a batch with the weights of a block; the last slices of it may be missing, not a part of
   one. */
PARE_NODISCARD pare_status pare_slices_run(pare_slices *slices, const pare_batch *batch,
                                           const float *values, pare_slice_fn take, void *user);

/* The parts of it: chooses batch and weights; loads a slice into a runner of the graph's plan.
   worker: of the pool's threads, or 0. */
void pare_slices_select(pare_slices *slices, const pare_batch *batch, const float *values);
PARE_NODISCARD pare_status pare_slices_load(pare_slices *slices, int slice, pare_runner *runner,
                                            int worker);

/* Gradients and loss of a batch, its images augmented: the loss' sum over slices is added to *loss,
   gradients to the weights' block, or set where first is true. */
PARE_NODISCARD pare_status pare_slices_learn(pare_slices *slices, pare_weights *weights,
                                             const pare_stream_batch *batch,
                                             const pare_pictures *pictures, bool first,
                                             double *loss);

/* Fails with the first node whose result is not finite when the batch last learnt from is run
   again; what: the fact that made somebody look ("step 3: the loss is NaN"); hint: what to do. */
PARE_NODISCARD pare_status pare_slices_blame(pare_slices *slices, const char *what,
                                             const char *hint);

#endif
