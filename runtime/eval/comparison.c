/* SPDX-License-Identifier: Apache-2.0 */
/* Several models on the same samples: their outputs, and their latency. */
#include "runtime/base/arena.h"
#include "runtime/eval/eval.h"
#include "runtime/eval/stats.h"
#include "runtime/eval/error_tally.h"

#include <limits.h>
#include <math.h>

struct pare_comparison {
    pare_ctx *ctx;
    pare_arena arena;
    pare_comparison_options options;
    pare_comm *share; /* ranks that share the models; options.comm: that share the samples */
    pare_device *device;
    pare_candidate *candidate;
    int count;
    pare_error_tally tally;
    int64_t samples, classes;  /* seen so far */
    int64_t from;              /* samples of the ranks before this one */
    const int64_t *sample;     /* their numbers in the data, in the order of all ranks */
    int64_t early, early_hits; /* samples after which accuracy is first judged, and hits in them */
    bool classifies;
    const char *name; /* of the data */
    const pare_first_outputs *first;
    pare_reader *reader;
    const pare_rows *kept; /* of this batch: the first model's outputs, or NULL: it was run */
};

/* --- latency --- */

/* The shapes of a run of one sample, or of the model's own batch; without data that is the first
   input's first axis, and other inputs' where they are free. */
static pare_status choose_shapes(pare_comparison *c, pare_candidate *one,
                                 const pare_eval_samples *s, pare_input_shape *shapes, int *count)
{
    const pare_values *in = &one->model->graph->in;
    int64_t fixed = 0;
    const pare_shape *first = in->count && !in->item[0]->is_init ? &in->item[0]->shape : NULL;
    if (s) PARE_TRY(pare_data_run_samples(c->ctx, s->data, one->model, &fixed));
    for (int i = 0; s && i < s->input_count; i++)
        shapes[(*count)++] = (pare_input_shape){s->inputs[i].name,
                                                pare_data_run_shape(s->data, i, fixed ? fixed : 1)};
    if (!s && first && first->rank > 0 && first->dim[0] > 0 && first->dim[0] <= INT_MAX)
        fixed = first->dim[0];
    for (int i = 0; !s && i < in->count; i++) {
        if (in->item[i]->is_init) continue;
        pare_input_shape *shape = &shapes[(*count)++];
        *shape = (pare_input_shape){in->item[i]->name, in->item[i]->shape};
        if (shape->shape.rank > 0 && shape->shape.dim[0] < 0)
            shape->shape.dim[0] = fixed ? fixed : 1;
    }
    one->batch = fixed ? (int)fixed : 1;
    return PARE_OK;
}

/* Plans a model for one run. */
static pare_status plan_one(pare_comparison *c, int k, const pare_eval_samples *s, int threads,
                            pare_plan **plan, pare_runner **runner)
{
    const pare_plan_options options = {
        .threads = threads ? threads : 1, .tune = true, .device = c->device};
    pare_candidate *one = &c->candidate[k];
    const pare_values *in = &one->model->graph->in;
    int count = 0, most = s ? s->input_count : in->count;
    pare_input_shape *shapes = pare_arena_alloc(&c->arena, (size_t)most + 1, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    PARE_TRY(choose_shapes(c, one, s, shapes, &count));
    PARE_TRY(pare_plan_new(c->ctx, plan, one->model, shapes, count, &options));
    PARE_TRY(pare_runner_new(c->ctx, runner, *plan));
    one->emulated = pare_plan_emulates(*plan);
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
static void cut_rounds(pare_comparison *c, const pare_windows *windows)
{
    int first = 0;
    for (int k = 0; k < c->count && all_agree(windows, c->count); k++) {
        const int own = pare_windows_first(&windows[k]);
        if (own > first) first = own;
    }
    for (int k = 0; k < c->count; k++) pare_windows_cut(&windows[k], first, &c->candidate[k].times);
}

static pare_status time_rounds(pare_comparison *c, pare_runner *const *runner)
{
    enum { LEAST = 8, MOST = PARE_WINDOWS };
    const pare_measure_options options = {.warm_up = 20, .duration = 0.1, .iterations = 3};
    pare_windows *windows = pare_arena_alloc(&c->arena, (size_t)c->count, sizeof *windows);
    const pare_times *first = &c->candidate[0].times;
    if (!windows) return PARE_MEMORY;
    for (int round = 0; round < MOST && (round < LEAST || !all_agree(windows, c->count)); round++)
        for (int k = 0; k < c->count; k++) {
            pare_times *times = &c->candidate[k].times;
            PARE_TRY(pare_measure(c->ctx, runner[k], &options, times));
            PARE_TRY(pare_windows_note(c->ctx, &windows[k], times));
        }
    cut_rounds(c, windows);
    for (int k = 0; k < c->count; k++) {
        pare_candidate *one = &c->candidate[k];
        PARE_TRY(pare_resample_ratio(c->ctx, &one->speed_up, first->ms, first->count, one->times.ms,
                                     one->times.count));
    }
    return PARE_OK;
}

pare_status pare_comparison_time(pare_comparison *c, const pare_eval_samples *samples, int threads)
{
    pare_plan **plan = pare_arena_alloc(&c->arena, (size_t)c->count, sizeof(pare_plan *));
    pare_runner **runner = pare_arena_alloc(&c->arena, (size_t)c->count, sizeof(pare_runner *));
    if (!plan || !runner) return PARE_MEMORY;
    pare_status st = PARE_OK;
    for (int k = 0; k < c->count; k++) pare_times_free(&c->candidate[k].times);
    for (int k = 0; st == PARE_OK && k < c->count; k++)
        st = plan_one(c, k, samples, threads, &plan[k], &runner[k]);
    if (st == PARE_OK) st = time_rounds(c, runner);
    for (int k = 0; c->options.timed && st == PARE_OK && k < c->count; k++)
        st = c->options.timed(c->options.user, k, runner[k]);
    for (int k = 0; k < c->count; k++) {
        pare_runner_free(runner[k]);
        pare_plan_free(plan[k]);
    }
    return st;
}

/* --- outputs --- */

enum { ENOUGH = 500 }; /* samples after which accuracy near chance stops the work */

/* --- batches --- */

/* Output o of model k for this batch. */
static pare_rows rows_of(const pare_comparison *c, int k, int o)
{
    return !k && c->kept ? c->kept[o] : pare_predictor_rows(c->candidate[k].predictor, o);
}

/* A first output whose rows are one score per class. */
static bool is_classifier(const pare_rows *rows)
{
    if (rows->size < 2 || !rows->f32 || rows->shape.rank < 1) return false;
    for (int d = 0; d < rows->shape.rank; d++)
        if (rows->shape.dim[d] == rows->size) return true;
    return false;
}

static pare_status check_label(const pare_comparison *c, const pare_batch *batch, int i)
{
    if (batch->label[i] >= 0 && batch->label[i] < c->classes) return PARE_OK;
    return PARE_FAIL(c->ctx, INPUT,
                     "%s: /labels: sample %lld has label %lld, expected 0 to %lld: '%s' "
                     "has %lld classes",
                     c->name, (long long)c->sample[c->from + batch->first + i],
                     (long long)batch->label[i], (long long)c->classes - 1,
                     c->candidate[0].model->path, (long long)c->classes);
}

/* Hits and agreement of one sample in all models. */
static void judge_sample(pare_comparison *c, int64_t label, int i)
{
    int64_t best_first = 0;
    bool hit_first = false;
    for (int k = 0; k < c->count; k++) {
        pare_candidate *one = &c->candidate[k];
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

static pare_status same_outputs(const pare_comparison *c, int k, int out)
{
    const pare_candidate *a = &c->candidate[0], *b = &c->candidate[k];
    pare_rows x = rows_of(c, 0, out), y = rows_of(c, k, out);
    if (x.size == y.size) return PARE_OK;
    return PARE_FAIL(c->ctx, INPUT,
                     "%s: output '%s' has %lld values per sample, '%s' of %s has %lld; "
                     "models that are compared need equal outputs",
                     b->model->path, y.name, (long long)y.size, x.name, a->model->path,
                     (long long)x.size);
}

static pare_status fail_shapes(const pare_comparison *c, const char *path, const char *output,
                               const pare_shape *a, const pare_shape *b)
{
    char first[256], other[256];
    return PARE_FAIL(
        c->ctx, INPUT,
        "%s: output '%s' has shape %s for one sample of %s and %s for another; outputs "
        "that are compared need one shape, 'pare run --data' writes any",
        path, output, pare_shape_text(a, first, sizeof first), c->name,
        pare_shape_text(b, other, sizeof other));
}

/* The same of samples of different ranks. */
static pare_status check_shapes_of_ranks(pare_comparison *c)
{
    pare_status st = PARE_OK;
    for (int k = 0; c->options.comm && k < c->count; k++) {
        const pare_candidate *one = &c->candidate[k];
        for (int o = 0; o < pare_predictor_output_count(one->predictor); o++) {
            pare_shape first = one->shape[o];
            PARE_TRY(pare_comm_broadcast(c->options.comm, &first, sizeof first, 0));
            if (st == PARE_OK && !pare_shape_equal(&first, &one->shape[o]))
                st = fail_shapes(c, one->model->path, one->model->graph->out.item[o]->name, &first,
                                 &one->shape[o]);
        }
    }
    return pare_comm_settle(c->options.comm, st);
}

/* Outputs whose samples differ in shape, in one batch or from batch to batch, are not compared. */
static pare_status check_rows(const pare_comparison *c, int k, const pare_predictor *one,
                              const char *path, int count)
{
    for (int o = 0; o < pare_predictor_output_count(one); o++) {
        const pare_rows rows = pare_predictor_rows(one, o);
        pare_shape *wanted = &c->candidate[k].shape[o];
        if (!c->samples && rows.shapes && count) *wanted = rows.shapes[0];
        for (int i = 0; rows.shapes && i < count; i++)
            if (!pare_shape_equal(&rows.shapes[i], wanted))
                return fail_shapes(c, path, rows.name, wanted, &rows.shapes[i]);
    }
    return PARE_OK;
}

static pare_status predict(pare_comparison *c, int k, const pare_batch *batch)
{
    const pare_candidate *one = &c->candidate[k];
    PARE_TRY(pare_predict(one->predictor, batch, c->reader));
    return check_rows(c, k, one->predictor, one->model->path, batch->count);
}

/* Of one output of model k (b) against the first's (a). */
static pare_status add_errors(pare_comparison *c, int k, int out, const pare_rows *a,
                              const pare_rows *b, int samples)
{
    return pare_error_tally_add(&c->tally, &c->candidate[k], out, k && !out, a->f32, b->f32,
                                a->size, c->from + c->samples, samples);
}

/* The same of strings. */
static void add_same_text(pare_comparison *c, int k, int out, const pare_rows *a,
                          const pare_rows *b, int samples)
{
    const pare_bytes *x = a->data, *y = b->data;
    for (int i = 0; i < samples; i++) {
        bool same = true;
        for (int64_t n = i * a->size; n < (i + 1) * a->size; n++)
            same &= pare_bytes_equal(x[n], y[n]);
        c->candidate[k].same_text[out] += same;
    }
}

/* The first model's outputs come from elsewhere, or may go there. */
static pare_status predict_first(pare_comparison *c, const pare_batch *batch, pare_hash seen)
{
    const pare_first_outputs *f = c->first;
    pare_predictor *first = c->candidate[0].predictor;
    c->kept = f ? f->next(f->user, batch->count, seen) : NULL;
    if (c->kept) return PARE_OK;
    PARE_TRY(predict(c, 0, batch));
    if (f) f->keep(f->user, first, batch->count, seen);
    return PARE_OK;
}

static pare_status predict_all(pare_comparison *c, const pare_batch *batch, pare_hash seen)
{
    for (int k = 0; k < c->count; k++) {
        pare_predictor *one = c->candidate[k].predictor;
        PARE_TRY(pare_comm_listen(c->options.comm, c->ctx));
        PARE_TRY(k ? predict(c, k, batch) : predict_first(c, batch, seen));
        for (int o = 0; o < pare_predictor_output_count(one); o++) {
            pare_rows a = rows_of(c, 0, o), b = rows_of(c, k, o);
            PARE_TRY(same_outputs(c, k, o));
            if (a.f32 && b.f32) PARE_TRY(add_errors(c, k, o, &a, &b, batch->count));
            if (a.dtype == PARE_string && b.dtype == PARE_string)
                add_same_text(c, k, o, &a, &b, batch->count);
        }
    }
    return PARE_OK;
}

static pare_status stop_near_chance(const pare_comparison *c, int64_t hits, int64_t samples)
{
    if (c->options.any_accuracy || !c->classes ||
        !pare_stats_near_chance(hits, samples, c->classes))
        return PARE_OK;
    return PARE_FAIL(
        c->ctx, INPUT,
        "%s: top-1 is %.2f %% on %lld samples, near chance (%.2f %% for %lld classes): is the "
        "preprocessing of %s the model's (scale, mean and std, layout, order of channels "
        "and classes)? --any-accuracy compares all the same",
        c->candidate[0].model->path, 100 * (double)hits / (double)samples, (long long)samples,
        100 / (double)c->classes, (long long)c->classes, c->name);
}

/* Runs one batch through every model; seen: the reader's hash up to its end. */
static pare_status run_batch(pare_comparison *c, const pare_batch *batch, pare_hash seen)
{
    PARE_TRY(predict_all(c, batch, seen));
    pare_rows rows = rows_of(c, 0, 0);
    const bool classifier = is_classifier(&rows);
    c->classifies = classifier;
    c->classes = classifier && batch->label ? rows.size : 0;
    for (int i = 0; classifier && i < batch->count; i++) {
        if (c->classes) PARE_TRY(check_label(c, batch, i));
        judge_sample(c, c->classes ? batch->label[i] : -1, i);
    }
    c->samples += batch->count;
    if (c->from + c->samples <= c->early) c->early_hits = c->candidate[0].top1;
    return !c->options.comm && c->samples == c->early ? stop_near_chance(c, c->early_hits, c->early)
                                                      : PARE_OK;
}

/* --- samples --- */

static pare_status open_predictors(pare_comparison *c, const pare_eval_samples *s)
{
    const pare_plan_options options = {.threads = c->options.threads, .device = c->device};
    for (int k = 0; k < c->count; k++) {
        pare_candidate *one = &c->candidate[k];
        PARE_TRY(pare_predictor_new(c->ctx, &one->predictor, one->model, s->data, s->inputs,
                                    s->input_count, &options));
        PARE_TRY(pare_predictor_share(one->predictor, c->share, c->options.parallel));
        const size_t outputs = (size_t)one->model->graph->out.count;
        one->error = pare_arena_alloc(&c->arena, outputs, sizeof *one->error);
        one->same_text = pare_arena_alloc(&c->arena, outputs, sizeof *one->same_text);
        one->shape = pare_arena_alloc(&c->arena, outputs, sizeof *one->shape);
        one->part = pare_arena_alloc(&c->arena, PARE_COMPARISON_PARTS, sizeof *one->part);
        if (!one->error || !one->same_text || !one->shape || !one->part) return PARE_MEMORY;
    }
    return PARE_OK;
}

static pare_status prepare(pare_comparison *c, const pare_eval_samples *s, size_t *to_come)
{
    size_t one;
    *to_come = 0;
    for (int k = c->first && c->first->found ? 1 : 0; k < c->count; k++) {
        PARE_TRY(pare_predictor_prepare(c->candidate[k].predictor, s->batch, s->count, &one));
        *to_come += one;
    }
    return PARE_OK;
}

/* Whole batches in a row for each rank, those of one process; the first ranks have one more where
   they do not divide. */
static pare_status take_share(pare_comparison *c, const pare_eval_samples *s, int64_t *count)
{
    const int64_t ranks = pare_comm_size(c->options.comm), rank = pare_comm_rank(c->options.comm);
    const int64_t batches = (s->count + s->batch - 1) / s->batch, rest = batches % ranks;
    const int64_t first = batches / ranks * rank + (rank < rest ? rank : rest);
    if (ranks > batches)
        return PARE_FAIL(
            c->ctx, INPUT,
            "%s: %lld ranks, but only %lld batch%s of %d samples; start fewer ranks or "
            "choose a smaller batch",
            c->name, (long long)ranks, (long long)batches, batches == 1 ? "" : "es", s->batch);
    c->from = first * s->batch;
    *count = (batches / ranks + (rank < rest)) * s->batch;
    if (*count > s->count - c->from) *count = s->count - c->from;
    c->early = (ENOUGH + s->batch - 1) / s->batch * s->batch;
    return PARE_OK;
}

/* What ranks found becomes that of all of them; then it is judged as one process judges. */
static pare_status share(pare_comparison *c)
{
    PARE_TRY(check_shapes_of_ranks(c));
    PARE_TRY(pare_comm_allreduce(c->options.comm, &c->early_hits, 1, PARE_COMM_SUM_U64));
    PARE_TRY(pare_error_tally_share(&c->tally, c->candidate, c->count, &c->samples));
    if (c->options.comm && c->samples >= c->early)
        PARE_TRY(stop_near_chance(c, c->early_hits, c->early));
    return stop_near_chance(c, c->candidate[0].top1, c->samples);
}

static pare_status run_samples(pare_comparison *c, const pare_eval_samples *s)
{
    const pare_comparison_options *o = &c->options;
    pare_reader *reader;
    pare_batch batch;
    size_t to_come;
    int64_t count = 0;
    PARE_TRY(take_share(c, s, &count));
    PARE_TRY(prepare(c, s, &to_come));
    PARE_TRY(pare_reader_open(c->ctx, &reader, s->data, s->samples + c->from, count, s->batch,
                              o->threads));
    if (o->planned) o->planned(o->user, to_come + pare_reader_bytes(reader));
    c->reader = reader;
    pare_status st = pare_reader_next(reader, &batch);
    while (st == PARE_OK && batch.count) {
        st = run_batch(c, &batch, pare_reader_hash(reader));
        if (st == PARE_OK && o->progress) o->progress(o->user, batch.first + batch.count, count);
        if (st == PARE_OK) st = pare_reader_next(reader, &batch);
    }
    pare_comm_log_heard(o->comm, batch.first, count);
    c->reader = NULL;
    pare_reader_close(reader);
    return st == PARE_OK ? share(c) : st;
}

pare_status pare_comparison_run(pare_comparison *c, const pare_eval_samples *samples,
                                const pare_first_outputs *first)
{
    c->name = samples->name;
    c->sample = samples->samples;
    c->first = first;
    PARE_TRY(open_predictors(c, samples));
    pare_status st = run_samples(c, samples);
    c->first = NULL;
    c->kept = NULL;
    return st;
}

/* --- a comparison --- */

void pare_comparison_options_init(pare_comparison_options *options)
{
    *options = (pare_comparison_options){.parallel = PARE_PARALLEL_NONE};
}

static pare_status comparison_fill(pare_comparison *c, const pare_model *const *models, int count)
{
    c->candidate = pare_arena_alloc(&c->arena, (size_t)count, sizeof *c->candidate);
    if (!c->candidate) return PARE_MEMORY;
    for (; c->count < count; c->count++) {
        const pare_model *model = models[c->count];
        if (model->graph->out.count != models[0]->graph->out.count)
            return PARE_FAIL(c->ctx, INPUT,
                             "%s: has %d outputs, %s has %d; models that are compared "
                             "need the same outputs",
                             model->path, model->graph->out.count, models[0]->path,
                             models[0]->graph->out.count);
        c->candidate[c->count].model = model;
    }
    return PARE_OK;
}

pare_status pare_comparison_new(pare_ctx *ctx, pare_comparison **out,
                                const pare_model *const *models, int count,
                                const pare_comparison_options *options)
{
    pare_comparison *c = pare_alloc(ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    c->ctx = ctx;
    c->options = *options;
    if (options->parallel != PARE_PARALLEL_NONE) {
        c->share = options->comm;
        c->options.comm = NULL;
    }
    c->tally = (pare_error_tally){.ctx = ctx, .comm = c->options.comm};
    pare_arena_init(&c->arena, ctx);
    pare_status st = comparison_fill(c, models, count);
    if (st == PARE_OK)
        *out = c;
    else
        pare_comparison_free(c);
    return st;
}

void pare_comparison_free(pare_comparison *c)
{
    if (!c) return;
    for (int k = 0; k < c->count; k++) {
        pare_predictor_free(c->candidate[k].predictor);
        pare_times_free(&c->candidate[k].times);
    }
    pare_error_tally_free(&c->tally);
    pare_arena_free(&c->arena);
    pare_free(c);
}

void pare_comparison_use(pare_comparison *c, pare_device *device) { c->device = device; }

const pare_candidate *pare_comparison_candidate(const pare_comparison *c, int k)
{
    return &c->candidate[k];
}

int64_t pare_comparison_samples(const pare_comparison *c) { return c->samples; }

int64_t pare_comparison_classes(const pare_comparison *c) { return c->classes; }

bool pare_comparison_classifies(const pare_comparison *c) { return c->classifies; }
