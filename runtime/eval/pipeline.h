/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction by a pipeline of processes: each rank has one stage of the model (exec/stages.h), and
   microbatches of the samples pass from rank to rank. The outputs are those of one process that
   reads the same batches, byte for byte. */
#ifndef PARE_RUNTIME_EVAL_PIPELINE_H
#define PARE_RUNTIME_EVAL_PIPELINE_H

#include "runtime/eval/eval.h"
#include "runtime/exec/stages.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_pipeline pare_pipeline;

/* Plans each rank's stage, of as many as the communicator (not NULL) has ranks. The other arguments
   are pare_predictor_new's and pare_predictor_prepare's; the data are open in every rank, but read
   in rank 0 only. PARE_UNSUPPORTED: control flow, or shapes that only a run knows; each sample runs
   alone. PARE_INPUT: more ranks than nodes that run. All ranks call it. */
PARE_NODISCARD pare_status pare_pipeline_new(pare_ctx *ctx, pare_pipeline **out, pare_comm *comm,
                                             const pare_model *model, pare_data *data,
                                             const pare_data_input *inputs, int input_count,
                                             const pare_plan_options *options, int64_t batch,
                                             int64_t all);
void pare_pipeline_free(pare_pipeline *pipeline); /* NULL is fine */

/* What was planned. */
typedef struct pare_pipeline_plan {
    int stages;
    const pare_plan_stage *stage; /* (stages) */
    const size_t *activations;    /* (stages) bytes of a run's buffer, in rank 0; else NULL */
    int64_t microbatches;         /* of all samples */
    int samples;                  /* of a microbatch, fewer at a batch's end */
    int runs;                     /* of a stage, side by side, that a microbatch is cut into */
    double bubble;                /* share of time that ranks wait, by the stages' costs */
    double bubble_equal;          /* the same, were all stages equal */
    size_t to_come;               /* bytes that this rank's runs will touch */
} pare_pipeline_plan;
const pare_pipeline_plan *pare_pipeline_planned(const pare_pipeline *pipeline);

/* What rank 0 does with samples; the other ranks' is not called. */
typedef struct pare_pipeline_work {
    /* The next batch; count 0: there is none. Valid until the next call. */
    pare_status (*read)(void *user, pare_batch *out);
    /* The outputs of so many samples are in pare_pipeline_outputs, batch by batch. */
    pare_status (*write)(void *user, int count);
    void *user;
} pare_pipeline_work;

/* Runs all samples that there are to read, again at the next call. All ranks call it, and all have
   the status of the first that failed. */
PARE_NODISCARD pare_status pare_pipeline_run(pare_pipeline *pipeline,
                                             const pare_pipeline_work *work);
/* Then gives all ranks the outputs of a last batch of so many samples. */
PARE_NODISCARD pare_status pare_pipeline_share(pare_pipeline *pipeline, int count);
/* Of rank 0, and after pare_pipeline_share of all: rows as after pare_predict. */
const pare_predictor *pare_pipeline_outputs(const pare_pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
