/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/step_times.h"

#include "runtime/base/clock.h"
#include "runtime/exec/machine_table.h"

#include <math.h>
#include <string.h>

void pare_step_times_options_init(pare_step_times_options *out)
{
    *out = (pare_step_times_options){0};
}

enum { WRITE_AFTER = 64, MIN_RUNS = 5, MAX_RUNS = 25, FEW_RUNS = 3 };
static const double ENOUGH_SECONDS = 4e-3, LONG_SECONDS = 0.25;

struct pare_step_times {
    pare_ctx *ctx;
    pare_step_times_options options;
    pare_machine_table *table;
    int64_t measured;
};

static const pare_machine_table_kind kind = {
    "steps.json", "pare_steps", "a file of times per shape", "they are measured again"};

pare_status pare_step_times_open(pare_ctx *ctx, pare_step_times **out,
                                 const pare_step_times_options *options)
{
    pare_step_times *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->ctx = ctx;
    t->options = *options;
    if (t->options.threads <= 0) t->options.threads = pare_cpu_cores();
    pare_status st =
        pare_machine_table_open(ctx, &t->table, options->cache_dir, options->device, &kind);
    if (st == PARE_OK)
        *out = t;
    else
        pare_free(t);
    return st;
}

int64_t pare_step_times_measured(const pare_step_times *times) { return times->measured; }

void pare_step_times_close(pare_step_times *times)
{
    if (!times) return;
    pare_machine_table_store(times->table);
    pare_machine_table_free(times->table);
    pare_free(times);
}

/* --- the step as a model of its own --- */

static pare_status copy_constant(pare_model *m, pare_value **out, const pare_value *v,
                                 const pare_shape *shape)
{
    const pare_tensor *old = v->data;
    pare_tensor *t;
    PARE_TRY(pare_tensor_new(m, &t, v->name, v->dtype, shape->rank, shape->dim, NULL));
    for (size_t at = 0; at < t->bytes && old->bytes; at += old->bytes)
        memcpy((char *)t->data + at, old->data,
               t->bytes - at < old->bytes ? t->bytes - at : old->bytes);
    PARE_TRY(pare_value_new(m->graph, out, v->name));
    return pare_value_set_init(*out, t);
}

static pare_status copy_input(pare_model *m, pare_value **out, const pare_value *v,
                              const pare_shape *shape)
{
    *out = pare_graph_find_own(m->graph, v->name);
    if (*out) return PARE_OK;
    if (v->data) return copy_constant(m, out, v, shape);
    PARE_TRY(pare_value_new(m->graph, out, v->name));
    pare_value_set_type(*out, v->dtype, shape);
    (*out)->is_input = true;
    return pare_values_add(m->graph, &m->graph->in, *out);
}

static pare_status copy_attrs(pare_node *node, const pare_node *step, const pare_shape *in)
{
    int64_t group = pare_node_int(step, "group", 1);
    for (int i = 0; i < step->attr_count; i++) PARE_TRY(pare_node_set_attr(node, &step->attr[i]));
    bool follows = group > 1 && step->in[0] && step->in[0]->shape.rank > 1 &&
                   step->in[0]->shape.dim[1] == group;
    return follows ? pare_node_set_int(node, "group", in[0].dim[1]) : PARE_OK;
}

static pare_status fill_model(pare_model *m, const pare_node *step, const pare_shape *in)
{
    const pare_model *from = step->graph->model;
    pare_value **value = pare_arena_alloc(
        &m->arena, (size_t)step->in_count + (size_t)step->out_count + 1, sizeof *value);
    pare_value **out = value + step->in_count;
    pare_node *node;
    if (!value) return PARE_MEMORY;
    for (int i = 0; i < from->opset_count; i++)
        PARE_TRY(pare_model_set_opset(m, from->opset[i].domain, from->opset[i].version));
    for (int i = 0; i < step->in_count; i++)
        if (step->in[i]) PARE_TRY(copy_input(m, &value[i], step->in[i], &in[i]));
    for (int i = 0; i < step->out_count; i++)
        if (step->out[i]) PARE_TRY(pare_value_new(m->graph, &out[i], step->out[i]->name));
    PARE_TRY(pare_node_new(m->graph, &node, 0, step->op_type, step->domain, step->name, value,
                           step->in_count, out, step->out_count));
    PARE_TRY(copy_attrs(node, step, in));
    out[0]->is_output = true;
    return pare_values_add(m->graph, &m->graph->out, out[0]);
}

/* --- the stopwatch --- */

/* Copies into another memory order are around the step: the heaviest is what was asked for. */
static int heaviest(const pare_plan *plan)
{
    int best = 0;
    double most = -1;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        if (info.macs <= most) continue;
        most = info.macs;
        best = i;
    }
    return best;
}

static pare_status time_runs(pare_runner *runner, double *times, int step, double *best)
{
    double start = pare_seconds();
    pare_runner_profile(runner, times);
    PARE_TRY(pare_runner_run(runner)); /* touches its memory; not counted */
    *best = INFINITY;
    for (int n = 0; n < MAX_RUNS; n++) {
        double spent = pare_seconds() - start;
        if ((n >= MIN_RUNS && spent > ENOUGH_SECONDS) || (n >= FEW_RUNS && spent > LONG_SECONDS))
            break;
        PARE_TRY(pare_runner_run(runner));
        *best = fmin(*best, times[step]);
    }
    return PARE_OK;
}

static pare_status time_plan(pare_ctx *ctx, const pare_plan *plan, double *seconds)
{
    pare_runner *runner = NULL;
    double *times = pare_alloc(ctx, (size_t)pare_plan_step_count(plan) + 1, sizeof *times);
    pare_status st = times ? pare_runner_new(ctx, &runner, plan) : PARE_MEMORY;
    if (st == PARE_OK) st = time_runs(runner, times, heaviest(plan), seconds);
    pare_runner_free(runner);
    pare_free(times);
    return st;
}

static pare_status measure(pare_step_times *t, const pare_node *step, const pare_shape *in,
                           double *seconds)
{
    const pare_step_times_options *o = &t->options;
    pare_plan_options options = {.threads = o->threads, .device = o->device, .tune = true};
    pare_model *model;
    pare_plan *plan = NULL;
    if (o->measure) return o->measure(o->measure_user, step, in, seconds);
    PARE_TRY(pare_model_new(t->ctx, &model, step->graph->model->path));
    pare_status st = fill_model(model, step, in);
    if (st == PARE_OK) st = pare_plan_new(t->ctx, &plan, model, NULL, 0, &options);
    if (st == PARE_OK) st = time_plan(t->ctx, plan, seconds);
    pare_plan_free(plan);
    pare_model_free(model);
    return st;
}

/* --- finding --- */

static void key_of(const pare_step_times *t, const pare_node *step, const pare_shape *in,
                   char key[33])
{
    pare_hash sum = {0};
    pare_key_add(&sum, 1, step->op_type, strlen(step->op_type));
    pare_key_add(&sum, 2, &t->options.threads, sizeof t->options.threads);
    pare_key_add_attrs(&sum, step);
    for (int i = 0; i < step->in_count; i++) {
        const pare_value *v = step->in[i];
        if (!v) continue;
        int facts[4] = {(int)v->dtype, in[i].rank, v->data != NULL, v->nhwc};
        pare_key_add(&sum, 100 + 2 * i, facts, sizeof facts);
        pare_key_add(&sum, 101 + 2 * i, in[i].dim, (size_t)in[i].rank * sizeof *in[i].dim);
    }
    pare_hash_text(sum, key);
}

pare_status pare_step_times_find(pare_step_times *times, const pare_node *step,
                                 const pare_shape *in, double *seconds)
{
    char key[33];
    key_of(times, step, in, key);
    const json_t *known = pare_machine_table_find(times->table, key);
    *seconds = json_number_value(known);
    if (json_is_number(known) && *seconds > 0 && isfinite(*seconds)) return PARE_OK;
    PARE_TRY(measure(times, step, in, seconds));
    PARE_TRY(pare_ctx_poll(times->ctx));
    PARE_TRY(pare_machine_table_put(times->table, key, json_real(*seconds)));
    if (++times->measured % WRITE_AFTER == 0) pare_machine_table_store(times->table);
    return PARE_OK;
}
