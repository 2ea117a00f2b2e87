/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that read a picture between its pixels: what their attributes say. */
#ifndef PARE_RUNTIME_OPS_SAMPLE_H
#define PARE_RUNTIME_OPS_SAMPLE_H

#include "runtime/ops/window.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_grid_mode { PARE_GRID_LINEAR, PARE_GRID_NEAREST, PARE_GRID_CUBIC } pare_grid_mode;
typedef enum pare_grid_padding {
    PARE_GRID_ZEROS,
    PARE_GRID_BORDER,
    PARE_GRID_REFLECTION
} pare_grid_padding;

/* GridSample (22). */
typedef struct pare_grid_sample {
    pare_grid_mode mode;
    pare_grid_padding padding;
    bool align_corners;
} pare_grid_sample;
PARE_NODISCARD pare_status pare_grid_sample_of(const pare_node *node, pare_grid_sample *out);

/* RoiAlign (22). */
typedef struct pare_roi_align {
    int64_t height, width, sampling; /* of the output; samples a bin and axis, 0: by its size */
    float scale;
    bool max, half_pixel;
} pare_roi_align;
PARE_NODISCARD pare_status pare_roi_align_of(const pare_node *node, pare_roi_align *out);

/* DeformConv (22) of two spatial axes: window.in, out and the rest as a Conv's. */
typedef struct pare_deform_conv {
    pare_window window;
    int64_t offset_groups;
} pare_deform_conv;
PARE_NODISCARD pare_status pare_deform_conv_of(const pare_node *node, const pare_shape *x,
                                               const int64_t *kernel, pare_deform_conv *out);

#ifdef __cplusplus
}
#endif
#endif
