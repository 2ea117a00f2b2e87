/* SPDX-License-Identifier: Apache-2.0 */
/* One node with operands in memory, to run any kernel of its row against the plain one. */
#ifndef PARE_TESTS_CPU_KERNEL_CASE_H
#define PARE_TESTS_CPU_KERNEL_CASE_H

#include "runtime/ops/ops.h"

typedef struct kernel_case {
    pare_ctx ctx;
    pare_model *model;
    pare_node *node;
    const pare_op *op;
    pare_view in[10], out;
    int in_count;
    bool constant[10], nhwc; /* nhwc: rank-4 inputs and outputs are in N, H, W, C order */
    bool deterministic;
    unsigned dying; /* the residual's input, lent to the output */
    int threads;
    /* Where tests are built with a device: its kernels that ran the node so far; among them the
       ways of cuBLAS and cuBLASLt. Beside them those that only some devices have (wgmma.h,
       wgmma_swap.h). */
    int device_runs, library_runs, wgmma_runs, tcgen_runs, swap_runs;
    /* Of the device's kernels those whose names hold the first, and not the second; NULL: all. */
    const char *only, *without;
    uint64_t number, seed; /* what it was opened with; the random numbers' state */
} kernel_case;

/* A node of this operator without operands. */
void case_open(kernel_case *k, const char *domain, const char *op_type, uint64_t seed);
void case_close(kernel_case *k);
/* The device that cases ran on, where tests are built with one. At exit, or before what was left
   open is counted. */
void case_device_close(void);

/* Numbers: uniform in [0, 2^32); integers in [low, high]; normal-like floats. */
uint32_t case_random(kernel_case *k);
int case_between(kernel_case *k, int low, int high);
float case_float(kernel_case *k);

/* Appends an input of random elements: s8 and u8 over [low, high], s32 over it as well, types
   below a byte and minifloats over all they have, floats normal-like times high. dtype PARE_NOTYPE:
   absent.
   Returns its data. */
void *case_input(kernel_case *k, pare_dtype dtype, int rank, const int64_t *dims, bool constant,
                 int low, int high);

/* Rounds the floats of input i to quarters: sums of their products are exact in any order. */
void case_coarsen(kernel_case *k, int i);

/* Writes element `at` of input i. */
void case_put(kernel_case *k, int i, int64_t at, float v);

/* The lowest finite number of f32, f16 or bf16. */
float case_lowest(pare_dtype type);

/* Attributes of the node. */
void case_set_int(kernel_case *k, const char *name, int64_t v);
void case_set_float(kernel_case *k, const char *name, float v);
void case_set_ints(kernel_case *k, const char *name, const int64_t *v, int n);

/* Infers the output and gives it memory. */
void case_infer(kernel_case *k);

/* Does the kernel take the node? Runs it; the output's bytes go to y (row-major or N, H, W, C as
   nhwc says). False where can() says no. */
bool case_run(kernel_case *k, const pare_kernel *kernel, void *y);

/* Infers, then runs the plain kernel and against it all of the device's; fails unless at least
   `kernels` of these take the node. */
void case_run_device(kernel_case *k, int kernels);
/* The same, then closes the case. */
void case_check_device(kernel_case *k, int kernels);
/* The same; fails unless exactly `ours` of the device's own kernels took the node, and `theirs`
   ways of the libraries: so many that the emulation's stubs offer, and where there are some, any
   number but 0 that a real library does; none where libraries are absent. */
void case_check_libraries(kernel_case *k, int ours, int theirs);
/* Where tests are built with a device: has it cuBLAS and cuBLASLt? */
bool case_has_libraries(void);
/* PARE_EXACT=quick, which the slower builds ask for: a part of the cases. */
bool case_is_quick(void);
/* Cases from one that runs to the next: 1, or PARE_APART where it is quick (5). */
int case_apart(void);

/* The row's plain kernel (the last), and the first that can. */
const pare_kernel *case_plain(const kernel_case *k);

size_t case_bytes(const kernel_case *k); /* of the output */

#endif
