/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void graph_open(graph_case *g, int64_t opset)
{
    pare_ctx_init(&g->ctx);
    assert_int_equal(pare_model_new(&g->ctx, &g->model, "m.onnx"), PARE_OK);
    assert_int_equal(pare_model_set_opset(g->model, "", opset), PARE_OK);
}

void graph_close(graph_case *g) { pare_model_free(g->model); }

pare_value *graph_value(const graph_case *g, const char *name)
{
    return pare_graph_find_own(g->model->graph, name);
}

static pare_value *value_of(graph_case *g, const char *name)
{
    pare_value *v = graph_value(g, name);
    if (!v) assert_int_equal(pare_value_new(g->model->graph, &v, name), PARE_OK);
    return v;
}

pare_value *graph_input(graph_case *g, const char *name, pare_dtype dtype, int rank,
                        const int64_t *dims)
{
    pare_value *v = value_of(g, name);
    pare_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = dims[i];
    pare_value_set_type(v, dtype, &shape);
    v->is_input = true;
    assert_int_equal(pare_values_add(g->model->graph, &g->model->graph->in, v), PARE_OK);
    return v;
}

pare_value *graph_floats(graph_case *g, const char *name, int rank, const int64_t *dims,
                         const float *data)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, PARE_f32, rank, dims, data), PARE_OK);
    return v;
}

pare_value *graph_ints(graph_case *g, const char *name, int rank, const int64_t *dims,
                       const int64_t *data)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, PARE_s64, rank, dims, data), PARE_OK);
    return v;
}

static int names_of(graph_case *g, const char *text, pare_value **list)
{
    char copy[256], *rest;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        list[n++] = strcmp(w, "-") ? value_of(g, w) : NULL;
    return n;
}

pare_node *graph_node(graph_case *g, const char *op, const char *in, const char *out)
{
    pare_value *from[16], *to[16];
    pare_node *n;
    int ins = names_of(g, in, from), outs = names_of(g, out, to);
    assert_int_equal(pare_node_new(g->model->graph, &n, g->model->graph->node_count, op, "", out,
                                   from, ins, to, outs),
                     PARE_OK);
    return n;
}

void graph_output(graph_case *g, const char *name)
{
    pare_value *v = value_of(g, name);
    v->is_output = true;
    assert_int_equal(pare_values_add(g->model->graph, &g->model->graph->out, v), PARE_OK);
}

int graph_count(const graph_case *g, const char *op)
{
    int n = 0;
    for (int i = 0; i < g->model->graph->node_count; i++)
        n += !strcmp(g->model->graph->node[i]->op_type, op);
    return n;
}

static void run_with(graph_case *g, const pare_plan_options *options, const pare_input_shape *shape,
                     const float *x, float *y, int64_t count)
{
    pare_plan *plan;
    pare_runner *runner;
    if (pare_plan_new(&g->ctx, &plan, g->model, shape, 1, options) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    assert_int_equal(pare_runner_new(&g->ctx, &runner, plan), PARE_OK);
    pare_view in = pare_runner_input(runner, 0);
    memcpy(in.data, x, pare_view_bytes(&in));
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    pare_view out = pare_runner_output(runner, 0);
    assert_int_equal(out.dtype, PARE_f32);
    assert_int_equal(pare_view_count(&out), count);
    memcpy(y, out.data, (size_t)count * sizeof *y);
    pare_runner_free(runner);
    pare_plan_free(plan);
}

/* The same on a device, where the tests are built with one. */
static void run_on_device(graph_case *g, const pare_input_shape *shape, const float *x,
                          const float *want, int64_t count)
{
#ifdef CASE_DEVICE
    pare_plan_options options = {.threads = 1};
    float *y = malloc((size_t)count * sizeof *y + 1);
    assert_non_null(y);
    if (pare_device_open(&g->ctx, &options.device, "cuda") != PARE_OK)
        fail_msg("%s", g->ctx.message);
    run_with(g, &options, shape, x, y, count);
    pare_device_close(options.device);
    for (int64_t i = 0; i < count; i++)
        if (!(y[i] == want[i] || (y[i] != y[i] && want[i] != want[i])))
            assert_float_equal(y[i], want[i], 1e-5f * (1 + (want[i] < 0 ? -want[i] : want[i])));
    free(y);
#else
    (void)g, (void)shape, (void)x, (void)want, (void)count;
#endif
}

void graph_run(graph_case *g, int rank, const int64_t *dims, const float *x, float *y,
               int64_t count)
{
    pare_input_shape shape = {g->model->graph->in.item[0]->name, {.rank = rank}};
    const pare_plan_options options = {.threads = 1, .reference = true};
    for (int i = 0; i < rank; i++) shape.shape.dim[i] = dims[i];
    run_with(g, &options, &shape, x, y, count);
    run_on_device(g, &shape, x, y, count);
}
