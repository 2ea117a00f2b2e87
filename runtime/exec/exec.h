/* SPDX-License-Identifier: Apache-2.0 */
/* Execution: model -> plan (for concrete input shapes) -> runner -> run.
   A plan is immutable and may serve several runners, one per thread. */
#ifndef PARE_RUNTIME_EXEC_EXEC_H
#define PARE_RUNTIME_EXEC_EXEC_H

#include "runtime/base/pixels.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/kernel.h"
#include "runtime/device/telemetry.h"

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

/* The shape given for an input, or NULL. */
const pare_shape *pare_input_shape_find(const pare_input_shape *shapes, int count,
                                        const char *name);

/* A graph input that is on the plan's device already, or an output that stays there. */
typedef struct pare_placed {
    const char *name;
    void *data; /* of an input: its bytes there, dense and row-major, as long as anything runs, at a
                   multiple of 256, in deterministic execution of 64 (else PARE_INPUT); of an
                   output: NULL */
} pare_placed;

/* How a graph is cut into stages whose inputs are not sent: each stage is given those that it
   reads. With a loss it is a gradient graph (stages.h). */
typedef struct pare_stage_split {
    const char *loss;          /* an output: nodes that it does not need run backward; NULL: no
                                  node does */
    const char *const *weight; /* (count) inputs, of which each is read in one stage alone */
    const char *const
        *gradient; /* (count) outputs, made in the stage of their weight; NULL: none */
    int *stage;    /* (count) the weight's; -1: the cut chooses it, and writes it */
    int count;
} pare_stage_split;

/* What processes give each other that have a part of a plan each (shards.h). */
typedef struct pare_gatherer {
    /* all: what every process has, in their order; of process r bytes[r] bytes. Called in the same
       order in each, by one thread at a time. */
    pare_status (*gather)(void *user, const void *mine, const size_t *bytes, void *all);
    void *user;
    size_t most; /* bytes in `all`, where one run has no more; 0: 256 MB */
} pare_gatherer;

typedef struct pare_plan_options {
    int threads;           /* inside one run; 0: all cores */
    pare_device *device;   /* where it runs (device.h); NULL: the CPU. It must outlive the plan. */
    bool deterministic;    /* fixed summation: results do not depend on batch or threads */
    bool tune;             /* time the kernels that can, once per shape (run and bench) */
    const char *cache_dir; /* timing cache, read without `tune`, too; NULL: none on disk */
    bool outline;          /* compiled as for a GPU, which need not be there: nodes, shapes and
                              memory order, no kernels and no memory; pare_plan_graph has them */
    bool one_stream;       /* with a device: its steps run one after the other, none side by side
                              in a second stream (branches.h) */
    bool reference;        /* plain C kernels only, no fusion: the definition of correct */
    bool keep_all;         /* every tensor of the model stays visible to observers: no fusion */
    const char *const *keep; /* tensors that must stay visible to observers and unfused; those that
                                Q/DQ folding takes into integer kernels go all the same */
    int keep_count;
    const pare_placed *placed; /* with a device: what is brought neither up nor down. Such an
                                  output's view is of the device's memory. */
    int placed_count;
    int stage, stages; /* stages above 1: the compiled graph is cut (stages.h), and the plan is its
                          stage number `stage`, from 0: inputs are the tensors that cross to it, in
                          the memory order that they were made in, outputs those that leave it.
                          PARE_UNSUPPORTED: control flow, or shapes that only a run knows */
    int shard, shards; /* shards above 1: products are cut (shards.h), and the plan has the part
                          number `shard`, from 0, of each. PARE_UNSUPPORTED: as with stages;
                          PARE_INPUT: no product can be cut */
    const pare_gatherer *gatherer; /* with shards: how parts meet; it must outlive the plan. NULL:
                                      the other parts are zeros */
    size_t stage_weights; /* with stages: bytes of a stage's weights at most; 0: no limit */
    const pare_stage_split *split; /* with stages: `stage` is the number of a part (stages.h).
                                      Inputs are what the part before sends, then what an earlier
                                      part of the same stage was sent or made, then the graph's own;
                                      outputs what the next part is sent, what a later part of the
                                      same stage reads, and the graph's own. On a device what stays
                                      in its stage is neither brought up nor down: the caller copies
                                      it, from pare_runner_find_there to pare_runner_input_there. */
    /* With tune: called with the seconds that each kernel of a node took; the cache is not asked
       then, so that every node with a choice is timed. Or NULL. */
    void (*timed)(void *user, const pare_node *node, const pare_kernel *kernel, double seconds);
    void *timed_user;
} pare_plan_options;

/* The CPU, all cores, nothing tuned. */
void pare_plan_options_init(pare_plan_options *out);

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
    const char *output; /* name of the first output */
    pare_dtype dtype;   /* it computes in: that of its first output */
    pare_shape shape;   /* of its first output */
    size_t bytes_in, bytes_out;
    size_t live; /* bytes of the activation buffer in use while it runs, its scratch included */
    double macs; /* multiply-adds (pare_node_macs), 0 where there are none */
} pare_step_info;

int pare_plan_step_count(const pare_plan *plan);
void pare_plan_step(const pare_plan *plan, int i, pare_step_info *out);
/* The node of the compiled copy that it runs. */
const pare_node *pare_plan_node(const pare_plan *plan, int i);
/* The compiled copy, in the order in which it runs. Nodes whose shapes only a run knows are not in
   it: pare_plan_node has them behind the plan's steps. */
const pare_graph *pare_plan_graph(const pare_plan *plan);
pare_device *pare_plan_device(const pare_plan *plan); /* where it runs; NULL: the CPU */
size_t
pare_plan_activation_bytes(const pare_plan *plan);    /* one runner's buffer, scratch included */
size_t pare_plan_weight_bytes(const pare_plan *plan); /* packed copies and tables of kernels */

/* Graph inputs (initializers not among them) and outputs, with the plan's dtypes and shapes. */
int pare_plan_input_count(const pare_plan *plan);
int pare_plan_output_count(const pare_plan *plan);
/* Does the model have a part whose shapes only a run knows, or control flow? The host interprets it
   after the plan's steps. Outputs it makes may have unknown dims here, and another shape in each
   run: pare_runner_output says which. */
bool pare_plan_is_dynamic(const pare_plan *plan);
const pare_value *pare_plan_input(const pare_plan *plan, int i);
const pare_value *pare_plan_output(const pare_plan *plan, int i);
/* The step after which output i is made, of a plan that is the whole model; -1: before them all. */
int pare_plan_output_made(const pare_plan *plan, int i);

PARE_NODISCARD pare_status pare_runner_new(pare_ctx *ctx, pare_runner **out, const pare_plan *plan);
void pare_runner_free(pare_runner *runner);

/* The buffer of input i, dense row-major, to be written before each run; of type u8 where it takes
   pixels. */
pare_view pare_runner_input(pare_runner *runner, int i);
/* Reads input i from the caller's memory instead (dense row-major), until set again. */
void pare_runner_set_input(pare_runner *runner, int i, const void *data);
/* Output i, dense row-major, valid until the next run. */
pare_view pare_runner_output(const pare_runner *runner, int i);

PARE_NODISCARD pare_status pare_runner_run(pare_runner *runner);
/* Has all that runs on a GPU play again been recorded? If not, the next run may record: meanwhile
   no other thread may free memory of that GPU, which ends a recording. True on the CPU. */
bool pare_runner_is_recorded(const pare_runner *runner);

/* For data that are on the plan's GPU already. Where input i is read and output i is made there,
   dense row-major; NULL: on the CPU, or the host has a part in it (an output that is an input, a
   part that is interpreted). */
void *pare_runner_input_there(const pare_runner *runner, int i);
const void *pare_runner_output_there(const pare_runner *runner, int i);
/* Where the input or output of this name is on the plan's GPU, whoever has a part in it; its bytes
   are those of the last run until the next. NULL: on the CPU, or there is none. */
const void *pare_runner_find_there(const pare_runner *runner, const char *name);
/* Where those are not NULL: do runs from now on leave out to bring it up, or down? The caller's
   copies to an input are put into the runner's stream before a run, those from an output after it.
   What pare_runner_output shows of an output that is left is not its value. */
void pare_runner_leave_input(pare_runner *runner, int i, bool leave);
void pare_runner_leave_output(pare_runner *runner, int i, bool leave);
pare_stream *pare_runner_stream(const pare_runner *runner); /* NULL: on the CPU */

/* The two halves of a run. start puts a run's work into the runner's stream and returns; wait
   returns when its outputs are there. Between the two, inputs and outputs are not to be touched;
   other runners may be started. On the CPU start does it all. A start that failed needs no wait.
   What fails on a GPU after start is found by wait, whose message names the first and the last node
   of the run: CUDA does not say which of the work in a stream it was. */
PARE_NODISCARD pare_status pare_runner_start(pare_runner *runner);
PARE_NODISCARD pare_status pare_runner_wait(pare_runner *runner);

/* fn follows every run that has succeeded, and is part of it. NULL: nothing does. */
typedef pare_status (*pare_then_fn)(void *user, pare_runner *runner);
void pare_runner_then(pare_runner *runner, pare_then_fn fn, void *user);

/* On a GPU runs mark these events in the runner's stream, each after a step (0, 1, ...), so that
   other streams can follow parts of a run; what is recorded is cut there. The marks are the
   caller's and stay until the runner's last run. */
typedef struct pare_step_mark {
    int step;
    pare_event *event;
} pare_step_mark;
void pare_runner_mark(pare_runner *runner, const pare_step_mark *marks, int count);

/* Called during runs after the node that made the tensor, for the model's inputs before the first
   node; view has the tensor's strides. Tensors fused away, and what Concats and Splits make in
   place (parts.h), do not appear (pare_plan_options.keep). */
typedef pare_status (*pare_observe_fn)(void *user, const pare_value *value, const pare_view *view);
void pare_runner_observe(pare_runner *runner, pare_observe_fn fn, void *user);

/* The same where the tensors are, for plans with a device: view's data are memory of it, and what
   fn puts into the stream follows the tensor's making. The first run calls fn and the second, which
   is recorded; later ones launch the captured graph, fn's work with it, so that it must be the
   same in every run and may allocate in the first only. Before a run of other work fn is set again:
   that run calls it, too. */
typedef pare_status (*pare_observe_device_fn)(void *user, const pare_value *value,
                                              const pare_view *view, pare_stream *stream);
void pare_runner_observe_device(pare_runner *runner, pare_observe_device_fn fn, void *user);

/* Input i comes as stored pixels from now on: its buffer holds (samples, pixels->count) bytes, and
   the device, which must have a table of samples.h, makes the floats of them. For f32 inputs; the
   table is copied. */
PARE_NODISCARD pare_status pare_runner_take_pixels(pare_runner *runner, int i,
                                                   const pare_pixels *pixels);

/* A node that the host interprets, in the main graph or, by its path, in a body. */
typedef struct pare_inner_step {
    pare_step_info info; /* kernel: the last one, "interpreter" of control flow and sequences */
    double seconds;      /* of the last run, where it was profiled; all turns of a loop */
    int64_t turns;       /* how often it ran then */
} pare_inner_step;

/* What the last run interpreted, outer nodes before those of their bodies. Writes at most `most`
   and returns how many there are; 0: the plan holds it all. */
int pare_runner_inner_steps(const pare_runner *runner, pare_inner_step *out, int most);

/* Seconds each step took in the last run; NULL stops timing. times: (step_count). */
void pare_runner_profile(pare_runner *runner, double *times);

/* Seconds of a run on a device, by its own events: captured graphs stay in use. */
typedef struct pare_phase_times {
    double copy_in, compute, copy_out;
} pare_phase_times;
/* Each run writes them; NULL stops that. On the CPU nothing is written. */
void pare_runner_time_phases(pare_runner *runner, pare_phase_times *phases);

/* What was done when: spans of work, each on a lane of a stream. Marks are put into the streams
   between the work (on the CPU: the clock is read), and are read when all of it is done. One thread
   at a time. */
typedef struct pare_timeline pare_timeline;
typedef enum pare_lane {
    PARE_LANE_IN,
    PARE_LANE_COMPUTE,
    PARE_LANE_OBSERVE, /* an observer's work on a tensor */
    PARE_LANE_OUT,
    PARE_LANES
} pare_lane;

typedef struct pare_span {
    const char *name; /* borrowed: of a tensor, a node */
    int track;        /* the caller's number of the runner */
    pare_lane lane;
    int step;              /* of the plan; -1: a copy, or an observer's work */
    size_t bytes;          /* copied, observed; of a step: read and written */
    double start, seconds; /* since the timeline was made; set by pare_timeline_read */
} pare_span;

/* device: NULL is the CPU. */
PARE_NODISCARD pare_status pare_timeline_new(pare_ctx *ctx, pare_timeline **out,
                                             pare_device *device);
void pare_timeline_free(pare_timeline *timeline);
/* Work put into the stream (NULL: the CPU) between the two is the span `what`; spans do not overlap
   in one stream. */
PARE_NODISCARD pare_status pare_timeline_begin(pare_timeline *timeline, pare_stream *stream,
                                               const pare_span *what);
PARE_NODISCARD pare_status pare_timeline_end(pare_timeline *timeline, pare_stream *stream);
/* Fills in the times of all spans so far; every stream must have been waited for. */
PARE_NODISCARD pare_status pare_timeline_read(pare_timeline *timeline);
int pare_timeline_count(const pare_timeline *timeline);
const pare_span *pare_timeline_span(const pare_timeline *timeline, int i);

/* Notes copies, steps and observers' work of later runs as spans of this stream, one step after the
   other (nothing is recorded or played meanwhile); NULL stops. */
void pare_runner_trace(pare_runner *runner, pare_timeline *timeline, int track);

pare_ctx *pare_runner_ctx(const pare_runner *runner); /* that it was made with */

/* A session keeps a plan and a runner per input shape of one model. */
PARE_NODISCARD pare_status pare_session_new(pare_ctx *ctx, pare_session **out,
                                            const pare_model *model,
                                            const pare_plan_options *options);
void pare_session_free(pare_session *session);
/* The runner for these shapes, made at first use. */
PARE_NODISCARD pare_status pare_session_runner(pare_session *session, pare_runner **out,
                                               const pare_input_shape *shapes, int shape_count);
const pare_plan *pare_runner_plan(const pare_runner *runner);

/* "cpu" (*out is NULL), "cuda", "cuda:N", or "auto": the first GPU where there is one, else the
   CPU, which an info line then says. PARE_DEVICE: no such GPU, no driver, or a build without GPU
   code. */
PARE_NODISCARD pare_status pare_device_open(pare_ctx *ctx, pare_device **out, const char *name);
/* The same, with at most memory_limit bytes of the GPU's memory (0: all of it). */
PARE_NODISCARD pare_status pare_device_open_within(pare_ctx *ctx, pare_device **out,
                                                   const char *name, size_t memory_limit);
/* PARE_USAGE for any other name. */
PARE_NODISCARD pare_status pare_device_check(pare_ctx *ctx, const char *name);
void pare_device_close(pare_device *device); /* after everything that ran on it; NULL is fine */

/* What the driver's library for watching GPUs says about a device while it works. *out is NULL, and
   an info line says why, where there is none; the others take NULL. One thread at a time. */
PARE_NODISCARD pare_status pare_monitor_open(pare_ctx *ctx, pare_monitor **out,
                                             const pare_device *device);
void pare_monitor_close(pare_monitor *meter);
void pare_monitor_read(const pare_monitor *meter, pare_telemetry *out);
const char *pare_monitor_driver(const pare_monitor *meter); /* the driver's version, or "" */

/* "sm_80, sm_90, PTX of compute_80": the GPUs this build has code for; NULL: none. Returns text. */
const char *pare_gpu_code(char *text, size_t bytes);

/* What the driver says. */
typedef struct pare_gpu_facts {
    int runtime, driver; /* CUDA's versions: 13000 is 13.0; 0: none */
    int count;           /* GPUs that this process sees */
    char why[256];       /* it sees none */
} pare_gpu_facts;
void pare_gpu_find(pare_gpu_facts *out);
/* "NVIDIA H200 (sm_90)" and its memory. */
PARE_NODISCARD pare_status pare_gpu_name(pare_ctx *ctx, int index, char *text, size_t bytes,
                                         size_t *memory);
/* The file of cuBLASLt; PARE_UNSUPPORTED, with the cure, where it was not found. */
PARE_NODISCARD pare_status pare_gpu_blas(pare_ctx *ctx, char *text, size_t bytes);

/* The version and the file of cuDNN; PARE_UNSUPPORTED, with the cure, where it was not found. */
PARE_NODISCARD pare_status pare_gpu_dnn(pare_ctx *ctx, char *text, size_t bytes);
/* From here on convolutions of a training may come from it on this device, in deterministic
   execution, too: their sums then depend on its version and on the GPU. */
void pare_gpu_allow_dnn(pare_device *device);
bool pare_gpu_allows_dnn(const pare_device *device);

/* The version of NCCL; PARE_UNSUPPORTED where it is not there, or too old. */
PARE_NODISCARD pare_status pare_gpu_nccl(pare_ctx *ctx, char *text, size_t bytes);

/* Cores this process may use. */
int pare_cpu_cores(void);

/* The instructions that CPU kernels use here: "portable", "avx2", "avx512", "vnni". */
const char *pare_cpu_isa_name(void);

/* Binds the calling thread and the team that serves its runs to one core each, so that the team's
   members never wait for each other on one core. For programs that own the machine while they
   measure; threads made afterwards inherit the caller's core. Does nothing for fewer than two
   threads or where the process may not use that many cores. */
void pare_threads_bind(int threads);

#ifdef __cplusplus
}
#endif
#endif
