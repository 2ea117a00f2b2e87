/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_OPS_RESIZE_H
#define PARE_RUNTIME_OPS_RESIZE_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_resize_mode { PARE_NEAREST, PARE_LINEAR, PARE_CUBIC } pare_resize_mode;

typedef enum pare_resize_coord {
    PARE_HALF_PIXEL,
    PARE_HALF_PIXEL_SYMMETRIC,
    PARE_PYTORCH_HALF_PIXEL,
    PARE_ALIGN_CORNERS,
    PARE_ASYMMETRIC,
    PARE_TF_CROP_AND_RESIZE,
    PARE_TF_HALF_PIXEL_FOR_NN
} pare_resize_coord;

typedef enum pare_resize_round {
    PARE_ROUND_PREFER_FLOOR,
    PARE_ROUND_PREFER_CEIL,
    PARE_ROUND_FLOOR,
    PARE_ROUND_CEIL
} pare_resize_round;

/* A Resize (ONNX 19 and older) with everything read and checked. */
typedef struct pare_resize {
    pare_resize_mode mode;
    pare_resize_coord coord;
    pare_resize_round round;
    int rank;
    int64_t in[PARE_MAX_RANK], out[PARE_MAX_RANK];                        /* out -1: unknown */
    float scale[PARE_MAX_RANK], start[PARE_MAX_RANK], end[PARE_MAX_RANK]; /* roi */
    float cubic_a, extrapolation;
    bool exclude_outside, antialias, known; /* known: scales or sizes are constant */
} pare_resize;

/* PARE_INPUT: neither or both of scales and sizes, wrong counts, unknown words. */
PARE_NODISCARD pare_status pare_resize_read(const pare_node *node, const pare_shape *x,
                                            pare_resize *out);

/* The coordinate in the input of output position o on an axis, in f32 as ONNX's formulas are. */
float pare_resize_coordinate(const pare_resize *r, int axis, int64_t o);

/* Nearest: at[a][o] is the input position that output position o shows; in the arena. */
PARE_NODISCARD pare_status pare_resize_positions(const pare_resize *r, pare_arena *arena,
                                                 int64_t **at);

/* What an axis' outputs are weighted sums of; lists in the arena. */
typedef struct pare_resize_axis {
    int64_t *first; /* (out) may be negative: positions are clamped */
    double *weight; /* (out, count) */
    bool *outside;  /* (out) tf_crop_and_resize: the value is extrapolated */
    int count;      /* 0: the axis stays as it is */
} pare_resize_axis;

PARE_NODISCARD pare_status pare_resize_taps(const pare_node *node, const pare_resize *r, int axis,
                                            pare_arena *arena, pare_resize_axis *out);

#ifdef __cplusplus
}
#endif
#endif
