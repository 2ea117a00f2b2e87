/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration run. The plan is canonical and has one sample (or the model's own fixed batch);
   as many runners as threads take samples from what the reader has ready, each with histograms and
   channel sums of its own, which are added up at the end. They are integers, so neither order nor threads show in
   the result, and memory does not grow with the samples. */
#include "calib/ranges.h"
#include "runtime/exec/exec.h"
#include "runtime/ops/ops.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

enum { READ_BYTES = 4 << 20 }; /* about what is read and run between two meetings of the threads */

typedef struct job job;

typedef struct runner_thread {
    job *job;
    pthread_t thread;
    pare_ctx ctx;
    pare_runner *runner;
    pare_ranges *ranges; /* this thread's counts */
    int *order;          /* tensor observed k-th in a run -> its place in the table, -1: none */
    size_t order_count, order_capacity, seen;
} runner_thread;

struct job {
    pare_ctx *ctx;
    const pare_model *model;
    pare_data *data;
    const pare_calib_options *options;
    const char **names;
    int name_count;
    pare_plan *plan;
    pare_input_shape *shape;
    int input_count;
    int64_t unit; /* samples of one run */
    pare_status (*add)(pare_ctx *ctx, pare_histogram *h, pare_dtype dtype, const void *data,
                       int64_t count);
    runner_thread *runner;
    int threads, started;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    pare_batch batch;
    int64_t next, running; /* next run of the batch to be taken, runs under way */
    bool stop;
    int64_t failed; /* sample at which a run failed first in order; -1: none */
    pare_status status;
    char *message;
};

/* --- observing --- */

static int find_name(const pare_ranges *r, const char *name)
{
    int low = 0, high = r->count; /* names are sorted */
    while (low < high) {
        int at = low + (high - low) / 2, order = strcmp(name, r->stats[at].name);
        if (order == 0) return at;
        if (order < 0)
            high = at;
        else
            low = at + 1;
    }
    return -1;
}

/* Tensors come in the same order in every run: the first run's names are looked up, later ones not.
 */
static pare_status place_of(runner_thread *t, const char *name, int *out)
{
    if (t->seen == t->order_count) {
        if (!pare_grow(&t->ctx, &t->order, &t->order_capacity, t->order_count, sizeof *t->order))
            return PARE_MEMORY;
        t->order[t->order_count++] = find_name(t->ranges, name);
    }
    *out = t->order[t->seen++];
    return PARE_OK;
}

static bool is_dense(const pare_view *v)
{
    return pare_view_rowmajor(v) || (v->rank == 4 && pare_view_nhwc(v));
}

/* Adds a view of any strides, one row of its last axis at a time. */
static pare_status add_strided(runner_thread *t, pare_histogram *h, const pare_view *v)
{
    size_t element = (size_t)pare_type(v->dtype)->bits / 8;
    int64_t at[PARE_MAX_RANK] = {0}, rows = 1;
    int last = v->rank - 1;
    for (int k = 0; k < last; k++) rows *= v->dim[k];
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0;
        for (int k = 0; k < last; k++) offset += at[k] * v->stride[k];
        for (int64_t i = 0; i < v->dim[last]; i++) {
            const char *from =
                (const char *)v->data + (offset + i * v->stride[last]) * (int64_t)element;
            PARE_TRY(t->job->add(&t->ctx, h, v->dtype, from, 1));
        }
        for (int k = last - 1; k >= 0 && ++at[k] == v->dim[k]; k--) at[k] = 0;
    }
    return PARE_OK;
}

static pare_status observe(void *user, const pare_value *value, const pare_view *view)
{
    runner_thread *t = user;
    int at;
    PARE_TRY(place_of(t, value->name, &at));
    if (at < 0 || !pare_type_is_float(view->dtype)) return PARE_OK;
    pare_histogram *h = t->ranges->stats[at].histogram;
    PARE_TRY(pare_channels_add(&t->ctx, t->ranges->stats[at].channels, view, t->job->unit));
    if (!is_dense(view)) return add_strided(t, h, view);
    return t->job->add(&t->ctx, h, view->dtype, view->data, pare_view_count(view));
}

/* --- running --- */

static size_t input_bytes(const job *j, int i)
{
    size_t bytes = 0;
    const pare_value *v = pare_plan_input(j->plan, i);
    int64_t count = pare_shape_count(&v->shape);
    return pare_type_bytes(v->dtype, count, &bytes) ? bytes : 0;
}

/* Which of the data set's inputs feeds the plan's input i. */
static int source_of(const job *j, int i)
{
    for (int k = 0; k < j->input_count; k++)
        if (!strcmp(j->shape[k].name, pare_plan_input(j->plan, i)->name)) return k;
    return -1;
}

static pare_status run_unit(runner_thread *t, int64_t index)
{
    const job *j = t->job;
    t->seen = 0;
    for (int i = 0; i < pare_plan_input_count(j->plan); i++)
        pare_runner_set_input(t->runner, i,
                              (const char *)j->batch.input[source_of(j, i)] +
                                  (size_t)index * input_bytes(j, i));
    return pare_runner_run(t->runner);
}

static void *work(void *user)
{
    runner_thread *t = user;
    job *j = t->job;
    pthread_mutex_lock(&j->lock);
    while (!j->stop) {
        if (j->next * j->unit >= j->batch.count) {
            pthread_cond_wait(&j->work, &j->lock);
            continue;
        }
        int64_t index = j->next++, sample = j->batch.first + index * j->unit;
        j->running++;
        pthread_mutex_unlock(&j->lock);
        pare_status st = run_unit(t, index);
        pthread_mutex_lock(&j->lock);
        if (st != PARE_OK && (j->failed < 0 || sample < j->failed)) {
            j->failed = sample;
            j->status = st;
            memcpy(j->message, t->ctx.message, sizeof t->ctx.message);
        }
        pare_ctx_clear(&t->ctx);
        if (--j->running == 0) pthread_cond_signal(&j->finished);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* Runs a batch on all threads and waits for them. */
static pare_status run_batch(job *j, const pare_batch *batch)
{
    pthread_mutex_lock(&j->lock);
    j->batch = *batch;
    j->next = 0;
    pthread_cond_broadcast(&j->work);
    while (j->next * j->unit < batch->count || j->running > 0)
        pthread_cond_wait(&j->finished, &j->lock);
    pthread_mutex_unlock(&j->lock);
    return j->failed < 0 ? PARE_OK : pare_fail(j->ctx, j->status, "%s", j->message);
}

static size_t runners_bytes(const job *j)
{
    return (size_t)j->threads * pare_plan_activation_bytes(j->plan);
}

/* A table per thread, half a histogram each (most tensors have one sign), the sum and the text that
   is written. */
static size_t histograms_bytes(const job *j)
{
    enum { SIGN_BYTES = 96 << 10 };
    return (size_t)(j->threads + 1) * (size_t)j->name_count * SIGN_BYTES;
}

static pare_status run_all(job *j, int64_t samples, pare_ranges *out)
{
    size_t bytes = 0;
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) bytes += input_bytes(j, i);
    int64_t units = bytes ? (int64_t)(READ_BYTES / bytes) : 1, least = 2 * j->threads;
    if (units < least) units = least;
    if (units > 256) units = 256;
    if (units > samples / j->unit) units = samples / j->unit;
    pare_reader *reader = NULL;
    PARE_TRY(pare_reader_open(j->ctx, &reader, j->data, j->options->samples, samples,
                              (int)(units * j->unit), j->threads));
    if (j->options->planned)
        j->options->planned(j->options->planned_user,
                            pare_reader_bytes(reader) + runners_bytes(j) + histograms_bytes(j));
    pare_batch batch = {.count = 1};
    pare_status st = PARE_OK;
    while (st == PARE_OK) {
        st = pare_reader_next(reader, &batch);
        if (st != PARE_OK || batch.count == 0) break;
        st = run_batch(j, &batch);
        if (st == PARE_OK && j->options->progress)
            j->options->progress(j->options->progress_user, batch.first + batch.count, samples);
    }
    out->data = pare_reader_hash(reader);
    out->samples = samples;
    pare_reader_close(reader);
    return st;
}

/* --- making it ready --- */

/* The fixed size of the inputs' first axis, 1 where it is free. */
static pare_status batch_of(job *j, const pare_graph *g)
{
    j->unit = 1;
    for (int i = 0; i < g->in.count; i++) {
        const pare_value *v = g->in.item[i];
        if (v->is_init) continue;
        int64_t dim = v->shape.rank > 0 && v->shape.dim[0] > 0 ? v->shape.dim[0] : 1;
        if (j->input_count++ && dim != j->unit)
            return PARE_FAIL(j->ctx, UNSUPPORTED,
                             "%s: input '%s' has %" PRId64 " rows, the one before "
                             "it %" PRId64 "; expected one batch size",
                             j->model->path, v->name, dim, j->unit);
        j->unit = dim;
    }
    return PARE_OK;
}

static pare_status set_shapes(job *j)
{
    const pare_graph *g = j->model->graph;
    PARE_TRY(batch_of(j, g));
    j->shape = pare_alloc(j->ctx, (size_t)j->input_count, sizeof *j->shape);
    if (!j->shape) return PARE_MEMORY;
    for (int i = 0, k = 0; i < g->in.count; i++) {
        if (g->in.item[i]->is_init) continue;
        j->shape[k] = (pare_input_shape){g->in.item[i]->name, *pare_data_shape(j->data, k)};
        j->shape[k++].shape.dim[0] = j->unit;
    }
    return PARE_OK;
}

static pare_status make_plan(job *j)
{
    pare_plan_options options = {
        .threads = 1, .canonical = true, .keep_all = true, .device = j->options->device};
    if (j->options->extremes)
        PARE_TRY(pare_calib_tensors(j->ctx, j->model, &j->names, &j->name_count));
    else {
        PARE_TRY(pare_calib_points(j->ctx, j->model, &j->names, &j->name_count));
        options.keep_all = false;
        options.keep = j->names;
        options.keep_count = j->name_count;
    }
    PARE_TRY(set_shapes(j));
    return pare_plan_new(j->ctx, &j->plan, j->model, j->shape, j->input_count, &options);
}

static pare_status start_threads(job *j)
{
    j->runner = pare_alloc(j->ctx, (size_t)j->threads, sizeof *j->runner);
    j->message = pare_alloc(j->ctx, sizeof j->ctx->message, 1);
    if (!j->runner || !j->message) return PARE_MEMORY;
    for (int i = 0; i < j->threads; i++) {
        runner_thread *t = &j->runner[i];
        t->job = j;
        pare_ctx_child(&t->ctx, j->ctx);
        PARE_TRY(pare_ranges_new(j->ctx, &t->ranges, j->names, j->name_count));
        pare_status st = pare_runner_new(&t->ctx, &t->runner, j->plan);
        if (st != PARE_OK) return pare_fail(j->ctx, st, "%s", t->ctx.message);
        pare_runner_observe(t->runner, observe, t);
        int e = pthread_create(&t->thread, NULL, work, t);
        if (e) return PARE_FAIL(j->ctx, MEMORY, "no thread could be started: %s", strerror(e));
        j->started++;
    }
    return PARE_OK;
}

static void stop_threads(job *j)
{
    pthread_mutex_lock(&j->lock);
    j->stop = true;
    pthread_cond_broadcast(&j->work);
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < j->started; i++) pthread_join(j->runner[i].thread, NULL);
}

/* A tensor that is another one under a new shape, and whose own node the plan fused away, is shown to no
   observer: it has the other's values. */
static const pare_histogram *seen_as(const job *j, const pare_ranges *r, const char *name)
{
    const pare_value *v = pare_graph_find_own(j->model->graph, name);
    while (v && v->producer) {
        const pare_op *op = pare_op_of(v->producer);
        if (!op || !op->cpu[0] || !(op->cpu[0]->flags & PARE_KERNEL_ALIAS)) break;
        v = v->producer->in[0];
        int at = v ? find_name(r, v->name) : -1;
        if (at >= 0 && r->stats[at].histogram->count) return r->stats[at].histogram;
    }
    return NULL;
}

static pare_status fill_gaps(const job *j, pare_ranges *out)
{
    for (int i = 0; i < out->count; i++) {
        const pare_histogram *twin = seen_as(j, out, out->stats[i].name);
        if (!out->stats[i].histogram->count && twin)
            PARE_TRY(pare_histogram_merge(j->ctx, out->stats[i].histogram, twin));
    }
    return PARE_OK;
}

/* Tensors that no run computed (constant for this shape) leave the table. */
static void drop_gaps(const job *j, pare_ranges *out)
{
    int kept = 0;
    for (int i = 0; i < out->count; i++) {
        pare_stats s = out->stats[i];
        if (s.histogram->count) {
            out->stats[kept++] = s;
            continue;
        }
        if (!j->options->extremes)
            pare_log(j->ctx, PARE_LOG_WARNING,
                     "tensor '%s' is not computed from the data: it has no range", s.name);
        pare_stats_drop(&s);
    }
    out->count = kept;
}

static pare_status add_stats(const job *j, pare_stats *to, const pare_stats *from)
{
    PARE_TRY(pare_histogram_merge(j->ctx, to->histogram, from->histogram));
    return pare_channels_merge(j->ctx, to->channels, from->channels);
}

static pare_status add_up(job *j, pare_ranges *out)
{
    for (int t = 0; t < j->threads; t++)
        for (int i = 0; i < out->count; i++)
            PARE_TRY(add_stats(j, &out->stats[i], &j->runner[t].ranges->stats[i]));
    PARE_TRY(fill_gaps(j, out));
    drop_gaps(j, out);
    for (int i = 0; i < out->count; i++) {
        const pare_histogram *h = out->stats[i].histogram;
        if (h->nan || (h->inf && !j->options->extremes)) /* a mask of -Inf is meant */
            pare_log(j->ctx, PARE_LOG_WARNING,
                     "tensor '%s' has %" PRIu64 " NaN and %" PRIu64 " infinite values",
                     out->stats[i].name, h->nan, h->inf);
    }
    return PARE_OK;
}

static pare_status count_samples(job *j, int64_t *samples)
{
    *samples = j->options->sample_count;
    if (j->unit == 1) return PARE_OK;
    *samples -= *samples % j->unit;
    pare_log(j->ctx, PARE_LOG_WARNING,
             "%s: its batch is fixed to %" PRId64 "; %" PRId64 " of %" PRId64 " samples are run",
             j->model->path, j->unit, *samples, j->options->sample_count);
    if (*samples) return PARE_OK;
    return PARE_FAIL(j->ctx, INPUT,
                     "%s: its batch is fixed to %" PRId64 ", but only %" PRId64 " samples were "
                                                                                "given",
                     j->model->path, j->unit, j->options->sample_count);
}

static pare_status calibrate(job *j, pare_ranges **out)
{
    int64_t samples;
    PARE_TRY(make_plan(j));
    PARE_TRY(count_samples(j, &samples));
    if (j->threads < 1) j->threads = pare_cpu_cores();
    if (j->threads > samples / j->unit)
        j->threads = samples < j->unit ? 1 : (int)(samples / j->unit);
    PARE_TRY(pare_ranges_new(j->ctx, out, j->names, j->name_count));
    (*out)->extremes = j->options->extremes;
    const char *hash = j->options->model_hash;
    if (hash && strlen(hash) == 32) memcpy((*out)->model, hash, 33);
    pare_status st = start_threads(j);
    if (st == PARE_OK) st = run_all(j, samples, *out);
    stop_threads(j);
    return st == PARE_OK ? add_up(j, *out) : st;
}

pare_status pare_calibrate(pare_ctx *ctx, pare_ranges **out, const pare_model *model,
                           pare_data *data, const pare_calib_options *options)
{
    job j = {.ctx = ctx,
             .model = model,
             .data = data,
             .options = options,
             .add = options->extremes ? pare_histogram_add_extremes : pare_histogram_add,
             .failed = -1,
             .threads = options->device ? 1 : options->threads};
    pare_ranges *ranges = NULL;
    pthread_mutex_init(&j.lock, NULL);
    pthread_cond_init(&j.work, NULL);
    pthread_cond_init(&j.finished, NULL);
    pare_status st = calibrate(&j, &ranges);
    for (int i = 0; j.runner && i < j.threads; i++) {
        pare_runner_free(j.runner[i].runner);
        pare_ranges_free(j.runner[i].ranges);
        pare_free(j.runner[i].order);
    }
    pare_plan_free(j.plan);
    pthread_cond_destroy(&j.finished);
    pthread_cond_destroy(&j.work);
    pthread_mutex_destroy(&j.lock);
    pare_free(j.runner);
    pare_free(j.message);
    pare_free(j.shape);
    pare_free(j.names);
    if (st == PARE_OK)
        *out = ranges;
    else
        pare_ranges_free(ranges);
    return st;
}
