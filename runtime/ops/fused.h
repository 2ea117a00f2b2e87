/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes of domain pare say: activation, quantization and window attributes, read once and used
   by shape rules and by kernels. Scales are real units per step, windows are in elements. */
#ifndef PARE_RUNTIME_OPS_FUSED_H
#define PARE_RUNTIME_OPS_FUSED_H

#include "runtime/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_act_kind {
    PARE_ACT_NONE, PARE_ACT_RELU, PARE_ACT_CLIP, PARE_ACT_LEAKY_RELU, PARE_ACT_SIGMOID,
    PARE_ACT_TANH, PARE_ACT_SILU, PARE_ACT_HARDSWISH, PARE_ACT_HARDSIGMOID, PARE_ACT_GELU,
    PARE_ACT_GELU_TANH, PARE_ACT_COUNT
} pare_act_kind;

/* alpha, beta: clip's low and high, leaky_relu's slope (alpha), hardsigmoid's alpha and beta. */
typedef struct pare_act {
    pare_act_kind kind;
    float alpha, beta;
} pare_act;

/* Reads `activation`, `alpha`, `beta`; an absent activation is none. PARE_UNSUPPORTED: a word that
   is not in the list. */
PARE_NODISCARD pare_status pare_act_read(const pare_node *node, pare_act *out);

/* none, relu, clip, leaky_relu: act(v * s) == s * act(v) once clip's bounds are scaled; the others
   are curved and want real units. */
bool pare_act_is_curved(const pare_act *act);

/* Quantization attributes: scales 1 and zero points 0 where absent. */
typedef struct pare_quant_args {
    float x_scale, y_scale, z_scale; /* QAdd, QMul: a_ is x_, b_ is z_ */
    int32_t x_zero, y_zero, z_zero, w_zero;
    pare_dtype to; /* of the output; x's where the attribute is absent */
} pare_quant_args;

/* PARE_INPUT: a scale that is not positive and finite, a zero point outside s8 and u8, or a `to`
   other than s8, u8 and f32. */
PARE_NODISCARD pare_status pare_quant_read(const pare_node *node, pare_quant_args *out);

static inline bool pare_type_is_int8(pare_dtype t) { return t == PARE_s8 || t == PARE_u8; }

/* A window that slides over up to three axes; unused leading axes have kernel 1 and pad 0, so that
   every loop can run over three. */
typedef struct pare_window {
    int axes; /* 1, 2 or 3: the last ones are used */
    int64_t kernel[3], stride[3], dilation[3], begin[3], end[3];
    int64_t in[3], out[3]; /* -1 where unknown */
    int64_t group;
    bool ceil, include_pad;
} pare_window;

/* Reads kernel_shape (or the weight's dims), strides, dilations, pads, auto_pad, group, ceil_mode and
   count_include_pad for an input of shape x (rank 3 to 5); weight NULL for pools. out[] follows
   ONNX Conv-11 and AveragePool-19 (with ceil_mode the last window starts inside the input or its
   leading pad). PARE_INPUT names what does not fit. */
PARE_NODISCARD pare_status pare_window_read(const pare_node *node, const pare_shape *x,
                                            const pare_shape *weight, pare_window *out);

#ifdef __cplusplus
}
#endif
#endif
