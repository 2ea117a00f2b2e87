/* SPDX-License-Identifier: Apache-2.0 */
/* FusedDepthwisePointwise (X, W, B, Z, w_scale, D, D_bias, D_scale): Y = FusedConv(made, W, B, Z,
   w_scale) by the node's attributes, a pointwise convolution, where made = FusedConv(X, D, D_bias,
   -, D_scale) by those whose names begin with depthwise_, a depthwise one: a depthwise separable
   convolution (Howard et al. 2017: "MobileNets"). Devices have it where it pays: fuse_depthwise.c
   makes it of what a kernel takes. */
#ifndef PARE_RUNTIME_OPS_DEPTHWISE_POINTWISE_H
#define PARE_RUNTIME_OPS_DEPTHWISE_POINTWISE_H

#include "runtime/ops/product.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PARE_DEPTHWISE_PREFIX "depthwise_"

enum { PARE_DEPTHWISE_WEIGHTS = 5, PARE_DEPTHWISE_BIAS, PARE_DEPTHWISE_SCALE, PARE_DEPTHWISE_END };

/* Both convolutions as if each were a node. It is not to be copied: it points into itself. */
typedef struct pare_depthwise_pointwise {
    pare_prep depthwise, pointwise;
    pare_conv_args d, p; /* their arguments */
    pare_node node;      /* of the depthwise one */
    pare_view depthwise_in[5], pointwise_in[5], made;
} pare_depthwise_pointwise;

/* Of two nodes; the prepared ones must outlive *out. */
PARE_NODISCARD pare_status pare_depthwise_pointwise_set(pare_depthwise_pointwise *out,
                                                        const pare_prep *depthwise,
                                                        const pare_prep *pointwise);
/* Of a FusedDepthwisePointwise. PARE_INPUT: an input is missing, or a window is wrong. */
PARE_NODISCARD pare_status pare_depthwise_pointwise_read(pare_depthwise_pointwise *out,
                                                         const pare_prep *prep);

/* Has the GPU's kernel (runtime/cuda/conv/depthwise_tile.cuh) both windows, types, channels and
   what follows the sums? Windows of 3 x 3, one or two a step; channels that fill 16 bytes and
   filters that fill 8; constant weights and biases. */
bool pare_depthwise_pointwise_fits(const pare_depthwise_pointwise *s);

/* Is one kernel faster than two, by the model of time (runtime/eval/roofline/depthwise.c)? int8: in
   8 bits, else in 16. */
bool pare_depthwise_pointwise_pays(const pare_depthwise_pointwise *s, bool int8);

#ifdef __cplusplus
}
#endif
#endif
