/* SPDX-License-Identifier: Apache-2.0 */
/* Plan: a replica pool runs the microbatches; who loads one runs the teacher on it first, so that
   what the teacher gives is used while it is in the cache. Gradients are added in order of
   microbatches. */
#include "distill/step.h"
#include "distill/inputs.h"
#include "distill/device_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where a runner's gradients are on the device; its outputs never move. */
typedef struct pare_source {
    const pare_runner *runner;
    void *table; /* (trained weights) addresses, on the device */
} pare_source;

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
    const pare_replicas_options options = {.items = s->count, .threads = threads, .share = true};
    PARE_TRY(pare_replicas_new(s->ctx, &s->pool, s->graph->plan, &options));
    s->source_of = pare_alloc(s->ctx, (size_t)pare_replicas_count(s->pool), sizeof *s->source_of);
    return s->source_of ? PARE_OK : PARE_MEMORY;
}

pare_status pare_microbatches_open(pare_ctx *ctx, pare_microbatches *out,
                                   const pare_train_graph *graph, pare_teacher *teacher,
                                   const pare_weights *weights, const pare_data *data, int count,
                                   int threads)
{
    *out = (pare_microbatches){.ctx = ctx,
                               .graph = graph,
                               .teacher = teacher,
                               .weights = weights,
                               .count = count,
                               .loss_scale = 1};
    return make(out, data, threads);
}

void pare_microbatches_free(pare_microbatches *s)
{
    for (int i = 0; i < s->source_count; i++)
        s->weights->there->device->backend->free(s->weights->there->device, s->source_of[i].table);
    pare_free(s->source_of);
    if (s->given)
        for (int i = 0; i < s->count * s->teacher->wanted_count; i++) pare_free(s->given[i]);
    pare_replicas_free(s->pool);
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

static const void *feed_of(const pare_microbatches *s, const pare_feed *feed, int slice,
                           int64_t row)
{
    switch (feed->kind) {
    case PARE_FEED_DATA: return inputs_of(s, slice)[feed->index];
    case PARE_FEED_TEACHER: return given_of(s, slice)[feed->index];
    case PARE_FEED_LABELS: return s->batch->label + row;
    case PARE_FEED_LOSS_SCALE: return &s->loss_scale;
    case PARE_FEED_WEIGHT: break;
    }
    return s->values + s->weights->item[feed->index].at;
}

/* A slice that there is no data for computes what the last one does, and no one takes it. */
pare_status pare_microbatches_load(pare_microbatches *s, int slice, pare_runner *runner, int worker)
{
    const int64_t row = (slice < s->full ? slice : s->full - 1) * s->graph->rows;
    const void **input = inputs_of(s, slice);
    for (int i = 0; i < s->input_count; i++) input[i] = input_of(s, i, row);
    if (s->pictures) pare_augmented_fill(s->pictures, s->source, slice, input);
    PARE_TRY(
        pare_teacher_run(s->teacher, worker, pare_runner_ctx(runner), input, given_of(s, slice)));
    for (int i = 0; i < pare_plan_input_count(s->graph->plan); i++)
        pare_runner_set_input(runner, i, feed_of(s, &s->graph->feed[i], slice, row));
    return PARE_OK;
}

static pare_status load(void *user, int64_t slice, pare_replica *replica)
{
    return pare_microbatches_load(user, (int)slice, replica->runner, replica->worker);
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    pare_microbatches *s = user;
    const int slice = (int)item;
    if (slice >= s->full) return PARE_OK;
    return s->take(s->user, slice, replica->runner, given_of(s, slice));
}

void pare_microbatches_select(pare_microbatches *s, const pare_batch *batch, const float *values)
{
    s->batch = batch;
    s->values = values;
    s->full = (int)(batch->count / s->graph->rows);
}

pare_status pare_microbatches_run(pare_microbatches *s, const pare_batch *batch,
                                  const float *values, pare_microbatch_fn fn, void *user)
{
    const pare_batch_work work = {.load = load, .take = take, .user = s};
    pare_microbatches_select(s, batch, values);
    s->take = fn;
    s->user = user;
    pare_status st = s->full ? pare_replicas_run(s->pool, 0, s->count, &work) : PARE_OK;
    s->user = NULL;
    return st;
}

/* --- gradients --- */

typedef struct learning {
    pare_microbatches *microbatches;
    const pare_train_graph *graph;
    pare_weights *weights;
    bool first;
    double loss;
} learning;

static pare_status find_source(learning *l, const pare_runner *runner, void **out)
{
    pare_microbatches *s = l->microbatches;
    const int count = l->weights->trained;
    for (int i = 0; i < s->source_count; i++)
        if (s->source_of[i].runner == runner) {
            *out = s->source_of[i].table;
            return PARE_OK;
        }
    const void **from = pare_alloc(s->ctx, (size_t)count, sizeof *from);
    if (!from) return PARE_MEMORY;
    for (int k = 0; k < count; k++)
        from[k] = pare_runner_output(runner, l->graph->gradient_at[k]).data;
    pare_status st = pare_device_copy(s->ctx, l->weights->there->device, out, from,
                                      (size_t)count * sizeof *from);
    pare_free(from);
    if (st == PARE_OK) s->source_of[s->source_count++] = (pare_source){runner, *out};
    return st;
}

static pare_status add_device(learning *l, int slice, const pare_runner *runner)
{
    const pare_device_weights *there = l->weights->there;
    void *from;
    PARE_TRY(find_source(l, runner, &from));
    return there->device->training->gather(pare_runner_ctx(runner),
                                           pare_replicas_stream(l->microbatches->pool),
                                           &there->blocks, from, l->first && !slice);
}

static pare_status add_slice(void *user, int slice, const pare_runner *runner, void *const *teacher)
{
    learning *l = user;
    (void)teacher;
    l->loss += (double)*(const float *)pare_runner_output(runner, l->graph->loss).data /
               (double)l->microbatches->loss_scale;
    for (int i = 0; !slice && i < l->graph->norm_count; i++)
        pare_batchnorm_follow(&l->graph->norm[i], l->weights, runner);
    if (l->weights->there) return add_device(l, slice, runner);
    for (int k = 0; k < l->weights->trained; k++) {
        const pare_view view = pare_runner_output(runner, l->graph->gradient_at[k]);
        const float *from = view.data;
        float *to = l->weights->gradient + l->weights->item[k].at;
        const int64_t count = l->weights->item[k].tensor->count;
        if (l->first && !slice)
            memcpy(to, from, (size_t)count * sizeof *to);
        else
            for (int64_t i = 0; i < count; i++) to[i] += from[i];
    }
    return PARE_OK;
}

pare_status pare_microbatches_learn(pare_microbatches *s, pare_weights *weights,
                                    const pare_loader_batch *batch, const pare_augmented *pictures,
                                    bool first, double *loss)
{
    learning l = {.microbatches = s, .graph = s->graph, .weights = weights, .first = first};
    s->learnt = (pare_batch){.count = batch->count, .input = batch->input, .label = batch->label};
    s->source = batch;
    s->pictures = pictures->inputs ? pictures : NULL;
    PARE_TRY(pare_microbatches_run(s, &s->learnt, weights->value, add_slice, &l));
    *loss += l.loss;
    return PARE_OK;
}
