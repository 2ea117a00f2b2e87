/* SPDX-License-Identifier: Apache-2.0 */
/* Small nets with branches. */
#ifndef PARE_TESTS_CUDA_BRANCH_NET_H
#define PARE_TESTS_CUDA_BRANCH_NET_H

#include "runtime/exec/exec.h"
#include "tests/passes/graph_case.h"

typedef struct branch_net {
    graph_case g;
    pare_device *device;
    pare_plan *plan, *plain; /* in two streams, in one */
    pare_input_shape shape;  /* of its input, x */
} branch_net;

void make_shortcut(branch_net *n);
void make_inception(branch_net *n);
void make_squeeze(branch_net *n);
void make_nested(branch_net *n);
void make_ends(branch_net *n);
void make_alias(branch_net *n);
void make_in_place(branch_net *n);
void make_host(branch_net *n);
void make_bound(branch_net *n);
void make_scratch(branch_net *n);
void make_large(branch_net *n);

/* Fails the test with the net's message. */
void branch_check(branch_net *n, pare_status st);
/* Values of the input, others for each run. */
void branch_input(pare_runner *r, int run);
/* Are the outputs of a run those of `plain`, a runner of n->plain? */
bool branch_is_right(branch_net *n, pare_runner *r, pare_runner *plain, int run);

#endif
