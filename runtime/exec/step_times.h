/* SPDX-License-Identifier: Apache-2.0 */
/* What one step of a plan takes where its tensors have other extents: measured when first asked
   for, and kept in a file of the timing cache's folder that all models share (machine_table.h,
   steps.json). A time is found by operator, attributes, types, shapes, threads and machine. */
#ifndef PARE_RUNTIME_EXEC_STEP_TIMES_H
#define PARE_RUNTIME_EXEC_STEP_TIMES_H

#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_step_times pare_step_times;

/* Seconds of the step with inputs of these shapes; absent inputs have any. */
typedef pare_status (*pare_step_measure_fn)(void *user, const pare_node *step, const pare_shape *in,
                                            double *seconds);

typedef struct pare_step_times_options {
    int threads;           /* 0: all cores */
    pare_device *device;   /* NULL: the CPU */
    const char *cache_dir; /* NULL: nothing on disk */
    /* The stopwatch. NULL: the step is compiled as a model of its own, its kernels are tuned, and
       the quickest of some runs counts: other work on the machine only ever adds. */
    pare_step_measure_fn measure;
    void *measure_user;
} pare_step_times_options;

/* The CPU, all cores, nothing on disk. */
void pare_step_times_options_init(pare_step_times_options *out);

PARE_NODISCARD pare_status pare_step_times_open(pare_ctx *ctx, pare_step_times **out,
                                                const pare_step_times_options *options);
/* step: of a plan, see pare_plan_node. in: (its inputs). An attribute `group` that was the channels
   of input 0 (a depthwise convolution) follows them. */
PARE_NODISCARD pare_status pare_step_times_find(pare_step_times *times, const pare_node *step,
                                                const pare_shape *in, double *seconds);
int64_t pare_step_times_measured(const pare_step_times *times); /* how many were not known */
/* Writes what was measured, and frees. NULL is fine. */
void pare_step_times_close(pare_step_times *times);

#ifdef __cplusplus
}
#endif
#endif
