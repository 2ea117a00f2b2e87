/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a latency comparison: a model, loaded into a runtime for fixed input shapes, that can
   be run again and again on the same inputs. The runtime is this library's or ONNX Runtime's. */
#ifndef PARE_TESTS_BENCH_SIDE_H
#define PARE_TESTS_BENCH_SIDE_H

#include "runtime/exec/exec.h"

typedef struct side side;

enum { SIDE_MAX_DIMS = 8 };

typedef struct side_options {
    const char *library; /* libonnxruntime.so, for "ort:" */
    int threads;
    int64_t batch; /* for an unknown first axis */
    struct {
        const char *name;
        int64_t size;
    } dim[SIDE_MAX_DIMS]; /* sizes of other named axes */
    int dim_count;
    bool tune;             /* "pare:" only: choose kernels by stopwatch */
    const char *cache_dir; /* "pare:" only: timing cache, or NULL */
} side_options;

/* What every runtime does for a side. */
typedef struct side_calls {
    pare_status (*load)(side *s, const side_options *options);
    pare_status (*run)(side *s);
    const float *(*output)(side *s, int i, int64_t *count); /* NULL where it is not f32 */
    void (*unload)(side *s);
} side_calls;

/* A model input with the data that all sides read. */
typedef struct side_input {
    const char *name;
    pare_dtype dtype;
    pare_shape shape; /* known */
    void *data;
    size_t bytes;
} side_input;

struct side {
    pare_ctx *ctx;
    const char *path; /* of the model */
    pare_model *model;
    side_input *input; /* data NULL until side_open is done */
    int input_count, output_count;
    const side_calls *calls;
    void *state;         /* the runtime's own */
    double load_seconds; /* reading and planning, before the first run */
};

/* Opens spec, "pare:FILE" or "ort:FILE". Inputs are filled from image (image_bytes of the first
   input's data, repeated) where it is given, else with fixed pseudo-random numbers: floats about
   normal, integers 0 or 1. */
PARE_NODISCARD pare_status side_open(pare_ctx *ctx, side **out, const char *spec,
                                     const side_options *options, const void *image,
                                     size_t image_bytes);
void side_close(side *s);

/* The largest |a - b| over the f32 outputs, each divided by the largest |b| of that output; NaN
   where outputs do not match in number or size, or hold NaN. Both sides have run. */
double side_difference(side *a, side *b);

/* The runner of a "pare:" side, else NULL. */
pare_runner *side_runner(side *s);
/* Multiply-adds of one run of a "pare:" side, else 0. */
double side_macs(const side *s);

extern const side_calls side_pare_calls, side_ort_calls;

#endif
