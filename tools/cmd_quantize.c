/* SPDX-License-Identifier: Apache-2.0 */
/* pare quantize: read, prepare, calibrate where data are given, quantize, write. */
#include "formats/onnx.h"
#include "quant/quant.h"
#include "tools/calibrate.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/model_facts.h"
#include "tools/table.h"

#include <string.h>
#include <sys/stat.h>

typedef struct quantize_options {
    pare_common common;
    pare_source_options source;
    const char *output, *ranges, *method, *trace;
    int precision, activations, target, weights, io;
    pare_list skip, only;
    bool keep_bias, keep_channels, bf16_compute, external_data;
} quantize_options;

enum { TARGET_AUTO = -1 };

static const pare_option table[] = {
    {"output", 'o', PARE_OPTION_OUTPUT, "OUT", offsetof(quantize_options, output), 0, 0,
     "model to write"},
    {"ranges", 0, PARE_OPTION_FILE, "ranges.json", offsetof(quantize_options, ranges), 0, 0,
     "ranges that 'pare calibrate' measured, in place of --data"},
    {"precision", 0, PARE_OPTION_CHOICE, "int8|fp16|bf16", offsetof(quantize_options, precision), 0,
     0, "number format of the result (int8)"},
    {"method", 0, PARE_OPTION_TEXT, "minmax|percentile:99.99|entropy|mse|auto",
     offsetof(quantize_options, method), 0, 0, "how a range is chosen (auto: the best per tensor)"},
    {"activations", 0, PARE_OPTION_CHOICE, "s8|u8", offsetof(quantize_options, activations), 0, 0,
     "s8 symmetric, which TensorRT takes, or u8 with a zero point (s8)"},
    {"target", 0, PARE_OPTION_CHOICE, "tensorrt|onnxruntime", offsetof(quantize_options, target), 0,
     0, "where Q/DQ pairs stand (tensorrt with s8, onnxruntime with u8)"},
    {"weights", 0, PARE_OPTION_CHOICE, "channel|tensor", offsetof(quantize_options, weights), 0, 0,
     "one scale per output channel, or one per weight (channel)"},
    {"no-bias-correction", 0, PARE_OPTION_FLAG, NULL, offsetof(quantize_options, keep_bias), 0, 0,
     "leave biases as they are: do not take out what rounded weights shift outputs by (int8)"},
    {"no-equalization", 0, PARE_OPTION_FLAG, NULL, offsetof(quantize_options, keep_channels), 0, 0,
     "leave the channels before depthwise convolutions as they are (int8 with --method auto)"},
    {"skip", 0, PARE_OPTION_LIST, "PATTERN", offsetof(quantize_options, skip), 0, 0,
     "keep these nodes float: a glob on node names, or op:TYPE; may be repeated"},
    {"only", 0, PARE_OPTION_LIST, "PATTERN", offsetof(quantize_options, only), 0, 0,
     "quantize these nodes only; may be repeated"},
    {"io", 0, PARE_OPTION_CHOICE, "f32|same", offsetof(quantize_options, io), 0, 0,
     "type of inputs and outputs of fp16 and bf16 models (f32)"},
    {"bf16-compute", 0, PARE_OPTION_FLAG, NULL, offsetof(quantize_options, bf16_compute), 0, 0,
     "typed bf16 operators (opset 22) in place of stored bf16 weights"},
    {"external-data", 0, PARE_OPTION_FLAG, NULL, offsetof(quantize_options, external_data), 0, 0,
     "write weights to OUT.<hash>.data beside it; needed above 2 GiB"},
    {"trace", 0, PARE_OPTION_OUTPUT, "t.json", offsetof(quantize_options, trace), 0, 0,
     "write the first 16 runs of calibration as a Chrome trace"},
    PARE_SOURCE_ROWS(quantize_options, "samples to calibrate on, evenly spaced (512)"),
    {0},
};

static const quantize_options defaults = {
    .source = PARE_SOURCE_DEFAULTS, .method = "auto", .target = TARGET_AUTO};

static pare_status check_options(pare_tool *tool, const quantize_options *o)
{
    PARE_TRY(pare_need_option(tool, o->output, "-o OUT", "the model to write"));
    if (o->source.data && o->ranges)
        return PARE_FAIL(tool->ctx, USAGE, "quantize: --data and --ranges exclude each other");
    if (o->precision == PARE_PRECISION_INT8 && !o->source.data && !o->ranges)
        return PARE_FAIL(tool->ctx, USAGE,
                         "quantize: int8 needs --data F.h5 or --ranges ranges.json: "
                         "calibration never invents data");
    struct stat info;
    if (o->external_data && !lstat(o->output, &info) && S_ISLNK(info.st_mode))
        return PARE_FAIL(
            tool->ctx, INPUT,
            "%s: is a link; with --external-data give the file's own name, for its data "
            "lie beside it",
            o->output);
    if (!stat(o->output, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return PARE_FAIL(tool->ctx, INPUT, "%s: is a device or pipe; a model needs a file",
                         o->output);
    if (o->bf16_compute && o->precision != PARE_PRECISION_BF16)
        return PARE_FAIL(tool->ctx, USAGE, "quantize: --bf16-compute needs --precision bf16");
    return PARE_OK;
}

/* Options that change nothing in the chosen precision. */
static pare_status check_unused(pare_tool *tool, const quantize_options *o)
{
    static const char *const of_int8[] = {
        "activations",        "target",          "weights", "method",
        "no-bias-correction", "no-equalization", NULL};
    static const char *const of_halves[] = {"io", NULL};
    static const char *const of_runs[] = {"trace", NULL};
    const bool stored = o->precision == PARE_PRECISION_BF16 && !o->bf16_compute;
    if (o->precision == PARE_PRECISION_BF16 && (o->source.data || o->ranges))
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%s is not needed in bf16, which has the range of f32: nothing overflows",
                 o->ranges ? "--ranges" : "--data");
    if (o->precision != PARE_PRECISION_INT8)
        PARE_TRY(pare_refuse_options(tool, "in fp16 and bf16", of_int8));
    if (o->precision == PARE_PRECISION_INT8 || stored)
        PARE_TRY(pare_refuse_options(
            tool,
            stored ? "in bf16 without --bf16-compute: inputs and outputs stay f32"
                   : "in int8: inputs and outputs stay f32",
            of_halves));
    if (!o->source.data || o->precision == PARE_PRECISION_BF16)
        PARE_TRY(pare_refuse_options(
            tool, o->source.data ? "in bf16, which runs nothing" : "without --data", of_runs));
    if (o->source.data) return PARE_OK;
    return pare_refuse_options(tool, "without --data", pare_source_names);
}

/* What --ranges cannot forecast: a table of int8's tensors. */
static void warn_partial(pare_tool *tool, const pare_ranges *ranges, const char *path)
{
    pare_log(
        tool->ctx, PARE_LOG_WARNING,
        "%s: knows the %d tensors that int8 would quantize; an overflow of f16 in another one is "
        "not forecast (--data sees all)",
        path, pare_ranges_count(ranges));
}

static pare_status quant_options(pare_tool *tool, const quantize_options *o,
                                 pare_quant_options *out)
{
    *out = (pare_quant_options){
        .precision = (pare_precision)o->precision,
        .target = o->target != TARGET_AUTO ? (pare_target)o->target
                  : o->activations         ? PARE_TARGET_ONNXRUNTIME
                                           : PARE_TARGET_TENSORRT,
        .unsigned_activations = o->activations == 1,
        .per_tensor_weights = o->weights == 1,
        .skip = o->skip.item,
        .skip_count = o->skip.count,
        .only = o->only.item,
        .only_count = o->only.count,
        .keep_bias = o->keep_bias,
        .keep_channels = o->keep_channels,
        .io_same = o->io == 1,
        .bf16_compute = o->bf16_compute,
    };
    PARE_TRY(pare_method_parse(tool->ctx, o->method, &out->rule));
    out->rule.symmetric = !out->unsigned_activations;
    return PARE_OK;
}

static pare_status read_ranges(pare_tool *tool, pare_ranges **out, const char *path,
                               const char *model, const char *hash)
{
    PARE_TRY(pare_ranges_read(tool->ctx, out, path));
    const char *theirs = pare_ranges_model_hash(*out);
    if (!strcmp(theirs, hash)) return PARE_OK;
    return PARE_FAIL(tool->ctx, INPUT,
                     "%s: made for another model (hash %s, %s has %s); run 'pare "
                     "calibrate %s' again",
                     path, theirs, model, hash, model);
}

/* The file's facts, and one line for people. */
static pare_status report(pare_tool *tool, const quantize_options *o, const pare_quant_facts *facts,
                          uint64_t bytes_before, const char *hash)
{
    static const char *const precisions[] = {"int8", "fp16", "bf16"};
    char hash_after[33], size[32], opset[64];
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(tool->ctx, o->output, hash_after, &bytes));
    json_t *notes = json_array();
    for (int i = 0; i < facts->note_count; i++) {
        json_array_append_new(notes, json_string(facts->note[i]));
        pare_log(tool->ctx, PARE_LOG_INFO, "%s", facts->note[i]);
    }
    printf("%s\n", o->output);
    int n = snprintf(opset, sizeof opset, "opset %lld", (long long)facts->opset_after);
    if (facts->opset_before != facts->opset_after)
        snprintf(opset + n, sizeof opset - (size_t)n, " (was %lld)",
                 (long long)facts->opset_before);
    if (!o->common.quiet)
        fprintf(stderr, "%s, %s (%.0f %% of before), %d nodes converted, %d left float, %s\n",
                precisions[o->precision], pare_bytes_text((double)bytes, size, sizeof size),
                bytes_before ? 100 * (double)bytes / (double)bytes_before : 0.0,
                facts->quantized_nodes, facts->float_nodes, opset);
    if (!o->common.quiet && facts->overflow_nodes)
        fprintf(stderr, "%d of them would overflow f16: %s\n", facts->overflow_count,
                facts->overflow_nodes);
    json_object_update_new(
        tool->facts,
        json_pack(
            "{s:{s:s, s:s, s:I}, s:{s:s, s:s, s:I}, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:o, s:[s]}",
            "model", "file", tool->arg[0], "hash", hash, "bytes", (json_int_t)bytes_before,
            "output", "file", o->output, "hash", hash_after, "bytes", (json_int_t)bytes,
            "precision", precisions[o->precision], "converted_nodes", facts->quantized_nodes,
            "float_nodes", facts->float_nodes, "quantize_nodes", facts->q_nodes, "dequantize_nodes",
            facts->dq_nodes, "opset_before", (json_int_t)facts->opset_before, "opset_after",
            (json_int_t)facts->opset_after, "notes", notes, "outputs", o->output));
    return PARE_OK;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const quantize_options *o = options;
    pare_quant_options quant;
    pare_quant_facts facts = {0};
    pare_onnx_write_options writing = {.external_data = o->external_data};
    pare_model *model = NULL;
    pare_ranges *ranges = NULL;
    char hash[33];
    uint64_t bytes;
    PARE_TRY(check_options(tool, o));
    PARE_TRY(check_unused(tool, o));
    PARE_TRY(quant_options(tool, o, &quant));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    pare_status st;
    if ((st = pare_onnx_hash(tool->ctx, tool->arg[0], hash, &bytes)) != PARE_OK) goto done;
    if (o->ranges && (st = read_ranges(tool, &ranges, o->ranges, tool->arg[0], hash)) != PARE_OK)
        goto done;
    if (ranges && (st = pare_tool_open_device(tool)) != PARE_OK) goto done;
    if (ranges) pare_ranges_use_device(ranges, tool->device); /* where ranges are searched */
    if ((st = pare_quant_prepare(tool->ctx, model, &quant)) != PARE_OK) goto done;
    const bool fp16 = quant.precision == PARE_PRECISION_FP16;
    if (o->source.data && quant.precision != PARE_PRECISION_BF16 &&
        (st = pare_tool_calibrate(tool, &ranges, model, hash, &o->source, fp16, o->trace)) !=
            PARE_OK) {
        if (fp16 && st == PARE_UNSUPPORTED)
            st = pare_fail_prefix(tool->ctx, st,
                                  "a forecast of overflows runs the model, and this one cannot be "
                                  "run (leave --data out to convert without)");
        goto done;
    }
    if (o->source.data && tool->device) quant.device = tool->device->name;
    if (o->ranges && fp16) warn_partial(tool, ranges, o->ranges);
    if ((st = pare_quantize(tool->ctx, model, ranges, &quant, &facts)) != PARE_OK) goto done;
    if ((st = pare_ctx_poll(tool->ctx)) != PARE_OK) goto done;
    if ((st = pare_onnx_write(tool->ctx, model, o->output, &writing)) != PARE_OK) goto done;
    st = report(tool, o, &facts, bytes, hash);
done:
    if (ranges) pare_ranges_free(ranges);
    pare_model_free(model);
    return st;
}

const pare_command pare_command_quantize = {
    .name = "quantize",
    .arguments = "MODEL -o OUT (--data F.h5 | --ranges ranges.json)",
    .min = 1,
    .max = 1,
    .summary = "convert a float model to INT8, FP16 or BF16",
    .detail = "The result is standard ONNX: INT8 with QuantizeLinear and DequantizeLinear pairs, "
              "FP16 and\n"
              "BF16 with types and casts. FP16 and BF16 need no data; with --data, FP16 keeps "
              "nodes f32 that\n"
              "would overflow; --ranges knows the tensors that int8 would quantize, and no others.",
    .example = "pare quantize resnet.onnx -o resnet.int8.onnx --data data/train.h5",
    .options = table,
    .size = sizeof(quantize_options),
    .defaults = &defaults,
    .run = run,
};
