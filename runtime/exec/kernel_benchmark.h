/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on trial for a node, and the autotune between those that can serve it. */
#ifndef PARE_EXEC_TRIAL_H
#define PARE_EXEC_TRIAL_H

#include "runtime/exec/plan.h"

/* A kernel whose quickest run takes so many times another's is out; more than a change of the
   machine's pace between two trials makes of equal ones. */
#define PARE_TRIAL_BEHIND 2.0

/* One kernel ready to run, with memory of its own. Stays where it was opened. */
typedef struct pare_kernel_benchmark {
    const pare_kernel *kernel; /* NULL: closed */
    pare_prep prep;
    pare_arena arena;
    pare_view *in, *out;
    pare_call call;
    pare_event *from, *to; /* on a device */
    void *memory;          /* on a device: all views and the scratch */
    size_t bytes;
    bool prepared, bound;
} pare_kernel_benchmark;

/* On failure nothing is kept. */
PARE_NODISCARD pare_status pare_kernel_benchmark_open(pare_kernel_benchmark *t,
                                                      const pare_kernel *kernel,
                                                      const pare_prep *prep);
void pare_kernel_benchmark_close(pare_kernel_benchmark *t);
/* Mean seconds of so many runs in a row. */
PARE_NODISCARD pare_status pare_kernel_benchmark_run(const pare_kernel_benchmark *t, int runs,
                                                     double *took);
/* Seconds of the quickest of a few runs after one that is not counted; not exact where it is far
   slower than `rival`, the quickest other kernel (1e30: none yet). */
PARE_NODISCARD pare_status pare_kernel_benchmark_time(const pare_kernel_benchmark *t, double rival,
                                                      double *best);

#endif
