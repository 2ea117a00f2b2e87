/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/passes/qdq_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
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

void qdq_same(graph_case *g, float step, int64_t count)
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
        if (!(fabsf(a[i] - b[i]) <= 1.001f * step))
            fail_msg("element %d: plain %g, folded %g, step %g", (int)i, (double)a[i], (double)b[i],
                     (double)step);
        apart += fabsf(a[i] - b[i]) > 0.5f * step;
        spread = fmax(spread, fabs((double)a[i] - (double)a[0]));
    }
    assert_true(spread > 5 * (double)step); /* the case says something */
    assert_true(apart <= count / 20);
    free(a);
    free(b);
    graph_close(g);
}
