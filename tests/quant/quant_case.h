/* SPDX-License-Identifier: Apache-2.0 */
/* A graph quantized with ranges given by hand: the smallest and the largest value of tensors; and a
   data set for graphs that are calibrated. */
#ifndef PARE_TESTS_QUANT_QUANT_CASE_H
#define PARE_TESTS_QUANT_QUANT_CASE_H

#include "quant/quant.h"
#include "tests/passes/graph_case.h"

typedef struct span {
    const char *name;
    float low, high;
} span;

/* Up to 8 spans; facts may be NULL. A failure fails the test. */
void quantize_with(graph_case *g, const span *spans, int count, const pare_quant_options *options,
                   pare_quant_facts *facts);

/* A data set "x" of f32 (count, width) in this file. */
void write_rows(pare_ctx *ctx, const char *path, int width, const float *rows, int64_t count);

#endif
