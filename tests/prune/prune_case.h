/* SPDX-License-Identifier: Apache-2.0 */
/* Small models for the tests of pruning, and what is asked about their groups by tensor names. */
#ifndef PARE_TESTS_PRUNE_PRUNE_CASE_H
#define PARE_TESTS_PRUNE_PRUNE_CASE_H

#include "prune/plan.h"
#include "tests/passes/graph_case.h"

/* A constant of this shape with numbers in [-1, 1) that its name chooses. */
pare_value *prune_weight(graph_case *g, const char *name, int rank, const int64_t *dims);
#define PRUNE_WEIGHT(g, name, ...)                                                                 \
    prune_weight(g, name, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),               \
                 (const int64_t[]){__VA_ARGS__})
#define PRUNE_INTS(g, name, ...)                                                                   \
    graph_ints(g, name, 1, &(int64_t){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)},         \
               (const int64_t[]){__VA_ARGS__})

/* Conv with a weight w_OUT [m, c / group, k, k], padded so that pictures keep their size. */
pare_node *prune_conv(graph_case *g, const char *in, const char *out, int64_t c, int64_t m,
                      int64_t k, int64_t group);

/* Prepares and analyses; failures fail the test. */
pare_groups *prune_groups(graph_case *g, const pare_groups_options *options);
/* The coupled set of a channel of a tensor's axis, and why there is none ("" where there is). */
int prune_coupled(const graph_case *g, const pare_groups *groups, const char *value, int axis,
                  int64_t channel);
const char *prune_why(const graph_case *g, const pare_groups *groups, const char *value, int axis,
                      int64_t channel);
/* Removes the coupled sets of these channels of an axis. */
void prune_take(const graph_case *g, pare_prune_plan *r, const char *value, int axis, int count,
                const int64_t *sets);

/* The smaller model gives what the masked dense one gives, on an input of this shape, in the plain
   kernels; and that is not what the dense model gives. The smaller one is the caller's. */
pare_model *prune_compare(graph_case *g, const pare_prune_plan *r, int rank, const int64_t *dims,
                          int64_t outputs);

#endif
