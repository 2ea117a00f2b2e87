/* SPDX-License-Identifier: Apache-2.0 */
/* What a model would take on a GPU, predicted without one: the plan that a GPU would run, step by
   step, from bytes, multiply-adds and the instructions of the kernels (roofline/README.md). */
#ifndef PARE_RUNTIME_EVAL_ROOFLINE_H
#define PARE_RUNTIME_EVAL_ROOFLINE_H

#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A device of roofline/specs.c, which has the source of each number. Rates are a second's. */
typedef struct pare_gpu_spec {
    const char *name, *title; /* "h200", "NVIDIA H200 SXM" */
    int sms;
    double clock;                       /* Hz under load */
    double hbm;                         /* bytes, that copies reach */
    double host;                        /* bytes, to and from the host */
    double macs_s8, macs_f16, macs_f32; /* dense multiply-adds: tensor cores, plain of f32 */
    double shared;                      /* bytes a cycle and SM */
    double reached; /* the share of a grid's modelled rate that mma.sync kernels reached */
    bool tf32;      /* products of f32 round their factors to TF32, at half of FP16's rate */
} pare_gpu_spec;

/* PARE_USAGE, with the known names, for any other. */
PARE_NODISCARD pare_status pare_gpu_spec_find(pare_ctx *ctx, const pare_gpu_spec **out,
                                              const char *name);

/* What takes the longest in a step. */
typedef enum pare_bound {
    PARE_BOUND_ISSUE,   /* instructions that schedulers issue */
    PARE_BOUND_TENSOR,  /* tensor cores */
    PARE_BOUND_SHARED,  /* bytes of shared memory */
    PARE_BOUND_MEMORY,  /* bytes of HBM */
    PARE_BOUND_LATENCY, /* waiting: for a step of depth, or for the launch */
    PARE_BOUND_HOST,    /* the host computes it, between copies */
    PARE_BOUNDS
} pare_bound;
const char *pare_bound_name(pare_bound bound);

typedef struct pare_roofline_step {
    const char *node, *op_type, *output;
    pare_dtype dtype; /* it multiplies in, else of its first output */
    char kernel[40];  /* "conv_128x128"; "unknown": the model has none, its bytes are counted;
                        "host", "interpreter": the CPU computes it, its copies are */
    bool known;
    int launches, overlaps; /* and how many of these begin before the kernel ahead has ended */
    double bytes, macs;
    pare_bound bound;
    int occupancy; /* blocks an SM holds; 0: not known, as the next one */
    double waves;
    double seconds;     /* launches included */
    double seconds_f16; /* of an int8 product: the same in FP16; else 0 */
    int region;         /* of steps that run side by side (exec/branches.h), from 0; -1: none */
    bool side;          /* in it, in the second stream */
} pare_roofline_step;

typedef struct pare_roofline pare_roofline;

/* For these shapes of the model's inputs, which every open one must have. Fails as pare_plan_new
   does. A step that the model of time does not know is never left out. */
PARE_NODISCARD pare_status pare_roofline_new(pare_ctx *ctx, pare_roofline **out,
                                             const pare_model *model,
                                             const pare_input_shape *shapes, int shape_count,
                                             const pare_gpu_spec *spec);
void pare_roofline_free(pare_roofline *roofline); /* NULL is fine */
int pare_roofline_count(const pare_roofline *roofline);
const pare_roofline_step *pare_roofline_at(const pare_roofline *roofline, int i);
const pare_node *pare_roofline_node(const pare_roofline *roofline, int i); /* of the outline */
/* The sum, less what steps side by side save. */
double pare_roofline_seconds(const pare_roofline *roofline);
double pare_roofline_saved(const pare_roofline *roofline);
/* The outline that it was made from, for its outputs' shapes. */
const pare_plan *pare_roofline_plan(const pare_roofline *roofline);

#ifdef __cplusplus
}
#endif
#endif
