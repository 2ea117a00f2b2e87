/* SPDX-License-Identifier: Apache-2.0 */
/* Samples are independent, so a batch is cut into units of as many rows as the plan has, and a
   replica pool runs one-thread plans side by side: no thread waits for another within a network.
   Sums may change with the rows that a plan has, so a plan's rows follow from the batch alone:
   outputs are the same with any number of threads. */
#include "runtime/eval/pipeline.h"
#include "runtime/eval/predict.h"
#include "runtime/exec/shards.h"

#include <assert.h>
#include <string.h>

enum { UNITS = 16 }; /* of a batch on the CPU, a run of the plan each */

static pare_status check_inputs(pare_ctx *ctx, const pare_model *model,
                                const pare_data_input *inputs, int input_count)
{
    const pare_values *in = &model->graph->in;
    for (int i = 0; i < in->count; i++) {
        bool found = in->item[i]->is_init;
        for (int k = 0; k < input_count; k++) found |= !strcmp(in->item[i]->name, inputs[k].name);
        if (!found)
            return PARE_FAIL(ctx, INPUT,
                             "%s: input '%s' is not among the inputs of the first model; "
                             "models that are compared need the same input names",
                             model->path, in->item[i]->name);
    }
    for (int k = 0; k < input_count; k++) {
        const pare_value *value = pare_graph_find_own(model->graph, inputs[k].name);
        if (!value || !value->is_input)
            return PARE_FAIL(ctx, INPUT,
                             "%s: has no input '%s', which the first model has; models that "
                             "are compared need the same input names",
                             model->path, inputs[k].name);
    }
    return PARE_OK;
}

static pare_status make_arrays(pare_predictor *p)
{
    p->shape = pare_alloc(p->ctx, (size_t)p->input_count, sizeof *p->shape);
    p->out = pare_alloc(p->ctx, (size_t)p->output_count, sizeof *p->out);
    if (!p->shape || !p->out) return PARE_MEMORY;
    for (int i = 0; i < p->input_count; i++) p->shape[i].name = p->input[i].name;
    return PARE_OK;
}

pare_status pare_predictor_new(pare_ctx *ctx, pare_predictor **out, const pare_model *model,
                               pare_data *data, const pare_data_input *inputs, int input_count,
                               const pare_plan_options *options)
{
    int64_t fixed;
    PARE_TRY(check_inputs(ctx, model, inputs, input_count));
    PARE_TRY(pare_data_run_samples(ctx, data, model, &fixed));
    pare_predictor *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    p->ctx = ctx;
    p->model = model;
    p->input = inputs;
    p->data = data;
    p->input_count = input_count;
    p->output_count = model->graph->out.count;
    p->parallel = PARE_PARALLEL_NONE;
    p->fixed = fixed < 65536 ? (int)fixed : 0;
    p->alone = pare_data_runs_alone(data);
    pare_device *device = options->device;
    pare_pixels pixels;
    const bool whole = options->stages < 2; /* else inputs may cross to another stage */
    for (int i = 0; device && device->samples && whole && i < input_count; i++)
        (void)pare_data_take_pixels(data, i, &pixels);
    p->options = *options;
    p->options.threads = 1;
    p->threads = options->threads;
    pare_status st = make_arrays(p);
    if (st == PARE_OK)
        *out = p;
    else
        pare_predictor_free(p);
    return st;
}

void pare_predictor_unplan(pare_predictor *p)
{
    pare_replicas_free(p->pool);
    pare_plan_free(p->plan);
    p->pool = NULL;
    p->plan = NULL;
}

void pare_predictor_free(pare_predictor *p)
{
    if (!p) return;
    pare_predictor_unplan(p);
    pare_pipeline_free(p->pipeline);
    pare_free(p->activations);
    for (int i = 0; p->out && i < p->output_count; i++) pare_output_rows_free(&p->out[i]);
    pare_free(p->out);
    pare_free(p->shape);
    pare_free(p);
}

void pare_convert(void *to, pare_dtype to_type, const void *from, pare_dtype from_type, int64_t n)
{
    const pare_type_info *t = pare_type(to_type), *f = pare_type(from_type);
    size_t wide = (size_t)t->bits / 8, narrow = (size_t)f->bits / 8;
    for (int64_t i = 0; i < n; i++)
        t->from_f32_ref((char *)to + (size_t)i * wide,
                        f->to_f32((const char *)from + (size_t)i * narrow));
}

/* Stored pixels to what a runner reads that does not take them. */
static void convert_pixels(void *to, pare_dtype type, const uint8_t *raw, const pare_pixels *p)
{
    const pare_type_info *t = pare_type(type);
    for (int64_t i = 0; i < p->count; i++) {
        int64_t place = p->rows ? i % p->rows * p->columns + i / p->rows : i;
        t->from_f32_ref((char *)to + (size_t)i * ((size_t)t->bits / 8),
                        p->table[i / p->inner % p->channels * 256 + raw[place]]);
    }
}

/* The number of input i among those of the plan; those it has where nothing reads it. */
static int place_of(const pare_predictor *p, int i)
{
    int at = 0;
    while (at < pare_plan_input_count(p->plan) &&
           strcmp(pare_plan_input(p->plan, at)->name, p->input[i].name) != 0)
        at++;
    return at;
}

/* --- the plan --- */

/* Stored pixels become floats on the device. */
static pare_status take_pixels(const pare_predictor *p, const pare_replica *replica)
{
    pare_pixels pixels;
    pare_status st = PARE_OK;
    for (int i = 0; i < p->input_count && st == PARE_OK; i++) {
        int at = place_of(p, i);
        if (at < pare_plan_input_count(p->plan) && pare_data_has_pixels(p->data, i, &pixels))
            st = pare_runner_take_pixels(replica->runner, at, &pixels);
    }
    return st == PARE_OK ? st : pare_fail(p->ctx, st, "%s", replica->ctx.message);
}

/* On a device copies go on while it computes. Not with products that ranks share, whose runs meet,
   nor where outputs' shapes are known after a run. */
static bool looks_ahead(const pare_predictor *p)
{
    return p->options.device && p->options.shards < 2 && !pare_plan_is_dynamic(p->plan);
}

static pare_status open_plan(pare_predictor *p)
{
    const pare_device *device = p->options.device;
    for (int i = 0; i < p->input_count; i++)
        p->shape[i].shape = pare_data_run_shape(p->data, i, p->rows);
    PARE_TRY(pare_plan_new(p->ctx, &p->plan, p->model, p->shape, p->input_count, &p->options));
    const pare_replicas_options pool = {.threads = p->threads, .overlap = looks_ahead(p)};
    PARE_TRY(pare_replicas_new(p->ctx, &p->pool, p->plan, &pool));
    return device && device->samples ? take_pixels(p, pare_replicas_at(p->pool, 0)) : PARE_OK;
}

/* The rows of a plan for batches of `count`. */
static int rows_of_plan(const pare_predictor *p, int count)
{
    if (p->fixed) return p->fixed;
    const int rows = p->options.device ? count : (count + UNITS - 1) / UNITS;
    return p->most && rows > p->most ? p->most : rows;
}

/* The plan serves all batches, so that a shorter last one needs no second copy of the weights. On a
   device it is made for half the rows, again and again, where its memory does not hold them. */
pare_status pare_predictor_plan(pare_predictor *p, int count)
{
    if (p->pool) return PARE_OK;
    const int wanted = rows_of_plan(p, count);
    p->rows = wanted;
    pare_status st = open_plan(p);
    while (st == PARE_MEMORY && p->options.device && !p->fixed && p->rows > 1) {
        pare_ctx_clear(p->ctx);
        pare_predictor_unplan(p); /* and what it holds on the device */
        p->rows = (p->rows + 1) / 2;
        st = open_plan(p);
    }
    if (st != PARE_OK) {
        pare_predictor_unplan(p);
        return st;
    }
    if (p->rows < wanted)
        pare_log(p->ctx, PARE_LOG_WARNING,
                 "%s: the device's memory does not hold %d samples at once; %d are run at a time",
                 p->model->path, wanted, p->rows);
    return PARE_OK;
}

static pare_status find_plan(pare_predictor *p, int count)
{
    if (p->pool) return PARE_OK;
    return p->comm ? pare_predictor_shard(p, count) : pare_predictor_plan(p, count);
}

static int units_of(const pare_predictor *p, int count) { return (count + p->rows - 1) / p->rows; }

/* What the runs of a batch touch: activations and inputs of as many replicas as work, and the
   outputs of all rows. */
static size_t batch_bytes(const pare_predictor *p, int count)
{
    const int units = units_of(p, count), threads = pare_replicas_threads(p->pool);
    const size_t sets = looks_ahead(p) ? 2 : 1; /* of a runner's inputs; then of its outputs, too */
    size_t each = pare_plan_activation_bytes(p->plan), kept = 0, bytes;
    for (int i = 0; i < pare_plan_input_count(p->plan); i++) {
        const pare_value *v = pare_plan_input(p->plan, i);
        if (pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes)) each += sets * bytes;
    }
    for (int i = 0; i < pare_plan_output_count(p->plan); i++) {
        const pare_value *v = pare_plan_output(p->plan, i);
        if (pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes)) kept += bytes;
    }
    if (sets > 1) each += sets * kept;
    const pare_plan_sharding *s = pare_plan_sharding_of(p->plan);
    if (s) each += 2 * s->largest; /* messages */
    return (size_t)(units < threads ? units : threads) * each + kept * (size_t)units;
}

pare_status pare_predictor_prepare(pare_predictor *p, int64_t count, int64_t all, size_t *to_come)
{
    if (count > all) count = all;
    if (p->comm && p->parallel == PARE_PIPELINE) return pare_predictor_stage(p, count, to_come);
    PARE_TRY(find_plan(p, (int)count));
    *to_come = batch_bytes(p, (int)count);
    return PARE_OK;
}

/* --- a unit --- */

int pare_predictor_unit_rows(const pare_predictor *p, int count, int64_t unit)
{
    const int64_t left = count - unit * p->rows;
    return (int)(left < p->rows ? left : p->rows);
}

/* Gives the runner a unit's rows of an input, or the one that is the unit's; rows up to the plan's
   repeat the last one. */
static pare_status feed(const pare_predictor *p, pare_replica *replica, int i, const pare_batch *b,
                        int64_t unit)
{
    int at = place_of(p, i), take = pare_predictor_unit_rows(p, b->count, unit);
    if (at == pare_plan_input_count(p->plan)) return PARE_OK;
    pare_view view = pare_runner_input(replica->runner, at);
    pare_pixels pixels;
    bool raw = pare_data_has_pixels(p->data, i, &pixels);
    pare_dtype from = raw ? PARE_u8 : p->input[i].dtype;
    const bool single = p->shape[i].shape.rank < pare_data_shape(p->data, i)->rank;
    int64_t batch = single ? 1 : view.dim[0], row = pare_view_count(&view) / (batch ? batch : 1);
    size_t bytes = (size_t)pare_type(from)->bits / 8 * (size_t)row;
    const char *source = pare_data_run_input(p->data, b->input, i, unit * p->rows);
    if (from != view.dtype && !(pare_type(from)->to_f32 && pare_type(view.dtype)->from_f32_ref))
        return PARE_FAIL(&replica->ctx, INPUT, "%s: input '%s' is %s, the data are %s",
                         p->model->path, p->input[i].name, pare_type(view.dtype)->name,
                         pare_type(from)->name);
    size_t wide = (size_t)pare_type(view.dtype)->bits / 8 * (size_t)row;
    for (int r = 0; r < batch; r++) {
        const char *from_row = source + (size_t)(r < take ? r : take - 1) * bytes;
        char *to = (char *)view.data + (size_t)r * wide;
        if (from == view.dtype)
            memcpy(to, from_row, bytes);
        else if (raw)
            convert_pixels(to, view.dtype, (const uint8_t *)from_row, &pixels);
        else
            pare_convert(to, view.dtype, from_row, from, row);
    }
    return PARE_OK;
}

pare_status pare_predictor_load(void *user, int64_t run, pare_replica *replica)
{
    const pare_predictor *p = user;
    const pare_batch now = {.input = p->inputs, .count = p->count};
    const bool ahead = p->next.count && run >= p->first + units_of(p, p->count);
    const int64_t unit = ahead ? 0 : run - p->first;
    for (int i = 0; i < p->input_count; i++)
        PARE_TRY(feed(p, replica, i, ahead ? &p->next : &now, unit));
    return PARE_OK;
}

/* --- a batch --- */

/* Puts the first run of the next batch behind those of this one. */
static pare_status run_next(pare_predictor *p, const pare_batch_work *work)
{
    if (!p->reader || !looks_ahead(p)) return PARE_OK;
    pare_reader_peek(p->reader, &p->next);
    if (!p->next.count) return PARE_OK;
    return pare_replicas_run(p->pool, p->begun++, 1, work);
}

static pare_status run_all(pare_predictor *p, int64_t end, const pare_batch_work *work)
{
    PARE_TRY(pare_replicas_run(p->pool, p->begun, end - p->begun, work));
    p->begun = end;
    PARE_TRY(run_next(p, work));
    return pare_replicas_finish(p->pool, end);
}

pare_status pare_predictor_run(pare_predictor *p, int units, const pare_batch_work *work)
{
    pare_batch_work queued = *work;
    queued.in_flight = true;
    const pare_status st = run_all(p, p->first + units, &queued);
    p->first += units;
    if (st == PARE_OK) return PARE_OK;
    p->begun = p->first; /* nothing is in flight */
    p->next.count = 0;
    return st;
}

pare_status pare_predict(pare_predictor *p, const pare_batch *batch, pare_reader *reader)
{
    assert(!p->next.count || p->next.first == batch->first);
    p->next.count = 0;
    p->inputs = batch->input;
    p->count = batch->count;
    p->reader = reader;
    if (p->pipeline) return pare_predict_staged(p);
    PARE_TRY(find_plan(p, p->count));
    return pare_comm_settle(p->comm, pare_predictor_collect(p, units_of(p, p->count)));
}
