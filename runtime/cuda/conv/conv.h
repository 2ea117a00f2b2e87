/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of convolutions share on the host. */
#ifndef PARE_RUNTIME_CUDA_CONV_CONV_H
#define PARE_RUNTIME_CUDA_CONV_CONV_H

#include "runtime/cuda/device/kind.h"
#include "runtime/cuda/gemm/prepack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Distances of neighbours along the last two axes; of a missing one 0. Pictures of one pixel, whose
   two orders are the same bytes, are each other's neighbours. */
void pare_cuda_plane_strides(const pare_view *v, int64_t *row, int64_t *pixel);
/* Are all pixels of a batch equally far apart? */
bool pare_cuda_pixels_are_even(const pare_view *v);
/* Is Y dense enough that its pixels are rows one after the other, and channels are together? */
bool pare_cuda_places_fit(const pare_prep *prep, const pare_conv_args *a);
/* The product that a convolution of these arguments is. */
void pare_cuda_picture_set(const pare_prep *prep, const pare_conv_args *a, pare_cuda_gemm_args *p);
/* Both of them, of a Conv or FusedConv that kernels of gemm.h can compute; false of others. */
bool pare_cuda_conv_read(const pare_prep *prep, pare_conv_args *a, pare_cuda_gemm_args *p);
/* Rows of the block: filters of w, taps outermost. */
void pare_cuda_filters_pack(const pare_view *w, const pare_conv_args *a, const pare_cuda_prepack *k,
                            const pare_cuda_gemm_args *p);

/* The same of first convolutions, of few channels: lines of the window, `line` numbers apart,
   neighbours, PARE_CUDA_STEM_CHANNELS channels. */
void pare_cuda_stem_pack(const pare_view *w, const pare_conv_args *a, const pare_cuda_prepack *k,
                         const pare_cuda_gemm_args *p, int64_t line);

/* What a node of a convolution makes of the two others: Conv, ConvGradInput and ConvTranspose,
   whose X is the dY of another convolution, ConvGradWeight. */
typedef enum pare_cuda_conv_makes {
    PARE_CUDA_CONV_Y,  /* of x, w and, where there is one, bias */
    PARE_CUDA_CONV_DX, /* of y (dY) and w; ConvTranspose: and bias */
    PARE_CUDA_CONV_DW, /* of y (dY) and x */
} pare_cuda_conv_makes;

/* The pictures and weights of such a node, whichever of them it makes. */
typedef struct pare_cuda_conv_parts {
    pare_cuda_conv_makes makes;
    const pare_view *x, *y, *w;
} pare_cuda_conv_parts;

enum { PARE_CUDA_CONV_BIAS = 2 }; /* among the inputs of a Conv */
pare_cuda_conv_parts pare_cuda_conv_parts_of(const pare_prep *prep);
/* Is what it makes of its inputs' type, or f32 beside a short one; its bias, too; and does nothing
   follow: no activation, no residual, no scale? Of FusedConv weights that are computed only: other
   kernels are for constant ones. */
bool pare_cuda_conv_ends_fit(const pare_prep *prep);
/* The window of its forward convolution. */
PARE_NODISCARD pare_status pare_cuda_conv_window(const pare_prep *prep, pare_window *out);

/* Sizes of such a node whose pictures tiles read by chunks of 16 bytes along channels. Strides are
   of images, lines and pixels in elements, 0 of an axis of length 1. */
typedef struct pare_cuda_conv_shape {
    pare_window win;
    int images, channels, filters, taps;
    int64_t x[3], y[3];
} pare_cuda_conv_shape;

/* Is it one: of one group, channels and filters in whole chunks, weights that are dense, counts
   that 32 bits hold, PARE_CUDA_MOST_TAPS at most, ends that fit, pictures of one type? */
bool pare_cuda_conv_shape_read(const pare_prep *prep, pare_cuda_conv_shape *out);
/* The kind of mma.cuh that its type is multiplied as: f32 is rounded to TF32 where the device
   allows that. */
int pare_cuda_conv_kind(const pare_prep *prep);

/* Groups of few filters; depthwise windows of the common forms. */
extern const pare_kernel pare_cuda_conv_direct, pare_cuda_conv_depthwise;
/* Windows of one pixel on cuBLASLt, its algorithms in its order. */
extern const pare_kernel pare_cuda_conv_lt_0, pare_cuda_conv_lt_1, pare_cuda_conv_lt_2,
    pare_cuda_conv_lt_3;
/* Convolutions and their gradients on cuDNN, its plans in its order. */
extern const pare_kernel pare_cuda_conv_dnn_0, pare_cuda_conv_dnn_1, pare_cuda_conv_dnn_2,
    pare_cuda_conv_dnn_3;
#define PARE_CUDA_CONV_DNN                                                                         \
    &pare_cuda_conv_dnn_0, &pare_cuda_conv_dnn_1, &pare_cuda_conv_dnn_2, &pare_cuda_conv_dnn_3
/* Weights that are computed and transposed convolutions, in tiles (conv_tile.cu), and the gradient
   of weights (conv_grad_weight.cu). */
extern const pare_kernel pare_cuda_conv_tile, pare_cuda_conv_grad_input_tile,
    pare_cuda_conv_transpose_tile, pare_cuda_conv_grad_weight_tile;
/* The last of Conv's kernels: takes every one of floats, weights that are computed, too. */
extern const pare_kernel pare_cuda_conv_any;

#ifdef __cplusplus
}
#endif
#endif
