/* SPDX-License-Identifier: Apache-2.0 */
/* Execution: model -> plan (for concrete input shapes) -> runner -> run.
   A plan is immutable and may serve several runners, one per thread. */
#ifndef PARE_RUNTIME_EXEC_EXEC_H
#define PARE_RUNTIME_EXEC_EXEC_H

#include "runtime/graph/graph.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_plan pare_plan;
typedef struct pare_runner pare_runner;
typedef struct pare_session pare_session;

/* The concrete shape of one graph input. */
typedef struct pare_input_shape {
    const char *name;
    pare_shape shape;
} pare_input_shape;

typedef struct pare_plan_options {
    int threads;             /* inside one run; 0: all cores */
    pare_device *device;     /* where it runs (device.h); NULL: the CPU. It must outlive the plan. */
    bool canonical;          /* fixed summation: results do not depend on batch or threads */
    bool tune;               /* time the kernels that can, once per shape (run and bench) */
    const char *cache_dir;   /* timing cache; NULL: none on disk */
    bool reference;          /* plain C kernels only, no fusion: the definition of correct */
    bool keep_all;           /* every tensor of the model stays visible to observers: no fusion */
    const char *const *keep; /* tensors that must stay visible to observers and unfused */
    int keep_count;
} pare_plan_options;

/* Compiles a copy of the model for these input shapes: lifts the opset, folds constants, fuses,
   infers shapes, chooses kernels, plans memory. Every input without a known shape must be listed.
   PARE_INPUT: a shape contradicts the model; PARE_UNSUPPORTED: an operator, opset or type has no
   kernel. */
PARE_NODISCARD pare_status pare_plan_new(pare_ctx *ctx, pare_plan **out, const pare_model *model,
                                         const pare_input_shape *shapes, int shape_count,
                                         const pare_plan_options *options);
void pare_plan_free(pare_plan *plan);

/* What the plan runs, in order, for profiles and reports. */
typedef struct pare_step_info {
    const char *node, *op_type, *kernel;
    const char *output;        /* name of the first output */
    pare_dtype dtype;          /* it computes in: that of its first output */
    pare_shape shape;          /* of its first output */
    size_t bytes_in, bytes_out;
    double macs;               /* multiply-adds of Conv, Gemm, MatMul; else 0 */
} pare_step_info;

int pare_plan_step_count(const pare_plan *plan);
void pare_plan_step(const pare_plan *plan, int i, pare_step_info *out);
size_t pare_plan_activation_bytes(const pare_plan *plan); /* one runner's buffer, scratch included */
size_t pare_plan_weight_bytes(const pare_plan *plan);     /* packed copies made by kernels */

/* Graph inputs (initializers not among them) and outputs, with the plan's dtypes and shapes. */
int pare_plan_input_count(const pare_plan *plan);
int pare_plan_output_count(const pare_plan *plan);
const pare_value *pare_plan_input(const pare_plan *plan, int i);
const pare_value *pare_plan_output(const pare_plan *plan, int i);

PARE_NODISCARD pare_status pare_runner_new(pare_ctx *ctx, pare_runner **out, const pare_plan *plan);
void pare_runner_free(pare_runner *runner);

/* The buffer of input i, dense row-major, to be written before each run. */
pare_view pare_runner_input(pare_runner *runner, int i);
/* Reads input i from the caller's memory instead (dense row-major), until set again. */
void pare_runner_set_input(pare_runner *runner, int i, const void *data);
/* Output i, dense row-major, valid until the next run. */
pare_view pare_runner_output(const pare_runner *runner, int i);

PARE_NODISCARD pare_status pare_runner_run(pare_runner *runner);

/* Called during runs after the node that made the tensor, for the model's inputs before the first
   node; view has the tensor's strides. Tensors fused away do not appear (pare_plan_options.keep). */
typedef pare_status (*pare_observe_fn)(void *user, const pare_value *value, const pare_view *view);
void pare_runner_observe(pare_runner *runner, pare_observe_fn fn, void *user);

/* Seconds each step took in the last run; NULL stops timing. times: (step_count). */
void pare_runner_profile(pare_runner *runner, double *times);

/* A session keeps a plan and a runner per input shape of one model. */
PARE_NODISCARD pare_status pare_session_new(pare_ctx *ctx, pare_session **out,
                                            const pare_model *model,
                                            const pare_plan_options *options);
void pare_session_free(pare_session *session);
/* The runner for these shapes, made at first use. */
PARE_NODISCARD pare_status pare_session_runner(pare_session *session, pare_runner **out,
                                               const pare_input_shape *shapes, int shape_count);
const pare_plan *pare_runner_plan(const pare_runner *runner);

/* "cpu" (*out is NULL), "cuda", "cuda:N", or "auto": the first GPU where there is one, else the CPU,
   which an info line then says. PARE_DEVICE: no such GPU, no driver, or a build without GPU code. */
PARE_NODISCARD pare_status pare_device_open(pare_ctx *ctx, pare_device **out, const char *name);
void pare_device_close(pare_device *device); /* after everything that ran on it; NULL is fine */

/* Cores this process may use. */
int pare_cpu_cores(void);

/* Binds the calling thread and the team that serves its runs to one core each, so that the team's
   members never wait for each other on one core. For programs that own the machine while they
   measure; threads made afterwards inherit the caller's core. Does nothing for fewer than two threads
   or where the process may not use that many cores. */
void pare_threads_bind(int threads);

#ifdef __cplusplus
}
#endif
#endif
