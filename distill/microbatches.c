/* SPDX-License-Identifier: Apache-2.0 */
/* Plan: a replica pool runs the microbatches; the thread that loads one runs the teacher on it
   first, so that its outputs are used while they are in the cache. Microbatches are taken in order.
   Held-out samples are scored the same way, and a loss that is not finite is looked into by running
   its batch again. */
#include "distill/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- making it --- */

static pare_status make_given(pare_microbatches *s)
{
    const pare_teacher *t = s->teacher;
    const size_t wanted = (size_t)t->wanted_count;
    s->given = pare_alloc(s->ctx, (size_t)s->count * wanted + 1, sizeof *s->given);
    if (!s->given) return PARE_MEMORY;
    for (size_t i = 0; i < (size_t)s->count * wanted; i++) {
        pare_shape shape;
        size_t bytes = 0;
        pare_teacher_shape(t, (int)(i % wanted), &shape);
        (void)pare_type_bytes(t->wanted[i % wanted]->dtype, pare_shape_count(&shape), &bytes);
        s->given[i] = pare_alloc(s->ctx, bytes, 1);
        if (!s->given[i]) return PARE_MEMORY;
    }
    return PARE_OK;
}

/* A failure of the pool is the training's. */
static pare_status tell(pare_microbatches *s, pare_status st)
{
    if (st != PARE_OK && s->run.message[0]) (void)pare_fail(s->ctx, st, "%s", s->run.message);
    pare_ctx_clear(&s->run);
    return st;
}

static pare_status make(pare_microbatches *s, const pare_data *data, int threads)
{
    s->input_count = pare_inputs_count(s->graph->student);
    s->sample = pare_alloc(s->ctx, (size_t)s->input_count, sizeof *s->sample);
    s->input = pare_alloc(s->ctx, (size_t)(s->count * s->input_count), sizeof *s->input);
    if (!s->sample || !s->input) return PARE_MEMORY;
    for (int i = 0; i < s->input_count; i++) {
        const pare_value *v = pare_inputs_at(s->graph->student, i);
        int64_t count = pare_shape_count(pare_data_shape(data, i));
        if (!pare_type_bytes(v->dtype, count, &s->sample[i])) s->sample[i] = 0;
    }
    PARE_TRY(make_given(s));
    const pare_replicas_options options = {.items = s->count,
                                           .threads = threads,
                                           .share = true,
                                           .sum = s->comm ? pare_ranks_sum : NULL,
                                           .sum_there = s->sums->there ? pare_rank_sums_make : NULL,
                                           .sum_user = s->sums};
    pare_ctx_child(&s->run, s->ctx);
    PARE_TRY(tell(s, pare_replicas_new(&s->run, &s->pool, s->graph->plan, &options)));
    return pare_gradients_open(s);
}

pare_status pare_microbatches_open(pare_trainer *t, pare_microbatches *out,
                                   const pare_train_graph *graph)
{
    *out = (pare_microbatches){.ctx = t->ctx,
                               .graph = graph,
                               .teacher = &t->teacher,
                               .weights = &t->weights,
                               .comm = t->options.comm,
                               .sums = &t->sums,
                               .count = t->own_count,
                               .loss_scale = 1};
    PARE_TRY(make(out, t->data, t->options.threads));
    PARE_TRY(pare_device_overlap_open(out, &t->weights));
    return pare_overlap_open(out, &t->weights, t->options.threads);
}

void pare_microbatches_free(pare_microbatches *s)
{
    pare_overlap_close(s->overlap);
    pare_gradients_close(s);
    if (s->given)
        for (int i = 0; i < s->count * s->teacher->wanted_count; i++) pare_free(s->given[i]);
    pare_replicas_free(s->pool);
    pare_device_overlap_close(s->device_overlap);
    pare_free(s->given);
    pare_free(s->sample);
    pare_free(s->input);
    *s = (pare_microbatches){0};
}

/* --- running --- */

static void **given_of(const pare_microbatches *s, int slice)
{
    return s->given + (size_t)slice * (size_t)s->teacher->wanted_count;
}

static const void *input_of(const pare_microbatches *s, int input, int64_t row)
{
    return (const char *)s->batch->input[input] + (size_t)row * s->sample[input];
}

static const void **inputs_of(const pare_microbatches *s, int slice)
{
    return s->input + (size_t)slice * (size_t)s->input_count;
}

/* A slice that there is no data for computes what the last one does, and its results are dropped.
 */
static pare_status load_microbatch(pare_microbatches *s, int slice, pare_runner *runner, int worker)
{
    const int64_t row = (slice < s->full ? slice : s->full - 1) * s->graph->rows;
    const void **input = inputs_of(s, slice);
    for (int i = 0; i < s->input_count; i++) input[i] = input_of(s, i, row);
    if (s->augmented) pare_augmented_fill(s->augmented, s->source, slice, input);
    PARE_TRY(
        pare_teacher_run(s->teacher, worker, pare_runner_ctx(runner), input, given_of(s, slice)));
    const pare_feeds from = {.input = input,
                             .given = given_of(s, slice),
                             .label = s->batch->label ? s->batch->label + row : NULL,
                             .loss_scale = &s->loss_scale,
                             .values = s->values,
                             .weights = s->weights};
    for (int i = 0; i < pare_plan_input_count(s->graph->plan); i++)
        pare_runner_set_input(runner, i, pare_feed_find(&from, &s->graph->feed[i]));
    return PARE_OK;
}

static pare_status load(void *user, int64_t slice, pare_replica *replica)
{
    const pare_microbatches *s = user;
    pare_overlap_load(s->overlap, replica->index, (int)slice);
    return load_microbatch(user, (int)slice, replica->runner, replica->worker);
}

static pare_status run(void *user, int64_t item, pare_replica *replica)
{
    const pare_microbatches *s = user;
    if (!s->learns || item < s->count - 1) return pare_runner_run(replica->runner);
    return pare_device_overlap_run(s->device_overlap, replica->runner, (int)item);
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    pare_microbatches *s = user;
    const int slice = (int)item;
    if (slice >= s->full) return PARE_OK;
    return s->take(s->user, slice, replica->runner, given_of(s, slice));
}

static void select_batch(pare_microbatches *s, const pare_batch *batch, const float *values)
{
    s->batch = batch;
    s->values = values;
    s->full = (int)(batch->count / s->graph->rows);
    if (s->full > s->count) s->full = s->count; /* the others are of other ranks */
}

/* Runs a batch with the weights of a block; the last microbatches of it may be missing, not a part
   of one. A failure is in the pool's context. */
static pare_status run_batch(pare_microbatches *s, const pare_batch *batch, const float *values,
                             pare_microbatch_fn fn, void *user)
{
    const pare_batch_work work = {
        .load = load, .run = s->device_overlap ? run : NULL, .take = take, .user = s};
    select_batch(s, batch, values);
    s->take = fn;
    s->user = user;
    pare_status st = s->full ? pare_replicas_run(s->pool, 0, s->count, &work) : PARE_OK;
    s->user = NULL;
    return st;
}

/* --- gradients --- */

typedef struct learning {
    pare_microbatches *microbatches;
    pare_weights *weights;
    double loss, waiting[PARE_TREE_LEVELS]; /* sums over microbatches */
} learning;

static pare_status add_slice(void *user, int slice, const pare_runner *runner, void *const *teacher)
{
    learning *l = user;
    const pare_microbatches *s = l->microbatches;
    (void)teacher;
    l->loss =
        pare_tree_add(l->waiting, pare_tree_term_of(slice, s->count),
                      (double)*(const float *)pare_runner_output(runner, s->graph->loss).data /
                          (double)s->loss_scale);
    for (int i = 0; !slice && i < s->graph->norm_count; i++)
        pare_batchnorm_follow(&s->graph->norm[i], l->weights, runner);
    return pare_gradients_add(l->microbatches, l->weights, slice, runner);
}

pare_status pare_microbatches_learn(pare_microbatches *s, pare_weights *weights,
                                    const pare_loader_batch *batch, const pare_augmented *augmented,
                                    int index, double *loss)
{
    learning l = {.microbatches = s, .weights = weights};
    s->learnt = (pare_batch){.count = batch->count, .input = batch->input, .label = batch->label};
    s->source = batch;
    s->augmented = augmented->inputs ? augmented : NULL;
    assert((!s->overlap && !s->device_overlap) || /* they wait for all */
           batch->count >= s->count * s->graph->rows);
    s->learns = true;
    pare_overlap_begin(s->overlap);
    pare_status st = run_batch(s, &s->learnt, weights->value, add_slice, &l);
    s->learns = false;
    PARE_TRY(tell(s, pare_overlap_end(s->overlap, st)));
    *loss = l.loss;
    PARE_TRY(pare_comm_sum_f64(s->comm, loss, 1));
    return pare_gradients_end_batch(s, weights, index);
}

/* --- held-out samples --- */

typedef struct tally {
    const pare_train_graph *graph;
    pare_batch batch;
    double *loss;         /* (microbatches): those of this rank; 0 elsewhere */
    int64_t microbatches; /* where the next one's is */
    int64_t counts[2];    /* samples whose top-1 is the teacher's, the label */
} tally;

/* The first of the largest. */
static int64_t top1(const float *row, int64_t classes)
{
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

static pare_status count_slice(void *user, int slice, const pare_runner *runner,
                               void *const *teacher)
{
    tally *t = user;
    const pare_train_graph *g = t->graph;
    t->loss[t->microbatches++] = (double)*(const float *)pare_runner_output(runner, g->loss).data;
    if (g->logits < 0) return PARE_OK;
    const float *mine = pare_runner_output(runner, g->logits).data;
    const float *its = teacher[g->nodes.teacher_logits];
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t best = top1(mine + r * g->nodes.classes, g->nodes.classes);
        t->counts[0] += best == top1(its + r * g->nodes.classes, g->nodes.classes);
        if (t->batch.label) t->counts[1] += best == t->batch.label[slice * g->rows + r];
    }
    return PARE_OK;
}

static pare_status next_batch(pare_trainer *trainer, pare_reader *reader, pare_batch *out)
{
    PARE_TRY(pare_ctx_poll(trainer->ctx));
    return pare_reader_next(reader, out);
}

static pare_status run_all(pare_trainer *trainer, pare_reader *reader, const float *values,
                           tally *t)
{
    pare_train_pipeline *pipeline = trainer->pipeline;
    pare_microbatches *checking = &trainer->checking;
    for (;;) {
        const pare_status st = next_batch(trainer, reader, &t->batch);
        PARE_TRY(pare_comm_settle(pipeline ? trainer->options.comm : NULL, st));
        if (!t->batch.count) return PARE_OK;
        if (pipeline)
            PARE_TRY(pare_train_pipeline_check(pipeline, &t->batch, values, count_slice, t));
        else
            PARE_TRY(tell(checking, run_batch(checking, &t->batch, values, count_slice, t)));
    }
}

/* Every rank runs a stretch of the microbatches or, by pipeline, all of them. */
static pare_status score_own(pare_trainer *trainer, const float *values, int64_t all, tally *t)
{
    pare_comm *shared = trainer->pipeline ? NULL : trainer->options.comm;
    const int64_t rank = pare_comm_rank(shared);
    const int64_t ranks = pare_comm_size(shared);
    const int64_t first = all * rank / ranks, count = all * (rank + 1) / ranks - first;
    pare_reader *reader;
    t->microbatches = first;
    if (!count) return PARE_OK;
    if (trainer->weights.on_device)
        PARE_TRY(pare_device_weights_check(trainer->weights.on_device, values));
    pare_status opened = pare_reader_open(
        trainer->ctx, &reader, trainer->held_out, trainer->held_sample + first * trainer->rows,
        count * trainer->rows, (int)(trainer->own_count * trainer->rows), trainer->options.threads);
    const bool is_open = opened == PARE_OK;
    opened = pare_comm_settle(trainer->pipeline ? trainer->options.comm : NULL, opened);
    if (opened != PARE_OK && is_open) pare_reader_close(reader);
    PARE_TRY(opened);
    const pare_status st = run_all(trainer, reader, values, t);
    pare_reader_close(reader);
    return st;
}

/* Losses are added in order of microbatches, whoever ran them. */
static pare_status score_all(pare_trainer *trainer, const float *values, int64_t all, tally *t,
                             pare_distill_score *out)
{
    const double samples = (double)(all * trainer->rows);
    double loss = 0;
    PARE_TRY(score_own(trainer, values, all, t));
    PARE_TRY(pare_ranks_join(trainer->options.comm, t->loss, all));
    PARE_TRY(pare_comm_allreduce(trainer->options.comm, t->counts, 2, PARE_COMM_SUM_U64));
    for (int64_t i = 0; i < all; i++) loss += t->loss[i];
    *out = (pare_distill_score){.loss = loss / (double)all, .agreement = -1, .top1 = -1};
    if (!t->graph->nodes.logits) return PARE_OK;
    out->agreement = (double)t->counts[0] / samples;
    if (trainer->held_labels) out->top1 = (double)t->counts[1] / samples;
    return PARE_OK;
}

pare_status pare_trainer_score(pare_trainer *trainer, const float *values, pare_distill_score *out)
{
    const int64_t all = trainer->held_count / trainer->rows;
    tally t = {.graph = &trainer->check};
    t.loss = pare_alloc(trainer->ctx, (size_t)all, sizeof *t.loss);
    if (!t.loss) return PARE_MEMORY;
    const pare_status st = score_all(trainer, values, all, &t, out);
    pare_free(t.loss);
    return st;
}

/* --- the first tensor that is not finite --- */

typedef struct search {
    const pare_value *found;
    bool nan;
} search;

static bool row_finite(const float *x, int64_t count, int64_t stride, bool *nan)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i * stride])) {
            *nan = isnan(x[i * stride]);
            return false;
        }
    return true;
}

/* f32 alone: what f64 there is, is made of it. */
static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    search *s = user;
    int64_t at[PARE_MAX_RANK] = {0}, rows = 1;
    const int last = view->rank - 1;
    if (s->found || view->dtype != PARE_f32 || !view->data || !pare_view_count(view))
        return PARE_OK;
    for (int k = 0; k < last; k++) rows *= view->dim[k];
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0;
        for (int k = 0; k < last; k++) offset += at[k] * view->stride[k];
        if (!row_finite((const float *)view->data + offset, last < 0 ? 1 : view->dim[last],
                        last < 0 ? 1 : view->stride[last], &s->nan)) {
            s->found = value;
            return PARE_OK;
        }
        for (int k = last - 1; k >= 0 && ++at[k] == view->dim[k]; k--) at[k] = 0;
    }
    return PARE_OK;
}

/* The teacher's tensor that this input of the graph is, or NULL. */
static const pare_value *of_teacher(const pare_microbatches *s, const pare_value *v)
{
    const pare_train_graph *g = s->graph;
    for (int i = 0; i < pare_plan_input_count(g->plan); i++)
        if (g->feed[i].kind == PARE_FEED_TEACHER &&
            !strcmp(pare_plan_input(g->plan, i)->name, v->name))
            return s->teacher->wanted[g->feed[i].index];
    return NULL;
}

static pare_status fail_nonfinite(const pare_microbatches *s, const search *found, const char *what,
                                  const char *hint)
{
    const pare_value *v = found->found;
    const pare_node *n = v ? v->producer : NULL;
    const char *path = s->graph->student->path, *kind = found->nan ? "NaN" : "infinity";
    if (!v) return PARE_FAIL(s->ctx, INPUT, "%s: %s; %s", path, what, hint);
    const pare_value *its = n ? NULL : of_teacher(s, v);
    if (its)
        return PARE_FAIL(s->ctx, INPUT, "%s: %s; output '%s' of the teacher, %s, holds %s; %s",
                         path, what, its->name, s->teacher->file->path, kind, hint);
    if (!n)
        return PARE_FAIL(s->ctx, INPUT, "%s: %s; '%s' holds %s; %s", path, what, v->name, kind,
                         hint);
    return PARE_FAIL(s->ctx, INPUT,
                     "%s: %s; node '%s' (%s): its result '%s' is the first to hold %s; %s", path,
                     what, *n->name ? n->name : v->name, n->op_type, v->name, kind, hint);
}

pare_status pare_microbatches_find_nonfinite(pare_microbatches *s, const char *what,
                                             const char *hint)
{
    search found = {NULL, false};
    pare_runner *runner;
    PARE_TRY(pare_runner_new(s->ctx, &runner, s->graph->plan));
    pare_runner_observe(runner, look, &found);
    pare_status st = PARE_OK;
    select_batch(s, &s->learnt, s->weights->value);
    for (int slice = 0; slice < s->full && !found.found && st == PARE_OK; slice++) {
        st = load_microbatch(s, slice, runner, 0);
        if (st == PARE_OK) st = pare_runner_run(runner);
    }
    pare_runner_free(runner);
    if (st == PARE_OK && found.found) st = fail_nonfinite(s, &found, what, hint);
    PARE_TRY(pare_comm_settle(s->comm, st));
    return fail_nonfinite(s, &found, what, hint); /* no rank finds it */
}
