/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: what a model predicts, how long it takes, and what that is worth beside another. */
#ifndef PARE_RUNTIME_EVAL_EVAL_H
#define PARE_RUNTIME_EVAL_EVAL_H

#include "formats/data.h"
#include "runtime/comm/comm.h"
#include "runtime/exec/shards.h"
#include "runtime/eval/stats.h"
#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- prediction: a model over batches of samples, one row per sample, whatever batch and element
   types the model was made for. Where samples run alone (pare_data_runs_alone) a row is all of a
   run's output --- */

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

/* How ranks share a model: each has a stage of its nodes (pipeline.h), or a part of each large
   product's channels (exec/shards.h). */
typedef enum pare_parallel { PARE_PARALLEL_NONE = -1, PARE_PIPELINE, PARE_TENSOR } pare_parallel;

/* Before the first plan: ranks share the model. They then call the same functions for the same
   samples, pare_predictor_prepare first; each has all outputs, which are those of one process, byte
   for byte, and the status of the first that failed. comm NULL, or NONE: this process has all of
   it. PARE_UNSUPPORTED: too many ranks. */
PARE_NODISCARD pare_status pare_predictor_share(pare_predictor *predictor, pare_comm *comm,
                                                pare_parallel how);

/* What ranks share, once it is planned. */
typedef struct pare_shared_plan {
    const struct pare_pipeline_plan *pipeline; /* or NULL */
    const pare_plan_sharding *tensor;          /* or NULL; with it: */
    const size_t *activations;                 /* (shards) bytes of a run's buffer */
    int runs;                                  /* side by side */
} pare_shared_plan;
pare_shared_plan pare_predictor_shared(const pare_predictor *predictor);

/* Runs a batch; a model with a fixed batch runs in pieces of it, the last one filled up. reader:
   that the batch was taken from last, or NULL. With it the next call is for the next batch: on a
   device its first run is queued before the outputs of this one are waited for, and its failure may
   be told by this call. PARE_INPUT where an output has no row per sample, unless each runs alone.
 */
PARE_NODISCARD pare_status pare_predict(pare_predictor *predictor, const pare_batch *batch,
                                        pare_reader *reader);

/* Makes the plans for batches of `count` out of `all` samples before the first of them, and says
   how many bytes their runs will touch beyond what is resident then. */
PARE_NODISCARD pare_status pare_predictor_prepare(pare_predictor *predictor, int64_t count,
                                                  int64_t all, size_t *to_come);

/* Outputs of the last call, known after the first one. */
typedef struct pare_rows {
    const char *name;
    pare_dtype dtype;
    pare_shape shape;         /* of one row, without the batch axis */
    const pare_shape *shapes; /* (count) of every row, where samples run alone; else NULL */
    int64_t size;             /* elements of one row; -1: their shapes differ */
    const void *data;         /* the rows, one after the other */
    const float *f32;         /* the same as f32; NULL for types without numbers */
} pare_rows;
int pare_predictor_output_count(const pare_predictor *predictor);
pare_rows pare_predictor_rows(const pare_predictor *predictor, int i);

/* Runs both models, which have the same inputs, once on inputs as pare_measure_fill makes them,
   with integers 0 and 1 mixed, or 0 where the models do not take these. *apart: the largest
   difference of two outputs over the output's largest magnitude; INFINITY where integers, shapes,
   types, strings or non-finite numbers differ. *output: the output where that is, a's. */
PARE_NODISCARD pare_status pare_models_apart(pare_ctx *ctx, const pare_model *a,
                                             const pare_model *b, const pare_input_shape *shapes,
                                             int count, const pare_plan_options *options,
                                             double *apart, const char **output);

/* --- latency of one plan: warm-up, many runs, and whether the number can be trusted --- */

typedef struct pare_measure_options {
    double warm_up;     /* milliseconds */
    double duration;    /* seconds, at least */
    int64_t iterations; /* runs, at least */
} pare_measure_options;

/* 200 ms, 3 s, 10 runs. */
void pare_measure_options_init(pare_measure_options *out);

typedef struct pare_times {
    double *ms; /* (count) milliseconds in order of time; freed with pare_times_free */
    size_t count, capacity;
    double wall;   /* seconds all of them took */
    double waited; /* seconds that threads were ready meanwhile but had no core; a sum over them */
    int windows;   /* measured until the last three agreed, those left out too; 0: no windows */
    double apart;  /* how far the medians of the last three are apart, over their median */
} pare_times;

/* Measuring continues, window by window, until the medians of the last three agree within 2 % or
   there were as many windows as allowed (steady state by the variation of the last few: Georges,
   Buytaert, Eeckhout 2007, OOPSLA). What came before the windows that agree is then left out. */
enum { PARE_WINDOWS = 16 };
#define PARE_WINDOWS_WITHIN 0.02
typedef struct pare_windows {
    int count;
    size_t end[PARE_WINDOWS]; /* runs by the end of each */
    double wall[PARE_WINDOWS], waited[PARE_WINDOWS], median[PARE_WINDOWS];
} pare_windows;

/* Notes that another window of times ends here. */
PARE_NODISCARD pare_status pare_windows_note(pare_ctx *ctx, pare_windows *windows,
                                             const pare_times *times);
/* Do the last three agree? */
bool pare_windows_agree(const pare_windows *windows);
/* The first of the windows at the end that agree: at most count - 3, and 0 where none do. */
int pare_windows_first(const pare_windows *windows);
/* Takes the runs of the windows before `first` out of times, and says in them what was found. */
void pare_windows_cut(const pare_windows *windows, int first, pare_times *times);

/* Fills the runner's inputs: floats with repeatable values in [0, 1), integers with 0. */
void pare_measure_fill(pare_runner *runner);
/* Then makes integers 0 and 1 by turns that do not repeat: valid tokens, masks and segments. */
void pare_measure_fill_integers(pare_runner *runner);

/* Runs until duration and iterations are both reached (at most 2^24 runs); times add up. */
PARE_NODISCARD pare_status pare_measure(pare_ctx *ctx, pare_runner *runner,
                                        const pare_measure_options *options, pare_times *times);
/* The two halves of it: runs that are not counted, then those that are. */
PARE_NODISCARD pare_status pare_measure_warm(pare_ctx *ctx, pare_runner *runner,
                                             const pare_measure_options *options);
PARE_NODISCARD pare_status pare_measure_timed(pare_ctx *ctx, pare_runner *runner,
                                              const pare_measure_options *options,
                                              pare_times *times);
/* Seconds of each step (pare_plan_step_count), this percentile (in [0, 100]) of 21 runs. */
PARE_NODISCARD pare_status pare_measure_steps(pare_ctx *ctx, pare_runner *runner, double percentile,
                                              double *seconds);
/* The same of the phases of a run on a device: the percentile of each, of as many runs as last 0.2
   seconds and are 21, or less where the options ask for less. */
PARE_NODISCARD pare_status pare_measure_phases(pare_ctx *ctx, pare_runner *runner,
                                               const pare_measure_options *options,
                                               double percentile, pare_phase_times *out);
void pare_times_free(pare_times *times);
/* Two runners in turn, so that what else continues hits both alike. A number is the mean of as many
   runs on end as last some milliseconds, after one that is not counted: what a runner's own runs
   leave warm stays so, as where a model runs alone. Which of the two begins changes from pair to
   pair. Warms both first; times add up, as pare_measure's. */
PARE_NODISCARD pare_status pare_measure_pairs(pare_ctx *ctx, pare_runner *a, pare_runner *b,
                                              const pare_measure_options *options,
                                              pare_times *times_a, pare_times *times_b);
/* Median of the pairs' ratios a : b; NAN where there is none. */
PARE_NODISCARD pare_status pare_times_ratio(pare_ctx *ctx, const pare_times *a, const pare_times *b,
                                            double *out);
/* Milliseconds: this percentile. */
PARE_NODISCARD pare_status pare_times_percentile(pare_ctx *ctx, const pare_times *times, double q,
                                                 double *out);

/* A model compiled to be timed, and a runner with its inputs filled (pare_measure_fill). */
typedef struct pare_timed {
    pare_plan *plan;
    pare_runner *runner;
} pare_timed;
typedef struct pare_timed_how {
    const pare_input_shape *shapes; /* (shape_count) as pare_plan_new takes them */
    int shape_count;
    pare_plan_options options;
} pare_timed_how;
PARE_NODISCARD pare_status pare_timed_open(pare_ctx *ctx, pare_timed *out, const pare_model *model,
                                           const pare_timed_how *how);
void pare_timed_close(pare_timed *timed); /* of zeros: does nothing */
/* Milliseconds of a run: the quickest tenth of a second's runs. */
PARE_NODISCARD pare_status pare_timed_ms(pare_ctx *ctx, const pare_timed *timed, double *ms);

/* What b takes over what a takes: the quickest tenths of pairs, in several places where the models
   are small. disturbed: the median of the pairs' ratios says otherwise by more than 0.05. The
   models are those that a and b were made of. */
typedef struct pare_side_by_side {
    double a_ms, b_ms, ratio;
    bool disturbed;
} pare_side_by_side;
PARE_NODISCARD pare_status pare_timed_compare(pare_ctx *ctx, const pare_timed *a,
                                              const pare_model *model_a, const pare_timed *b,
                                              const pare_model *model_b, const pare_timed_how *how,
                                              pare_side_by_side *out);

/* Does the plan compute matrix products or convolutions in f16 or bf16? On the CPU these are
   emulated: the accuracy is that of hardware that has them, the latency is not. */
bool pare_plan_emulates(const pare_plan *plan);

/* --- several runners of one plan at work at once: on a device each has its own queue, on the CPU
   its own threads; constants are shared --- */

typedef struct pare_streams pare_streams;

/* Makes `count` runners with their inputs filled. plan must outlive them. */
PARE_NODISCARD pare_status pare_streams_new(pare_ctx *ctx, pare_streams **out,
                                            const pare_plan *plan, int count);
void pare_streams_free(pare_streams *streams);
int pare_streams_count(const pare_streams *streams);
pare_runner *pare_streams_runner(const pare_streams *streams, int i);

/* Runners fail in contexts of their own: the status again, with the message of the one that has
 * any. */
PARE_NODISCARD pare_status pare_streams_status(const pare_streams *streams, pare_status status);

/* One thread drives each runner; all begin to be timed when the last is warm. Measured are at least
   three windows of a third of the duration and the iterations each, until each stream's last three
   agree, at most nine; without a duration it is one window. */
PARE_NODISCARD pare_status pare_streams_measure(pare_streams *streams,
                                                const pare_measure_options *options);

/* The runs of all streams: the k-th of each, then the next, roughly in order of time. */
PARE_NODISCARD pare_status pare_streams_times(const pare_streams *streams, pare_times *out);
const pare_times *pare_streams_times_of(const pare_streams *streams, int i);

/* --- comparison: several models on the same samples. The first is what the others are compared
   with: accuracy with labels, error against the first always --- */

typedef struct pare_comparison pare_comparison;

enum { PARE_COMPARISON_PARTS = 256 }; /* sample i is in part i % 256; what intervals draw from */

/* What was found of one model. */
typedef struct pare_candidate {
    const pare_model *model;
    pare_predictor *predictor; /* NULL: nothing was run */
    pare_error_stats *error;   /* (outputs) against the first; of strings none */
    int64_t *same_text;        /* (outputs) of strings: samples where all are the first's */
    pare_shape *shape;         /* (outputs) of the first sample, where samples run alone */
    pare_error_stats *part;    /* (PARE_COMPARISON_PARTS) the same of the first output, by sample */
    int64_t top1, top5, agreed; /* hits; same first class as the first model */
    pare_paired paired;         /* top-1 hits: the first model, this one */
    pare_times times;           /* of pare_comparison_time; else none */
    int batch;                  /* samples of a run that was timed: 1, or the model's own */
    bool emulated;              /* its plan: pare_plan_emulates */
    pare_interval speed_up;     /* against the first; NaN: too few runs */
} pare_candidate;

/* The samples that models are compared on; all of it is borrowed. */
typedef struct pare_eval_samples {
    pare_data *data;
    const pare_data_input *inputs;
    int input_count;
    const int64_t *samples; /* (count) indices in the order of reading */
    int64_t count;
    int batch;        /* read and run at a time */
    const char *name; /* of the data, for messages */
} pare_eval_samples;

/* Outputs of the first model that are elsewhere, as in a cache. */
typedef struct pare_first_outputs {
    bool found; /* there are some: the first model may not need to run */
    /* of the next batch, one pare_rows an output; NULL: the model must run, from here on, too.
       seen: the reader's hash up to the end of the batch. */
    const pare_rows *(*next)(void *user, int count, pare_hash seen);
    /* The model ran. */
    void (*keep)(void *user, const pare_predictor *first, int count, pare_hash seen);
    void *user;
} pare_first_outputs;

typedef struct pare_comparison_options {
    int threads;     /* of a prediction; 0: all cores */
    pare_comm *comm; /* ranks that each run a share of the samples and have all results; these do
                        not depend on it; NULL: this process alone */
    pare_parallel parallel; /* they share the models instead, and each has all samples */
    bool any_accuracy;      /* do not fail where the first model's accuracy is near chance */
    /* Before the first batch: how many bytes will be touched. Or NULL. */
    void (*planned)(void *user, size_t bytes);
    /* After each batch, in samples. Or NULL. */
    void (*progress)(void *user, int64_t done, int64_t all);
    /* While a model that was timed can still be run. Or NULL. */
    pare_status (*timed)(void *user, int k, pare_runner *runner);
    void *user;
} pare_comparison_options;
/* One process, which compares only where accuracy is above chance. */
void pare_comparison_options_init(pare_comparison_options *options);

/* models: (count), borrowed. PARE_INPUT: one has not as many outputs as the first. */
PARE_NODISCARD pare_status pare_comparison_new(pare_ctx *ctx, pare_comparison **out,
                                               const pare_model *const *models, int count,
                                               const pare_comparison_options *options);
void pare_comparison_free(pare_comparison *comparison);
/* Where models run from now on; NULL, as at first: the CPU. */
void pare_comparison_use(pare_comparison *comparison, pare_device *device);

/* Plans all models and runs the samples through them, once; first may be NULL. PARE_INPUT: a label
   out of range; the first model's accuracy is near chance (asked once enough samples were seen;
   ranks say it at the end); more ranks than batches. */
PARE_NODISCARD pare_status pare_comparison_run(pare_comparison *comparison,
                                               const pare_eval_samples *samples,
                                               const pare_first_outputs *first);

/* Latency of every model at batch 1, measured in turns so that all meet the same machine: at least
   8 rounds of a tenth of a second each, until the last three rounds of each model agree, at most
   16. threads 0: one, which other work on the machine disturbs least. samples NULL: models are run
   at the shapes they have, batch 1; PARE_INPUT where another dim is unknown. */
PARE_NODISCARD pare_status pare_comparison_time(pare_comparison *comparison,
                                                const pare_eval_samples *samples, int threads);

const pare_candidate *pare_comparison_candidate(const pare_comparison *comparison, int k);
int64_t pare_comparison_samples(const pare_comparison *comparison);
/* 0: no labels, or no output of classes. */
int64_t pare_comparison_classes(const pare_comparison *comparison);
/* Is the first output a score per class? */
bool pare_comparison_classifies(const pare_comparison *comparison);

#ifdef __cplusplus
}
#endif
#endif
