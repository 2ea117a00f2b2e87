/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConvPool (X, W, B, -, w_scale): Y = MaxPool(FusedConv(...)), by FusedConv's attributes and
     pool_kernel, pool_strides (2 each), pool_pads (begin of both axes, then end).
   Devices have it where it pays: fuse_pool.c makes it of what a kernel takes. */
#ifndef PARE_RUNTIME_OPS_CONV_POOL_H
#define PARE_RUNTIME_OPS_CONV_POOL_H

#include "runtime/ops/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The pool's window over what a convolution of this window makes. PARE_INPUT: an attribute is
   missing, or the window is larger than what it slides over. */
PARE_NODISCARD pare_status pare_conv_pool_read(const pare_node *node, const pare_window *conv,
                                               pare_window *out);

/* Is it a first convolution whose sums may be pooled before what follows them, and has the GPU's
   kernel (runtime/cuda/conv/conv_stem_pool.cu) its windows, types and filters? Only then the
   largest sum makes the largest output, bytes and all: scales are positive, biases finite, the
   activation is a bound; of floats it is from 0 on, so that no -0 is made that hides behind a 0. */
bool pare_conv_pool_fits(const pare_prep *prep, const pare_conv_args *a, const pare_window *pool);

#ifdef __cplusplus
}
#endif
#endif
