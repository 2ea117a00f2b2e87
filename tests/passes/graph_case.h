/* SPDX-License-Identifier: Apache-2.0 */
/* A model made line by line, and run. Every failure inside fails the test with its message. */
#ifndef PARE_TESTS_PASSES_GRAPH_CASE_H
#define PARE_TESTS_PASSES_GRAPH_CASE_H

#include "runtime/exec/exec.h"

typedef struct graph_case {
    pare_ctx ctx;
    pare_model *model;
} graph_case;

void graph_open(graph_case *g, int64_t opset);
void graph_close(graph_case *g);

/* A graph input; a dim of -1 is unknown. */
pare_value *graph_input(graph_case *g, const char *name, pare_dtype dtype, int rank,
                        const int64_t *dims);
/* Constants. */
pare_value *graph_floats(graph_case *g, const char *name, int rank, const int64_t *dims,
                         const float *data);
pare_value *graph_ints(graph_case *g, const char *name, int rank, const int64_t *dims,
                       const int64_t *data);

/* A node; names of inputs and outputs are separated by blanks, "-" is an absent one. */
pare_node *graph_node(graph_case *g, const char *op, const char *in, const char *out);
void graph_output(graph_case *g, const char *name);

int graph_count(const graph_case *g, const char *op); /* nodes of this operator */
pare_value *graph_value(const graph_case *g, const char *name);

/* Runs a copy with the plain kernels: input 0 has this shape and content; count floats of output 0
   go to y. */
void graph_run(graph_case *g, int rank, const int64_t *dims, const float *x, float *y,
               int64_t count);

#endif
