/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of convolutions share on the host. */
#ifndef PARE_RUNTIME_CUDA_CONV_CONV_H
#define PARE_RUNTIME_CUDA_CONV_CONV_H

#include "runtime/cuda/gemm/prepack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Strides of the last two axes; a missing one is 0. */
void pare_cuda_plane_strides(const pare_view *v, int64_t *row, int64_t *pixel);
/* Is Y dense enough that its pixels are rows one after the other, and channels are together? */
bool pare_cuda_places_fit(const pare_prep *prep, const pare_conv_args *a);
/* The product that a convolution of these arguments is. */
void pare_cuda_picture_set(const pare_prep *prep, const pare_conv_args *a, pare_cuda_gemm_args *p);
/* Both of them, of a Conv or FusedConv that kernels of gemm.h can compute; false of others. */
bool pare_cuda_conv_read(const pare_prep *prep, pare_conv_args *a, pare_cuda_gemm_args *p);
/* Rows of the block: filters of w, taps outermost. */
void pare_cuda_filters_pack(const pare_view *w, const pare_conv_args *a, const pare_cuda_prepack *k,
                            const pare_cuda_gemm_args *p);

/* Groups of few filters; depthwise windows of the common forms. */
extern const pare_kernel pare_cuda_conv_direct, pare_cuda_conv_depthwise;
/* Windows of one pixel on cuBLASLt, its algorithms in its order. */
extern const pare_kernel pare_cuda_conv_lt_0, pare_cuda_conv_lt_1, pare_cuda_conv_lt_2,
    pare_cuda_conv_lt_3;
/* The last of Conv's kernels: takes every one of floats, weights that are computed, too. */
extern const pare_kernel pare_cuda_conv_any;

#ifdef __cplusplus
}
#endif
#endif
