/* SPDX-License-Identifier: Apache-2.0 */
/* A model with a loss, differentiated by its inputs, and its gradients against finite differences.
   Every failure inside fails the test with its message. */
#ifndef PARE_TESTS_PASSES_GRADIENT_CASE_H
#define PARE_TESTS_PASSES_GRADIENT_CASE_H

#include "runtime/passes/train/gradient.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"

enum { GRADIENT_INPUTS = 8 };

/* Operands by their first letter: d2x3 floats around 0, p2x3 in [0.5, 1.5], u2x3 in [-0.9, 0.9],
   b2x3 in [1.5, 2.5]; k2x3 as d and c2x3 as p, constants; i1,2 and s1: constants, s64, a vector and
   a scalar; m2x3: a constant mask, true and false in turn; "-" absent. Attributes: "axis=i1
   pads=l1,1 alpha=f0.5 mode=sx". outputs: how many. */
typedef struct gradient_rule {
    const char *op, *operands, *attributes;
    int outputs;
} gradient_rule;

typedef struct gradient_bench {
    graph_case g;
    pare_dtype dtype;
    const char *by[GRADIENT_INPUTS];
    int by_count;
    double *x[GRADIENT_INPUTS];
    pare_gradient gradient;
    pare_device *device; /* of the kernels that serve, where tests are built with one */
    pare_plan *plan;
    pare_runner *runner;
    uint64_t seed;
} gradient_bench;

/* The rule: f64 with the plain kernels within 1e-6 of a tensor's largest gradient of finite
   differences, the loss a weighted sum of the operator's outputs; f32 with the kernels that serve
   within 2e-5 of that. */
void gradient_check(const gradient_rule *c);
/* Was a rule of this row of the operator table checked by this program? */
bool gradient_was_checked(const pare_op *op);

/* Piece by piece, for models of the tests' own: b is zero but for dtype and seed, its graph
   open. */

/* An input or a constant of this kind (an operand's letter); text: its dims, "2x3". */
void gradient_add_floats(gradient_bench *b, const char *name, char kind, const char *text);
/* Those of a rule; their names, for graph_node. */
void gradient_add_operands(gradient_bench *b, const gradient_rule *c, char *names);
/* "alpha=f0.5", which is cut up. */
void gradient_set_attribute(pare_node *node, char *text);

/* Differentiates value "loss", the first output, by the inputs; what runs is deterministic, and the
   plain kernels or those that serve. */
void gradient_open(gradient_bench *b, bool plain);
void gradient_close(gradient_bench *b);  /* the graph, too */
void gradient_feed(gradient_bench *b);   /* the inputs that were drawn */
double gradient_loss(gradient_bench *b); /* of a run, which it makes */
/* Of the last run by input k: the caller's. */
double *gradient_of(gradient_bench *b, int k, int64_t *count);
/* got[k][count[k]] against central differences; c is what a failure names. */
void gradient_expect_differences(gradient_bench *b, const gradient_rule *c, double *const *got,
                                 const int64_t *count);

#endif
