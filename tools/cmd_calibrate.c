/* SPDX-License-Identifier: Apache-2.0 */
/* pare calibrate: ranges.json from a model and data, or from two tables. */
#include "formats/json.h"
#include "formats/onnx.h"
#include "quant/quant.h"
#include "runtime/base/clock.h"
#include "runtime/eval/eval.h"
#include "tools/calibrate.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/ranks.h"
#include "tools/scaling_facts.h"
#include "tools/telemetry.h"
#include "tools/range_facts.h"
#include "tools/text.h"

#include <math.h>

typedef struct calibrate_options {
    pare_common common;
    pare_source_options source;
    const char *output, *trace, *cache, *method;
    int64_t tensorrt;
    bool merge, tf32;
} calibrate_options;

#define OPTIONS calibrate_options
static const pare_option table[] = {
    PARE_OPT_SHORT('o', OUTPUT, "output", "ranges.json", output,
                   "table to write; OUT.cache: a calibration cache of TensorRT"),
    PARE_OPT_TEXT("method", "minmax|percentile:99.99|entropy|mse|auto", method,
                  "OUT.cache: how a range is chosen (auto)"),
    PARE_OPT_INT("tensorrt", "VERSION", tensorrt, 1000, 10000000,
                 "OUT.cache: TensorRT's version as its caches begin with it (8601, for 8.6.1)"),
    PARE_SOURCE_ROWS("samples to read, evenly spaced (512)"),
    PARE_OPT_FOLDER(
        "cache", "DIR", cache,
        "keep statistics here, for whoever calibrates the same model on the same samples"),
    PARE_OPT_OUTPUT("trace", "t.json", trace,
                    "write the first 16 runs of calibration as a Chrome trace"),
    PARE_OPT_GPUS,
    PARE_OPT_TF32,
    PARE_OPT_FLAG(
        "merge", merge,
        "add up the tables A.json B.json ... instead, as if their samples had been read together"),
    {0},
};

static const calibrate_options defaults = {
    .source = PARE_SOURCE_DEFAULTS, .method = "auto", .tensorrt = 8601};

static bool is_cache(const char *path) { return pare_ends_with(path, ".cache"); }

/* Runs are parts of one step; all else is the start. */
static json_t *scaling_json(pare_tool *tool, const pare_ranges *ranges, double began)
{
    const double took = pare_seconds() - began;
    const double running =
        json_number_value(json_object_get(json_object_get(tool->facts, "data"), "seconds"));
    const int64_t samples = pare_ranges_samples(ranges);
    return pare_scaling_json(&(pare_scaling_job){.start = fmax(0, took - running),
                                                 .steps = 1,
                                                 .parts = samples,
                                                 .part = running / (double)samples,
                                                 .bytes = pare_ranges_bins_bytes(ranges),
                                                 .reductions = pare_ranges_count(ranges) + 4});
}

/* began: when the command did. */
static pare_status write_table(pare_tool *tool, const pare_ranges *ranges,
                               const calibrate_options *o, double began)
{
    const char *path = o->output;
    pare_range_rule rule;
    PARE_TRY(pare_method_parse(tool->ctx, o->method, &rule));
    rule.symmetric = true;
    PARE_TRY(is_cache(path) ? pare_ranges_write_cache(tool->ctx, ranges, &rule, o->tensorrt, path)
                            : pare_ranges_write(tool->ctx, ranges, path));
    pare_print(stdout, "%s\n", path);
    if (!tool->common->quiet)
        pare_print(stderr, "%d tensors, %lld samples\n", pare_ranges_count(ranges),
                   (long long)pare_ranges_samples(ranges));
    if (tool->common->json)
        PARE_TRY(pare_range_facts(tool->ctx, tool->facts, ranges, &rule, false));
    json_object_set_new(tool->facts, "outputs", json_pack("[o]", pare_json_text(path)));
    json_object_set_new(tool->facts, "tensors", json_integer(pare_ranges_count(ranges)));
    json_object_set_new(tool->facts, "samples", json_integer(pare_ranges_samples(ranges)));
    if (!o->merge && !tool->comm)
        json_object_set_new(tool->facts, "scaling", scaling_json(tool, ranges, began));
    json_object_set_new(tool->facts, "peak_memory_bytes", json_integer(pare_peak_memory()));
    return PARE_OK;
}

static pare_status merge(pare_tool *tool, const calibrate_options *o)
{
    pare_ranges *sum = NULL, *more = NULL;
    static const char *const of_data[] = {"data", "trace", "cache", "tf32", NULL};
    if (tool->comm)
        return PARE_FAIL(tool->ctx, USAGE,
                         "calibrate --merge: runs in one process; %d were started",
                         pare_comm_size(tool->comm));
    PARE_TRY(pare_refuse_options(tool, "with --merge", of_data));
    PARE_TRY(pare_refuse_options(tool, "with --merge", pare_source_names));
    if (tool->arg_count < 2)
        return PARE_FAIL(tool->ctx, USAGE,
                         "calibrate --merge: expected at least two tables: "
                         "--merge A.json B.json -o C.json");
    pare_status st = pare_ranges_read(tool->ctx, &sum, tool->arg[0]);
    for (int i = 1; st == PARE_OK && i < tool->arg_count; i++) {
        st = pare_ranges_read(tool->ctx, &more, tool->arg[i]);
        if (st != PARE_OK) break;
        st = pare_ranges_merge(tool->ctx, sum, more);
        if (st != PARE_OK) st = pare_fail_prefix(tool->ctx, st, "%s", tool->arg[i]);
        pare_ranges_free(more);
    }
    if (st == PARE_OK) st = write_table(tool, sum, o, 0);
    if (sum) pare_ranges_free(sum);
    return st;
}

static pare_status calibrate(pare_tool *tool, const calibrate_options *o)
{
    const double began = pare_seconds();
    char hash[33];
    uint64_t bytes;
    pare_model *model = NULL;
    pare_ranges *ranges = NULL;
    pare_quant_options quant = {0};
    if (tool->arg_count != 1)
        return PARE_FAIL(tool->ctx, USAGE, "calibrate: one MODEL is expected, %d were given",
                         tool->arg_count);
    PARE_TRY(
        pare_need_option(tool, o->source.data, "--data F.h5", "calibration never invents data"));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    pare_status st = pare_onnx_hash(tool->ctx, tool->arg[0], hash, &bytes);
    if (st == PARE_OK) st = pare_quant_prepare(tool->ctx, model, &quant, NULL);
    const pare_calibrate_how how = {
        .model_hash = hash, .trace = o->trace, .cache = o->cache, .tf32 = o->tf32};
    if (st == PARE_OK) st = pare_tool_calibrate(tool, &ranges, model, &o->source, &how);
    if (st == PARE_OK) {
        json_object_set_new(tool->facts, "model",
                            json_pack("{s:o, s:s, s:I}", "file", pare_json_text(tool->arg[0]),
                                      "hash", hash, "bytes", (json_int_t)bytes));
        st = pare_comm_settle(tool->comm, PARE_OK); /* before anything is written */
        if (st == PARE_OK && pare_tool_leads(tool)) st = write_table(tool, ranges, o, began);
    }
    if (ranges) pare_ranges_free(ranges);
    pare_model_free(model);
    return st;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const calibrate_options *o = options;
    static const char *const of_cache[] = {"method", "tensorrt", NULL};
    pare_range_rule rule;
    PARE_TRY(pare_need_option(tool, o->output, "-o ranges.json", "the table to write"));
    if (!is_cache(o->output))
        PARE_TRY(pare_refuse_options(tool, "but with -o OUT.cache", of_cache));
    PARE_TRY(pare_method_parse(tool->ctx, o->method, &rule)); /* before hours of work */
    return o->merge ? merge(tool, o) : calibrate(tool, o);
}

const pare_command pare_command_calibrate = {
    .name = "calibrate",
    .arguments = "MODEL --data F.h5 -o ranges.json  |  --merge A.json B.json -o C.json",
    .min = 1,
    .max = -1,
    .summary = "measure the ranges of a model's tensors on data",
    .detail = "One run gives an exact histogram per tensor; every method's range is computed from "
              "it. The\n"
              "table depends on the model and the samples only: not on batch, order, threads or "
              "machine\n"
              "load; with --tf32 on the rounding of a GPU's factors, too.",
    .example = "pare calibrate resnet.onnx --data data/train.h5 -o ranges.json",
    .options = table,
    .size = sizeof(calibrate_options),
    .ranks = true,
    .defaults = &defaults,
    .run = run,
};
