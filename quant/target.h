/* SPDX-License-Identifier: Apache-2.0 */
/* What a runtime takes: one row a target, which quantization, the check of finished files and their
   repair all read. */
#ifndef PARE_QUANT_TARGET_H
#define PARE_QUANT_TARGET_H

#include "quant/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A set of number formats: the bits of their codes. */
typedef uint64_t pare_formats;

typedef struct pare_target_row {
    const char *name;  /* as --target says it */
    const char *title; /* "TensorRT" */

    /* where Q/DQ pairs are */
    bool unsigned_activations; /* by default */
    bool behind_weighted;      /* behind every weighted node, whoever reads it */
    bool through; /* from int8 tensors backwards through what computes on int8; else on skip inputs
                     of residual additions alone */
    bool one_scale; /* tensors that are only moved share a scale; else where that costs little */
    bool once;      /* a tensor that is only moved after its pair gets no other one */
    bool balanced_factors; /* u8 factors of a product of two activations have the zero point 128 */
    bool f16_scales; /* pairs around FP16 have f16 scales (ONNX 19), else they stay f32, between
                        Casts */
    bool s32_bias;   /* biases are s32 with a DequantizeLinear, else float */

    /* what is computed in integers, what it reads and computes in float; the rest it does not take
     */
    pare_formats activations, slow_activations;
    pare_formats weights, slow_weights;
    pare_formats slow_kernels; /* weights of Conv and ConvTranspose that are computed in float */
    bool int4_alone;           /* weights of 4 bits serve float activations only, in blocks */
    int64_t opset_first, opset_last; /* that it reads; 0: any */
} pare_target_row;

/* The names of the rows, in the order of pare_quant_target. */
#define PARE_TARGET_WORDS "tensorrt|onnxruntime|openvino"

/* The row of a target. */
const pare_target_row *pare_target_of(pare_quant_target target);

/* PARE_USAGE: options whose result the target does not take; the message names the way out. */
PARE_NODISCARD pare_status pare_target_allows(pare_ctx *ctx, const pare_quant_options *options);

/* What is looked for in a finished file. */
typedef enum pare_target_rule {
    PARE_RULE_OPERATOR,           /* integer operators beside the Q/DQ pair */
    PARE_RULE_OPSET,              /* an opset that is not read */
    PARE_RULE_SCALE,              /* 0, negative or no number */
    PARE_RULE_COMPUTED_SCALE,     /* not constant */
    PARE_RULE_SCALE_TYPE,         /* of a pair around FP16 */
    PARE_RULE_ACTIVATION_TYPE,    /* of a quantized activation */
    PARE_RULE_ZERO_POINT,         /* of an activation, not 0 */
    PARE_RULE_CHANNEL_ACTIVATION, /* an activation with a scale per channel */
    PARE_RULE_WEIGHT_TYPE,        /* of a quantized weight */
    PARE_RULE_WEIGHT_ZERO_POINT,  /* not 0 */
    PARE_RULE_WEIGHT_AXIS,        /* scales along another axis than the outputs */
    PARE_RULE_INT4,               /* INT4 beside int8 activations, or without blocks */
    PARE_RULE_WEIGHTS_ALONE,      /* int8 weights of float activations */
    PARE_RULE_RECURRENT_WEIGHT,   /* dequantized weights of LSTM, GRU and RNN */
    PARE_RULE_S32_BIAS,           /* a bias of s32 with a DequantizeLinear */
    PARE_RULE_BIAS_SCALE,         /* of an s32 bias, not the product of the other two */
    PARE_RULE_RESIDUAL,           /* both inputs of a residual addition are quantized */
    PARE_RULE_RELU,               /* a Relu before a pair that says more than the pair does */
    PARE_RULE_SATURATION,         /* sums of 16 bits, of CPUs without VNNI */
    PARE_RULE_COUNT
} pare_target_rule;

/* "operator", "zero-point", ... */
const char *pare_target_rule_name(pare_target_rule rule);

/* What a target makes of it. */
typedef enum pare_target_verdict {
    PARE_TAKEN,
    PARE_NOTED,  /* it runs, not as it might be hoped */
    PARE_REFUSED /* it is not read, or its numbers are wrong */
} pare_target_verdict;

pare_target_verdict pare_target_says(pare_quant_target target, pare_target_rule rule);

typedef struct pare_target_finding {
    pare_target_rule rule;
    pare_target_verdict verdict;
    const char *node, *op, *tensor; /* "" where it is about the whole model */
    const char *text;               /* a clause or two: what is, and what that does */
} pare_target_finding;

typedef struct pare_target_report {
    pare_arena arena;
    pare_target_finding *finding; /* in the order of the graph */
    int count;
    size_t capacity;
    int refused; /* of them */
} pare_target_report;

/* Lists what a target would not take of a quantized model, of any tool, which is not changed; a
   tensor is named once a rule. *out is to be freed where the status is PARE_OK. */
PARE_NODISCARD pare_status pare_target_check(pare_ctx *ctx, const pare_model *model,
                                             pare_quant_target target, pare_target_report **out);
void pare_target_report_free(pare_target_report *report);

/* Changes what can be changed without changing a number that the model computes: u8 with the zero
   point 128 becomes s8 with 0, weights and activations, where the target takes no u8; a
   dequantized s32 bias becomes the float constant that it is, where the target takes none or its
   scale is another one than the target adds with. *changed: how many tensors. Opsets below 13
   become 13. */
PARE_NODISCARD pare_status pare_target_repair(pare_model *model, pare_quant_target target,
                                              int *changed);

#ifdef __cplusplus
}
#endif
#endif
