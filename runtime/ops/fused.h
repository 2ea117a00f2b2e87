/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes of domain pare say: activation, quantization and window attributes, read once and used
   by shape rules and by kernels. Scales are real units per step, windows are in elements. */
#ifndef PARE_RUNTIME_OPS_FUSED_H
#define PARE_RUNTIME_OPS_FUSED_H

#include "runtime/ops/ops.h"
#include "runtime/ops/window.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_act_kind {
    PARE_ACT_NONE,
    PARE_ACT_RELU,
    PARE_ACT_CLIP,
    PARE_ACT_LEAKY_RELU,
    PARE_ACT_SIGMOID,
    PARE_ACT_TANH,
    PARE_ACT_SILU,
    PARE_ACT_HARDSWISH,
    PARE_ACT_HARDSIGMOID,
    PARE_ACT_GELU,
    PARE_ACT_GELU_TANH,
    PARE_ACT_COUNT
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

/* The type of the codes that a node makes of floats: `to`. PARE_INPUT: as above, or f32. */
PARE_NODISCARD pare_status pare_quant_codes_read(const pare_node *node, pare_dtype *out);

/* MixedBinary (A, B): one of them is f16 or bf16, the other f32; Y = A of B in f32, rounded to the
   short type. */
typedef enum pare_mixed_kind {
    PARE_MIXED_ADD,
    PARE_MIXED_SUB,
    PARE_MIXED_MUL,
    PARE_MIXED_DIV,
    PARE_MIXED_COUNT
} pare_mixed_kind;

/* The kind of this operator; PARE_MIXED_COUNT: there is none. */
pare_mixed_kind pare_mixed_kind_of(const char *op_type);
/* Reads `of`. PARE_INPUT: no such operator. */
PARE_NODISCARD pare_status pare_mixed_read(const pare_node *node, pare_mixed_kind *out);

static inline bool pare_type_is_int8(pare_dtype t) { return t == PARE_s8 || t == PARE_u8; }

/* What weights may be beside f32 activations: integers of 8 or 4 bits ... */
static inline bool pare_type_is_weight_level(pare_dtype t)
{
    return pare_type_is_int8(t) || t == PARE_s4 || t == PARE_u4;
}

/* ... and floats of as many, which a GPU's kernels read. */
static inline bool pare_type_is_weight_float(pare_dtype t)
{
    return t == PARE_f8e4m3 || t == PARE_f4e2m1;
}

#ifdef __cplusplus
}
#endif
#endif
