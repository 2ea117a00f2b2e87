/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization: a float model and ranges to a standard QDQ ONNX model; weights alone; FP16 and BF16
   conversion. */
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
    PARE_PRECISION_BF16,
    PARE_PRECISION_W4A16, /* matrices of INT4, float activations */
    PARE_PRECISION_W8A16  /* matrices of INT8, float activations */
} pare_precision;

static inline bool pare_precision_is_weight_only(pare_precision p)
{
    return p == PARE_PRECISION_W4A16 || p == PARE_PRECISION_W8A16;
}

/* How weights are rounded. */
typedef enum pare_rounding {
    PARE_ROUNDING_DEFAULT, /* with samples: INT4, W4A16 and W8A16 by GPTQ; else to the nearest */
    PARE_ROUNDING_NEAREST,
    PARE_ROUNDING_GPTQ,
    PARE_ROUNDING_ADAROUND /* from where GPTQ left them */
} pare_rounding;

typedef struct pare_quant_search pare_quant_search;
typedef enum pare_quant_target {
    PARE_TARGET_TENSORRT,
    PARE_TARGET_ONNXRUNTIME,
    PARE_TARGET_OPENVINO,
    PARE_TARGET_COUNT
} pare_quant_target;

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
    const char *const *keep; /* int8: why a node stays float, or NULL, of each node of the model and
                                its bodies in order (pare_quant_find_sensitive); NULL: none */
    const char *const *float_for_latency; /* int8: the same of nodes that stay float for their
                                             latency (pare_quant_find_fastest) */
    const char *const *f32_for_latency; /* int8 with float_fp16: the same of nodes that stay f32 */
    bool float_fp16; /* int8: nodes that are not int8 compute in FP16, where that neither overflows
                        nor underflows; inputs and outputs stay f32 */
    const pare_ranges *float_ranges; /* with float_fp16: what calibration of minmax_only saw, by
                                        which nodes stay f32; NULL: what `ranges` knows of it */
    const pare_range *chosen; /* int8: what `rule` chooses for each tensor of the table; NULL: it is
                                 asked */
    double mixed; /* int8: the part of the work and of the weights that may stay float for its
                     accuracy, where that can be measured; 0: none */
    bool bias_correction; /* int8: biases are corrected for the rounding of weights */
    const pare_quant_search
        *correct;         /* int8: samples by which they are corrected again, layer after
                             layer, where that lowers the outputs' error; NULL: not */
    bool fast_correction; /* pare_quantize_on_data: they are not */
    bool equalize;      /* int8, AUTO: tensors between layers get channels of nearer ranges; W4A16,
                           W8A16, with samples: channels get the size that rounds best (AWQ) */
    bool io_same;       /* FP16/BF16: graph inputs and outputs become f16/bf16, too */
    int64_t block_size; /* W4A16, W8A16: weights of an output side by side that share a scale; 0:
                           all of them */
    bool float_weights; /* W4A16: MXFP4, W8A16: FP8 (E4M3), in place of integers */
    int weight_bits;    /* int8: 4: weights are INT4 (W4A8); 0: 8 */
    bool fp8;           /* int8: codes are FP8 (E4M3), those of weights too: symmetric, ranges by
                           MINMAX, weights rounded to the nearest */
    int threads; /* that round weights to the nearest; 0: all cores; the result does not depend on
                    them */
    pare_rounding rounding;
    int iterations;                  /* of AdaRound, for each layer; 0: PARE_QUANT_ITERATIONS */
    const pare_quant_search *inputs; /* samples by which weights are rounded (int8, w4a16, w8a16)
                                        and channels scaled (w4a16, w8a16); NULL: neither */
    const char *device; /* that the ranges come from, for the file's manifest; NULL: the CPU */
    bool bf16_compute;  /* typed bf16 at opset 22; else weights stored as bf16 after a Cast */
} pare_quant_options;

/* Block of W4A16. */
#define PARE_QUANT_BLOCK      32
#define PARE_QUANT_ITERATIONS 1000

/* Do these options round weights by samples where there are some? */
static inline bool pare_quant_rounds_by_samples(const pare_quant_options *o)
{
    const bool weights = pare_precision_is_weight_only(o->precision);
    if (o->rounding == PARE_ROUNDING_NEAREST || o->fp8) return false;
    if (o->rounding != PARE_ROUNDING_DEFAULT) return weights || o->precision == PARE_PRECISION_INT8;
    return weights || (o->precision == PARE_PRECISION_INT8 && o->weight_bits == 4);
}

/* Do they read samples where there are some, to round weights by or to scale channels? */
static inline bool pare_quant_reads_samples(const pare_quant_options *o)
{
    return pare_quant_rounds_by_samples(o) ||
           (pare_precision_is_weight_only(o->precision) && o->equalize);
}

/* What was done, for reports: one line per node kept float with its reason, counts, notes. */
typedef struct pare_quant_facts {
    int quantized_nodes, float_nodes, q_nodes, dq_nodes;
    const char *sensitive_nodes; /* that stay float for their accuracy, "a, b"; NULL: none */
    const char *latency_nodes;   /* the same for their latency */
    int f32_latency_count;       /* nodes that stay f32 and not FP16 for their latency */
    const char *f32_latency_nodes;
    int fp16_nodes;        /* of the float ones, that compute in FP16 (float_fp16) */
    int weight_only_nodes; /* compute in float on int8 weights: LSTM, GRU, RNN */
    int64_t opset_before, opset_after;
    int note_count;
    const char **note;          /* in the model's arena */
    int overflow_count;         /* nodes that stay f32 because they would overflow f16 */
    const char *overflow_nodes; /* their names, "a, b"; NULL where there are none */
    int underflow_count;        /* the same of what is too small for f16 */
    const char *underflow_nodes;
    int warning_count;
    const char **warning; /* "dead-channel: node 'a', tensor 'w': what happens; what helps" */
} pare_quant_facts;

/* INT8 with s8 activations for TensorRT, one scale per output channel, ranges by AUTO, biases
   corrected, channels equalized, 2 % left for mixed precision. */
void pare_quant_options_init(pare_quant_options *out);

/* The model as quantization starts from it and calibration runs it: sorted, opset raised (to 13, or
   what the options need), constants and BatchNormalization folded, shapes inferred. Value names
   survive. FP32 outputs stay equal. facts (or NULL): the opsets, the rest 0. PARE_INPUT: a model
   that is no float model any more, with integer operators or operators that compute in f16 or
   bf16, in the main graph or a body. PARE_USAGE: a pattern that matches nothing. */
PARE_NODISCARD pare_status pare_quant_prepare(pare_ctx *ctx, pare_model *model,
                                              const pare_quant_options *options,
                                              pare_quant_facts *facts);

/* A prepared model for options that have changed: raises its opset to what they need. facts (or
   NULL): as pare_quant_prepare left them; the opset after it is set. */
PARE_NODISCARD pare_status pare_quant_raise_opset(pare_ctx *ctx, pare_model *model,
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

/* The defaults of mixed precision: the part of the model that may stay float, and the part of the
   error that a node must make. */
#define PARE_QUANT_MIXED       0.02
#define PARE_QUANT_LEAST_ERROR 0.02

/* The samples that say which nodes are sensitive and how weights are rounded. */
struct pare_quant_search {
    pare_data *data;
    const int64_t *samples; /* that were calibrated on, in this order; some of them are run */
    int64_t sample_count;
    int threads;         /* 0: all cores; the result does not depend on them */
    pare_device *device; /* NULL: the CPU */
    void (*progress)(void *user, int64_t done, int64_t all); /* nodes, or weights; or NULL */
    void *progress_user;
};

/* Weighted nodes by what their int8 form costs over what it buys. */
typedef struct pare_quant_ranking pare_quant_ranking;

/* Measures each node of a prepared model whose parts of the work and of the weights are both at
   most `most`: the error at the f32 outputs, each as a part of its energy, where it alone is int8.
   *out NULL: nothing can be measured (outputs whose shapes only a run knows, or of other types;
   ranges of data with NaN). The model must outlive the ranking. */
PARE_NODISCARD pare_status pare_quant_rank(pare_ctx *ctx, pare_model *model,
                                           const pare_ranges *ranges,
                                           const pare_quant_options *options,
                                           const pare_quant_search *asked, double most,
                                           pare_quant_ranking **out);
void pare_quant_ranking_free(pare_quant_ranking *ranking);
/* The first nodes of the ranking whose parts together stay within the budget, but none that makes
   less than `least` of the error. *keep is for pare_quant_options, in the model's arena. */
PARE_NODISCARD pare_status pare_quant_keep(const pare_quant_ranking *ranking, double budget,
                                           double least, const char *const **keep);

/* Both in one, within options->mixed. *keep NULL: there is no such node. */
PARE_NODISCARD pare_status pare_quant_find_sensitive(pare_ctx *ctx, pare_model *model,
                                                     const pare_ranges *ranges,
                                                     const pare_quant_options *options,
                                                     const pare_quant_search *asked,
                                                     const char *const **keep);

/* All in one call: prepares a float model, calibrates it on data (NULL: none, for FP16 without a
   forecast of overflows, for BF16, which needs none, and for weights rounded to the nearest), and
   quantizes it, in place; with options->mixed, the samples say which nodes stay float. calib:
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
