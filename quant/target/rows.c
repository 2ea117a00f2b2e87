/* SPDX-License-Identifier: Apache-2.0 */
/* The targets and what each of them takes. Sources:

   TensorRT: its documentation, "Working with Quantized Types" (symmetric INT8; INT4 for weights
   alone, in blocks) and "Q/DQ Layer-Placement Recommendations" (inputs of weighted operators, no
   outputs, the skip input of a residual addition; one scale for an activation, one a channel for
   weights); NvInfer.h, IQuantizeLayer (scales are build-time constants); onnx-tensorrt's importer,
   QuantDequantLinearHelper in onnxOpImporters.cpp (types, zero points, positive scales, an even
   number of INT4 values) and docs/operators.md of TensorRT 10.15 (no QLinear and Integer operators,
   opsets 9 to 24); onnx-tensorrt issue 850 (no DequantizeLinear of s32).

   ONNX Runtime and OpenVINO: their documentation says less than they do, so each entry was tried:
   models of one Conv, ConvTranspose, Gemm or MatMul against the ONNX reference evaluator, with the
   operators of the optimized graph (ONNX Runtime 1.32, CPU) and the primitives that ran
   (get_runtime_model of OpenVINO 2026.4, CPU). ONNX Runtime takes a Relu away whose only reader
   quantizes to FP8 or s4 with the zero point 0, as if that were the least code; a Max stays, and
   a Clip with a constant bound stops some sessions (its clip_quantizelinear.cc knows no FP8).
   Sums of s8 weights beyond 7 bits saturate in both without VNNI, with s8 activations, too, which
   they make u8 (ONNX Runtime, "Quantize ONNX models", U8S8; NNCF's OverflowFix halves the weights
   for it).

   OpenVINO's placement is what NNCF 3.4 does for CPUs: pairs at the inputs of products and
   convolutions, of additions between them, and of what only moves or pools such tensors. That is
   ONNX Runtime's placement but for pairs behind a weighted node whose readers compute in float: a
   GELU's input, a head's output. On nets of convolutions the executed primitives are the same as
   with NNCF's own file. A product of two activations runs in int8 only without zero points. */
#include "quant/target.h"

#include <stddef.h>

#define F(type) ((pare_formats)1 << PARE_##type)
#define F8      (F(f8e4m3) | F(f8e5m2))
#define BITS_4  (F(s4) | F(u4))
#define BITS_16 (F(s16) | F(u16))

static const pare_target_row rows[PARE_TARGET_COUNT] = {
    [PARE_TARGET_TENSORRT] =
        {
            .name = "tensorrt",
            .title = "TensorRT",
            .f16_scales = true,
            .activations = F(s8) | F(f8e4m3),
            .weights = F(s8) | F(s4) | F(f8e4m3),
            .int4_alone = true,
            .opset_first = 9,
            .opset_last = 24,
        },
    [PARE_TARGET_ONNXRUNTIME] =
        {
            .name = "onnxruntime",
            .title = "ONNX Runtime",
            .behind_weighted = true,
            .through = true,
            .one_scale = true,
            .s32_bias = true,
            .activations = F(s8) | F(u8),
            .slow_activations = BITS_16 | BITS_4 | F8,
            .weights = F(s8) | F(u8),
            .slow_weights = BITS_16 | BITS_4 | F8,
        },
    [PARE_TARGET_OPENVINO] =
        {
            .name = "openvino",
            .title = "OpenVINO",
            .unsigned_activations = true,
            .through = true,
            .one_scale = true,
            .once = true,
            .balanced_factors = true,
            .activations = F(s8) | F(u8),
            .slow_activations = F(s16) | BITS_4, /* u16 and f8 give other numbers */
            .weights = F(s8) | F(u8),
            .slow_weights = F(s16) | BITS_4, /* f8 gives other numbers */
            .slow_kernels = F(u8),
        },
};

const pare_target_row *pare_target_of(pare_quant_target target) { return &rows[target]; }

/* --- rules --- */

/* By target: TensorRT, ONNX Runtime, OpenVINO. Where sets of formats decide, the verdict is that of
   a format in none of them. */
static const struct rule {
    const char *name;
    unsigned char says[PARE_TARGET_COUNT];
} rules[PARE_RULE_COUNT] = {
    [PARE_RULE_OPERATOR] = {"operator", {PARE_REFUSED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_OPSET] = {"opset", {PARE_REFUSED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_SCALE] = {"scale", {PARE_REFUSED, PARE_REFUSED, PARE_REFUSED}},
    [PARE_RULE_COMPUTED_SCALE] = {"computed-scale", {PARE_REFUSED, PARE_NOTED, PARE_NOTED}},
    [PARE_RULE_SCALE_TYPE] = {"scale-type", {PARE_TAKEN, PARE_NOTED, PARE_NOTED}},
    [PARE_RULE_ACTIVATION_TYPE] = {"activation-type", {PARE_REFUSED, PARE_REFUSED, PARE_REFUSED}},
    [PARE_RULE_ZERO_POINT] = {"zero-point", {PARE_REFUSED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_CHANNEL_ACTIVATION] = {"channel-activation", {PARE_REFUSED, PARE_NOTED, PARE_TAKEN}},
    [PARE_RULE_WEIGHT_TYPE] = {"weight-type", {PARE_REFUSED, PARE_REFUSED, PARE_REFUSED}},
    [PARE_RULE_WEIGHT_ZERO_POINT] = {"weight-zero-point", {PARE_REFUSED, PARE_TAKEN, PARE_NOTED}},
    [PARE_RULE_WEIGHT_AXIS] = {"weight-axis", {PARE_REFUSED, PARE_REFUSED, PARE_REFUSED}},
    [PARE_RULE_INT4] = {"int4", {PARE_REFUSED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_WEIGHTS_ALONE] = {"weights-alone", {PARE_NOTED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_RECURRENT_WEIGHT] = {"recurrent-weight", {PARE_NOTED, PARE_TAKEN, PARE_REFUSED}},
    [PARE_RULE_S32_BIAS] = {"s32-bias", {PARE_REFUSED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_BIAS_SCALE] = {"bias-scale", {PARE_TAKEN, PARE_REFUSED, PARE_TAKEN}},
    [PARE_RULE_RESIDUAL] = {"residual", {PARE_NOTED, PARE_TAKEN, PARE_TAKEN}},
    [PARE_RULE_RELU] = {"relu", {PARE_TAKEN, PARE_REFUSED, PARE_TAKEN}},
    [PARE_RULE_SATURATION] = {"saturation", {PARE_TAKEN, PARE_NOTED, PARE_NOTED}},
};

const char *pare_target_rule_name(pare_target_rule rule)
{
    return rule < PARE_RULE_COUNT ? rules[rule].name : "?";
}

pare_target_verdict pare_target_says(pare_quant_target target, pare_target_rule rule)
{
    return (pare_target_verdict)rules[rule].says[target];
}

pare_status pare_target_allows(pare_ctx *ctx, const pare_quant_options *o)
{
    const pare_target_row *row = pare_target_of(o->target);
    if (o->precision != PARE_PRECISION_INT8) return PARE_OK;
    if (o->weight_bits == 4 && row->int4_alone)
        return PARE_FAIL(ctx, USAGE,
                         "w4a8: %s takes INT4 for weights alone, not beside int8 activations; "
                         "expected --target onnxruntime, or --precision w4a16",
                         row->title);
    if (o->fp8 && !(row->activations & F(f8e4m3)))
        return PARE_FAIL(ctx, USAGE,
                         "fp8: %s gives other numbers of FP8; expected --target tensorrt, or "
                         "--precision int8",
                         row->title);
    if (o->fp8 && o->unsigned_activations)
        return PARE_FAIL(ctx, USAGE,
                         "fp8: E4M3 has a sign and no zero point; --activations is "
                         "for int8 alone");
    if (o->unsigned_activations && !(row->activations & F(u8)))
        return PARE_FAIL(ctx, USAGE,
                         "int8: %s takes no u8 activations; expected --activations s8, or --target "
                         "onnxruntime or openvino",
                         row->title);
    return PARE_OK;
}
