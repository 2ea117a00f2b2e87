/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a model over batches of samples and hands out one row per sample, whatever batch and element
   types the model was made for. */
#ifndef PARE_TOOLS_PREDICT_H
#define PARE_TOOLS_PREDICT_H

#include "formats/data.h"
#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_predictor pare_predictor;

/* inputs and data: what the batches hold (pare_source); the model must have the same input names.
   model, inputs and data are borrowed. options of the plans: their device, how kernels are chosen,
   and threads (0: all cores), of which each runs a part of the samples. On a device readers opened
   afterwards give stored pixels, which become floats there. */
PARE_NODISCARD pare_status pare_predictor_new(pare_ctx *ctx, pare_predictor **out,
                                              const pare_model *model, pare_data *data,
                                              const pare_data_input *inputs, int input_count,
                                              const pare_plan_options *options);
void pare_predictor_free(pare_predictor *predictor);

/* Runs count samples; a model with a fixed batch runs in pieces of it, the last one filled up.
   PARE_INPUT where an output has no row per sample. */
PARE_NODISCARD pare_status pare_predict(pare_predictor *predictor, void *const *inputs, int count);

/* Makes the plans for batches of `count` out of `all` samples before the first of them, and says
   how many bytes their runs will touch beyond what is resident then. */
PARE_NODISCARD pare_status pare_predictor_prepare(pare_predictor *predictor, int64_t count,
                                                  int64_t all, size_t *to_come);

/* Outputs of the last call, known after the first one. */
typedef struct pare_rows {
    const char *name;
    pare_dtype dtype;
    pare_shape shape; /* of one row, without the batch axis */
    int64_t size;     /* elements of one row */
    const void *data; /* (count, size) of dtype */
    const float *f32; /* the same as f32; NULL for types without numbers */
} pare_rows;
int pare_predictor_output_count(const pare_predictor *predictor);
pare_rows pare_predictor_rows(const pare_predictor *predictor, int i);

/* The batch a model is made for: the first dim of its inputs, 0 where it takes any. */
int pare_model_fixed_batch(const pare_model *model);

#ifdef __cplusplus
}
#endif
#endif
