/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a plan, shared by the files of this folder. */
#ifndef PARE_RUNTIME_EXEC_PLAN_H
#define PARE_RUNTIME_EXEC_PLAN_H

#include "runtime/exec/exec.h"
#include "runtime/exec/shards.h"
#include "runtime/exec/stages.h"
#include "runtime/ops/ops.h"

/* Where a tensor's bytes are while the plan runs. */
typedef enum pare_where {
    PARE_AT_NOWHERE, /* an absent optional input */
    PARE_AT_CONSTANT,
    PARE_AT_INPUT, /* the runner's or the caller's memory of graph input `index` */
    PARE_AT_BUFFER /* offset in the runner's buffer */
} pare_where;

/* A stretch of memory that one tensor, or several that are the same bytes, live in. */
typedef struct pare_storage {
    pare_where where;
    const pare_value *value; /* AT_BUFFER: that it was made for, the whole of parts */
    int index;               /* AT_INPUT */
    void *constant;          /* AT_CONSTANT: in host memory */
    void *there;             /* AT_INPUT on a device: where it is already; NULL: it is brought up */
    bool uploaded;           /* AT_CONSTANT: some step on the device reads it there, at `offset` of
                                plan->device_constants */
    size_t bytes;            /* AT_BUFFER */
    size_t offset;           /* AT_BUFFER: set by the memory plan; AT_INPUT on a device: after it */
    int first, last;         /* positions of the nodes that write it first and read it last */
} pare_storage;

typedef struct pare_place {
    int root;            /* index in plan->root, -1: nowhere */
    size_t at;           /* bytes from its beginning: not 0 of parts only (parts.h) */
    size_t pitch, width; /* of a part with gaps between rows; else 0 */
    pare_view view;
} pare_place;

typedef struct pare_step {
    pare_node *node;
    const pare_kernel *kernel;
    void *state;
    size_t scratch;
    int position; /* of its node, as roots' first and last: nodes in place have no step */
    int in_count, out_count;
    pare_place *in, *out;
    size_t joined;     /* bytes that are where it would copy them: neither read nor written */
    bool gathers;      /* gather.c makes its output */
    bool side;         /* it runs in the second stream of the device (branches.h) */
    bool forks, joins; /* the first, the last of a region */
} pare_step;

/* Of a plan with branches, the memory of a runner all of whose steps run in one stream. */
typedef struct pare_single {
    size_t *offset; /* (storage_count) as pare_storage's */
    size_t buffer_bytes, scratch_bytes;
} pare_single;

/* The part of a model that only a run can give shapes: interpreter/ runs it after the plan. */
typedef struct pare_dynamic {
    pare_model *model;
    int first_input;  /* the plan's outputs from here on are the model's inputs */
    int output_count; /* of the whole model; for each: */
    bool *late;       /* the interpreter makes it, else the plan */
    int *at;          /* which of the outputs of either it is */
} pare_dynamic;

struct pare_plan {
    pare_ctx *ctx;
    pare_arena arena;
    pare_model *model;     /* compiled copy */
    pare_dynamic *dynamic; /* NULL: the plan is the whole model */
    pare_plan_options options;
    pare_step *step;
    int step_count;
    pare_storage *root;
    int storage_count;
    size_t storage_capacity;
    pare_value **input; /* graph inputs without initializer */
    pare_place *input_place, *output_place;
    bool *stays; /* (output_count): on the device */
    int input_count, output_count;
    size_t buffer_bytes, scratch_bytes;
    size_t side_scratch_bytes; /* of the second stream */
    bool branches;             /* some step runs in it */
    pare_single *single;       /* with branches, else NULL */
    size_t weight_bytes;
    void *device_constants;
    pare_plan_stage *stage; /* (options.stages) of the whole model, or NULL */
    int received, sent;     /* of a part of a split graph: the first of its inputs, its outputs */
    int kept_in, kept_out;  /* the next ones: of an earlier part of its stage, for a later one */
    pare_plan_sharding *sharding; /* of the whole model, or NULL */
    bool as_made; /* inputs and outputs have the memory order that their nodes have them in */
};

/* memory.c: gives every AT_BUFFER root an offset such that roots alive together do not overlap, and
   sets plan->buffer_bytes. Greedy by size into the first gap (Pisarchyk, Lee 2020: "Efficient
   memory management for deep neural net inference", greedy by size for offset calculation). */
PARE_NODISCARD pare_status pare_memory_plan(pare_ctx *ctx, pare_plan *plan);
/* Bytes of which a root's offset is a multiple. */
size_t pare_memory_align(const pare_plan *plan);
/* Gives constants and inputs their place on the plan's device. */
PARE_NODISCARD pare_status pare_device_place(pare_plan *plan);
/* Does input i come from an earlier part of the stage, on the plan's device? */
bool pare_plan_input_stays(const pare_plan *plan, int i);

/* compile.c: passes over the plan's copy of the model, up to shapes and memory order. */
PARE_NODISCARD pare_status pare_compile(pare_plan *plan, const pare_input_shape *shapes, int count);

/* stage_model.c: leaves of the compiled copy only the stage that the options ask for, with its own
   weights; all else is freed. */
PARE_NODISCARD pare_status pare_stage_take(pare_plan *plan);
/* What a stage's model is made of, all of it of the compiled copy. */
typedef struct pare_stage_parts {
    pare_value **in, **out;
    pare_node **node;
    int in_count, out_count, node_count;
} pare_stage_parts;
/* Cuts the first so many nodes of the compiled copy, 0: all, as the options say: plan->stage. */
PARE_NODISCARD pare_status pare_stage_cut(pare_plan *plan, int nodes);
/* The compiled copy becomes such a model. */
PARE_NODISCARD pare_status pare_stage_replace(pare_plan *plan, const pare_stage_parts *parts);
/* stage_split.c: pare_stage_take for options.split. */
PARE_NODISCARD pare_status pare_stage_take_split(pare_plan *plan);

/* shards.c: leaves of the compiled copy only the shard that the options ask for. */
PARE_NODISCARD pare_status pare_shard_take(pare_plan *plan);

/* What is fused and folded before layouts are chosen, of the plan's part and of the dynamic one
   with its bodies: shapes are inferred as far as they are known. */
PARE_NODISCARD pare_status pare_compile_fuse(pare_model *model, const pare_plan_options *options);

/* interpreter/split.c: takes out of the plan's model what only a run can give shapes. */
PARE_NODISCARD pare_status pare_dynamic_split(pare_plan *plan);

/* steps.c: kernels and places of every node. */
PARE_NODISCARD pare_status pare_steps_make(pare_plan *plan);
/* Have they bytes in common? */
bool pare_places_overlap(const pare_place *a, const pare_place *b);

/* May the kernel serve, also where it needs PARE_KERNEL_PARTS? */
bool pare_kernel_serves(const pare_kernel *kernel, const pare_prep *prep);

/* device.c: device->versions, asked for at the first call, which opens the libraries:
   "driver 580.95.05, cuBLAS 13.1.0, cuBLASLt 13.1.0, cuDNN none"; "none" stands for what is not
   there. */
const char *pare_device_versions(pare_ctx *ctx, pare_device *device);

/* host_step.c: the last in every device's list of kernels. */
extern const pare_kernel pare_host_step;

/* autotune.c: the fastest of the kernels that can, by the cache or, with options->tune, by the
   stopwatch; the first where neither says. */
enum { PARE_MOST_KERNELS = 48 }; /* of a row's list */
typedef struct pare_tuner pare_tuner;
PARE_NODISCARD pare_status pare_tuner_open(pare_ctx *ctx, pare_tuner **out,
                                           const pare_plan_options *options);
/* Tries list's kernels that can serve prep; *out is the chosen one. */
PARE_NODISCARD pare_status pare_tuner_choose(pare_tuner *tuner, const pare_prep *prep,
                                             const pare_kernel *const *list,
                                             const pare_kernel **out);
PARE_NODISCARD pare_status pare_tuner_close(pare_tuner *tuner);
void pare_tuner_discard(pare_tuner *tuner);

/* Prepares a kernel for the node; on failure nothing is kept. */
PARE_NODISCARD pare_status pare_kernel_prepare(const pare_kernel *kernel, pare_prep *prep);

/* What a smaller batch would make smaller, the largest tensor that the plan computes, for a
   message:
   "; the largest is tensor 'y' [8,10] of node 'fc' (Gemm), 320 bytes", or "". Returns text. */
const char *pare_plan_largest(const pare_plan *plan, char *text, size_t size);

#endif
