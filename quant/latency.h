/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision for speed: nodes that are not faster as int8 on the device at hand stay float. */
#ifndef PARE_QUANT_LATENCY_H
#define PARE_QUANT_LATENCY_H

#include "quant/quant.h"
#include "runtime/eval/eval.h"

/* What a run of a quantized model takes, by the nodes of the prepared model's main graph. A step of
   a plan may compute several of them; one heads it, the weighted one where there is any. */
typedef struct pare_quant_times {
    int count;
    double *seconds; /* (count) of the step that the node heads; else 0 */
    int *head;       /* (count) the node that heads its step; itself where no step has it */
    bool *integer;   /* (count) heads a step that reads or writes integers */
    double quantize, dequantize; /* seconds an element in steps that only convert; 0: there are
                                    none */
    pare_side_by_side against;   /* a: the float model, on a GPU in FP16; b: this one */
} pare_quant_times;

/* A stopwatch. float_model: the prepared one; candidate: it, or what was quantized of it. Fills in
   seconds, head, integer (zeros, themselves, false), the rates and `against`. */
typedef pare_status (*pare_quant_time_fn)(void *user, const pare_model *float_model,
                                          const pare_model *candidate, pare_quant_times *out);

typedef struct pare_quant_latency_options {
    const pare_input_shape *shapes; /* (shape_count) of the run that is timed, of every input */
    int shape_count;
    int threads;           /* 0: all cores */
    pare_device *device;   /* NULL: the CPU */
    const char *cache_dir; /* times are kept here, a table for each machine (placement.json): with
                              the same table the choice is the same; NULL: none */
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

/* Of the prepared model's nodes that `options` makes int8, those that had better stay float: each
   is timed in float and as int8, conversions between the two cost what they were measured to take,
   and a minimum cut finds the assignment with the least sum (Stone 1977, IEEE TSE 3(1), "Multi-
   processor scheduling with the aid of network flow algorithms"). What it finds is timed as a
   whole, its times correct the costs, and this is repeated. *float_nodes, in the model's arena, is
   for pare_quant_options; NULL: none stays float. PARE_INPUT: no node can be int8. */
PARE_NODISCARD pare_status pare_quant_find_fastest(pare_ctx *ctx, pare_model *model,
                                                   const pare_ranges *ranges,
                                                   const pare_quant_options *options,
                                                   const pare_quant_latency_options *how,
                                                   const char *const **float_nodes,
                                                   pare_quant_latency *out);
#endif
