/* SPDX-License-Identifier: Apache-2.0 */
/* What a change to a model costs at its outputs, measured against the float model on the same
   samples. Private to quant/. */
#ifndef PARE_QUANT_OUTPUT_ERROR_H
#define PARE_QUANT_OUTPUT_ERROR_H

#include "calib/capture.h"
#include "quant/quant.h"

typedef struct pare_output_error {
    pare_ctx *ctx;
    const pare_quant_search *on;
    pare_arena arena;
    int64_t *sample, samples; /* in ascending order */
    int64_t unit;             /* samples of a run */
    int64_t runs;             /* of these samples; 0: nothing is kept yet */
    const char **name;        /* of the f32 outputs */
    int count;
    float *exact; /* of all runs, of each output one after the other */
    double *energy;
    const char **begin; /* (begins) tensors of the float model that are kept with the outputs */
    int begins;
    pare_capture *floats; /* the flow that keeps them; NULL: none does */
} pare_output_error;

enum { PARE_OUTPUT_SAMPLES = 32, PARE_OUTPUT_ROOM = 1 << 27 /* bytes of kept tensors */ };

/* Some of the samples, evenly: as many as time and memory allow for `trials` runs of a model of so
   many multiply-adds and output values, and at most `most`. Names the outputs of the float model;
   count 0: none is f32.
 */
PARE_NODISCARD pare_status pare_output_error_open(pare_ctx *ctx, pare_output_error *out,
                                                  const pare_model *model,
                                                  const pare_quant_search *on, double macs,
                                                  double values, double trials, int64_t most);
/* Is it one of these samples? */
bool pare_output_error_has(const pare_output_error *e, int64_t sample);
void pare_output_error_close(pare_output_error *e);
/* Runs of other models will begin at inputs of the float model's weighted nodes where they compute
   these as it does: the last inputs in its order, as many as have room. sized: the model with the
   shapes of a run (pare_quant_run_shapes). To be called before the outputs are kept; the model then
   outlives the runs. */
PARE_NODISCARD pare_status pare_output_error_begin_late(pare_output_error *e,
                                                        const pare_model *model,
                                                        const pare_model *sized);
/* Runs the float model and keeps its outputs. PARE_UNSUPPORTED: they are too large. */
PARE_NODISCARD pare_status pare_output_error_keep(pare_output_error *e, const pare_model *model);
/* The squared error of another model's outputs, each as a part of its energy, added up; NaN where
   an output is. */
PARE_NODISCARD pare_status pare_output_error_of(const pare_output_error *e, const pare_model *model,
                                                double *error);
/* The same, and of each run: (runs), which add up to it. */
PARE_NODISCARD pare_status pare_output_error_runs(const pare_output_error *e,
                                                  const pare_model *model, double *error,
                                                  double *run);
/* The same of each run for a model that is changed layer after layer, in a flow of its own
   (pare_output_error_flow). The pass keeps tensor `from`, which later passes begin at: no later
   change may lie before it. False in *worth: the pass ended half way, because the error so far was
   above that in `was` by more than chance gives; `run` has these runs only. */
PARE_NODISCARD pare_status pare_output_error_onward(const pare_output_error *e, pare_capture *flow,
                                                    const char *from, const double *was,
                                                    double *run, bool *worth);
/* Does the error fall by more than chance gives: is the mean fall of a run above `deviations`
   standard errors of it? was, now: (runs) of two models. */
bool pare_output_error_falls(const double *was, const double *now, int64_t runs, double deviations);
/* One more tensor of the same run: `exact` holds it for all runs, of the same size. */
typedef struct pare_output_probe {
    const char *name;
    const float *exact;
    double error; /* sum of squares */
} pare_output_probe;
PARE_NODISCARD pare_status pare_output_error_probe(const pare_output_error *e,
                                                   const pare_model *model, double *error,
                                                   pare_output_probe *probe);
/* A flow of the same samples through a model; batch_runs, room: as of pare_capture_options. */
PARE_NODISCARD pare_status pare_output_error_flow(const pare_output_error *e,
                                                  const pare_model *model, int batch_runs,
                                                  size_t room, pare_capture **out);
/* Samples of a run of these data through the model, 1 where it takes any number; and the model with
   the shapes of such a run, for counting. */
PARE_NODISCARD pare_status pare_quant_run_shapes(pare_ctx *ctx, const pare_model *model,
                                                 const pare_data *data, pare_model **out);
/* Elements of a tensor; unknown dims count 1, an absent tensor 0. */
double pare_quant_values(const pare_value *value);
#endif
