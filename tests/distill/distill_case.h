/* SPDX-License-Identifier: Apache-2.0 */
/* A teacher and a student small enough to be worked out by hand, and their data:
     x [., 6] -> MatMul w1 -> Relu h -> Gemm w2, b -> y [., 3] */
#ifndef PARE_TESTS_DISTILL_DISTILL_CASE_H
#define PARE_TESTS_DISTILL_DISTILL_CASE_H

#include "distill/training.h"
#include "tests/passes/graph_case.h"

enum { SAMPLES = 64, WIDTH = 6, HIDDEN = 8, CLASSES = 3 };

typedef struct distill_net {
    float w1[WIDTH][HIDDEN], w2[HIDDEN][CLASSES], b[CLASSES];
} distill_net;

typedef struct distill_case {
    graph_case teacher, student; /* files "m.onnx"; they share no ctx */
    distill_net t, s;
    pare_ctx *ctx; /* the student's */
    pare_data *data;
    pare_distill_options options; /* threads 1; held_out: all of the data, once more */
    pare_distill_result result;
    char log[4096];                   /* lines of the student's ctx */
    int events, validations, stop_at; /* stop_at: the step after which a stop is asked for; 0 */
    double last_loss;
    int zeros_told;    /* by the last event */
    distill_net shown; /* by the last event of the best, distill_check_tensors */
    volatile int stop;
} distill_case;

extern float distill_x[SAMPLES][WIDTH];
extern int64_t distill_label[SAMPLES];

/* Files of the data, with labels, without, and with one label out of range; for a group of tests.
 */
int distill_setup(void **state);
int distill_teardown(void **state);

typedef enum distill_labels { LABELS_NONE, LABELS_RIGHT, LABELS_WRONG } distill_labels;

/* batch: of the student's input, -1: free. */
void distill_open(distill_case *c, int64_t batch, distill_labels labels);
void distill_close(distill_case *c);
/* Nets of the tests' own: y must be their output. Instead of the usual ones. */
void distill_usual_net(graph_case *g, const distill_net *net, int64_t batch);
pare_data *distill_data(pare_ctx *ctx, distill_labels labels);

pare_status distill_run(distill_case *c, const char *loss);
void distill_expect_ok(distill_case *c, const char *loss);
/* A failure whose message has these words. */
void distill_expect_refusal(distill_case *c, const char *loss, pare_status status,
                            const char *words);

/* Trains with events that show tensors: one with a score shows the three of the usual net, the best
   the result's, with gradients that have the norm it tells; the others show none. */
void distill_check_tensors(distill_case *c);

/* A constant's floats. */
const float *distill_weight(const graph_case *g, const char *name);

void distill_expect_near(double got, double want, double allowed);
/* The students' matrices have the same bytes, or have not. */
void distill_same_net(const distill_case *a, const distill_case *b, bool same);

#endif
