/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a predictor, shared by predict.c (plans, inputs) and outputs.c. */
#ifndef PARE_RUNTIME_EVAL_PREDICT_H
#define PARE_RUNTIME_EVAL_PREDICT_H

#include "runtime/eval/eval.h"
#include "runtime/exec/batch.h"

typedef struct pare_output_rows {
    char *data;
    float *f32;      /* of other types than f32 */
    size_t capacity; /* elements */
    int64_t size;    /* of a row; -1: they differ */
    pare_dtype dtype;
    pare_shape shape;
    const char *name;
    /* where samples run alone: of each, as long as the batch */
    pare_shape *whole;
    char **piece; /* its elements, until all are put together */
    int whole_capacity;
} pare_output_rows;

struct pare_predictor {
    pare_ctx *ctx;
    const pare_model *model;
    const pare_data_input *input;
    pare_data *data;
    int input_count, output_count, threads;
    int fixed;  /* samples of a run; 0: any number */
    int most;   /* of them where any number can run; 0: no limit */
    bool alone; /* each sample is a run, whose outputs are all its own */
    pare_plan_options options;
    pare_input_shape *shape; /* (inputs) */
    /* of ranks that share the model; NULL: this process has all of it */
    pare_comm *comm;
    pare_parallel parallel;
    pare_gatherer gatherer;
    size_t *activations;            /* (ranks), of shards */
    struct pare_pipeline *pipeline; /* it has the plan, and the outputs */
    pare_plan *plan;
    pare_replicas *pool;
    int rows;              /* of the plan, into which every batch is filled */
    pare_output_rows *out; /* (outputs) of the whole batch */
    /* of one call */
    void *const *inputs;
    int count;
    pare_reader *reader; /* of the next batch; NULL: it is not looked for */
    /* runs, numbered over all calls */
    int64_t first, begun; /* the batch's first one, the next to be started */
    pare_batch next;      /* whose first run is in flight; of 0 samples: none is */
};

/* Makes plan and pool for batches of `count`, at the first call. */
PARE_NODISCARD pare_status pare_predictor_plan(pare_predictor *predictor, int count);
/* Frees them. */
void pare_predictor_unplan(pare_predictor *predictor);
/* Makes them in all ranks. A device without room for a run of all rows has a plan for fewer; then
   all ranks plan for as few, until they agree. */
PARE_NODISCARD pare_status pare_predictor_agree(pare_predictor *predictor, pare_comm *comm,
                                                int count);
/* shared.c: the same of a predictor whose products ranks share; all have cut them alike. */
PARE_NODISCARD pare_status pare_predictor_shard(pare_predictor *predictor, int count);
/* shared.c: plans the stages; runs a batch through them. */
PARE_NODISCARD pare_status pare_predictor_stage(pare_predictor *predictor, int64_t batch,
                                                size_t *to_come);
PARE_NODISCARD pare_status pare_predict_staged(pare_predictor *predictor);
/* Gives a replica the inputs of a run, numbered over all calls. */
PARE_NODISCARD pare_status pare_predictor_load(void *user, int64_t run, pare_replica *replica);
/* Makes `units` runs of the batch, as `work` says. */
PARE_NODISCARD pare_status pare_predictor_run(pare_predictor *predictor, int units,
                                              const pare_batch_work *work);
/* Rows of a batch of so many in its run `unit`; the last one may have fewer than the plan. */
int pare_predictor_unit_rows(const pare_predictor *predictor, int count, int64_t unit);
/* Runs `units` runs of the batch and keeps their outputs. */
PARE_NODISCARD pare_status pare_predictor_collect(pare_predictor *predictor, int units);
/* Room for the predictor's `count` rows of output i, as a run of its rows has it. */
PARE_NODISCARD pare_status pare_predictor_open_rows(const pare_predictor *predictor, int i,
                                                    const pare_view *output);
void pare_output_rows_free(pare_output_rows *out);

/* Element by element, through f32. */
void pare_convert(void *to, pare_dtype to_type, const void *from, pare_dtype from_type, int64_t n);

#endif
