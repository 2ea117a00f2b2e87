/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration run. The plan is deterministic and has one sample (or the model's own fixed
   batch); on a device it has DEVICE_UNIT samples where there are so many and the model takes any
   number, and the last run is filled up with zeros that no one counts: the order of the samples
   does not change what is computed of one. Replicas run the samples that the reader has ready, each
   with histograms and channel sums of its own, which are added up at the end. They are integers, so
   neither order nor threads show in the result, and memory does not grow with the samples. */
#include "calib/calibrate.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <string.h>

void pare_calib_options_init(pare_calib_options *out) { *out = (pare_calib_options){0}; }

pare_status pare_calib_runs(pare_ctx *ctx, const pare_model *model, const pare_data *data,
                            int64_t samples, int64_t *unit, int64_t *runs)
{
    PARE_TRY(pare_data_run_samples(ctx, data, model, unit));
    if (!*unit) *unit = 1;
    *runs = samples / *unit;
    if (*runs > 0) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: its batch is fixed to %" PRId64 ", but only %" PRId64
                     " samples were given",
                     model->path, *unit, samples);
}

pare_status pare_calib_run_shapes(pare_ctx *ctx, const pare_model *model, const pare_data *data,
                                  int64_t unit, pare_model **out)
{
    const pare_infer_options infer = {.fold = true, .lenient = true, .fold_limit = 1 << 16};
    int at = 0;
    PARE_TRY(pare_model_clone(ctx, out, model));
    const pare_values *in = &(*out)->graph->in;
    for (int i = 0; i < in->count; i++) {
        if (in->item[i]->is_init) continue;
        const pare_shape shape = pare_data_run_shape(data, at++, unit);
        pare_value_set_type(in->item[i], in->item[i]->dtype, &shape);
    }
    return pare_pass_infer(*out, &infer);
}

/* --- the sum of the replicas' counts --- */

/* A tensor that is another one under a new shape, and whose own node the plan fused away, is shown
   to no observer: it has the other's values. */
static const pare_histogram *seen_as(const pare_calib_job *j, const pare_ranges *r,
                                     const char *name)
{
    const pare_value *v = pare_graph_find_any(j->model->graph, name);
    while (v && v->producer) {
        const pare_op *op = pare_op_of(v->producer);
        if (!op || !op->cpu[0] || !(op->cpu[0]->flags & PARE_KERNEL_ALIAS)) break;
        v = v->producer->in[0];
        int at = v ? pare_ranges_place(r, v->name) : -1;
        if (at >= 0 && r->stats[at].histogram->count) return r->stats[at].histogram;
    }
    return NULL;
}

static pare_status fill_gaps(const pare_calib_job *j, pare_ranges *out)
{
    for (int i = 0; i < out->count; i++) {
        const pare_histogram *twin = seen_as(j, out, out->stats[i].name);
        if (!out->stats[i].histogram->count && twin)
            PARE_TRY(pare_histogram_merge(j->ctx, out->stats[i].histogram, twin));
    }
    return PARE_OK;
}

/* Tensors that no run computed (constant for this shape) leave the table. */
static void drop_gaps(const pare_calib_job *j, pare_ranges *out)
{
    int kept = 0;
    for (int i = 0; i < out->count; i++) {
        pare_stats s = out->stats[i];
        if (s.histogram->count) {
            out->stats[kept++] = s;
            continue;
        }
        if (!j->options->minmax_only)
            pare_log(j->ctx, PARE_LOG_WARNING,
                     "tensor '%s' is not computed from the data: it has no range", s.name);
        pare_stats_drop(&s);
    }
    out->count = kept;
}

static pare_status add_stats(const pare_calib_job *j, pare_stats *to, const pare_stats *from)
{
    PARE_TRY(pare_histogram_merge(j->ctx, to->histogram, from->histogram));
    return pare_channels_merge(j->ctx, to->channels, from->channels);
}

void pare_ranges_warn(pare_ctx *ctx, const pare_ranges *r)
{
    for (int i = 0; i < r->count; i++) {
        const pare_histogram *h = r->stats[i].histogram;
        if (h->nan || (h->inf && !r->minmax_only)) /* a mask of -Inf is meant */
            pare_log(ctx, PARE_LOG_WARNING,
                     "tensor '%s' has %" PRIu64 " NaN and %" PRIu64 " infinite values",
                     r->stats[i].name, h->nan, h->inf);
    }
}

/* Adds the runners' counts up in a table; tensors that no run computed leave it. */
static pare_status add_up(const pare_calib_job *j, pare_ranges *out)
{
    for (int t = 0; t < j->count; t++)
        for (int i = 0; i < out->count; i++)
            PARE_TRY(add_stats(j, &out->stats[i], &j->runner[t].ranges->stats[i]));
    PARE_TRY(pare_ranges_reduce(j->ctx, out, j->options->comm));
    PARE_TRY(fill_gaps(j, out));
    drop_gaps(j, out);
    pare_ranges_warn(j->ctx, out);
    return PARE_OK;
}

enum {
    READ_BYTES = 4 << 20, /* about what is read and run at a time */
    TRACED_RUNS = 16
};

/* --- observing --- */

/* A name is looked up once: later a replica shows the same tensor. */
static pare_status place_of(pare_calib_runner *t, const pare_value *value, int *out)
{
    *out = pare_ptr_map_find(&t->place, value) - 1;
    if (*out >= -1) return PARE_OK;
    *out = pare_ranges_place(t->ranges, value->name);
    return pare_ptr_map_put(&t->place, value, *out + 1);
}

static bool is_dense(const pare_view *v)
{
    return pare_view_rowmajor(v) || (v->rank == 4 && pare_view_nhwc(v));
}

/* Adds a view of any strides, one row of its last axis at a time. */
static pare_status add_strided(pare_calib_runner *t, pare_histogram *h, const pare_view *v)
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
            PARE_TRY(t->job->add(&t->replica->ctx, h, v->dtype, from, 1));
        }
        for (int k = last - 1; k >= 0 && ++at[k] == v->dim[k]; k--) at[k] = 0;
    }
    return PARE_OK;
}

static pare_status observe(void *user, const pare_value *value, const pare_view *view)
{
    pare_calib_runner *t = user;
    int at;
    PARE_TRY(place_of(t, value, &at));
    if (at < 0 || !pare_type_is_float(view->dtype)) return PARE_OK;
    pare_histogram *h = t->ranges->stats[at].histogram;
    if (!t->job->options->minmax_only)
        PARE_TRY(
            pare_channels_add(&t->replica->ctx, t->ranges->stats[at].channels, view, t->job->unit));
    if (!is_dense(view)) return add_strided(t, h, view);
    return t->job->add(&t->replica->ctx, h, view->dtype, view->data, pare_view_count(view));
}

/* --- running --- */

static size_t input_bytes(const pare_calib_job *j, int i)
{
    size_t bytes = 0;
    const pare_value *v = pare_plan_input(j->plan, i);
    int64_t count = pare_shape_count(&v->shape);
    return pare_type_bytes(v->dtype, count, &bytes) ? bytes : 0;
}

int pare_calib_source(const pare_calib_job *j, int i)
{
    for (int k = 0; k < j->input_count; k++)
        if (!strcmp(j->shape[k].name, pare_plan_input(j->plan, i)->name)) return k;
    return -1;
}

const void *pare_calib_input(const pare_calib_job *j, int i, int64_t run)
{
    return pare_data_run_input(j->data, j->batch.input, pare_calib_source(j, i),
                               run * j->unit - j->batch.first);
}

/* The first runs of one replica are spans. */
static void trace(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    if (!j->timeline || t->traced > TRACED_RUNS || t->replica->index) return;
    pare_runner_trace(t->replica->runner, t->traced++ < TRACED_RUNS ? j->timeline : NULL, 0);
}

static pare_status load(void *user, int64_t run, pare_replica *replica)
{
    const pare_calib_job *j = user;
    pare_calib_runner *t = replica->own;
    if (!replica->index) PARE_TRY(pare_comm_listen(j->options->comm, &replica->ctx));
    trace(t);
    if (pare_calib_on_device(j)) {
        pare_calib_load_device(t, run);
        return PARE_OK;
    }
    for (int i = 0; i < pare_plan_input_count(j->plan); i++)
        pare_runner_set_input(replica->runner, i, pare_calib_input(j, i, run));
    return PARE_OK;
}

static pare_status run_batch(pare_calib_job *j, const pare_batch *batch)
{
    const pare_batch_work work = {.load = load, .in_flight = true, .user = j};
    j->batch = *batch;
    return pare_replicas_run(j->pool, batch->first / j->unit,
                             (batch->count + j->unit - 1) / j->unit, &work);
}

static size_t runners_bytes(const pare_calib_job *j)
{
    if (j->options->device) return 0;
    return (size_t)j->count * pare_plan_activation_bytes(j->plan);
}

/* A table per replica, half a histogram each (most tensors have one sign), the sum and the text
   that is written. */
static size_t histograms_bytes(const pare_calib_job *j)
{
    enum { SIGN_BYTES = 96 << 10 };
    if (pare_calib_on_device(j)) return 2 * (size_t)j->name_count * SIGN_BYTES;
    return (size_t)(j->count + 1) * (size_t)j->name_count * SIGN_BYTES;
}

/* Threads that read. */
static int readers_of(const pare_calib_job *j)
{
    if (!pare_calib_on_device(j)) return pare_replicas_threads(j->pool);
    return j->options->threads > 0 ? j->options->threads : pare_cpu_cores();
}

static pare_status run_all(pare_calib_job *j, pare_ranges *out)
{
    const int64_t samples = j->samples;
    size_t bytes = 0;
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) bytes += input_bytes(j, i);
    int64_t units = bytes ? (int64_t)(READ_BYTES / bytes) : 1, least = 2 * j->count;
    if (units < least) units = least;
    if (units > 256) units = 256;
    if (units > j->runs) units = j->runs;
    pare_reader *reader = NULL;
    PARE_TRY(pare_reader_open(j->ctx, &reader, j->data, j->sample, samples, (int)(units * j->unit),
                              readers_of(j)));
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
    pare_comm_log_heard(j->options->comm, batch.first, samples);
    out->data = pare_reader_hash(reader);
    out->samples = samples;
    pare_reader_close(reader);
    return st;
}

/* --- how many samples a run has --- */

enum { DEVICE_UNIT = 32 };

typedef pare_status (*tensors_fn)(pare_ctx *ctx, const pare_model *model, const char ***names,
                                  int *count);

/* Do these tensors, of that rank at least, hold DEVICE_UNIT samples one after the other, each as a
   run of one has it? *out is false, too, where shapes are not known. */
static pare_status stacks(const pare_calib_job *j, const pare_model *one, const pare_model *many,
                          tensors_fn list, int rank, bool *out)
{
    const char **names = NULL;
    int count = 0;
    PARE_TRY(list(j->ctx, j->model, &names, &count));
    for (int i = 0; i < count && *out; i++) {
        const pare_value *a = pare_graph_find_own(one->graph, names[i]),
                         *b = pare_graph_find_own(many->graph, names[i]);
        *out = a && b && a->shape.rank >= rank && a->shape.rank == b->shape.rank;
        for (int k = 0; *out && k < a->shape.rank; k++)
            *out =
                a->shape.dim[k] > 0 && b->shape.dim[k] == a->shape.dim[k] * (k ? 1 : DEVICE_UNIT);
    }
    pare_free(names);
    return PARE_OK;
}

/* Every tensor must: one that is not observed may have put the samples of one that is in another
   order. Shapes do not say that an operator keeps samples apart: a model that mixes them does so in
   every batch. The channels of a tensor of one axis would be its samples. */
static pare_status all_stack(const pare_calib_job *j, bool *out)
{
    pare_model *one = NULL, *many = NULL;
    pare_status st = pare_calib_run_shapes(j->ctx, j->model, j->data, 1, &one);
    if (st == PARE_OK) st = pare_calib_run_shapes(j->ctx, j->model, j->data, DEVICE_UNIT, &many);
    if (st == PARE_OK) st = stacks(j, one, many, pare_calib_tensors, 1, out);
    if (st == PARE_OK && !j->options->minmax_only)
        st = stacks(j, one, many, pare_calib_observed, 2, out);
    pare_model_free(one);
    pare_model_free(many);
    if (st != PARE_UNSUPPORTED && st != PARE_INPUT) return st;
    pare_ctx_clear(j->ctx);
    *out = false;
    return PARE_OK;
}

/* Does every input have a row for each sample? A stored scalar goes with any number of them. */
static bool inputs_stack(const pare_calib_job *j)
{
    const pare_graph *g = j->model->graph;
    bool all = true;
    for (int i = 0, k = 0; i < g->in.count; i++) {
        if (g->in.item[i]->is_init) continue;
        const pare_shape shape = pare_data_run_shape(j->data, k++, DEVICE_UNIT);
        all = all && shape.rank > 0 && shape.dim[0] == DEVICE_UNIT;
    }
    return all;
}

/* A model that does not take so many, whatever its inputs say, keeps a sample a run. */
static pare_status fill_device(pare_calib_job *j)
{
    int64_t fixed;
    bool good = inputs_stack(j);
    if (!good || !pare_calib_on_device(j) || j->one_by_one ||
        j->options->sample_count < DEVICE_UNIT)
        return PARE_OK;
    PARE_TRY(pare_data_run_samples(j->ctx, j->data, j->model, &fixed));
    if (fixed) return PARE_OK;
    PARE_TRY(all_stack(j, &good));
    if (!good) return PARE_OK;
    *j->filled = true;
    j->unit = DEVICE_UNIT;
    j->samples = j->options->sample_count;
    j->runs = (j->samples + j->unit - 1) / j->unit;
    return PARE_OK;
}

/* Whole runs in a row for each rank; the first ones have one more where they do not divide. */
static pare_status take_share(pare_calib_job *j)
{
    const int64_t ranks = pare_comm_size(j->options->comm), rank = pare_comm_rank(j->options->comm);
    const int64_t first =
        j->runs / ranks * rank + (rank < j->runs % ranks ? rank : j->runs % ranks);
    const int64_t left = j->samples - first * j->unit;
    if (ranks > j->runs)
        return PARE_FAIL(j->ctx, INPUT,
                         "%s: %" PRId64 " ranks, but only %" PRId64 " run%s of %" PRId64
                         " sample%s; start fewer ranks or give more samples",
                         j->model->path, ranks, j->runs, j->runs == 1 ? "" : "s", j->unit,
                         j->unit == 1 ? "" : "s");
    j->runs = j->runs / ranks + (rank < j->runs % ranks);
    j->sample = j->options->samples + first * j->unit;
    j->samples = j->runs * j->unit < left ? j->runs * j->unit : left;
    return PARE_OK;
}

static pare_status choose_unit(pare_calib_job *j)
{
    PARE_TRY(
        pare_calib_runs(j->ctx, j->model, j->data, j->options->sample_count, &j->unit, &j->runs));
    j->samples = j->runs * j->unit;
    j->fixed = j->unit > 1;
    PARE_TRY(fill_device(j));
    return take_share(j);
}

/* --- making it ready --- */

static pare_status set_shapes(pare_calib_job *j)
{
    const pare_graph *g = j->model->graph;
    for (int i = 0; i < g->in.count; i++) j->input_count += !g->in.item[i]->is_init;
    j->shape = pare_alloc(j->ctx, (size_t)j->input_count, sizeof *j->shape);
    if (!j->shape) return PARE_MEMORY;
    for (int i = 0, k = 0; i < g->in.count; i++) {
        if (g->in.item[i]->is_init) continue;
        j->shape[k] =
            (pare_input_shape){g->in.item[i]->name, pare_data_run_shape(j->data, k, j->unit)};
        k++;
    }
    return PARE_OK;
}

static pare_status make_plan(pare_calib_job *j)
{
    pare_plan_options options = {
        .threads = 1, .deterministic = true, .keep_all = true, .device = j->options->device};
    if (j->options->minmax_only)
        PARE_TRY(pare_calib_tensors(j->ctx, j->model, &j->names, &j->name_count));
    else {
        PARE_TRY(pare_calib_observed(j->ctx, j->model, &j->names, &j->name_count));
        options.keep_all = false;
        options.keep = j->names;
        options.keep_count = j->name_count;
    }
    PARE_TRY(set_shapes(j));
    return pare_plan_new(j->ctx, &j->plan, j->model, j->shape, j->input_count, &options);
}

static pare_status replica_open(pare_calib_job *j, pare_calib_runner *t)
{
    t->job = j;
    t->replica->own = t;
    pare_arena_init(&t->arena, &t->replica->ctx);
    pare_ptr_map_init(&t->place, &t->arena);
    PARE_TRY(pare_ranges_new(j->ctx, &t->ranges, j->names, j->name_count));
    if (!pare_calib_on_device(j)) {
        pare_runner_observe(t->replica->runner, observe, t);
        return PARE_OK;
    }
    pare_status st = pare_calib_open_device(t);
    return st == PARE_OK ? PARE_OK : pare_fail(j->ctx, st, "%s", t->replica->ctx.message);
}

static pare_status open_pool(pare_calib_job *j, int64_t runs)
{
    const pare_replicas_options options = {
        .threads = j->options->threads, .items = runs, .overlap = pare_calib_on_device(j)};
    PARE_TRY(pare_replicas_new(j->ctx, &j->pool, j->plan, &options));
    const int count = pare_replicas_count(j->pool);
    j->runner = pare_alloc(j->ctx, (size_t)count, sizeof *j->runner);
    if (!j->runner) return PARE_MEMORY;
    for (; j->count < count; j->count++) {
        pare_calib_runner *t = &j->runner[j->count];
        t->replica = pare_replicas_at(j->pool, j->count);
        pare_status st = replica_open(j, t);
        if (st != PARE_OK) {
            j->count++; /* what it has is closed with the others */
            return st;
        }
    }
    return PARE_OK;
}

static pare_status tell_trace(const pare_calib_job *j)
{
    if (!j->timeline) return PARE_OK;
    PARE_TRY(pare_timeline_read(j->timeline));
    return j->options->traced(j->options->traced_user, j->timeline, j->plan);
}

/* Ranks count the same tensors of the same model over parts of one list. */
static pare_status check_ranks(const pare_calib_job *j)
{
    const pare_calib_options *o = j->options;
    const char *hash = o->model_hash ? o->model_hash : "";
    pare_hash names = {0};
    if (!o->comm) return PARE_OK;
    for (int i = 0; i < j->name_count; i++)
        names = pare_hash_sum(names, pare_hash_bytes(j->names[i], strlen(j->names[i])));
    PARE_TRY(pare_comm_same(o->comm, "model", hash, strlen(hash)));
    PARE_TRY(pare_comm_same(o->comm, "list of samples", o->samples,
                            (size_t)o->sample_count * sizeof *o->samples));
    return pare_comm_same(o->comm, "set of tensors", &names, sizeof names);
}

static pare_status calibrate(pare_calib_job *j, pare_ranges **out)
{
    PARE_TRY(choose_unit(j));
    PARE_TRY(make_plan(j));
    PARE_TRY(check_ranks(j));
    if (j->fixed)
        pare_log(j->ctx, PARE_LOG_WARNING,
                 "%s: its batch is fixed to %" PRId64 "; %" PRId64 " of %" PRId64
                 " samples are run",
                 j->model->path, j->unit, j->options->sample_count / j->unit * j->unit,
                 j->options->sample_count);
    PARE_TRY(pare_ranges_new(j->ctx, out, j->names, j->name_count));
    (*out)->minmax_only = j->options->minmax_only;
    pare_ranges_use_device(*out, j->options->device);
    const char *hash = j->options->model_hash;
    if (hash && strlen(hash) == 32) memcpy((*out)->model, hash, 33);
    if (j->options->traced) PARE_TRY(pare_timeline_new(j->ctx, &j->timeline, j->options->device));
    PARE_TRY(open_pool(j, j->runs));
    if (pare_calib_on_device(j)) pare_calib_log_device(j);
    PARE_TRY(run_all(j, *out));
    if (pare_calib_on_device(j)) PARE_TRY(pare_calib_gather_device(j));
    PARE_TRY(tell_trace(j));
    return add_up(j, *out);
}

static pare_status calibrate_once(pare_ctx *ctx, pare_ranges **out, const pare_model *model,
                                  pare_data *data, const pare_calib_options *options,
                                  bool one_by_one, bool *filled)
{
    pare_calib_job j = {.ctx = ctx,
                        .model = model,
                        .data = data,
                        .options = options,
                        .one_by_one = one_by_one,
                        .filled = filled,
                        .add =
                            options->minmax_only ? pare_histogram_add_minmax : pare_histogram_add};
    pare_ranges *ranges = NULL;
    pare_status st = calibrate(&j, &ranges);
    pare_replicas_free(j.pool);
    for (int i = 0; i < j.count; i++) {
        pare_calib_close_device(&j.runner[i]);
        pare_ranges_free(j.runner[i].ranges);
        pare_arena_free(&j.runner[i].arena);
    }
    pare_timeline_free(j.timeline);
    pare_plan_free(j.plan);
    pare_free(j.runner);
    pare_free(j.shape);
    pare_free(j.names);
    if (st == PARE_OK)
        *out = ranges;
    else
        pare_ranges_free(ranges);
    return st;
}

/* A device that has no memory for runs of many samples takes one at a time. */
pare_status pare_calibrate(pare_ctx *ctx, pare_ranges **out, const pare_model *model,
                           pare_data *data, const pare_calib_options *options)
{
    bool filled = false;
    const pare_status st = calibrate_once(ctx, out, model, data, options, false, &filled);
    if (st != PARE_MEMORY || !filled || options->comm) return st; /* ranks do the same */
    pare_ctx_clear(ctx);
    return calibrate_once(ctx, out, model, data, options, true, &filled);
}
