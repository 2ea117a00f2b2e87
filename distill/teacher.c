/* SPDX-License-Identifier: Apache-2.0 */
/* The teacher: its copy, its plan, its runs. */
#include "distill/graph.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <string.h>

enum { OPSET = 21 };

/* --- open --- */

/* Inputs by name; a single one by position. */
static pare_status find_sources(pare_teacher *t, const pare_model *student)
{
    int count = pare_inputs_count(t->model);
    bool single = count == 1 && pare_inputs_count(student) == 1;
    t->source = pare_alloc(t->ctx, (size_t)count, sizeof *t->source);
    if (!t->source) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        const pare_value *v = pare_inputs_at(t->model, i);
        t->source[i] = single ? 0 : pare_inputs_place(student, v->name);
        if (t->source[i] < 0)
            return PARE_FAIL(t->ctx, INPUT, "%s: input '%s': %s has no input of this name",
                             t->model->path, v->name, student->path);
        const pare_value *s = pare_inputs_at(student, t->source[i]);
        if (s->dtype != v->dtype)
            return PARE_FAIL(t->ctx, INPUT, "%s: input '%s' is %s, but input '%s' of %s is %s",
                             t->model->path, v->name, pare_type(v->dtype)->name, s->name,
                             student->path, pare_type(s->dtype)->name);
    }
    return PARE_OK;
}

static pare_status open_model(pare_teacher *t, const pare_model *student, const pare_data *data)
{
    int64_t fixed;
    PARE_TRY(pare_model_clone(t->ctx, &t->model, t->file));
    PARE_TRY(pare_data_run_samples(t->ctx, data, t->model, &fixed));
    t->part = fixed ? fixed : t->rows;
    if (t->rows % t->part)
        return PARE_FAIL(t->ctx, INPUT,
                         "%s: its batch is fixed to %" PRId64 ", which does not divide the %" PRId64
                         " rows that are run at a time; give a --batch that is a multiple of 8 "
                         "times it",
                         t->model->path, t->part, t->rows);
    PARE_TRY(find_sources(t, student));
    PARE_TRY(pare_inputs_set_rows(t->ctx, t->model, data, t->source, t->part));
    PARE_TRY(pare_graph_sort(t->model->graph));
    PARE_TRY(pare_pass_version_convert(t->model, OPSET));
    return pare_pass_infer(
        t->model, &(pare_infer_options){.fold = true, .lenient = true, .keep_dequantize = true});
}

pare_status pare_teacher_open(pare_ctx *ctx, pare_teacher *out, const pare_model *teacher,
                              const pare_model *student, const pare_data *data, int64_t rows)
{
    *out = (pare_teacher){.ctx = ctx, .file = teacher, .rows = rows};
    return open_model(out, student, data);
}

void pare_teacher_free(pare_teacher *t)
{
    if (!t->ctx) return;
    pare_replicas_free(t->pool);
    pare_plan_free(t->plan);
    pare_model_free(t->model);
    pare_free(t->wanted);
    pare_free(t->source);
    pare_free(t->input);
    pare_free(t->output);
    *t = (pare_teacher){0};
}

/* --- wanted tensors --- */

pare_status pare_teacher_want(pare_teacher *t, pare_value *value, int *out)
{
    for (*out = 0; *out < t->wanted_count; ++*out)
        if (t->wanted[*out] == value) return PARE_OK;
    if (!pare_grow(t->ctx, &t->wanted, &t->wanted_capacity, (size_t)t->wanted_count,
                   sizeof *t->wanted))
        return PARE_MEMORY;
    t->wanted[t->wanted_count++] = value;
    return PARE_OK;
}

void pare_teacher_shape(const pare_teacher *t, int wanted, pare_shape *out)
{
    *out = t->wanted[wanted]->shape;
    if (out->rank > 0) out->dim[0] = out->dim[0] / t->part * t->rows;
}

/* --- plan --- */

/* The wanted tensors are the outputs. */
static pare_status set_outputs(pare_teacher *t)
{
    pare_graph *g = t->model->graph;
    for (int i = 0; i < g->out.count; i++) g->out.item[i]->is_output = false;
    g->out.count = 0;
    for (int k = 0; k < t->wanted_count; k++) {
        t->wanted[k]->is_output = true;
        PARE_TRY(pare_values_add(g, &g->out, t->wanted[k]));
    }
    return PARE_OK;
}

static pare_status find_places(pare_teacher *t)
{
    int inputs = pare_plan_input_count(t->plan), outputs = pare_plan_output_count(t->plan);
    t->input = pare_alloc(t->ctx, (size_t)inputs + 1, sizeof *t->input);
    t->output = pare_alloc(t->ctx, (size_t)t->wanted_count + 1, sizeof *t->output);
    if (!t->input || !t->output) return PARE_MEMORY;
    for (int i = 0; i < inputs; i++)
        t->input[i] = pare_inputs_place(t->model, pare_plan_input(t->plan, i)->name);
    for (int k = 0; k < t->wanted_count; k++) t->output[k] = -1;
    for (int k = 0; k < t->wanted_count; k++)
        for (int i = 0; i < outputs; i++)
            if (!strcmp(pare_plan_output(t->plan, i)->name, t->wanted[k]->name)) t->output[k] = i;
    return PARE_OK;
}

pare_status pare_teacher_ready(pare_teacher *t, int threads, pare_device *device)
{
    if (!t->wanted_count) return PARE_OK;
    PARE_TRY(set_outputs(t));
    pare_plan_options options = {.threads = 1, .deterministic = true, .device = device};
    PARE_TRY(pare_plan_new(t->ctx, &t->plan, t->model, NULL, 0, &options));
    PARE_TRY(find_places(t));
    return pare_replicas_new(t->ctx, &t->pool, t->plan,
                             &(pare_replicas_options){.threads = threads});
}

pare_status pare_teacher_ready_stage(pare_teacher *t, int stage, int stages, pare_device *device)
{
    if (!t->wanted_count) return PARE_OK;
    PARE_TRY(set_outputs(t));
    const pare_stage_split split = {0};
    const pare_plan_options options = {.threads = 1,
                                       .deterministic = true,
                                       .device = device,
                                       .stage = stage,
                                       .stages = stages,
                                       .split = &split};
    PARE_TRY(pare_plan_new(t->ctx, &t->plan, t->model, NULL, 0, &options));
    return find_places(t);
}

/* --- running --- */

static size_t input_bytes(const pare_teacher *t, int i)
{
    size_t bytes = 0;
    const pare_value *v = pare_plan_input(t->plan, i);
    (void)pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes);
    return bytes;
}

/* A slice, of which each item is `part` rows. */
typedef struct slice {
    const pare_teacher *teacher;
    const void *const *input;
    void *const *output;
} slice;

static pare_status load(void *user, int64_t part, pare_replica *replica)
{
    const slice *s = user;
    const pare_teacher *t = s->teacher;
    for (int i = 0; i < pare_plan_input_count(t->plan); i++)
        pare_runner_set_input(replica->runner, i,
                              (const char *)s->input[t->source[t->input[i]]] +
                                  (size_t)part * input_bytes(t, i));
    return PARE_OK;
}

static pare_status take(void *user, int64_t part, pare_replica *replica)
{
    const slice *s = user;
    for (int k = 0; k < s->teacher->wanted_count; k++) {
        const pare_view from = pare_runner_output(replica->runner, s->teacher->output[k]);
        size_t bytes = pare_view_bytes(&from);
        memcpy((char *)s->output[k] + (size_t)part * bytes, from.data, bytes);
    }
    return PARE_OK;
}

pare_status pare_teacher_run(pare_teacher *t, int worker, pare_ctx *ctx, const void *const *input,
                             void *const *output)
{
    if (!t->wanted_count) return PARE_OK;
    slice s = {t, input, output};
    pare_replica *replica = pare_replicas_at(t->pool, worker);
    pare_status st = pare_replica_run(replica, 0, t->rows / t->part,
                                      &(pare_batch_work){.load = load, .take = take, .user = &s});
    if (st != PARE_OK) st = pare_fail(ctx, st, "%s", replica->ctx.message);
    pare_ctx_clear(&replica->ctx);
    return st;
}
