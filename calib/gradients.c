/* SPDX-License-Identifier: Apache-2.0 */
/* One plan of the gradient graph with a replica for each run of a batch. The caller adds up in
   order of runs, so that its sums do not depend on threads. */
#include "calib/gradients.h"
#include "calib/calibrate.h"
#include "runtime/exec/batch.h"
#include "runtime/passes/train/gradient.h"

#include <string.h>

void pare_gradients_options_init(pare_gradients_options *out)
{
    *out = (pare_gradients_options){0};
}

struct pare_gradients {
    pare_ctx *ctx;
    pare_data *data;
    pare_gradients_options options;
    pare_model *model; /* of the gradients */
    pare_gradient names;
    pare_plan *plan;
    int *source; /* (plan's inputs): which of the data's inputs; -1: the labels */
    int64_t unit, runs, next;
    pare_reader *reader;
    pare_replicas *pool; /* a replica for each run of a batch */
    pare_batch batch;    /* that is run */
    int count;           /* runs of a batch, at most */
    const float ***of;   /* (count, by_count): the outputs of each run's replica */
    float *loss;         /* (count) */
};

/* --- making it ready --- */

/* Sizes from the data. */
static pare_status set_shapes(pare_gradients *g)
{
    const pare_graph *graph = g->model->graph;
    PARE_TRY(
        pare_calib_runs(g->ctx, g->model, g->data, g->options.sample_count, &g->unit, &g->runs));
    for (int i = 0, k = 0; i < graph->in.count; i++) {
        pare_value *v = graph->in.item[i];
        if (v->is_init) continue;
        const pare_shape shape = pare_data_run_shape(g->data, k++, g->unit);
        pare_value_set_type(v, v->dtype, &shape);
    }
    return PARE_OK;
}

static pare_status check_weights(const pare_gradients *g)
{
    for (int k = 0; k < g->options.by_count; k++) {
        const pare_value *v = pare_graph_find_own(g->model->graph, g->options.by[k]);
        if (v && v->dtype != PARE_f32)
            return PARE_FAIL(g->ctx, UNSUPPORTED,
                             "%s: weight '%s' is %s; gradients need f32 weights", g->model->path,
                             v->name, pare_type(v->dtype)->name);
    }
    return PARE_OK;
}

static pare_status make_plan(pare_gradients *g)
{
    const pare_gradients_options *o = &g->options;
    pare_gradient_options by = {.by = o->by, .by_count = o->by_count};
    by.loss = pare_data_has_labels(g->data) && !o->top1 ? PARE_LOSS_LABELS : PARE_LOSS_TOP1;
    PARE_TRY(check_weights(g));
    PARE_TRY(pare_pass_gradient(g->model, &g->names, &by));
    pare_plan_options options = {.threads = 1, .deterministic = true, .device = o->device};
    return pare_plan_new(g->ctx, &g->plan, g->model, NULL, 0, &options);
}

/* The model's inputs keep their order, the labels follow. */
static pare_status find_sources(pare_gradients *g)
{
    int count = pare_plan_input_count(g->plan), from = 0;
    g->source = pare_alloc(g->ctx, (size_t)count + 1, sizeof *g->source);
    if (!g->source) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        const char *name = pare_plan_input(g->plan, i)->name;
        g->source[i] = g->names.labels && !strcmp(name, g->names.labels) ? -1 : from++;
    }
    return PARE_OK;
}

static pare_status find_outputs(pare_gradients *g, int run)
{
    const pare_runner *runner = pare_replicas_at(g->pool, run)->runner;
    int at = 1; /* after the loss */
    const float **of = pare_alloc(g->ctx, (size_t)g->options.by_count + 1, sizeof *of);
    g->of[run] = of;
    if (!of) return PARE_MEMORY;
    for (int k = 0; k < g->options.by_count; k++)
        if (g->names.gradient[k]) of[k] = pare_runner_output(runner, at++).data;
    return PARE_OK;
}

static pare_status make_pool(pare_gradients *g)
{
    const int threads = g->options.threads > 0 ? g->options.threads : pare_cpu_cores();
    g->count = g->options.device ? 1 : threads < g->runs ? threads : (int)g->runs;
    const pare_replicas_options options = {.threads = threads, .items = g->count, .each = true};
    PARE_TRY(pare_replicas_new(g->ctx, &g->pool, g->plan, &options));
    g->of = pare_alloc(g->ctx, (size_t)g->count, sizeof *g->of);
    g->loss = pare_alloc(g->ctx, (size_t)g->count, sizeof *g->loss);
    if (!g->of || !g->loss) return PARE_MEMORY;
    for (int run = 0; run < g->count; run++) PARE_TRY(find_outputs(g, run));
    return pare_reader_open(g->ctx, &g->reader, g->data, g->options.samples, g->runs * g->unit,
                            (int)(g->count * g->unit), g->count);
}

pare_status pare_gradients_new(pare_ctx *ctx, pare_gradients **out, const pare_model *model,
                               pare_data *data, const pare_gradients_options *options)
{
    pare_gradients *g = pare_alloc(ctx, 1, sizeof *g);
    if (!g) return PARE_MEMORY;
    *g = (pare_gradients){.ctx = ctx, .data = data, .options = *options, .unit = 1};
    pare_status st = pare_model_clone(ctx, &g->model, model);
    if (st == PARE_OK) st = set_shapes(g);
    if (st == PARE_OK) st = make_plan(g);
    if (st == PARE_OK) st = find_sources(g);
    if (st == PARE_OK) st = make_pool(g);
    if (st == PARE_OK)
        *out = g;
    else
        pare_gradients_free(g);
    return st;
}

void pare_gradients_free(pare_gradients *g)
{
    if (!g) return;
    pare_replicas_free(g->pool);
    for (int run = 0; g->of && run < g->count; run++) pare_free(g->of[run]);
    if (g->reader) pare_reader_close(g->reader);
    pare_free(g->of);
    pare_free(g->loss);
    pare_free(g->source);
    pare_plan_free(g->plan);
    pare_model_free(g->model);
    pare_free(g);
}

int64_t pare_gradients_runs(const pare_gradients *gradients) { return gradients->runs; }

/* --- running --- */

static pare_status load(void *user, int64_t run, pare_replica *replica)
{
    const pare_gradients *g = user;
    for (int i = 0; i < pare_plan_input_count(g->plan); i++) {
        if (g->source[i] < 0) {
            pare_runner_set_input(replica->runner, i, g->batch.label + run * g->unit);
            continue;
        }
        pare_runner_set_input(
            replica->runner, i,
            pare_data_run_input(g->data, g->batch.input, g->source[i], run * g->unit));
    }
    return PARE_OK;
}

static pare_status take(void *user, int64_t run, pare_replica *replica)
{
    const pare_gradients *g = user;
    g->loss[run] = *(const float *)pare_runner_output(replica->runner, 0).data;
    return PARE_OK;
}

pare_status pare_gradients_next(pare_gradients *g, pare_gradients_batch *out)
{
    const pare_batch_work work = {.load = load, .take = take, .any_order = true, .user = g};
    *out = (pare_gradients_batch){
        .first = g->next, .loss = g->loss, .of = (const float *const *const *)g->of};
    if (g->next == g->runs) return PARE_OK;
    PARE_TRY(pare_ctx_poll(g->ctx));
    PARE_TRY(pare_comm_listen(g->options.comm, g->ctx));
    PARE_TRY(pare_reader_next(g->reader, &g->batch));
    out->count = (int)(g->batch.count / g->unit);
    PARE_TRY(pare_replicas_run(g->pool, 0, out->count, &work));
    g->next += out->count;
    return PARE_OK;
}
