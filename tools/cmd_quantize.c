/* SPDX-License-Identifier: Apache-2.0 */
/* pare quantize: read, prepare, calibrate where data are given, quantize, write. */
#include "formats/json.h"
#include "formats/onnx.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/model_facts.h"
#include "tools/quantize.h"
#include "tools/table.h"
#include "tools/text.h"

#include <string.h>
#include <sys/stat.h>

typedef struct quantize_options {
    pare_common common;
    pare_source_options source;
    pare_int8_options int8;
    const char *output, *ranges, *trace, *cache, *validation, *predict;
    pare_list shapes;
    double max_drop;    /* points; negative: none */
    int64_t block_size; /* negative: 32 in w4a16, else 0 */
    int64_t iterations; /* negative: 1,000 */
    int precision, float_precision, weight_type, rounding, io, prefer;
    bool bf16_compute, external_data;
} quantize_options;

#define OPTIONS quantize_options
static const pare_option table[] = {
    PARE_OPT_SHORT('o', OUTPUT, "output", "OUT", output, "model to write"),
    PARE_OPT_FILE(
        "ranges", "ranges.json", ranges,
        "in place of --data: ranges that 'pare calibrate' measured, a calibration cache of "
        "TensorRT, or the ranges in another tool's quantized model (.onnx)"),
    PARE_OPT_CHOICE(
        "precision", "int8|fp16|bf16|w4a16|w8a16|w4a8|fp8", precision,
        "number format of the result (int8); w4a8: INT8 with INT4 weights; w4a16, w8a16: matrices "
        "of INT4 or INT8, float activations; fp8: weights and activations of E4M3, --method "
        "minmax"),
    PARE_OPT_CHOICE(
        "float-precision", "fp32|fp16", float_precision,
        "int8, w4a8, fp8: what is not of 8 bits computes in FP16, but nodes that would overflow "
        "it (fp32; with --prefer latency on a GPU each node as is fastest)"),
    PARE_OPT_INT(
        "block-size", "N", block_size, 0, 1 << 20,
        "w4a16, w8a16: weights of an output that share a scale; 0: all of them (w4a16: 32, "
        "w8a16: 0)"),
    PARE_OPT_CHOICE(
        "weight-type", "int|float", weight_type,
        "w4a16, w8a16: float: weights are MXFP4 (blocks of 32, a power of two each; opset "
        "24) or FP8 E4M3 (int)"),
    PARE_OPT_CHOICE("rounding", "gptq|nearest|adaround", rounding,
                    "how weights are rounded (int8: nearest; w4a8, w4a16, w8a16: gptq with --data, "
                    "else nearest)"),
    PARE_OPT_INT("iterations", "N", iterations, 1, 1000000,
                 "--rounding adaround: steps for each layer (1000)"),
    PARE_INT8_ROWS(int8, ""),
    PARE_OPT_REAL("max-drop", "POINTS", max_drop, 0, 100,
                  "keep as many nodes float as it takes to lose at most these points of top-1 "
                  "(int8, w4a8, fp8; "
                  "without labels: of agreement with the float model)"),
    PARE_OPT_FILE("validation", "V.h5", validation,
                  "--max-drop: data set that judges (the one of --data; 10,000 samples at most)"),
    PARE_OPT_CHOICE("prefer", "size|latency", prefer,
                    "int8, w4a8: latency: nodes that are not faster as int8 on this device stay "
                    "float; it is timed "
                    "(size)"),
    PARE_OPT_TEXT("predict", "h200|h100", predict,
                  "--prefer latency: of this GPU, which need not be there, by the times that 'pare "
                  "inspect --device' predicts"),
    PARE_OPT_LIST("shapes", "in:32x1x28x28", shapes,
                  "--prefer latency: shape of an input in a timed run (of one sample, or the "
                  "model's with 1 for unknown dims)"),
    PARE_OPT_CHOICE("io", "f32|same", io,
                    "type of inputs and outputs of fp16 and bf16 models (f32)"),
    PARE_OPT_FLAG("bf16-compute", bf16_compute,
                  "typed bf16 operators (opset 22) in place of stored bf16 weights"),
    PARE_OPT_FLAG("external-data", external_data,
                  "write weights to OUT.<hash>.data beside it; needed above 2 GiB"),
    PARE_OPT_FOLDER(
        "cache", "DIR", cache,
        "keep statistics here: other methods and activations of this model calibrate no more; "
        "and the times of --prefer latency, which then chooses the same again"),
    PARE_OPT_OUTPUT("trace", "t.json", trace,
                    "write the first 16 runs of calibration as a Chrome trace"),
    PARE_SOURCE_ROWS("samples to calibrate on, evenly spaced (512)"),
    {0},
};

static const quantize_options defaults = {.source = PARE_SOURCE_DEFAULTS,
                                          .int8 = PARE_INT8_DEFAULTS,
                                          .max_drop = -1,
                                          .block_size = -1,
                                          .iterations = -1,
                                          .rounding = -1,
                                          .float_precision = -1};

static const char *const precisions[] = {"int8", "fp16", "bf16", "w4a16", "w8a16", "w4a8", "fp8"};
enum { GPTQ, NEAREST, ADAROUND }; /* words of --rounding */
enum { FLOAT = 1 };               /* of --weight-type */
enum { FP16 = 1 };                /* of --float-precision */
/* Of these words: INT8 with weights of 4 bits, and with codes of FP8. */
enum { W4A8 = PARE_PRECISION_W8A16 + 1, FP8 };

/* Has it weights and activations of few bits, by ranges? */
static bool is_int8(const quantize_options *o)
{
    return o->precision == PARE_PRECISION_INT8 || o->precision == W4A8 || o->precision == FP8;
}

/* Its weights are integers. */
static bool is_rounded(const quantize_options *o)
{
    return is_int8(o) || pare_precision_is_weight_only((pare_precision)o->precision);
}

static pare_status check_options(pare_tool *tool, const quantize_options *o)
{
    PARE_TRY(pare_need_option(tool, o->output, "-o OUT", "the model to write"));
    if (o->source.data && o->ranges)
        return PARE_FAIL(tool->ctx, USAGE, "quantize: --data and --ranges exclude each other");
    if (is_int8(o) && !o->source.data && !o->ranges)
        return PARE_FAIL(tool->ctx, USAGE,
                         "quantize: %s needs --data F.h5 or --ranges ranges.json: "
                         "calibration never invents data",
                         precisions[o->precision]);
    struct stat info;
    if (o->external_data && !lstat(o->output, &info) && S_ISLNK(info.st_mode))
        return PARE_FAIL(
            tool->ctx, INPUT,
            "%s: is a link; with --external-data give the file's own name, for its data "
            "are beside it",
            o->output);
    if (!stat(o->output, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return PARE_FAIL(tool->ctx, INPUT, "%s: is a device or pipe; a model needs a file",
                         o->output);
    if (is_rounded(o) && o->rounding >= 0 && o->rounding != NEAREST && !o->source.data)
        return PARE_FAIL(tool->ctx, USAGE,
                         "quantize: --rounding %s needs --data F.h5: it rounds by what the "
                         "layers' inputs are",
                         o->rounding == GPTQ ? "gptq" : "adaround");
    if (o->weight_type == FLOAT && o->rounding == ADAROUND)
        return PARE_FAIL(tool->ctx, USAGE,
                         "quantize: --rounding adaround learns integers, and --weight-type float "
                         "has none; expected gptq or nearest");
    if (o->weight_type == FLOAT && o->precision == PARE_PRECISION_W4A16 && o->block_size >= 0 &&
        o->block_size != PARE_QUANT_BLOCK)
        return PARE_FAIL(tool->ctx, USAGE,
                         "quantize: MXFP4 has blocks of %d, --block-size asks for %lld",
                         PARE_QUANT_BLOCK, (long long)o->block_size);
    if (is_int8(o) && o->int8.bias_correction == 0 && !o->source.data)
        return PARE_FAIL(tool->ctx, USAGE,
                         "quantize: --bias-correction full needs --data F.h5: it is measured on "
                         "samples");
    if (o->bf16_compute && o->precision != PARE_PRECISION_BF16)
        return PARE_FAIL(tool->ctx, USAGE, "quantize: --bf16-compute needs --precision bf16");
    return PARE_OK;
}

/* Options that change nothing in the chosen precision. */
static pare_status check_unused(pare_tool *tool, const quantize_options *o)
{
    static const char *const of_int8[] = {
        "activations",     "target",   "weights", "method",          "bias-correction",
        "mixed-precision", "max-drop", "prefer",  "float-precision", NULL};
    static const char *const of_channels[] = {"no-equalization", NULL};
    static const char *const of_weights[] = {"block-size", "weight-type", NULL};
    static const char *const of_rounding[] = {"rounding", NULL};
    static const char *const of_integers[] = {"activations", "rounding", "no-equalization",
                                              "prefer", NULL};
    static const char *const of_iterations[] = {"iterations", NULL};
    static const char *const of_ranges[] = {"ranges", "trace", NULL};
    static const char *const of_halves[] = {"io", NULL};
    static const char *const of_runs[] = {"trace", "mixed-precision", "max-drop", NULL};
    static const char *const of_judge[] = {"validation", NULL};
    static const char *const of_timing[] = {"shapes", "predict", NULL};
    const bool stored = o->precision == PARE_PRECISION_BF16 && !o->bf16_compute;
    if (o->precision == PARE_PRECISION_BF16 && (o->source.data || o->ranges))
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%s is not needed in bf16, which has the range of f32: nothing overflows",
                 o->ranges ? "--ranges" : "--data");
    if (pare_precision_is_weight_only((pare_precision)o->precision) && o->rounding == NEAREST &&
        o->int8.no_equalization && o->source.data)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "--data is not needed to round to the nearest with --no-equalization");
    if (!o->prefer) PARE_TRY(pare_refuse_options(tool, "without --prefer latency", of_timing));
    if (o->max_drop < 0) PARE_TRY(pare_refuse_options(tool, "without --max-drop", of_judge));
    if (!is_int8(o))
        PARE_TRY(pare_refuse_options(tool,
                                     pare_precision_is_weight_only((pare_precision)o->precision)
                                         ? "in w4a16 and w8a16"
                                         : "in fp16 and bf16",
                                     of_int8));
    if (o->precision == FP8) PARE_TRY(pare_refuse_options(tool, "in fp8", of_integers));
    if (!is_rounded(o)) PARE_TRY(pare_refuse_options(tool, "in fp16 and bf16", of_channels));
    if (pare_precision_is_weight_only((pare_precision)o->precision))
        PARE_TRY(pare_refuse_options(tool, "in w4a16 and w8a16, which need no ranges", of_ranges));
    else
        PARE_TRY(pare_refuse_options(tool, "but in w4a16 and w8a16", of_weights));
    if (!is_rounded(o)) PARE_TRY(pare_refuse_options(tool, "in fp16 and bf16", of_rounding));
    if (o->rounding != ADAROUND)
        PARE_TRY(pare_refuse_options(tool, "without --rounding adaround", of_iterations));
    if (is_int8(o) || pare_precision_is_weight_only((pare_precision)o->precision) || stored)
        PARE_TRY(pare_refuse_options(
            tool,
            stored ? "in bf16 without --bf16-compute: inputs and outputs stay f32"
            : pare_precision_is_weight_only((pare_precision)o->precision)
                ? "in w4a16 and w8a16: inputs and outputs stay f32"
                : "in int8: inputs and outputs stay f32",
            of_halves));
    if (!o->source.data || o->precision == PARE_PRECISION_BF16)
        PARE_TRY(pare_refuse_options(
            tool, o->source.data ? "in bf16, which runs nothing" : "without --data", of_runs));
    if (o->source.data) return PARE_OK;
    return pare_refuse_options(tool, "without --data", pare_source_names);
}

static pare_status quant_options(pare_tool *tool, const quantize_options *o,
                                 pare_quant_options *out)
{
    *out = (pare_quant_options){.io_same = o->io == 1, .bf16_compute = o->bf16_compute};
    out->fp8 = o->precision == FP8;
    PARE_TRY(pare_int8_choose(tool, &o->int8, o->precision == W4A8 ? 4 : 8, out));
    out->precision = is_int8(o) ? PARE_PRECISION_INT8 : (pare_precision)o->precision;
    out->rounding = o->rounding < 0           ? PARE_ROUNDING_DEFAULT
                    : o->rounding == GPTQ     ? PARE_ROUNDING_GPTQ
                    : o->rounding == ADAROUND ? PARE_ROUNDING_ADAROUND
                                              : PARE_ROUNDING_NEAREST;
    out->float_fp16 = is_int8(o) && o->float_precision == FP16;
    out->float_weights = o->weight_type == FLOAT;
    out->iterations = o->iterations > 0 ? (int)o->iterations : 0;
    out->block_size = o->block_size >= 0                       ? o->block_size
                      : out->precision == PARE_PRECISION_W4A16 ? PARE_QUANT_BLOCK
                                                               : 0;
    return PARE_OK;
}

/* A handful of warnings; the rest is counted. */
static void warn(pare_tool *tool, const pare_quant_facts *facts, json_t *list)
{
    enum { MOST = 5 };
    for (int i = 0; i < facts->warning_count; i++) {
        json_array_append_new(list, pare_json_text(facts->warning[i]));
        if (i < MOST) pare_log(tool->ctx, PARE_LOG_WARNING, "%s", facts->warning[i]);
    }
    if (facts->warning_count > MOST)
        pare_log(tool->ctx, PARE_LOG_WARNING, "%d more such warnings; --json lists them",
                 facts->warning_count - MOST);
}

/* The file's facts, and one line for people. */
static pare_status report(pare_tool *tool, const quantize_options *o, const pare_quant_facts *facts,
                          uint64_t bytes_before, const char *hash, const pare_quantize_from *from)
{
    const char *left = is_int8(o) ? "nodes stay f32, for they" : "of them";
    char hash_after[33], size[32], opset[64];
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(tool->ctx, o->output, hash_after, &bytes));
    json_t *notes = json_array(), *warnings = json_array();
    warn(tool, facts, warnings);
    for (int i = 0; i < facts->note_count; i++) {
        json_array_append_new(notes, pare_json_text(facts->note[i]));
        pare_log(tool->ctx, PARE_LOG_INFO, "%s", facts->note[i]);
    }
    pare_print(stdout, "%s\n", o->output);
    int n = snprintf(opset, sizeof opset, "opset %lld", (long long)facts->opset_after);
    if (facts->opset_before != facts->opset_after)
        snprintf(opset + n, sizeof opset - (size_t)n, " (was %lld)",
                 (long long)facts->opset_before);
    if (!o->common.quiet)
        pare_print(stderr, "%s, %s (%.0f %% of before), %d nodes converted, %d left float, %s\n",
                   precisions[o->precision], pare_bytes_text((double)bytes, size, sizeof size),
                   bytes_before ? 100 * (double)bytes / (double)bytes_before : 0.0,
                   facts->quantized_nodes, facts->float_nodes, opset);
    if (!o->common.quiet && (o->float_precision == FP16 || facts->fp16_nodes))
        pare_print(stderr, "%d nodes compute in FP16\n", facts->fp16_nodes);
    if (!o->common.quiet && facts->weight_only_nodes)
        pare_print(stderr, "%d recurrent nodes have int8 weights and compute in float\n",
                   facts->weight_only_nodes);
    if (!o->common.quiet && facts->sensitive_nodes)
        pare_print(stderr, "float for accuracy: %s\n", facts->sensitive_nodes);
    if (!o->common.quiet && facts->latency_nodes)
        pare_print(stderr, "float for latency: %s\n", facts->latency_nodes);
    if (!o->common.quiet && facts->f32_latency_count)
        pare_print(stderr, "%d nodes are faster in FP32 than in FP16\n", facts->f32_latency_count);
    if (!o->common.quiet && from->prefer) pare_prefer_print(tool, from->prefer);
    if (from->prefer) json_object_set_new(tool->facts, "latency", pare_prefer_json(from->prefer));
    if (!o->common.quiet && facts->overflow_nodes)
        pare_print(stderr, "%d %s would overflow f16: %s\n", facts->overflow_count, left,
                   facts->overflow_nodes);
    if (!o->common.quiet && facts->underflow_nodes)
        pare_print(stderr, "%d %s would underflow f16: %s\n", facts->underflow_count, left,
                   facts->underflow_nodes);
    json_object_set_new(tool->facts, "warnings", warnings);
    const pare_max_drop *max_drop = from->max_drop;
    if (max_drop) {
        json_object_set_new(tool->facts, "max_drop", pare_max_drop_json(max_drop));
        if (!o->common.quiet)
            pare_print(stderr, "loses %.2f points of %s on %lld samples\n", max_drop->drop,
                       max_drop->labels ? "top-1" : "agreement with the float model (no labels)",
                       (long long)max_drop->samples);
    }
    json_object_update_new(
        tool->facts,
        json_pack(
            "{s:{s:o, s:s, s:I}, s:{s:o, s:s, s:I}, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, "
            "s:o, s:[o]}",
            "model", "file", pare_json_text(tool->arg[0]), "hash", hash, "bytes",
            (json_int_t)bytes_before, "output", "file", pare_json_text(o->output), "hash",
            hash_after, "bytes", (json_int_t)bytes, "precision", precisions[o->precision],
            "converted_nodes", facts->quantized_nodes, "float_nodes", facts->float_nodes,
            "fp16_nodes", facts->fp16_nodes, "weight_only_nodes", facts->weight_only_nodes,
            "quantize_nodes", facts->q_nodes, "dequantize_nodes", facts->dq_nodes, "opset_before",
            (json_int_t)facts->opset_before, "opset_after", (json_int_t)facts->opset_after, "notes",
            notes, "outputs", pare_json_text(o->output)));
    return PARE_OK;
}

static pare_status convert(pare_tool *tool, const quantize_options *o, pare_model *model,
                           const pare_quant_options *quant)
{
    const pare_onnx_write_options writing = {.external_data = o->external_data};
    pare_quant_facts facts = {0};
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(tool->ctx, tool->arg[0], hash, &bytes));
    pare_max_drop max_drop = {.points = o->max_drop,
                              .data = o->validation ? o->validation : o->source.data};
    pare_prefer prefer = {.shapes = &o->shapes,
                          .cache = o->cache,
                          .gpu = o->predict,
                          .may_fp16 = o->float_precision < 0};
    const pare_quantize_from from = {.source = &o->source,
                                     .ranges = o->ranges,
                                     .trace = o->trace,
                                     .cache = o->cache,
                                     .hash = hash,
                                     .facts = o->common.json != NULL,
                                     .max_drop = o->max_drop >= 0 ? &max_drop : NULL,
                                     .prefer = o->prefer ? &prefer : NULL};
    PARE_TRY(pare_tool_quantize(tool, model, quant, &from, &facts));
    PARE_TRY(pare_onnx_write(tool->ctx, model, o->output, &writing));
    PARE_TRY(report(tool, o, &facts, bytes, hash, &from));
    if (from.max_drop) PARE_TRY(pare_max_drop_verdict(tool->ctx, &max_drop, o->output));
    return from.prefer ? pare_prefer_verdict(tool, &prefer, o->output) : PARE_OK;
}

static pare_status check(pare_tool *tool, const void *options)
{
    pare_quant_options quant;
    PARE_TRY(check_options(tool, options));
    PARE_TRY(check_unused(tool, options));
    return quant_options(tool, options, &quant);
}

static pare_status run(pare_tool *tool, const void *options)
{
    const quantize_options *o = options;
    pare_quant_options quant;
    pare_model *model = NULL;
    PARE_TRY(check(tool, o));
    PARE_TRY(quant_options(tool, o, &quant));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    pare_status st = convert(tool, o, model, &quant);
    pare_model_free(model);
    return st;
}

const pare_command pare_command_quantize = {
    .name = "quantize",
    .arguments = "MODEL -o OUT (--data F.h5 | --ranges ranges.json)",
    .min = 1,
    .max = 1,
    .summary = "convert a float model to INT8, FP8, INT4 weights, FP16 or BF16",
    .detail =
        "The result is standard ONNX: INT8 and FP8 with QuantizeLinear and DequantizeLinear pairs, "
        "W4A16 and\n"
        "W8A16 with DequantizeLinear after the matrices of MatMul and Gemm, FP16 and BF16 "
        "with types and\n"
        "casts. INT8, W4A8 and FP8 need data; W4A16 and W8A16 round better with it; FP16 then "
        "keeps nodes f32\n"
        "that would overflow. --ranges knows the tensors that int8 would quantize, and no others.\n"
        "Exit status 3: what --max-drop or --prefer latency asks was missed; the best that was "
        "found "
        "is\n"
        "written.",
    .example = "pare quantize resnet.onnx -o resnet.int8.onnx --data data/train.h5",
    .options = table,
    .size = sizeof(quantize_options),
    .defaults = &defaults,
    .check = check,
    .run = run,
};
