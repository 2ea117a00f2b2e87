/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs with quantized constants, and their folded plan against the plain kernels. */
#ifndef PARE_TESTS_PASSES_QDQ_CASE_H
#define PARE_TESTS_PASSES_QDQ_CASE_H

#include "tests/passes/graph_case.h"

/* The input of the graphs: (1, channels, side, side). */
enum { QDQ_CHANNELS = 4, QDQ_SIDE = 6, QDQ_INPUT = QDQ_CHANNELS * QDQ_SIDE * QDQ_SIDE };

/* A constant of any type. */
void qdq_bytes(graph_case *g, const char *name, pare_dtype type, int rank, const int64_t *dims,
               const void *data);
/* A whole number in [low, high]. */
int qdq_noise(unsigned *seed, int low, int high);

/* Constants and what is computed of them and of the input become f16, at opset 19 or newer; out:
   the tensor that holds `last` in f32. */
void qdq_shorten(graph_case *g, const char *last, const char *out);

/* An f16 model: a product, and two layers that quantize its sum and add theirs to it. Of what they
   do each backend gives the same bytes. x, y: (rows, QDQ_WIDTH), f32; "a", "b", "c": the sums. */
enum { QDQ_WIDTH = 8 };
void qdq_stream(graph_case *g, int64_t rows);

/* The plan's output, `count` numbers, by the plain kernels of the unfolded graph or as folded. */
void qdq_run(graph_case *g, bool reference, const float *x, float *y, int64_t count);

/* The folded plan against the plain kernels, of an output of `count` numbers: at most one step
   apart, and rarely. Closes the graph. */
void qdq_same(graph_case *g, float step, int64_t count);
/* The same with other limits: steps apart, and the part of the output that is half a step apart. */
void qdq_near(graph_case *g, float step, int64_t count, float steps, double part);

#endif
