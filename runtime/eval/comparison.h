/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a comparison, shared by comparison.c and comparison_time.c. */
#ifndef PARE_RUNTIME_EVAL_COMPARISON_H
#define PARE_RUNTIME_EVAL_COMPARISON_H

#include "runtime/base/arena.h"
#include "runtime/eval/eval.h"

struct pare_comparison {
    pare_ctx *ctx;
    pare_arena arena;
    pare_comparison_options options;
    pare_device *device;
    pare_candidate *candidate;
    int count;
    int64_t samples, classes; /* seen so far */
    bool classifies;
    const char *name; /* of the data */
    const pare_first_outputs *first;
    const pare_rows *kept; /* of this batch: the first model's outputs, or NULL: it was run */
};

#endif
