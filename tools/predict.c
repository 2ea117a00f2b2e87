/* SPDX-License-Identifier: Apache-2.0 */
/* Samples are independent, so each thread runs its part of a batch by one-thread plans: no thread
   waits for another within a network. Sums may change with the rows that a plan has, so a plan's
   rows follow from the batch alone: outputs are the same with any number of threads. */
#include "tools/predict.h"

#include "runtime/base/size.h"
#include "tools/memory.h"

#include <pthread.h>
#include <string.h>

enum { SLICES = 16 }; /* of a batch on the CPU, a run of a plan each */

typedef struct output_rows {
    char *data;
    float *f32;      /* of other types than f32 */
    size_t capacity; /* elements */
    int64_t size;
    pare_dtype dtype;
    pare_shape shape;
    const char *name;
} output_rows;

/* One thread's share of a batch. */
typedef struct part {
    pare_predictor *whole;
    pare_ctx ctx;
    pare_session *session;
    pare_input_shape *shape; /* (inputs), batch axis set before each run */
    output_rows *out;        /* (outputs), of this part's rows */
    pare_runner *runner;     /* for `batch` rows */
    pare_device *device;
    void *const *inputs;
    int first, take, batch; /* rows of the whole batch; rows at once */
    pthread_t thread;
    pare_status status;
} part;

struct pare_predictor {
    pare_ctx *ctx;
    const pare_model *model;
    const pare_data_input *input;
    const pare_data *data;
    int input_count, output_count, fixed, part_count;
    bool on_device;
    pare_plan_options options;
    int rows; /* of each plan, into which every batch is filled; 0: none yet */
    part *part;
    output_rows *out; /* of the whole batch */
};

int pare_model_fixed_batch(const pare_model *model)
{
    const pare_values *in = &model->graph->in;
    for (int i = 0; i < in->count; i++) {
        const pare_shape *shape = &in->item[i]->shape;
        if (!in->item[i]->is_init && shape->rank > 0)
            return shape->dim[0] > 0 && shape->dim[0] < 65536 ? (int)shape->dim[0] : 0;
    }
    return 0;
}

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

static pare_status open_part(pare_predictor *p, part *one, const pare_data *data,
                             pare_device *device)
{
    one->whole = p;
    one->device = device && device->samples ? device : NULL;
    pare_ctx_child(&one->ctx, p->ctx);
    one->shape = pare_alloc(p->ctx, (size_t)p->input_count, sizeof *one->shape);
    one->out = pare_alloc(p->ctx, (size_t)p->output_count, sizeof *one->out);
    if (!one->shape || !one->out) return PARE_MEMORY;
    for (int i = 0; i < p->input_count; i++)
        one->shape[i] = (pare_input_shape){p->input[i].name, *pare_data_shape(data, i)};
    return pare_session_new(&one->ctx, &one->session, p->model, &p->options);
}

pare_status pare_predictor_new(pare_ctx *ctx, pare_predictor **out, const pare_model *model,
                               pare_data *data, const pare_data_input *inputs, int input_count,
                               const pare_plan_options *options)
{
    PARE_TRY(check_inputs(ctx, model, inputs, input_count));
    pare_predictor *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    p->ctx = ctx;
    p->model = model;
    p->input = inputs;
    p->data = data;
    p->input_count = input_count;
    p->output_count = model->graph->out.count;
    p->fixed = pare_model_fixed_batch(model);
    pare_device *device = options->device;
    pare_pixels pixels;
    for (int i = 0; device && device->samples && i < input_count; i++)
        (void)pare_data_take_pixels(data, i, &pixels);
    p->on_device = device != NULL;
    p->options = *options;
    p->options.threads = 1;
    p->part_count = device ? 1 : options->threads > 0 ? options->threads : pare_cpu_cores();
    p->part = pare_alloc(ctx, (size_t)p->part_count, sizeof *p->part);
    p->out = pare_alloc(ctx, (size_t)p->output_count, sizeof *p->out);
    pare_status st = p->part && p->out ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < p->part_count; i++) {
        st = open_part(p, &p->part[i], data, device);
        if (st != PARE_OK) (void)pare_fail(ctx, st, "%s", p->part[i].ctx.message);
    }
    if (st == PARE_OK)
        *out = p;
    else
        pare_predictor_free(p);
    return st;
}

static void free_rows(output_rows *out, int count)
{
    for (int i = 0; out && i < count; i++) {
        pare_free(out[i].data);
        pare_free(out[i].f32);
    }
    pare_free(out);
}

void pare_predictor_free(pare_predictor *p)
{
    if (!p) return;
    for (int i = 0; p->part && i < p->part_count; i++) {
        if (p->part[i].session) pare_session_free(p->part[i].session);
        free_rows(p->part[i].out, p->output_count);
        pare_free(p->part[i].shape);
    }
    pare_free(p->part);
    free_rows(p->out, p->output_count);
    pare_free(p);
}

static void convert(void *to, pare_dtype to_type, const void *from, pare_dtype from_type, int64_t n)
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

/* The number of input i among those of the plan; those it has where nobody reads it. */
static int place_of(const pare_predictor *p, const pare_plan *plan, int i)
{
    int at = 0;
    while (at < pare_plan_input_count(plan) &&
           strcmp(pare_plan_input(plan, at)->name, p->input[i].name) != 0)
        at++;
    return at;
}

/* Gives the runner rows [first, first + take) of an input; rows up to the runner's batch repeat the
   last one. */
static pare_status feed(part *one, pare_runner *runner, int i, const void *rows, int first,
                        int take)
{
    const pare_plan *plan = pare_runner_plan(runner);
    const pare_predictor *p = one->whole;
    int at = place_of(p, plan, i);
    if (at == pare_plan_input_count(plan)) return PARE_OK;
    pare_view view = pare_runner_input(runner, at);
    pare_pixels pixels;
    bool raw = pare_data_has_pixels(p->data, i, &pixels);
    pare_dtype from = raw ? PARE_u8 : p->input[i].dtype;
    int64_t batch = view.rank ? view.dim[0] : 1, row = pare_view_count(&view) / (batch ? batch : 1);
    size_t bytes = (size_t)pare_type(from)->bits / 8 * (size_t)row;
    const char *source = (const char *)rows + (size_t)first * bytes;
    if (from != view.dtype && !(pare_type(from)->to_f32 && pare_type(view.dtype)->from_f32_ref))
        return PARE_FAIL(&one->ctx, INPUT, "%s: input '%s' is %s, the data are %s", p->model->path,
                         p->input[i].name, pare_type(view.dtype)->name, pare_type(from)->name);
    size_t wide = (size_t)pare_type(view.dtype)->bits / 8 * (size_t)row;
    for (int r = 0; r < batch; r++) {
        const char *from_row = source + (size_t)(r < take ? r : take - 1) * bytes;
        char *to = (char *)view.data + (size_t)r * wide;
        if (from == view.dtype)
            memcpy(to, from_row, bytes);
        else if (raw)
            convert_pixels(to, view.dtype, (const uint8_t *)from_row, &pixels);
        else
            convert(to, view.dtype, from_row, from, row);
    }
    return PARE_OK;
}

/* Room for count rows, of which the first `kept` stay. */
static pare_status make_room(pare_ctx *ctx, const char *path, output_rows *out, int kept, int count)
{
    size_t need, bytes, wide = (size_t)pare_type(out->dtype)->bits / 8;
    if (!wide || !pare_mul_size((size_t)out->size, (size_t)count, &need) ||
        !pare_mul_size(need, wide, &bytes))
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "%s: output '%s' is %s of %lld elements per sample, which "
                         "cannot be collected",
                         path, out->name, pare_type(out->dtype)->name, (long long)out->size);
    if (need <= out->capacity) return PARE_OK;
    char *more = pare_alloc(ctx, need, wide);
    if (!more) return PARE_MEMORY;
    if (kept) memcpy(more, out->data, (size_t)kept * (size_t)out->size * wide);
    pare_free(out->data);
    out->data = more;
    out->capacity = need;
    return PARE_OK;
}

/* Keeps the first `take` rows of output i behind the `done` rows this part has. */
static pare_status collect(part *one, const pare_runner *runner, int i, int batch, int done,
                           int take)
{
    pare_view view = pare_runner_output(runner, i);
    const pare_predictor *p = one->whole;
    output_rows *out = &one->out[i];
    out->name = p->model->graph->out.item[i]->name;
    if (!view.rank || view.dim[0] != batch)
        return PARE_FAIL(&one->ctx, INPUT,
                         "%s: output '%s' has %lld rows for %d samples; models without "
                         "one row per sample cannot be run on a data set",
                         p->model->path, out->name, view.rank ? (long long)view.dim[0] : 0LL,
                         batch);
    out->size = pare_view_count(&view) / batch;
    out->dtype = view.dtype;
    out->shape.rank = view.rank - 1;
    for (int d = 1; d < view.rank; d++) out->shape.dim[d - 1] = view.dim[d];
    PARE_TRY(make_room(&one->ctx, p->model->path, out, done, one->take));
    size_t row = (size_t)out->size * (size_t)pare_type(view.dtype)->bits / 8;
    memcpy(out->data + (size_t)done * row, view.data, (size_t)take * row);
    return PARE_OK;
}

static pare_status run_part(part *one)
{
    const pare_predictor *p = one->whole;
    for (int done = 0; done < one->take; done += one->batch) {
        int take = one->take - done < one->batch ? one->take - done : one->batch;
        PARE_TRY(pare_ctx_poll(&one->ctx));
        for (int i = 0; i < p->input_count; i++)
            PARE_TRY(feed(one, one->runner, i, one->inputs[i], one->first + done, take));
        PARE_TRY(pare_runner_run(one->runner));
        for (int i = 0; i < p->output_count; i++)
            PARE_TRY(collect(one, one->runner, i, one->batch, done, take));
    }
    return PARE_OK;
}

/* Stored pixels become floats on the device. */
static pare_status pixels_take(const pare_predictor *p, part *one)
{
    const pare_plan *plan = pare_runner_plan(one->runner);
    pare_pixels pixels;
    for (int i = 0; i < p->input_count; i++) {
        int at = place_of(p, plan, i);
        if (at == pare_plan_input_count(plan) || !pare_data_has_pixels(p->data, i, &pixels))
            continue;
        if (pare_runner_input(one->runner, at).dtype == PARE_f32) /* not yet */
            PARE_TRY(pare_runner_take_pixels(one->runner, at, &pixels));
    }
    return PARE_OK;
}

static pare_status runner_of(pare_predictor *p, part *one)
{
    for (int i = 0; i < p->input_count; i++)
        if (one->shape[i].shape.rank) one->shape[i].shape.dim[0] = one->batch;
    PARE_TRY(pare_session_runner(one->session, &one->runner, one->shape, p->input_count));
    return one->device ? pixels_take(p, one) : PARE_OK;
}

/* Forgets the plans, and with them what they hold on the device. */
static pare_status session_renew(pare_predictor *p, part *one)
{
    pare_ctx_clear(&one->ctx);
    pare_session_free(one->session);
    one->session = NULL;
    return pare_session_new(&one->ctx, &one->session, p->model, &p->options);
}

/* The rows of plans for batches of `count`. */
static int rows_of_plan(const pare_predictor *p, int count)
{
    if (p->fixed) return p->fixed;
    return p->on_device ? count : (count + SLICES - 1) / SLICES;
}

/* The runner for this part's rows. Plans are made on one thread: they share the model. One plan
   serves all batches, so that a shorter last one needs no second copy of the weights. On a device
   it is made for half the rows, again and again, where its memory does not hold them. */
static pare_status find_runner(pare_predictor *p, part *one)
{
    const int wanted = p->rows;
    one->batch = wanted;
    pare_status st = runner_of(p, one);
    while (st == PARE_MEMORY && p->on_device && !p->fixed && one->batch > 1) {
        one->batch = (one->batch + 1) / 2;
        st = session_renew(p, one);
        if (st == PARE_OK) st = runner_of(p, one);
    }
    if (st != PARE_OK) return pare_fail(p->ctx, st, "%s", one->ctx.message);
    p->rows = one->batch;
    if (one->batch < wanted)
        pare_log(p->ctx, PARE_LOG_WARNING,
                 "%s: the device's memory does not hold %d samples at once; %d are run at a time",
                 p->model->path, wanted, one->batch);
    return PARE_OK;
}

static void *work(void *user)
{
    part *one = user;
    one->status = run_part(one);
    return NULL;
}

/* Puts the parts' rows one behind the other. */
static pare_status join_rows(pare_predictor *p, int i, int parts, int count)
{
    output_rows *out = &p->out[i];
    const output_rows *like = &p->part[0].out[i];
    size_t row = (size_t)like->size * (size_t)pare_type(like->dtype)->bits / 8,
           before = out->capacity;
    out->name = like->name;
    out->dtype = like->dtype;
    out->size = like->size;
    out->shape = like->shape;
    PARE_TRY(make_room(p->ctx, p->model->path, out, 0, count));
    for (int k = 0; k < parts; k++)
        memcpy(out->data + (size_t)p->part[k].first * row, p->part[k].out[i].data,
               (size_t)p->part[k].take * row);
    if (out->dtype == PARE_f32 || !pare_type(out->dtype)->to_f32) return PARE_OK;
    if (out->capacity > before) {
        pare_free(out->f32);
        out->f32 = pare_alloc(p->ctx, out->capacity, sizeof *out->f32);
        if (!out->f32) return PARE_MEMORY;
    }
    convert(out->f32, PARE_f32, out->data, out->dtype, count * out->size);
    return PARE_OK;
}

/* Runs the parts, the first one on this thread; the first failure is the predictor's. */
static pare_status run_parts(pare_predictor *p, int parts)
{
    pare_status st = PARE_OK;
    int started = 1;
    while (started < parts &&
           !pthread_create(&p->part[started].thread, NULL, work, &p->part[started]))
        started++;
    for (int k = started; k < parts; k++) work(&p->part[k]); /* no more threads to be had */
    work(&p->part[0]);
    for (int k = 1; k < started; k++) pthread_join(p->part[k].thread, NULL);
    for (int k = 0; st == PARE_OK && k < parts; k++) {
        st = p->part[k].status;
        if (st != PARE_OK) (void)pare_fail(p->ctx, st, "%s", p->part[k].ctx.message);
    }
    return st;
}

/* Cuts count samples into parts, each with its runner. */
static pare_status cut(pare_predictor *p, int count, int *out)
{
    if (!p->rows) p->rows = rows_of_plan(p, count);
    int unit = p->rows, units = (count + unit - 1) / unit;
    int parts = units < p->part_count ? units : p->part_count;
    for (int k = 0, first = 0; k < parts; k++) {
        int last = (int)((int64_t)units * (k + 1) / parts) * unit;
        p->part[k].first = first;
        p->part[k].take = (last < count ? last : count) - first;
        first = last;
        PARE_TRY(find_runner(p, &p->part[k]));
    }
    *out = parts;
    return PARE_OK;
}

/* What a run of this part touches: activations, inputs, and the outputs of all its rows kept twice.
 */
static size_t part_bytes(const part *one)
{
    const pare_plan *plan = pare_runner_plan(one->runner);
    size_t all = pare_plan_activation_bytes(plan), kept = 0, bytes;
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        const pare_value *v = pare_plan_input(plan, i);
        if (pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes)) all += bytes;
    }
    for (int i = 0; i < pare_plan_output_count(plan); i++) {
        const pare_value *v = pare_plan_output(plan, i);
        if (pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes)) kept += 2 * bytes;
    }
    return all + kept / (size_t)one->batch * (size_t)one->take;
}

pare_status pare_predictor_prepare(pare_predictor *p, int64_t count, int64_t all, size_t *to_come)
{
    int parts;
    if (count > all) count = all;
    PARE_TRY(cut(p, (int)count, &parts));
    *to_come = 0;
    for (int k = 0; k < parts; k++) *to_come += part_bytes(&p->part[k]);
    return PARE_OK;
}

pare_status pare_predict(pare_predictor *p, void *const *inputs, int count)
{
    int parts;
    PARE_TRY(cut(p, count, &parts));
    for (int k = 0; k < parts; k++) p->part[k].inputs = inputs;
    PARE_TRY(run_parts(p, parts));
    for (int i = 0; i < p->output_count; i++) PARE_TRY(join_rows(p, i, parts, count));
    return PARE_OK;
}

int pare_predictor_output_count(const pare_predictor *p) { return p->output_count; }

pare_rows pare_predictor_rows(const pare_predictor *p, int i)
{
    const output_rows *out = &p->out[i];
    const void *f32 = out->dtype == PARE_f32 ? (const void *)out->data : out->f32;
    return (pare_rows){.name = out->name,
                       .dtype = out->dtype,
                       .shape = out->shape,
                       .size = out->size,
                       .data = out->data,
                       .f32 = pare_type(out->dtype)->to_f32 ? f32 : NULL};
}
