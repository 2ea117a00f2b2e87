/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/passes/qdq_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void qdq_bytes(graph_case *g, const char *name, pare_dtype type, int rank, const int64_t *dims,
               const void *data)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, type, rank, dims, data), PARE_OK);
}

int qdq_noise(unsigned *seed, int low, int high)
{
    *seed = *seed * 1664525u + 1013904223u;
    return low + (int)((*seed >> 8) % (unsigned)(high - low + 1));
}

static void shorten_constant(graph_case *g, pare_value *v)
{
    const pare_tensor *was = v->data;
    pare_tensor *now;
    uint16_t *data = malloc((size_t)was->count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < was->count; i++)
        data[i] = pare_f32_to_f16(((const float *)was->data)[i]);
    assert_int_equal(pare_tensor_new(g->model, &now, v->name, PARE_f16, was->rank, was->dims, data),
                     PARE_OK);
    free(data);
    assert_int_equal(pare_value_set_init(v, now), PARE_OK);
    pare_value_set_type(v, PARE_f16, &v->shape);
}

void qdq_shorten(graph_case *g, const char *last, const char *out)
{
    pare_graph *graph = g->model->graph;
    pare_value *x = graph->in.item[0], *shorter;
    pare_node *cast;
    if (g->model->opset[0].version < 19) g->model->opset[0].version = 19;
    for (int i = 0; i < graph->init.count; i++)
        if (graph->init.item[i]->dtype == PARE_f32) shorten_constant(g, graph->init.item[i]);
    assert_int_equal(pare_value_new(graph, &shorter, "x16"), PARE_OK);
    assert_int_equal(pare_value_replace(x, shorter, false), PARE_OK);
    assert_int_equal(pare_node_new(graph, &cast, 0, "Cast", "", "x16", &x, 1, &shorter, 1),
                     PARE_OK);
    assert_int_equal(pare_node_set_int(cast, "to", PARE_f16), PARE_OK);
    cast = graph_node(g, "Cast", last, out);
    assert_int_equal(pare_node_set_int(cast, "to", PARE_f32), PARE_OK);
}

/* sum = MatMul(int8 of Max(a, floor)) + a */
static void layer_make(graph_case *g, const char *a, const char *sum)
{
    static const char *const ops[] = {"Max", "QuantizeLinear", "DequantizeLinear", "MatMul", "Add"};
    static const char *const others[] = {"floor", "wide z", "wide z", "wd", ""};
    char in[128], out[64];
    snprintf(out, sizeof out, "%s", a);
    for (int i = 0; i < 5; i++) {
        snprintf(in, sizeof in, "%s %s", out, i == 4 ? a : others[i]);
        snprintf(out, sizeof out, "%s%s", sum, i == 4 ? "" : ops[i]);
        graph_node(g, ops[i], in, out);
    }
}

void qdq_stream(graph_case *g, int64_t rows)
{
    int8_t w[QDQ_WIDTH * QDQ_WIDTH], zero = 0;
    float floor[QDQ_WIDTH];
    const float scale = 0.03f, wide = 0.7f;
    unsigned seed = 3;
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){rows, QDQ_WIDTH});
    for (int i = 0; i < QDQ_WIDTH * QDQ_WIDTH; i++) w[i] = (int8_t)qdq_noise(&seed, -127, 127);
    for (int i = 0; i < QDQ_WIDTH; i++) floor[i] = (float)-i;
    qdq_bytes(g, "w", PARE_s8, 2, (int64_t[]){QDQ_WIDTH, QDQ_WIDTH}, w);
    qdq_bytes(g, "z", PARE_s8, 0, NULL, &zero);
    graph_floats(g, "floor", 1, (int64_t[]){QDQ_WIDTH}, floor);
    graph_floats(g, "s", 0, NULL, &scale);
    graph_floats(g, "wide", 0, NULL, &wide);
    graph_node(g, "DequantizeLinear", "w s z", "wd");
    graph_node(g, "QuantizeLinear", "x s z", "q");
    graph_node(g, "DequantizeLinear", "q s z", "d");
    graph_node(g, "MatMul", "d wd", "a");
    layer_make(g, "a", "b");
    layer_make(g, "b", "c");
    qdq_shorten(g, "c", "y");
    graph_output(g, "y");
}

void qdq_run(graph_case *g, bool reference, const float *x, float *y, int64_t count)
{
    pare_session *session;
    pare_runner *runner;
    pare_plan_options options = {.threads = 1, .reference = reference};
    const pare_value *in = g->model->graph->in.item[0];
    pare_input_shape shape = {in->name, in->shape};
    if (pare_session_new(&g->ctx, &session, g->model, &options) ||
        pare_session_runner(session, &runner, &shape, 1))
        fail_msg("%s", g->ctx.message);
    memcpy(pare_runner_input(runner, 0).data, x, (size_t)pare_shape_count(&in->shape) * sizeof *x);
    if (pare_runner_run(runner)) fail_msg("%s", g->ctx.message);
    pare_view out = pare_runner_output(runner, 0);
    assert_int_equal(pare_view_count(&out), count);
    memcpy(y, out.data, (size_t)count * sizeof *y);
    pare_session_free(session);
}

void qdq_same(graph_case *g, float step, int64_t count) { qdq_near(g, step, count, 1.001f, 0.05); }

void qdq_near(graph_case *g, float step, int64_t count, float steps, double part)
{
    float x[QDQ_INPUT], *a = malloc((size_t)count * sizeof *a),
                        *b = malloc((size_t)count * sizeof *b);
    assert_true(a && b);
    unsigned seed = 99;
    for (int i = 0; i < QDQ_INPUT; i++) x[i] = 0.01f * (float)qdq_noise(&seed, -200, 200);
    qdq_run(g, true, x, a, count);
    qdq_run(g, false, x, b, count);
    int apart = 0;
    double spread = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(fabsf(a[i] - b[i]) <= steps * step))
            fail_msg("element %d: plain %g, folded %g, step %g", (int)i, (double)a[i], (double)b[i],
                     (double)step);
        apart += fabsf(a[i] - b[i]) > 0.5f * step;
        spread = fmax(spread, fabs((double)a[i] - (double)a[0]));
    }
    assert_true(spread > 5 * (double)step); /* the case says something */
    assert_true(apart <= part * (double)count);
    free(a);
    free(b);
    graph_close(g);
}
