/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/validate.h"

#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/eval/stats.h"
#include "tools/parallel.h"
#include "tools/table.h"
#include "tools/telemetry.h"
#include "tools/profile.h"
#include "tools/times.h"

#include <math.h>

/* --- models --- */

static void planned(void *user, size_t bytes)
{
    pare_validation *v = user;
    for (int k = 0; v->shared && k < v->count; k++) {
        const pare_candidate *one = pare_comparison_candidate(v->comparison, k);
        const pare_shared_plan plan = pare_predictor_shared(one->predictor);
        if (!v->tool->common->quiet && v->tool->comm) pare_print(stderr, "%s\n", one->model->path);
        pare_parallel_print(v->tool, &plan);
    }
    pare_log_memory(v->tool, bytes);
    pare_progress_begin(&v->bar, stderr, v->tool->common->quiet, "validate", "samples");
}

static void progress(void *user, int64_t done, int64_t all)
{
    pare_validation *v = user;
    pare_progress_step(&v->bar, done, all);
    v->complete = done == all;
}

static pare_status timed(void *user, int k, pare_runner *runner)
{
    pare_validation *v = user;
    return v->profile ? pare_profile_steps(v->tool->ctx, runner, &v->model[k].steps) : PARE_OK;
}

static pare_status read_model(pare_validation *v, int k, const char *path)
{
    pare_validated *one = &v->model[k];
    uint64_t bytes;
    PARE_TRY(pare_onnx_read(v->tool->ctx, &one->model, path));
    PARE_TRY(pare_model_count(v->tool->ctx, one->model, &one->facts));
    return pare_onnx_hash(v->tool->ctx, path, one->hash, &bytes);
}

pare_status pare_validation_open(pare_validation *v, const char *const *path)
{
    pare_arena *arena = &v->tool->arena;
    pare_comparison_options options;
    v->model = pare_arena_alloc(arena, (size_t)v->count, sizeof *v->model);
    const pare_model **models =
        pare_arena_alloc(arena, (size_t)v->count, sizeof(const pare_model *));
    if (!v->model || !models) return PARE_MEMORY;
    for (int k = 0; k < v->count; k++) {
        PARE_TRY(read_model(v, k, path[k]));
        models[k] = v->model[k].model;
    }
    pare_comparison_options_init(&options);
    options.threads = (int)v->tool->common->threads;
    options.comm = v->tool->comm;
    if (v->shared) options.parallel = v->parallel;
    options.any_accuracy = v->any_accuracy;
    options.planned = planned;
    options.progress = progress;
    options.timed = timed;
    options.user = v;
    return pare_comparison_new(v->tool->ctx, &v->comparison, models, v->count, &options);
}

void pare_validation_close(pare_validation *v)
{
    pare_comparison_free(v->comparison);
    for (int k = 0; v->model && k < v->count; k++) {
        if (v->model[k].model) pare_model_free(v->model[k].model);
        json_decref(v->model[k].steps);
    }
}

/* --- running --- */

static const pare_rows *next_kept(void *user, int count, pare_hash seen)
{
    return pare_reference_next(user, count, seen);
}

static void keep(void *user, const pare_predictor *first, int count, pare_hash seen)
{
    pare_reference_keep(user, first, count, seen);
}

static pare_eval_samples samples_of(const pare_validation *v, const pare_source *s, int batch)
{
    return (pare_eval_samples){.data = s->data,
                               .inputs = s->inputs,
                               .input_count = s->input_count,
                               .samples = s->samples,
                               .count = s->count,
                               .batch = batch,
                               .name = v->data};
}

pare_status pare_validation_run(pare_validation *v, const pare_source *source,
                                const pare_source_options *o)
{
    const pare_eval_samples samples = samples_of(v, source, (int)o->batch);
    pare_reference *reference;
    PARE_TRY(pare_reference_open(v->tool, &reference, v->cache, v->model[0].model, v->model[0].hash,
                                 source, o));
    const pare_first_outputs first = {pare_reference_found(reference), next_kept, keep, reference};
    pare_comparison_use(v->comparison, v->tool->device);
    v->complete = false;
    const pare_status st = pare_comparison_run(v->comparison, &samples, &first);
    pare_progress_end(&v->bar);
    pare_reference_close(reference, v->complete);
    return st;
}

pare_status pare_validation_time(pare_validation *v, const pare_source *source, int threads)
{
    pare_eval_samples samples;
    if (source) samples = samples_of(v, source, 1);
    v->timed_threads = threads ? threads : 1;
    pare_comparison_use(v->comparison, v->tool->device);
    return pare_comparison_time(v->comparison, source ? &samples : NULL, threads);
}

/* --- facts --- */

/* JSON has no Inf: an error of nothing is null. */
static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *interval_json(pare_interval i, double factor)
{
    return json_pack("[f, f]", factor * i.low, factor * i.high);
}

static void add_accuracy(json_t *json, const pare_comparison *c, const pare_candidate *one)
{
    double n = (double)pare_comparison_samples(c), percent = 100 / n;
    double first = (double)(one->paired.both + one->paired.first);
    pare_interval kept = pare_stats_kept(one->paired);
    bool exact;
    double p = pare_stats_mcnemar(one->paired, &exact);
    json_object_set_new(json, "top1", json_real(percent * (double)one->top1));
    json_object_set_new(
        json, "top1_interval",
        interval_json(pare_stats_wilson(one->top1, pare_comparison_samples(c)), 100));
    if (pare_comparison_classes(c) > 5)
        json_object_set_new(json, "top5", json_real(percent * (double)one->top5));
    if (one == pare_comparison_candidate(c, 0)) return;
    json_object_set_new(json, "drop",
                        json_real(percent * (double)(one->paired.first - one->paired.second)));
    json_object_set_new(json, "drop_interval",
                        interval_json(pare_stats_newcombe(one->paired), 100));
    if (first > 0) json_object_set_new(json, "kept", json_real(100 * (double)one->top1 / first));
    if (isfinite(kept.high)) json_object_set_new(json, "kept_interval", interval_json(kept, 100));
    json_object_set_new(
        json, "mcnemar",
        json_pack("{s:f, s:s, s:I, s:I}", "p", p, "test",
                  exact ? "exact binomial" : "chi-square with continuity correction",
                  "only_first_right", (json_int_t)one->paired.first, "only_this_right",
                  (json_int_t)one->paired.second));
}

/* Of the first output, where there are units of samples enough to draw from. */
static pare_status add_sqnr_interval(pare_ctx *ctx, const pare_comparison *c,
                                     const pare_candidate *one, json_t *json)
{
    enum { FEWEST = 20 };
    const int64_t parts = pare_comparison_samples(c) < PARE_COMPARISON_PARTS
                              ? pare_comparison_samples(c)
                              : PARE_COMPARISON_PARTS;
    pare_interval i;
    if (parts < FEWEST || one->error[0].dd <= 0) return PARE_OK;
    PARE_TRY(pare_resample_sqnr(ctx, &i, one->part, (int)parts));
    if (!isnan(i.low)) json_object_set_new(json, "sqnr_interval", interval_json(i, 1));
    return PARE_OK;
}

static pare_status add_errors_json(pare_ctx *ctx, const pare_comparison *c,
                                   const pare_candidate *one, json_t *list)
{
    for (int o = 0; o < pare_predictor_output_count(one->predictor); o++) {
        const pare_error_stats *e = &one->error[o];
        if (!e->count) continue; /* strings, or no values */
        json_t *json = json_pack("{s:o, s:o, s:f, s:f, s:f, s:I}", "name",
                                 pare_json_text(pare_predictor_rows(one->predictor, o).name),
                                 "sqnr_db", real_or_null(pare_error_sqnr(e)), "cosine",
                                 pare_error_cosine(e), "mse", pare_error_mse(e), "max_abs_error",
                                 e->max_abs, "not_finite", (json_int_t)e->bad);
        json_array_append_new(list, json);
        if (o == 0) PARE_TRY(add_sqnr_interval(ctx, c, one, json));
    }
    return PARE_OK;
}

static json_t *percent(int64_t count, const pare_comparison *c)
{
    return json_real(100 * (double)count / (double)pare_comparison_samples(c));
}

/* Outputs that are strings; a first one is the class. */
static void add_texts(json_t *json, const pare_comparison *c, const pare_candidate *one)
{
    json_t *list = json_array();
    for (int o = 0; o < pare_predictor_output_count(one->predictor); o++) {
        const pare_rows rows = pare_predictor_rows(one->predictor, o);
        if (rows.dtype != PARE_string) continue;
        json_array_append_new(list, json_pack("{s:o, s:o}", "name", pare_json_text(rows.name),
                                              "equal", percent(one->same_text[o], c)));
        if (o == 0) json_object_set_new(json, "agreement", percent(one->same_text[o], c));
    }
    if (json_array_size(list))
        json_object_set_new(json, "texts", list);
    else
        json_decref(list);
}

static pare_status add_results(json_t *json, const pare_validation *v, int k)
{
    const pare_comparison *c = v->comparison;
    const pare_candidate *one = pare_comparison_candidate(c, k);
    const pare_shared_plan shared = pare_predictor_shared(one->predictor);
    PARE_TRY(pare_parallel_facts(json, &shared));
    if (pare_comparison_classes(c)) add_accuracy(json, c, one);
    if (!k) return PARE_OK;
    if (pare_comparison_classifies(c))
        json_object_set_new(json, "agreement", percent(one->agreed, c));
    add_texts(json, c, one);
    json_t *list = json_array();
    json_object_set_new(json, "outputs", list);
    return add_errors_json(v->tool->ctx, c, one, list);
}

/* At batch 1, or the model's own, and what it is beside the first. */
static pare_status add_latency(json_t *json, const pare_validation *v, int k)
{
    static const double percentiles[] = {90, 95, 99};
    const pare_candidate *one = pare_comparison_candidate(v->comparison, k);
    const pare_candidate *first = pare_comparison_candidate(v->comparison, 0);
    double a, b;
    if (!one->times.count) return PARE_OK;
    json_t *latency = pare_times_json(v->tool->ctx, &one->times, one->batch, percentiles, 3);
    if (!latency) return PARE_MEMORY;
    json_object_update_new(latency, json_pack("{s:i, s:i, s:b}", "batch", one->batch, "threads",
                                              v->timed_threads, "emulated", one->emulated));
    json_object_update_new(json, latency);
    if (!k) return PARE_OK;
    PARE_TRY(pare_times_percentile(v->tool->ctx, &first->times, 50, &a));
    PARE_TRY(pare_times_percentile(v->tool->ctx, &one->times, 50, &b));
    json_object_set_new(json, "speed_up", json_real(b > 0 ? a / b : 0));
    if (!isnan(one->speed_up.low))
        json_object_set_new(json, "speed_up_interval", interval_json(one->speed_up, 1));
    return PARE_OK;
}

static pare_status model_json(const pare_validation *v, int k, json_t *list)
{
    const pare_validated *one = &v->model[k];
    const char *recipes = pare_onnx_recipes(one->model, &v->tool->arena);
    json_t *json = json_pack(
        "{s:o, s:s, s:s, s:I, s:I, s:o}", "file", pare_json_text(one->model->path), "hash",
        one->hash, "precision", pare_model_precision(&one->facts), "bytes",
        (json_int_t)pare_model_bytes(one->model), "parameters", (json_int_t)one->facts.parameters,
        "macs_per_sample", one->facts.macs < 0 ? json_null() : json_real(one->facts.macs));
    if (json_array_append_new(list, json)) return PARE_MEMORY;
    if (recipes) json_object_set_new(json, "recipe", pare_json_text(recipes));
    if (pare_comparison_candidate(v->comparison, k)->predictor) PARE_TRY(add_results(json, v, k));
    return add_latency(json, v, k);
}

json_t *pare_validation_json(const pare_validation *v)
{
    json_t *list = json_array();
    for (int k = 0; k < v->count; k++)
        if (model_json(v, k, list) != PARE_OK) {
            json_decref(list);
            return NULL;
        }
    return list;
}
