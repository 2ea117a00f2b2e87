/* SPDX-License-Identifier: Apache-2.0 */
/* pare validate */
#include "runtime/eval/eval.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/report/report.h"
#include "tools/results.h"
#include "tools/validate.h"
#include "tools/parallel.h"
#include "tools/ranks.h"
#include "tools/telemetry.h"

#include <string.h>

typedef struct validate_options {
    pare_common common;
    pare_source_options source;
    const char *report, *append, *cache;
    bool latency, any_accuracy, tf32;
    int parallel; /* pare_parallel */
} validate_options;

#define OPTIONS validate_options
static const pare_option table[] = {
    PARE_SOURCE_ROWS("samples to compare on, evenly spaced (all)"),
    PARE_OPT_OUTPUT("report", "report.html", report,
                    "write table and picture as one HTML file, the picture alone as .svg; measures "
                    "latency, too"),
    PARE_OPT_OUTPUT("append", "results.csv", append,
                    "add a row for each model to a table that grows"),
    PARE_OPT_FOLDER(
        "cache", "DIR", cache,
        "keep the first model's outputs here, for the next model that is compared with it"),
    PARE_OPT_FLAG("latency", latency,
                  "measure the latency of one sample, all models in turns; on one thread unless "
                  "--threads says more"),
    PARE_OPT_FLAG("any-accuracy", any_accuracy,
                  "continue where the first model's accuracy is near chance"),
    PARE_OPT_PARALLEL(parallel, "each model by itself; "),
    PARE_OPT_GPUS,
    PARE_OPT_TF32,
    {0},
};

static const validate_options defaults = {.source = PARE_SOURCE_DEFAULTS,
                                          .parallel = PARE_PARALLEL_NONE};

static pare_status compare(pare_validation *c, pare_source *source, const validate_options *o)
{
    int threads = (int)o->common.threads;
    PARE_TRY(pare_validation_run(c, source, &o->source));
    if (o->latency || o->report) PARE_TRY(pare_validation_time(c, source, threads));
    json_t *models = pare_validation_json(c);
    if (!models) return PARE_MEMORY;
    json_object_set_new(c->tool->facts, "models", models);
    for (int k = 0; k < c->count; k++)
        if (c->model[k].steps)
            json_object_set(json_array_get(models, (size_t)k), "steps", c->model[k].steps);
    json_t *data = pare_source_json(source, &o->source);
    const int64_t classes = pare_comparison_classes(c->comparison);
    if (classes) json_object_set_new(data, "classes", json_integer(classes));
    json_object_set_new(c->tool->facts, "data", data);
    if (!classes && pare_data_has_labels(source->data))
        pare_log(c->tool->ctx, PARE_LOG_WARNING,
                 "the labels are not used: output '%s' has no single score "
                 "per class",
                 c->model[0].model->graph->out.item[0]->name);
    return PARE_OK;
}

/* compare, while the device's meter is read. */
static pare_status compare_watched(pare_validation *c, pare_source *source,
                                   const validate_options *o)
{
    pare_watch *watch;
    PARE_TRY(pare_watch_start(c->tool->ctx, &watch, c->tool->device));
    pare_status st = compare(c, source, o);
    json_t *device = pare_watch_end(watch);
    if (st == PARE_OK && !device) st = PARE_MEMORY;
    if (device) json_object_set_new(c->tool->facts, "device", device);
    return st;
}

static pare_status show(pare_tool *tool, const char *report)
{
    json_t *facts = json_pack("[O]", tool->facts), *comparisons = pare_report_gather(facts);
    pare_report_print(&tool->arena, comparisons, stdout);
    const pare_status st =
        report ? pare_report_write(tool->ctx, facts, comparisons, PARE_REPORT_FLOOR, report, NULL)
               : PARE_OK;
    json_decref(comparisons);
    json_decref(facts);
    return st;
}

/* What ranks cannot share. */
static pare_status refuse_ranks(pare_tool *tool, const validate_options *o)
{
    static const char *const alone[] = {"latency", "report", "cache", NULL};
    if (o->parallel >= 0) pare_parallel_begin(tool);
    if (o->parallel >= 0) return pare_refuse_options(tool, "with --parallel", alone);
    return tool->comm ? pare_refuse_options(tool, "with several processes", alone) : PARE_OK;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const validate_options *o = options;
    pare_validation validation = {.tool = tool,
                                  .count = tool->arg_count,
                                  .data = o->source.data,
                                  .cache = o->cache,
                                  .any_accuracy = o->any_accuracy,
                                  .shared = o->parallel >= 0,
                                  .parallel = (pare_parallel)o->parallel,
                                  .profile = o->report != NULL};
    pare_source source = {0};
    PARE_TRY(pare_need_option(tool, o->source.data, "--data F.h5", "the samples to compare on"));
    PARE_TRY(refuse_ranks(tool, o));
    if (pare_tool_leads(tool)) PARE_TRY(pare_results_check(tool->ctx, o->append));
    pare_status st = pare_validation_open(&validation, tool->arg);
    for (int k = 0; st == PARE_OK && k < validation.count; k++) {
        const char *what = pare_arena_printf(&tool->arena, "model '%s'", tool->arg[k]);
        st = what ? pare_comm_same(tool->comm, what, validation.model[k].hash,
                                   strlen(validation.model[k].hash))
                  : PARE_MEMORY;
    }
    if (st == PARE_OK)
        st = pare_source_open(tool, &source, validation.model[0].model, &o->source, -1);
    if (st == PARE_OK && o->tf32) pare_tool_allow_tf32(tool);
    if (st == PARE_OK) st = compare_watched(&validation, &source, o);
    if (st == PARE_OK && pare_tool_leads(tool)) st = show(tool, o->report);
    if (st == PARE_OK && pare_tool_leads(tool))
        st = pare_results_append(tool->ctx, o->append, tool->facts);
    pare_source_close(&source);
    pare_validation_close(&validation);
    return st;
}

const pare_command pare_command_validate = {
    .name = "validate",
    .arguments = "MODEL OTHER... --data F.h5",
    .min = 1,
    .max = -1,
    .summary = "compare models on the same data: accuracy, error, and what is significant",
    .detail =
        "The first model is what the others are compared with. With labels: top-1 and top-5, the "
        "drop\n"
        "with Newcombe's paired 95 % interval, and McNemar's test. Without: SQNR, cosine and mean\n"
        "squared error of the outputs. Stops with a hint where the first model's accuracy is near "
        "chance.",
    .example =
        "pare validate resnet.onnx resnet.int8.onnx --data data/test.h5 --report report.html",
    .options = table,
    .size = sizeof(validate_options),
    .ranks = true,
    .defaults = &defaults,
    .run = run,
};
