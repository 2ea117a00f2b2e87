/* SPDX-License-Identifier: Apache-2.0 */
/* The composition that quantize and distill share: prepare a float model, calibrate it where data
   are given, quantize it. */
#ifndef PARE_TOOLS_QUANTIZE_H
#define PARE_TOOLS_QUANTIZE_H

#include "quant/quant.h"
#include "quant/target.h"
#include "tools/max_drop.h"
#include "tools/prefer.h"
#include "tools/source.h"

/* How a model becomes INT8. */
typedef struct pare_int8_options {
    const char *method;               /* auto: of FP8 minmax */
    int activations, target, weights; /* places in the words of their rows; -1: by each other */
    pare_list skip, only;
    int bias_correction; /* full, fast, none; -1: full with data, else fast */
    bool no_equalization;
    double mixed; /* percent; negative: 2 with the method auto, else none; FP8: none */
} pare_int8_options;

#define PARE_INT8_DEFAULTS                                                                         \
    {                                                                                              \
        .method = "auto", .bias_correction = -1, .activations = -1, .target = -1, .mixed = -1      \
    }

/* Rows for a command whose OPTIONS have a pare_int8_options named field; where: words that begin
   the help of each. */
#define PARE_INT8_ROWS(field, where)                                                               \
    PARE_OPT_TEXT("method", "minmax|percentile:99.99|entropy|mse|auto", field.method,              \
                  where "how a range is chosen (auto: the best per tensor)"),                      \
        PARE_OPT_CHOICE(                                                                           \
            "activations", "s8|u8", field.activations,                                             \
            where                                                                                  \
            "s8 symmetric, which TensorRT takes, or u8 with a zero point (s8; openvino: u8)"),     \
        PARE_OPT_CHOICE("target", PARE_TARGET_WORDS, field.target,                                 \
                        where "runtime whose fusion decides where Q/DQ pairs are (tensorrt with "  \
                              "s8, onnxruntime with u8 and in w4a8)"),                             \
        PARE_OPT_CHOICE("weights", "channel|tensor", field.weights,                                \
                        where "one scale per output channel, or one per weight (channel)"),        \
        PARE_OPT_CHOICE("bias-correction", "full|fast|none", field.bias_correction,                \
                        where "take out of biases what quantization shifts outputs by (int8): "    \
                              "full: measured layer after layer on the samples, where that "       \
                              "helps; fast: what rounded weights shift (full with --data, else "   \
                              "fast)"),                                                            \
        PARE_OPT_FLAG("no-equalization", field.no_equalization,                                    \
                      where "leave the channels between layers as they are (int8 with --method "   \
                            "auto; w4a16 and w8a16 with --data)"),                                 \
        PARE_OPT_REAL(                                                                             \
            "mixed-precision", "PERCENT", field.mixed, 0, 100,                                     \
            where                                                                                  \
            "keep the nodes float that make most of the error, of up to this "                     \
            "part of the work and of the weights (2 with --method auto and no --only, else 0; "    \
            "needs --data)"),                                                                      \
        PARE_OPT_LIST(                                                                             \
            "skip", "PATTERN", field.skip,                                                         \
            where "keep these nodes float: a glob on node names, or op:TYPE; may be repeated"),    \
        PARE_OPT_LIST("only", "PATTERN", field.only,                                               \
                      where "quantize these nodes only; may be repeated")

/* Fills in what these options decide, the precision INT8 with weights of so many bits (8 or 4);
   of FP8 where out->fp8 is set.
   PARE_USAGE: a method that is none; what the target does not take. */
PARE_NODISCARD pare_status pare_int8_choose(pare_tool *tool, const pare_int8_options *options,
                                            int weight_bits, pare_quant_options *out);

/* What a model is quantized from. */
typedef struct pare_quantize_from {
    const pare_source_options *source; /* data NULL: none */
    const pare_source *opened;         /* with these options, before the device; NULL: not yet */
    const char *ranges;                /* file of a table of ranges in place of data, or NULL */
    const char *trace;                 /* file for a Chrome trace of calibration, or NULL */
    const char *cache;                 /* folder where statistics are kept, or NULL */
    const char *hash;                  /* of the model's file */
    bool facts;                        /* puts the ranges of int8 into the tool's facts */
    pare_max_drop *max_drop;           /* what may be lost, on which file, and what is; or NULL */
    pare_prefer *prefer;               /* which nodes stay float for their latency, or NULL */
    pare_model **prepared; /* gets a copy of the float model as it was calibrated; or NULL */
} pare_quantize_from;

/* A float model, in place. facts of the tool get what calibration puts there. On failure *prepared
   is NULL. */
PARE_NODISCARD pare_status pare_tool_quantize(pare_tool *tool, pare_model *model,
                                              const pare_quant_options *options,
                                              const pare_quantize_from *from,
                                              pare_quant_facts *facts);
#endif
