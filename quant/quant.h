/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization: a float model and ranges to a standard QDQ ONNX model; FP16 and BF16 conversion. */
#ifndef PARE_QUANT_QUANT_H
#define PARE_QUANT_QUANT_H

#include "calib/calib.h"
#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_precision {
    PARE_PRECISION_INT8,
    PARE_PRECISION_FP16,
    PARE_PRECISION_BF16
} pare_precision;
typedef enum pare_quant_target { PARE_TARGET_TENSORRT, PARE_TARGET_ONNXRUNTIME } pare_quant_target;

typedef struct pare_quant_options {
    pare_precision precision;
    pare_quant_target target;  /* where Q/DQ pairs are (DESIGN section 4) */
    bool unsigned_activations; /* u8 with zero point; else s8 symmetric */
    bool per_tensor_weights;
    pare_range_rule rule;    /* symmetric is set from the activations' type */
    const char *const *skip; /* patterns: a glob on node names, or op:TYPE; */
    int skip_count;
    const char *const *only;
    int only_count;
    bool bias_correction; /* int8: biases are corrected for the rounding of weights */
    bool equalize;        /* int8, AUTO: tensors between layers get channels of nearer ranges */
    bool io_same;         /* FP16/BF16: graph inputs and outputs become f16/bf16, too */
    const char *device;   /* that the ranges come from, for the file's manifest; NULL: the CPU */
    bool bf16_compute;    /* typed bf16 at opset 22; else weights stored as bf16 after a Cast */
} pare_quant_options;

/* What was done, for reports: one line per node kept float with its reason, counts, notes. */
typedef struct pare_quant_facts {
    int quantized_nodes, float_nodes, q_nodes, dq_nodes;
    int weight_only_nodes; /* compute in float on int8 weights: LSTM, GRU, RNN */
    int64_t opset_before, opset_after;
    int note_count;
    const char **note;          /* in the model's arena */
    int overflow_count;         /* nodes that stay f32 because they would overflow f16 */
    const char *overflow_nodes; /* their names, "a, b"; NULL where there are none */
} pare_quant_facts;

/* INT8 with s8 activations for TensorRT, one scale per output channel, ranges by AUTO, biases
   corrected, channels equalized. */
void pare_quant_options_init(pare_quant_options *out);

/* The model as quantization starts from it and calibration runs it: sorted, opset raised (to 13, or
   what the options need), constants and BatchNormalization folded, shapes inferred. Value names
   survive. FP32 outputs stay equal. facts (or NULL): the opsets, the rest 0. PARE_INPUT: a model
   that is no float model any more, with integer operators or operators that compute in f16 or
   bf16, in the main graph or a body. PARE_USAGE: a pattern that matches nothing. */
PARE_NODISCARD pare_status pare_quant_prepare(pare_ctx *ctx, pare_model *model,
                                              const pare_quant_options *options,
                                              pare_quant_facts *facts);

/* Quantizes a prepared model in place. FP16 keeps nodes f32 whose inputs or outputs would overflow,
   as far as the ranges know these tensors: a calibration of minmax_only (pare_calib_options) knows
   all of the main graph; a table that int8 could use knows what int8 could quantize; NULL knows
   none. facts: as pare_quant_prepare left them, or all 0; NULL: not asked for. A pattern that
   matches nothing is PARE_USAGE; a needed tensor without range is PARE_INPUT. */
PARE_NODISCARD pare_status pare_quantize(pare_ctx *ctx, pare_model *model,
                                         const pare_ranges *ranges,
                                         const pare_quant_options *options,
                                         pare_quant_facts *facts);

/* All in one call: prepares a float model, calibrates it on data (NULL: none, for FP16 without a
   forecast of overflows and for BF16, which needs none), and quantizes it, in place. calib:
   samples, batch, threads, device and progress of the calibration; NULL: up to 512 evenly spaced
   samples in batches of 64 on the CPU. INT8 without data is PARE_USAGE. */
PARE_NODISCARD pare_status pare_quantize_on_data(pare_ctx *ctx, pare_model *model, pare_data *data,
                                                 const pare_quant_options *options,
                                                 const pare_calib_options *calib,
                                                 pare_quant_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
