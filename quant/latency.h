/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision for speed: nodes that are not faster as int8 on the device at hand, or on a GPU
   that is not there, stay float, on a GPU in FP16 or FP32. */
#ifndef PARE_QUANT_LATENCY_H
#define PARE_QUANT_LATENCY_H

#include "quant/quant.h"
#include "runtime/eval/eval.h"
#include "runtime/eval/roofline.h"

/* In what a node computes. */
typedef enum pare_quant_format {
    PARE_IN_F32,
    PARE_IN_F16,
    PARE_IN_INT8,
    PARE_IN_COUNT
} pare_quant_format;

/* What a run of a model takes, by the nodes of the prepared model's main graph. A step of a plan
   may compute several of them; one heads it, the weighted one where there is any. */
typedef struct pare_quant_times {
    int count;
    double *seconds; /* (count) of the step that the node heads; else 0 */
    int *head;       /* (count) the node that heads its step; itself where no step has it */
    pare_quant_format *place; /* (count) heads a step that reads or writes integers, or else f16 */
    double quantize, dequantize, cast; /* seconds an element in steps that only convert; 0: there
                                          are none */
    pare_side_by_side against;         /* a: the float model, on a GPU in FP16; b: this one */
} pare_quant_times;

/* A stopwatch. float_model: the prepared one; candidate: it, or what was quantized of it. Fills in
   seconds, head, place (zeros, themselves, f32), the rates and `against`. */
typedef pare_status (*pare_quant_time_fn)(void *user, const pare_model *float_model,
                                          const pare_model *candidate, pare_quant_times *out);

typedef struct pare_quant_latency_options {
    const pare_input_shape *shapes; /* (shape_count) of the run that is timed, of every input */
    int shape_count;
    int threads;              /* 0: all cores */
    pare_device *device;      /* NULL: the CPU */
    const pare_gpu_spec *gpu; /* times are predicted for it, not measured; or NULL */
    const char *cache_dir; /* times are kept here, a table for each machine (placement.json): with
                              the same table the choice is the same; NULL, or predicted: none */
    void (*progress)(void *user, int64_t done, int64_t all); /* models timed; or NULL */
    void *progress_user;
    pare_quant_time_fn measure; /* NULL: models are compiled, tuned and run */
    void *measure_user;
} pare_quant_latency_options;

/* What was found. */
typedef struct pare_quant_latency {
    pare_side_by_side int8;   /* all that options->keep leaves is int8 */
    pare_side_by_side chosen; /* with the nodes that stay float */
    int models;               /* that were timed */
} pare_quant_latency;

/* How far above the float model's time a model counts as no slower: what medians of one model's
   runs may be apart. */
#define PARE_QUANT_NOT_SLOWER 1.02

/* Of the prepared model's nodes that `options` makes int8, those that had better stay float, and
   with options->float_fp16 those of the float ones that had better be f32: each is timed in every
   format, conversions between two cost what they were measured to take, and the assignment with the
   least sum is found (assign.c; of two formats it is a minimum cut: Stone 1977, IEEE TSE 3(1),
   "Multiprocessor scheduling with the aid of network flow algorithms"). What it finds is timed as a
   whole, its times correct the costs, and this is repeated. Sets options->float_for_latency and
   f32_for_latency, in the model's arena; NULL: there are none. PARE_INPUT: no node can be int8. */
PARE_NODISCARD pare_status pare_quant_find_fastest(pare_ctx *ctx, pare_model *model,
                                                   const pare_ranges *ranges,
                                                   pare_quant_options *options,
                                                   const pare_quant_latency_options *how,
                                                   pare_quant_latency *out);
#endif
