/* SPDX-License-Identifier: Apache-2.0 */
/* pare validate, pare report */
#include "formats/json.h"
#include "formats/onnx.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/measure.h"
#include "tools/memory.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/validate.h"

#include <string.h>

typedef struct validate_options {
    pare_common common;
    pare_source_options source;
    const char *report;
    bool latency, any_accuracy;
} validate_options;

static const pare_option table[] = {
    PARE_SOURCE_ROWS(validate_options, "samples to compare on, evenly spaced (all)"),
    {"report", 0, PARE_OPTION_OUTPUT, "report.html", offsetof(validate_options, report), 0, 0,
     "write table and picture as one HTML file; measures latency, too"},
    {"latency", 0, PARE_OPTION_FLAG, NULL, offsetof(validate_options, latency), 0, 0,
     "measure the latency of one sample, all models in turns; on one thread unless --threads says "
     "more"},
    {"any-accuracy", 0, PARE_OPTION_FLAG, NULL, offsetof(validate_options, any_accuracy), 0, 0,
     "go on where the first model's accuracy is near chance"},
    {0},
};

static const validate_options defaults = {.source = PARE_SOURCE_DEFAULTS};

static pare_status open_models(pare_contest *c)
{
    for (int k = 0; k < c->count; k++) {
        pare_contender *one = &c->contender[k];
        PARE_TRY(pare_onnx_read(c->tool->ctx, &one->model, c->tool->arg[k]));
        PARE_TRY(pare_model_count(c->tool->ctx, one->model, &one->facts));
        if (one->model->graph->out.count != c->contender[0].model->graph->out.count)
            return PARE_FAIL(c->tool->ctx, INPUT,
                             "%s: has %d outputs, %s has %d; models that are compared "
                             "need the same outputs",
                             one->model->path, one->model->graph->out.count,
                             c->contender[0].model->path, c->contender[0].model->graph->out.count);
    }
    return PARE_OK;
}

static pare_status open_predictors(pare_contest *c, const pare_source *source, int threads)
{
    for (int k = 0; k < c->count; k++) {
        pare_contender *one = &c->contender[k];
        PARE_TRY(pare_predictor_new(c->tool->ctx, &one->predictor, one->model, source->data,
                                    source->inputs, source->input_count, threads,
                                    c->tool->device));
        one->error = pare_arena_alloc(&c->tool->arena, (size_t)one->model->graph->out.count,
                                      sizeof *one->error);
        if (!one->error) return PARE_MEMORY;
    }
    return PARE_OK;
}

static pare_status prepare(pare_contest *c, int64_t all, int64_t batch, size_t *to_come)
{
    size_t one;
    *to_come = 0;
    for (int k = 0; k < c->count; k++) {
        PARE_TRY(pare_predictor_prepare(c->contender[k].predictor, batch, all, &one));
        *to_come += one;
    }
    return PARE_OK;
}

static pare_status run_batches(pare_contest *c, const pare_source *source,
                               const validate_options *o)
{
    pare_reader *reader;
    pare_batch batch;
    pare_progress bar;
    size_t to_come;
    PARE_TRY(prepare(c, source->count, o->source.batch, &to_come));
    PARE_TRY(pare_reader_open(c->tool->ctx, &reader, source->data, source->samples, source->count,
                              (int)o->source.batch, (int)o->common.threads));
    pare_say_memory(c->tool, to_come + pare_reader_bytes(reader));
    pare_progress_begin(&bar, stderr, o->common.quiet, "validate", "samples");
    pare_status st = pare_reader_next(reader, &batch);
    while (st == PARE_OK && batch.count) {
        st = pare_contest_batch(c, &batch);
        pare_progress_step(&bar, batch.first + batch.count, source->count);
        if (st == PARE_OK) st = pare_reader_next(reader, &batch);
    }
    pare_progress_end(&bar);
    pare_reader_close(reader);
    return st == PARE_OK ? pare_contest_finish(c) : st;
}

static pare_status compare(pare_contest *c, pare_source *source, const validate_options *o)
{
    int threads = (int)o->common.threads;
    PARE_TRY(open_predictors(c, source, threads));
    PARE_TRY(run_batches(c, source, o));
    if (o->latency || o->report) PARE_TRY(pare_contest_time(c, source, threads));
    json_t *data = pare_source_json(source, &o->source);
    if (c->classes) json_object_set_new(data, "classes", json_integer(c->classes));
    json_object_set_new(c->tool->facts, "data", data);
    json_object_set_new(c->tool->facts, "models", pare_contest_json(c));
    if (!c->classes && pare_data_has_labels(source->data))
        pare_log(c->tool->ctx, PARE_LOG_WARNING,
                 "the labels are not used: output '%s' has no single score "
                 "per class",
                 c->contender[0].model->graph->out.item[0]->name);
    return PARE_OK;
}

static void close_contest(pare_contest *c)
{
    for (int k = 0; k < c->count; k++) {
        pare_predictor_free(c->contender[k].predictor);
        if (c->contender[k].model) pare_model_free(c->contender[k].model);
        json_decref(c->contender[k].latency);
    }
}

static pare_status show(pare_tool *tool, json_t *all, const char *report)
{
    pare_report_print(&tool->arena, all, stdout);
    if (!report) return PARE_OK;
    return pare_report_write(tool->ctx, all, report);
}

static pare_status run(pare_tool *tool, const void *options)
{
    const validate_options *o = options;
    pare_contest contest = {.tool = tool,
                            .count = tool->arg_count,
                            .data = o->source.data,
                            .any_accuracy = o->any_accuracy};
    pare_source source = {0};
    PARE_TRY(pare_need_option(tool, o->source.data, "--data F.h5", "the samples to compare on"));
    contest.contender =
        pare_arena_alloc(&tool->arena, (size_t)contest.count, sizeof *contest.contender);
    if (!contest.contender) return PARE_MEMORY;
    pare_status st = open_models(&contest);
    if (st == PARE_OK)
        st = pare_source_open(tool, &source, contest.contender[0].model, &o->source, -1);
    if (st == PARE_OK) st = compare(&contest, &source, o);
    if (st == PARE_OK) {
        json_t *all = json_pack("[O]", tool->facts);
        st = show(tool, all, o->report);
        json_decref(all);
    }
    pare_source_close(&source);
    close_contest(&contest);
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
    .defaults = &defaults,
    .run = run,
};

/* --- report --- */

typedef struct report_options {
    pare_common common;
    const char *output;
} report_options;

static const pare_option report_table[] = {
    {"output", 'o', PARE_OPTION_OUTPUT, "report.html", offsetof(report_options, output), 0, 0,
     "HTML file to write"},
    {0},
};

static pare_status read_facts(pare_tool *tool, json_t *all)
{
    for (int i = 0; i < tool->arg_count; i++) {
        json_t *facts;
        PARE_TRY(pare_json_read(tool->ctx, &facts, tool->arg[i]));
        json_array_append_new(all, facts);
        const char *command = json_string_value(json_object_get(facts, "command"));
        if (!command || strcmp(command, "validate") != 0 || !pare_report_fits(facts))
            return PARE_FAIL(tool->ctx, INPUT,
                             "%s: holds no facts of 'pare validate'; make them with 'pare "
                             "validate ... --json %s'",
                             tool->arg[i], tool->arg[i]);
    }
    return PARE_OK;
}

static pare_status run_report(pare_tool *tool, const void *options)
{
    const report_options *o = options;
    json_t *all = json_array();
    pare_status st = read_facts(tool, all);
    if (st == PARE_OK) st = show(tool, all, o->output);
    if (st == PARE_OK) json_object_set(tool->facts, "comparisons", all);
    json_decref(all);
    return st;
}

const pare_command pare_command_report = {
    .name = "report",
    .arguments = "FACTS.json... [-o report.html]",
    .min = 1,
    .max = -1,
    .summary = "show comparisons that 'validate --json' wrote, as one table and one HTML file",
    .example = "pare report resnet.json vit.json -o report.html",
    .options = report_table,
    .size = sizeof(report_options),
    .run = run_report,
};
