/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/predict.h"

#include "runtime/base/size.h"

#include <string.h>

typedef struct output_rows {
    char *data;
    float *f32;      /* of other types than f32 */
    size_t capacity; /* elements */
    int64_t size;
    pare_dtype dtype;
    pare_shape shape;
    const char *name;
} output_rows;

struct pare_predictor {
    pare_ctx *ctx;
    const pare_model *model;
    pare_session *session;
    pare_input_shape *shape; /* (input_count), batch axis set before each run */
    const pare_data_input *input;
    int input_count, output_count, fixed;
    output_rows *out;
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

static pare_status check_inputs(pare_ctx *ctx, const pare_model *model, const pare_data_input *inputs,
                                int input_count)
{
    const pare_values *in = &model->graph->in;
    for (int i = 0; i < in->count; i++) {
        bool found = in->item[i]->is_init;
        for (int k = 0; k < input_count; k++) found |= !strcmp(in->item[i]->name, inputs[k].name);
        if (!found)
            return PARE_FAIL(ctx, INPUT, "%s: input '%s' is not among the inputs of the first model; "
                                         "models that are compared need the same input names",
                             model->path, in->item[i]->name);
    }
    for (int k = 0; k < input_count; k++) {
        const pare_value *value = pare_graph_find_own(model->graph, inputs[k].name);
        if (!value || !value->is_input)
            return PARE_FAIL(ctx, INPUT, "%s: has no input '%s', which the first model has; models that "
                                         "are compared need the same input names",
                             model->path, inputs[k].name);
    }
    return PARE_OK;
}

pare_status pare_predictor_new(pare_ctx *ctx, pare_predictor **out, const pare_model *model,
                               const pare_data *data, const pare_data_input *inputs, int input_count,
                               int threads)
{
    PARE_TRY(check_inputs(ctx, model, inputs, input_count));
    pare_predictor *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    pare_plan_options options = {.threads = threads};
    p->ctx = ctx;
    p->model = model;
    p->input = inputs;
    p->input_count = input_count;
    p->output_count = model->graph->out.count;
    p->fixed = pare_model_fixed_batch(model);
    p->shape = pare_alloc(ctx, (size_t)input_count, sizeof *p->shape);
    p->out = pare_alloc(ctx, (size_t)p->output_count, sizeof *p->out);
    pare_status st = p->shape && p->out ? pare_session_new(ctx, &p->session, model, &options)
                                        : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < input_count; i++) {
        p->shape[i].name = inputs[i].name;
        p->shape[i].shape = *pare_data_shape(data, i);
    }
    if (st == PARE_OK) *out = p;
    else pare_predictor_free(p);
    return st;
}

void pare_predictor_free(pare_predictor *p)
{
    if (!p) return;
    if (p->session) pare_session_free(p->session);
    for (int i = 0; p->out && i < p->output_count; i++) {
        pare_free(p->out[i].data);
        pare_free(p->out[i].f32);
    }
    pare_free(p->out);
    pare_free(p->shape);
    pare_free(p);
}

static void convert(void *to, pare_dtype to_type, const void *from, pare_dtype from_type, int64_t n)
{
    const pare_type_info *t = pare_type(to_type), *f = pare_type(from_type);
    size_t wide = (size_t)t->bits / 8, narrow = (size_t)f->bits / 8;
    for (int64_t i = 0; i < n; i++)
        t->from_f32_ref((char *)to + (size_t)i * wide, f->to_f32((const char *)from + (size_t)i * narrow));
}

/* Gives the runner rows [first, first + take) of an input; rows up to the runner's batch repeat the
   last one. */
static pare_status feed(pare_predictor *p, pare_runner *runner, int i, const void *rows, int first,
                        int take)
{
    const pare_plan *plan = pare_runner_plan(runner);
    int at = 0;
    while (at < pare_plan_input_count(plan) &&
           strcmp(pare_plan_input(plan, at)->name, p->input[i].name) != 0)
        at++;
    if (at == pare_plan_input_count(plan)) return PARE_OK; /* nobody reads it */
    pare_view view = pare_runner_input(runner, at);
    pare_dtype from = p->input[i].dtype;
    int64_t batch = view.rank ? view.dim[0] : 1, row = pare_view_count(&view) / (batch ? batch : 1);
    size_t bytes = (size_t)pare_type(from)->bits / 8 * (size_t)row;
    const char *source = (const char *)rows + (size_t)first * bytes;
    if (from != view.dtype && !(pare_type(from)->to_f32 && pare_type(view.dtype)->from_f32_ref))
        return PARE_FAIL(p->ctx, INPUT, "%s: input '%s' is %s, the data are %s", p->model->path,
                         p->input[i].name, pare_type(view.dtype)->name, pare_type(from)->name);
    size_t wide = (size_t)pare_type(view.dtype)->bits / 8 * (size_t)row;
    for (int r = 0; r < batch; r++) {
        const char *one = source + (size_t)(r < take ? r : take - 1) * bytes;
        char *to = (char *)view.data + (size_t)r * wide;
        if (from == view.dtype) memcpy(to, one, bytes);
        else convert(to, view.dtype, one, from, row);
    }
    return PARE_OK;
}

/* Room for count rows; those before first stay. */
static pare_status make_room(pare_predictor *p, output_rows *out, int first, int count)
{
    size_t need, bytes, wide = (size_t)pare_type(out->dtype)->bits / 8;
    if (!wide || !pare_mul_size((size_t)out->size, (size_t)count, &need) ||
        !pare_mul_size(need, wide, &bytes))
        return PARE_FAIL(p->ctx, UNSUPPORTED, "%s: output '%s' is %s of %lld elements per sample, which "
                                              "cannot be collected", p->model->path, out->name,
                         pare_type(out->dtype)->name, (long long)out->size);
    if (need <= out->capacity) return PARE_OK;
    char *more = pare_alloc(p->ctx, need, wide);
    float *floats = out->dtype == PARE_f32 ? NULL : pare_alloc(p->ctx, need, sizeof *floats);
    if (!more || (!floats && out->dtype != PARE_f32)) {
        pare_free(more);
        pare_free(floats);
        return PARE_MEMORY;
    }
    if (first) memcpy(more, out->data, (size_t)first * (size_t)out->size * wide);
    pare_free(out->data);
    pare_free(out->f32); /* made anew after the last piece */
    out->data = more;
    out->f32 = floats;
    out->capacity = need;
    return PARE_OK;
}

static pare_status collect(pare_predictor *p, const pare_runner *runner, int i, int batch, int first,
                           int take, int count)
{
    pare_view view = pare_runner_output(runner, i);
    output_rows *out = &p->out[i];
    out->name = p->model->graph->out.item[i]->name;
    if (!view.rank || view.dim[0] != batch)
        return PARE_FAIL(p->ctx, INPUT, "%s: output '%s' has %lld rows for %d samples; models without "
                                        "one row per sample cannot be run on a data set",
                         p->model->path, out->name, view.rank ? (long long)view.dim[0] : 0LL, batch);
    out->size = pare_view_count(&view) / batch;
    out->dtype = view.dtype;
    out->shape.rank = view.rank - 1;
    for (int d = 1; d < view.rank; d++) out->shape.dim[d - 1] = view.dim[d];
    PARE_TRY(make_room(p, out, first, count));
    size_t row = (size_t)out->size * (size_t)pare_type(view.dtype)->bits / 8;
    memcpy(out->data + (size_t)first * row, view.data, (size_t)take * row);
    return PARE_OK;
}

pare_status pare_predict(pare_predictor *p, void *const *inputs, int count)
{
    int batch = p->fixed ? p->fixed : count;
    for (int first = 0; first < count; first += batch) {
        int take = count - first < batch ? count - first : batch;
        pare_runner *runner;
        for (int i = 0; i < p->input_count; i++)
            if (p->shape[i].shape.rank) p->shape[i].shape.dim[0] = batch;
        PARE_TRY(pare_ctx_poll(p->ctx));
        PARE_TRY(pare_session_runner(p->session, &runner, p->shape, p->input_count));
        for (int i = 0; i < p->input_count; i++)
            PARE_TRY(feed(p, runner, i, inputs[i], first, take));
        PARE_TRY(pare_runner_run(runner));
        for (int i = 0; i < p->output_count; i++)
            PARE_TRY(collect(p, runner, i, batch, first, take, count));
    }
    for (int i = 0; i < p->output_count; i++)
        if (p->out[i].f32 && pare_type(p->out[i].dtype)->to_f32)
            convert(p->out[i].f32, PARE_f32, p->out[i].data, p->out[i].dtype, count * p->out[i].size);
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
