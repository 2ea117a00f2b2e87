/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/validate.h"

#include "formats/json.h"
#include "formats/onnx.h"
#include "tools/measure.h"
#include "tools/profile.h"
#include "tools/report/report.h"
#include "tools/resample.h"

#include <math.h>

enum { ENOUGH = 500 }; /* samples after which accuracy near chance stops the work */

/* --- batches --- */

/* Output o of model k for this batch. */
static pare_rows rows_of(const pare_contest *c, int k, int o)
{
    return !k && c->kept ? c->kept[o] : pare_predictor_rows(c->contender[k].predictor, o);
}

/* A first output whose rows are one score per class. */
static bool is_classifier(const pare_rows *rows)
{
    if (rows->size < 2 || !rows->f32 || rows->shape.rank < 1) return false;
    for (int d = 0; d < rows->shape.rank; d++)
        if (rows->shape.dim[d] == rows->size) return true;
    return false;
}

static pare_status check_label(const pare_contest *c, const pare_batch *batch, int i)
{
    if (batch->label[i] >= 0 && batch->label[i] < c->classes) return PARE_OK;
    return PARE_FAIL(c->tool->ctx, INPUT,
                     "%s: /labels: a sample has label %lld, expected 0 to %lld: '%s' "
                     "has %lld classes",
                     c->data, (long long)batch->label[i], (long long)c->classes - 1,
                     c->contender[0].model->path, (long long)c->classes);
}

/* Hits and agreement of one sample in all models. */
static void judge_sample(pare_contest *c, int64_t label, int i)
{
    int64_t best_first = 0;
    bool hit_first = false;
    for (int k = 0; k < c->count; k++) {
        pare_contender *one = &c->contender[k];
        pare_rows rows = rows_of(c, k, 0);
        const float *row = rows.f32 + (int64_t)i * rows.size;
        int64_t best = pare_stats_argmax(row, rows.size);
        bool hit = best == label && !isnan(row[best]);
        if (k == 0) {
            best_first = best;
            hit_first = hit;
        }
        one->agreed += best == best_first;
        if (label < 0) continue;
        one->top1 += hit;
        one->top5 += pare_stats_in_top(row, rows.size, label, 5);
        one->paired.both += hit_first && hit;
        one->paired.first += hit_first && !hit;
        one->paired.second += !hit_first && hit;
        one->paired.neither += !hit_first && !hit;
    }
}

static pare_status same_outputs(const pare_contest *c, int k, int out)
{
    const pare_contender *a = &c->contender[0], *b = &c->contender[k];
    pare_rows x = rows_of(c, 0, out), y = rows_of(c, k, out);
    if (x.size == y.size) return PARE_OK;
    return PARE_FAIL(c->tool->ctx, INPUT,
                     "%s: output '%s' has %lld values per sample, '%s' of %s has %lld; "
                     "models that are compared need equal outputs",
                     b->model->path, y.name, (long long)y.size, x.name, a->model->path,
                     (long long)x.size);
}

/* Of one output of model k (b) against the first's (a). */
static void add_errors(pare_contest *c, int k, int out, const pare_rows *a, const pare_rows *b,
                       int samples)
{
    pare_contender *one = &c->contender[k];
    pare_error_add(&one->error[out], a->f32, b->f32, a->size * samples);
    for (int i = 0; k && out == 0 && i < samples; i++)
        pare_error_add(&one->part[(c->samples + i) % PARE_CONTEST_PARTS], a->f32 + i * a->size,
                       b->f32 + i * a->size, a->size);
}

/* The first model's outputs come from the cache, or go there. */
static pare_status predict_first(pare_contest *c, const pare_batch *batch, pare_hash seen)
{
    pare_predictor *first = c->contender[0].predictor;
    c->kept = pare_reference_next(c->reference, batch->count, seen);
    if (c->kept) return PARE_OK;
    PARE_TRY(pare_predict(first, batch->input, batch->count));
    pare_reference_keep(c->reference, first, batch->count, seen);
    return PARE_OK;
}

static pare_status predict_all(pare_contest *c, const pare_batch *batch, pare_hash seen)
{
    for (int k = 0; k < c->count; k++) {
        pare_predictor *one = c->contender[k].predictor;
        PARE_TRY(k ? pare_predict(one, batch->input, batch->count) : predict_first(c, batch, seen));
        for (int o = 0; o < pare_predictor_output_count(one); o++) {
            pare_rows a = rows_of(c, 0, o), b = rows_of(c, k, o);
            PARE_TRY(same_outputs(c, k, o));
            if (a.f32 && b.f32) add_errors(c, k, o, &a, &b, batch->count);
        }
    }
    return PARE_OK;
}

static pare_status stop_near_chance(const pare_contest *c)
{
    int64_t hits = c->contender[0].top1;
    if (c->any_accuracy || !c->classes || !pare_stats_near_chance(hits, c->samples, c->classes))
        return PARE_OK;
    return PARE_FAIL(
        c->tool->ctx, INPUT,
        "%s: top-1 is %.2f %% on %lld samples, near chance (%.2f %% for %lld classes): is the "
        "preprocessing of %s the model's (scale, mean and std, layout, order of channels "
        "and classes)? --any-accuracy compares all the same",
        c->contender[0].model->path, 100 * (double)hits / (double)c->samples, (long long)c->samples,
        100 / (double)c->classes, (long long)c->classes, c->data);
}

pare_status pare_contest_batch(pare_contest *c, const pare_batch *batch, pare_hash seen)
{
    int64_t before = c->samples;
    PARE_TRY(predict_all(c, batch, seen));
    pare_rows rows = rows_of(c, 0, 0);
    bool classifier = is_classifier(&rows);
    c->classes = classifier && batch->label ? rows.size : 0;
    for (int i = 0; classifier && i < batch->count; i++) {
        if (c->classes) PARE_TRY(check_label(c, batch, i));
        judge_sample(c, c->classes ? batch->label[i] : -1, i);
    }
    c->samples += batch->count;
    return before < ENOUGH && c->samples >= ENOUGH ? stop_near_chance(c) : PARE_OK;
}

pare_status pare_contest_finish(pare_contest *c) { return stop_near_chance(c); }

/* --- latency --- */

/* Plans a model for one sample, or for its own batch. */
static pare_status plan_one(pare_contest *c, int k, const pare_source *source, int threads,
                            pare_plan **plan, pare_runner **runner)
{
    pare_plan_options options = {
        .threads = threads ? threads : 1, .tune = true, .device = c->tool->device};
    const pare_model *model = c->contender[k].model;
    int fixed = pare_model_fixed_batch(model), count;
    pare_value **inputs = pare_model_inputs(&c->tool->arena, model, &count);
    if (!inputs) return PARE_MEMORY;
    if (source) count = source->input_count;
    pare_input_shape *shapes = pare_arena_alloc(&c->tool->arena, (size_t)count + 1, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        shapes[i] =
            source ? (pare_input_shape){source->inputs[i].name, *pare_data_shape(source->data, i)}
                   : (pare_input_shape){inputs[i]->name, inputs[i]->shape};
        if (shapes[i].shape.rank > 0) shapes[i].shape.dim[0] = fixed ? fixed : 1;
    }
    PARE_TRY(pare_plan_new(c->tool->ctx, plan, model, shapes, count, &options));
    PARE_TRY(pare_runner_new(c->tool->ctx, runner, *plan));
    pare_measure_fill(*runner);
    return PARE_OK;
}

static bool all_agree(const pare_windows *windows, int count)
{
    for (int k = 0; k < count; k++)
        if (!pare_windows_agree(&windows[k])) return false;
    return true;
}

/* The rounds that count are the same of all models. */
static void cut_rounds(const pare_contest *c, const pare_windows *windows, pare_times *times)
{
    int first = 0;
    for (int k = 0; k < c->count && all_agree(windows, c->count); k++) {
        const int own = pare_windows_first(&windows[k]);
        if (own > first) first = own;
    }
    for (int k = 0; k < c->count; k++) pare_windows_cut(&windows[k], first, &times[k]);
}

static pare_status time_rounds(pare_contest *c, pare_runner *const *runner, pare_times *times)
{
    enum { LEAST = 8, MOST = PARE_WINDOWS };
    const pare_measure_options options = {.warm_up = 20, .duration = 0.1, .iterations = 3};
    pare_windows *windows = pare_arena_alloc(&c->tool->arena, (size_t)c->count, sizeof *windows);
    if (!windows) return PARE_MEMORY;
    for (int round = 0; round < MOST && (round < LEAST || !all_agree(windows, c->count)); round++)
        for (int k = 0; k < c->count; k++) {
            PARE_TRY(pare_measure(c->tool->ctx, runner[k], &options, &times[k]));
            PARE_TRY(pare_windows_note(c->tool->ctx, &windows[k], &times[k]));
        }
    cut_rounds(c, windows, times);
    for (int k = 0; k < c->count; k++)
        PARE_TRY(pare_resample_ratio(c->tool->ctx, &c->contender[k].speed_up, times[0].ms,
                                     times[0].count, times[k].ms, times[k].count));
    return PARE_OK;
}

static pare_status take_steps(pare_contest *c, pare_runner *const *runner)
{
    for (int k = 0; c->profile && k < c->count; k++)
        PARE_TRY(pare_profile_steps(c->tool->ctx, runner[k], &c->contender[k].steps));
    return PARE_OK;
}

static pare_status take_times(pare_contest *c, const pare_times *times, pare_plan *const *plan,
                              int threads)
{
    static const double percentiles[] = {90, 95, 99};
    for (int k = 0; k < c->count; k++) {
        int batch = pare_model_fixed_batch(c->contender[k].model);
        c->contender[k].latency =
            pare_times_json(c->tool->ctx, &times[k], batch ? batch : 1, percentiles, 3);
        if (!c->contender[k].latency) return PARE_MEMORY;
        json_object_set_new(c->contender[k].latency, "batch", json_integer(batch ? batch : 1));
        json_object_set_new(c->contender[k].latency, "threads", json_integer(threads));
        json_object_set_new(c->contender[k].latency, "emulated",
                            json_boolean(pare_plan_emulates(plan[k])));
    }
    return PARE_OK;
}

pare_status pare_contest_time(pare_contest *c, const pare_source *source, int threads)
{
    pare_arena *arena = &c->tool->arena;
    pare_plan **plan = pare_arena_alloc(arena, (size_t)c->count, sizeof(pare_plan *));
    pare_runner **runner = pare_arena_alloc(arena, (size_t)c->count, sizeof(pare_runner *));
    pare_times *times = pare_arena_alloc(arena, (size_t)c->count, sizeof *times);
    if (!plan || !runner || !times) return PARE_MEMORY;
    pare_status st = PARE_OK;
    for (int k = 0; st == PARE_OK && k < c->count; k++)
        st = plan_one(c, k, source, threads, &plan[k], &runner[k]);
    if (st == PARE_OK) st = time_rounds(c, runner, times);
    if (st == PARE_OK) st = take_times(c, times, plan, threads ? threads : 1);
    if (st == PARE_OK) st = take_steps(c, runner);
    for (int k = 0; k < c->count; k++) {
        pare_times_free(&times[k]);
        if (runner[k]) pare_runner_free(runner[k]);
        if (plan[k]) pare_plan_free(plan[k]);
    }
    return st;
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

static void add_accuracy(json_t *json, const pare_contest *c, const pare_contender *one)
{
    double n = (double)c->samples, percent = 100 / n;
    double first = (double)(one->paired.both + one->paired.first);
    pare_interval kept = pare_stats_kept(one->paired);
    bool exact;
    double p = pare_stats_mcnemar(one->paired, &exact);
    json_object_set_new(json, "top1", json_real(percent * (double)one->top1));
    json_object_set_new(json, "top1_interval",
                        interval_json(pare_stats_wilson(one->top1, c->samples), 100));
    if (c->classes > 5) json_object_set_new(json, "top5", json_real(percent * (double)one->top5));
    if (one == c->contender) return;
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
static pare_status add_sqnr_interval(const pare_contest *c, const pare_contender *one, json_t *json)
{
    enum { FEWEST = 20 };
    const int64_t parts = c->samples < PARE_CONTEST_PARTS ? c->samples : PARE_CONTEST_PARTS;
    pare_interval i;
    if (parts < FEWEST || one->error[0].dd <= 0) return PARE_OK;
    PARE_TRY(pare_resample_sqnr(c->tool->ctx, &i, one->part, (int)parts));
    if (!isnan(i.low)) json_object_set_new(json, "sqnr_interval", interval_json(i, 1));
    return PARE_OK;
}

static pare_status add_errors_json(const pare_contest *c, const pare_contender *one, json_t *list)
{
    for (int o = 0; o < pare_predictor_output_count(one->predictor); o++) {
        const pare_error_sums *e = &one->error[o];
        json_t *json = json_pack("{s:o, s:o, s:f, s:f, s:f, s:I}", "name",
                                 pare_json_text(pare_predictor_rows(one->predictor, o).name),
                                 "sqnr_db", real_or_null(pare_error_sqnr(e)), "cosine",
                                 pare_error_cosine(e), "mse", pare_error_mse(e), "max_abs_error",
                                 e->max_abs, "not_finite", (json_int_t)e->bad);
        json_array_append_new(list, json);
        if (o == 0) PARE_TRY(add_sqnr_interval(c, one, json));
    }
    return PARE_OK;
}

static pare_status add_results(json_t *json, const pare_contest *c, int k)
{
    const pare_contender *one = &c->contender[k];
    pare_rows rows = rows_of(c, 0, 0);
    if (c->classes) add_accuracy(json, c, one);
    if (!k) return PARE_OK;
    if (is_classifier(&rows))
        json_object_set_new(json, "agreement",
                            json_real(100 * (double)one->agreed / (double)c->samples));
    json_t *list = json_array();
    json_object_set_new(json, "outputs", list);
    return add_errors_json(c, one, list);
}

static void add_speed_up(json_t *json, const pare_contest *c, const pare_contender *one)
{
    const char *const path = "latency_ms.median";
    const double a = pare_report_number(c->contender[0].latency, path, 0);
    const double b = pare_report_number(one->latency, path, 0);
    json_object_set_new(json, "speed_up", json_real(b > 0 ? a / b : 0));
    if (!isnan(one->speed_up.low))
        json_object_set_new(json, "speed_up_interval", interval_json(one->speed_up, 1));
}

static pare_status model_json(const pare_contest *c, int k, json_t *list)
{
    const pare_contender *one = &c->contender[k];
    const char *recipes = pare_onnx_recipes(one->model, &c->tool->arena);
    json_t *json = json_pack(
        "{s:o, s:s, s:s, s:I, s:I, s:o}", "file", pare_json_text(one->model->path), "hash",
        one->hash, "precision", pare_model_precision(&one->facts), "bytes",
        (json_int_t)pare_model_bytes(one->model), "parameters", (json_int_t)one->facts.parameters,
        "macs_per_sample", one->facts.macs < 0 ? json_null() : json_real(one->facts.macs));
    if (json_array_append_new(list, json)) return PARE_MEMORY;
    if (recipes) json_object_set_new(json, "recipe", json_string(recipes));
    if (one->predictor) PARE_TRY(add_results(json, c, k));
    if (one->latency) json_object_update(json, one->latency);
    if (k && one->latency) add_speed_up(json, c, one);
    return PARE_OK;
}

json_t *pare_contest_json(const pare_contest *c)
{
    json_t *list = json_array();
    for (int k = 0; k < c->count; k++)
        if (model_json(c, k, list) != PARE_OK) {
            json_decref(list);
            return NULL;
        }
    return list;
}
