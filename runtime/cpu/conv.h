/* SPDX-License-Identifier: Apache-2.0 */
/* The convolution's plain loops on dense doubles, shared by Conv, its integer forms, its
   gradients and FusedConv. */
#ifndef PARE_RUNTIME_CPU_CONV_H
#define PARE_RUNTIME_CPU_CONV_H

#include "runtime/cpu/dense.h"
#include "runtime/ops/window.h"

typedef struct pare_conv {
    pare_window window;
    int64_t n, c, m, group; /* images, input and output channels */
} pare_conv;

/* Reads the geometry of a Conv-like node: x [N,C,...], w [M,C/group,...] by their views. */
PARE_NODISCARD pare_status pare_conv_read(const pare_node *node, const pare_view *x,
                                          const pare_view *w, pare_conv *out);

/* Doubles one run needs: the weight, one image of x, one of y; and where these begin. */
typedef struct pare_conv_room {
    size_t w, x, y, bytes;
} pare_conv_room;
PARE_NODISCARD pare_status pare_conv_room_of(pare_ctx *ctx, const pare_conv *conv,
                                             pare_conv_room *out);

/* y (M, spatial) = sum over taps inside the tensor of x (C, spatial) * w (M, C / group, kernel). */
void pare_conv_image(const pare_conv *conv, double *y, const double *x, const double *w,
                     int threads);

/* The transposed sum: w (C, M / group, kernel). */
void pare_conv_image_transposed(const pare_conv *conv, double *y, const double *x, const double *w,
                                int threads);

/* dw (M, C / group, kernel) += the gradient of one image's sum by its weight, for dy (M, spatial).
 */
void pare_conv_image_weight(const pare_conv *conv, double *dw, const double *dy, const double *x,
                            int threads);

#endif
