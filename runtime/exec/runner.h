/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a runner, shared by runner.c and its half for devices, device_runner.c. */
#ifndef PARE_RUNTIME_EXEC_RUNNER_H
#define PARE_RUNTIME_EXEC_RUNNER_H

#include "runtime/exec/plan.h"

typedef struct pare_runner_device pare_runner_device;
typedef struct pare_interpreter pare_interpreter;

/* A pointer that follows a graph input. */
typedef struct pare_input_use {
    void **data;
    int index;
} pare_input_use;

struct pare_runner {
    pare_ctx *ctx;
    const pare_plan *plan;
    pare_arena arena;
    char *buffer, *scratch;
    pare_call *call;           /* (step_count) */
    int bound;                 /* calls whose bind succeeded */
    void **own_input, **input; /* the runner's buffers, what is read now */
    pare_view *output;
    pare_input_use *use;
    int use_count;
    size_t use_capacity;
    pare_observe_fn observe;
    pare_observe_device_fn observe_device;
    void *observe_user;
    pare_then_fn then;
    void *then_user;
    double *times;
    pare_phase_times *phases;
    pare_interpreter *interpreter; /* of the plan's dynamic part; NULL: it has none */
    struct pare_gather *gather;    /* of runs of this runner alone; made at the first */
    pare_timeline *timeline;
    int track;                  /* this runner's number in the timeline */
    pare_stream *stream;        /* on a device: that it shares; NULL: it has its own */
    bool single;                /* memory is that of plan->single, and all steps are in `stream` */
    pare_runner_device *device; /* NULL on the CPU */
};

/* Steps that follow one another on the device, recorded once and played again; or one on the host.
 */
typedef struct pare_segment {
    int first, count;
    bool host;
    pare_captured_graph *captured; /* NULL: not yet, or not worth it */
} pare_segment;

/* An input that comes as stored pixels. */
typedef struct pare_raw_input {
    void *memory; /* of the device: the table, then the pixels; NULL: it comes as it is */
    pare_pixels pixels;
    int64_t samples;
    uint8_t *bytes; /* the pixels there */
    bool floats;    /* some step reads it as floats */
} pare_raw_input;

/* Of a runner that may have two runs in flight (run_ahead.c). Even runs have set 0, odd ones set 1.
 */
typedef struct pare_ahead {
    pare_stream *in, *out; /* inputs go up, outputs come down */
    char *memory;          /* of the device, between the host and what steps read and write */
    char **input;          /* (input_count) in it; NULL: not brought up */
    char **output;         /* (output_count) in it; NULL: not brought down */
    void **host_input[2], **host_output[2];
    pare_event *up;       /* inputs are in that memory, */
    pare_event *taken;    /* were copied out of it; */
    pare_event *made;     /* outputs are in it, */
    pare_event *down[2];  /* and on the host */
    int64_t begun, ended; /* runs that were started, and waited for */
} pare_ahead;

enum { PARE_PHASE_ENDS = 4 }; /* of three phases, one behind the other */

/* What a runner has on its plan's device. Inputs go up before a run, outputs come down after it. */
struct pare_runner_device {
    pare_stream *stream;
    pare_stream *side;       /* of branches; NULL: all steps run in the other one */
    pare_event *fork, *join; /* with it */
    void *side_scratch;      /* of steps in it */
    bool apart;              /* calls are bound to both streams */
    pare_raw_input *raw;     /* (input_count) */
    bool *input_left;        /* (input_count) the caller puts it there */
    bool *output_left;       /* (output_count) it is not brought down */
    char *buffer;            /* activations, scratch, inputs */
    pare_view *output;       /* (output_count) on the device; data NULL: nothing to bring down */
    pare_event **event;      /* (step_count + 1), for profiles; made at the first */
    pare_event *phase[PARE_PHASE_ENDS]; /* before and after each phase; made at the first */
    void *seen;                         /* host copy of the tensor an observer looks at */
    size_t seen_bytes;
    pare_segment *segment;
    int segment_count;
    const pare_step_mark *mark;
    int mark_count;
    unsigned long long *fault, *fault_seen; /* on the device, and (2) its copies here, of the sets
                                               of `ahead`; NULL: no step can find its data wrong */
    pare_ahead *ahead;                      /* NULL: one run at a time */
    int first, count;                       /* steps of the run, or part of one, in progress */
    bool warm; /* one run was made step by step: libraries are loaded, kernels chosen */
};

/* device_runner.c */
PARE_NODISCARD pare_status pare_runner_device_open(pare_runner *runner);
void pare_runner_device_close(pare_runner *runner);
/* The address on the device of a root's bytes; NULL: not there. */
void *pare_runner_device_address(const pare_runner *runner, const pare_storage *root);
/* Room on the host for output i, and where its bytes are on the device. */
PARE_NODISCARD pare_status pare_runner_device_output(pare_runner *runner, int i);
PARE_NODISCARD pare_status pare_runner_device_start(pare_runner *runner);
PARE_NODISCARD pare_status pare_runner_device_wait(pare_runner *runner);
/* Brings a tensor down, complete, for an observer. */
PARE_NODISCARD pare_status pare_runner_device_show(pare_runner *runner, pare_view *view);
/* The next run is recorded anew. */
void pare_runner_device_forget(pare_runner *runner);
bool pare_runner_device_is_recorded(const pare_runner *runner);
PARE_NODISCARD pare_status pare_runner_device_mark(pare_runner *runner, int at);

/* A run in parts, between which the sums over microbatches are made. The first part brings inputs
   up, the last one waits for outputs. */
PARE_NODISCARD pare_status pare_runner_device_part(pare_runner *runner, int first, int count);

/* runner.c: a runner that works in a stream of others, in parts of runs, NULL: in its own. single:
   of a plan with branches, all steps run in that stream; where it is shared they always do. */
PARE_NODISCARD pare_status pare_runner_new_in(pare_ctx *ctx, pare_runner **out,
                                              const pare_plan *plan, pare_stream *stream,
                                              bool single);
/* Failed what was made of the plan for want of the memory that its branches take? Then the failure
   is forgotten and noted, and it can be made again with `single`. */
bool pare_runner_retries(pare_ctx *ctx, const pare_plan *plan, pare_status status);

/* side_stream.c: the second stream of a runner whose plan has branches (branches.h). */
PARE_NODISCARD pare_status pare_runner_side_open(pare_runner *runner);
void pare_runner_side_close(pare_runner *runner); /* what was put into it is done */
/* Before steps are run or recorded: whether the steps of branches go to it. They do not where
   someone watches or follows single steps. */
void pare_runner_side_bind(pare_runner *runner);
/* Before and after step i: where the streams part, and where they meet. */
PARE_NODISCARD pare_status pare_runner_side_fork(pare_runner *runner, int i);
PARE_NODISCARD pare_status pare_runner_side_join(pare_runner *runner, int i);
/* After a failure: waits for what is in it. */
void pare_runner_side_sync(pare_runner *runner);

/* device_copies.c: before and after the steps of a run. */
PARE_NODISCARD pare_status pare_runner_inputs_upload(pare_runner *runner);
PARE_NODISCARD pare_status pare_runner_outputs_download(pare_runner *runner);
/* Bytes that the host has of input i, which go to *to; 0: it is not brought up. */
size_t pare_runner_input_bytes(const pare_runner *runner, int i, void **to);
/* Bytes of output i that are brought down. */
size_t pare_runner_output_bytes(const pare_runner *runner, int i);

/* Were all steps run on a device? Libraries are loaded then. */
bool pare_runner_has_run(const pare_runner *runner);

/* run_ahead.c: from here on a second run may be started before the first was waited for; runs are
   waited for in order. pare_runner_input is the buffer of the run that is started next, and is
   written anew for each; pare_runner_output that of the run waited for last. Called while no run is
   in flight. *ahead false: the runner's plan has no room for it, or the device's memory, of which
   an info line tells. Neither profiles nor times of phases go with it. */
PARE_NODISCARD pare_status pare_runner_run_ahead(pare_runner *runner, bool *ahead);
/* Of those that have `ahead`, in the order of a run: before inputs go up, after they went, once
   steps' memory has them; before outputs are copied, before they come down, after it. */
PARE_NODISCARD pare_status pare_ahead_enter(pare_runner *runner);
PARE_NODISCARD pare_status pare_ahead_went_up(pare_runner *runner);
PARE_NODISCARD pare_status pare_ahead_took(pare_runner *runner);
PARE_NODISCARD pare_status pare_ahead_make(pare_runner *runner);
PARE_NODISCARD pare_status pare_ahead_made(pare_runner *runner);
PARE_NODISCARD pare_status pare_ahead_leave(pare_runner *runner);
/* Waits for the oldest run in flight; its outputs are in *set. */
PARE_NODISCARD pare_status pare_ahead_land(pare_runner *runner, int *set);
/* Without it they do nothing. sync: after a failure, waits for copies. */
void pare_ahead_sync(pare_runner *runner);
void pare_ahead_close(pare_runner *runner);

/* microbatch.c */
bool pare_is_slice_sum(const pare_node *node);

/* runner.c: so many steps once; with observers, times and spans where they are set. */
PARE_NODISCARD pare_status pare_runner_steps(pare_runner *runner, int first, int count);

#endif
