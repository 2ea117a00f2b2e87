/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on trial for a node, and the autotune between those that can serve it. */
#ifndef PARE_EXEC_TRIAL_H
#define PARE_EXEC_TRIAL_H

#include "runtime/exec/benchmark_memory.h"

/* A kernel whose quickest run takes so many times another's is out; more than a change of the
   machine's pace between two trials makes of equal ones. */
#define PARE_TRIAL_BEHIND 2.0

/* One kernel ready to run, on memory of its own or, on a device, on that of all trials for the
   node. Stays where it was opened. */
typedef struct pare_kernel_benchmark {
    const pare_kernel *kernel; /* NULL: closed */
    pare_prep prep;
    pare_arena arena;
    pare_call call[PARE_BENCHMARK_SETS]; /* (sets) */
    int sets, bound;                     /* the first `bound` have what bind made */
    bool prepared;
    const pare_benchmark_memory *memory; /* of a device, as the rest: */
    void *scratch;
    pare_event *from, *to;
    pare_captured_graph *graph; /* `launches` runs; NULL: the kernel cannot be captured */
    int launches;
} pare_kernel_benchmark;

/* memory: of prep's device; NULL on the CPU. On failure nothing is kept. */
PARE_NODISCARD pare_status pare_kernel_benchmark_open(pare_kernel_benchmark *t,
                                                      const pare_kernel *kernel,
                                                      const pare_prep *prep,
                                                      const pare_benchmark_memory *memory);
void pare_kernel_benchmark_close(pare_kernel_benchmark *t);
/* Mean seconds of so many runs in a row, on the CPU. */
PARE_NODISCARD pare_status pare_kernel_benchmark_run(const pare_kernel_benchmark *t, int runs,
                                                     double *took);
/* Seconds of a run after one that is not counted: on the CPU of the quickest of a few, on a device
   the median of a few captured graphs' means, each begun with a cold cache. Not exact where it is
   far slower than `rival`, the quickest other kernel (1e30: none yet). */
PARE_NODISCARD pare_status pare_kernel_benchmark_time(pare_kernel_benchmark *t, double rival,
                                                      double *seconds);

#endif
