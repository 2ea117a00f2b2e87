/* SPDX-License-Identifier: Apache-2.0 */
/* Pools where ONNX's rules are easy to get wrong. Expected numbers are ONNX Runtime's unless a
 * line\n   says otherwise. */
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (const int64_t[]) { __VA_ARGS__ }
#define FLOATS(...)                                                                                \
    (const float[]) { __VA_ARGS__ }

static void ints(pare_node *n, const char *name, int count, const int64_t *v)
{
    assert_int_equal(pare_node_set_ints(n, name, v, count), PARE_OK);
}
static void integer(pare_node *n, const char *name, int64_t v)
{
    assert_int_equal(pare_node_set_int(n, name, v), PARE_OK);
}

/* y has exactly these values. */
static void expect(graph_case *g, int rank, const int64_t *dims, const float *x, int64_t count,
                   const float *want)
{
    float y[64];
    assert_true(count <= 64);
    graph_output(g, "y");
    graph_run(g, rank, dims, x, y, count);
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(y[i] - want[i]) <= 2e-6f * (1 + fabsf(want[i]))))
            fail_msg("element %d is %g, expected %g", (int)i, (double)y[i], (double)want[i]);
    graph_close(g);
}

static const float digits[] = {3, 1, 4, 1, 5, 9, 2, 6};

static pare_node *pool(graph_case *g, const char *op, int64_t kernel, int64_t stride)
{
    graph_open(g, 19);
    graph_input(g, "x", PARE_f32, 3, DIMS(1, 1, 8));
    pare_node *n = graph_node(g, op, "x", "y");
    ints(n, "kernel_shape", 1, &kernel);
    ints(n, "strides", 1, &stride);
    return n;
}

static void pools_round_up(void **state)
{
    (void)state;
    graph_case g;
    pare_node *n = pool(&g, "MaxPool", 3, 2);
    integer(n, "ceil_mode", 1);
    ints(n, "pads", 2, DIMS(1, 0));
    expect(&g, 3, DIMS(1, 1, 8), digits, 4, FLOATS(3, 4, 9, 9));
    n = pool(&g, "AveragePool", 3, 2);
    integer(n, "ceil_mode", 1);
    integer(n, "count_include_pad", 1);
    ints(n, "pads", 2, DIMS(1, 0));
    expect(&g, 3, DIMS(1, 1, 8), digits, 4, FLOATS(1.3333334f, 2, 5, 5.6666665f));
    n = pool(&g, "AveragePool", 3, 3); /* a fourth window would start in the padding */
    integer(n, "ceil_mode", 1);
    ints(n, "pads", 2, DIMS(1, 1));
    expect(&g, 3, DIMS(1, 1, 8), digits, 3, FLOATS(2, 3.3333333f, 5.6666665f));
    n = pool(&g, "MaxPool", 2, 3);
    ints(n, "dilations", 1, DIMS(3));
    expect(&g, 3, DIMS(1, 1, 8), digits, 2, FLOATS(3, 2));
}

/* The indices 0 2 5 5 as floats. */
static void max_pool_says_where(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 13);
    graph_input(&g, "x", PARE_f32, 3, DIMS(1, 1, 8));
    pare_node *n = graph_node(&g, "MaxPool", "x", "m i");
    ints(n, "kernel_shape", 1, DIMS(3));
    ints(n, "strides", 1, DIMS(2));
    ints(n, "pads", 2, DIMS(1, 0));
    integer(n, "ceil_mode", 1);
    integer(graph_node(&g, "Cast", "i", "y"), "to", PARE_f32);
    expect(&g, 3, DIMS(1, 1, 8), digits, 4, FLOATS(0, 2, 5, 5));
}

static void a_large_window_is_named(void **state)
{
    (void)state;
    graph_case g;
    pare_plan *plan;
    pool(&g, "MaxPool", 9, 1);
    graph_output(&g, "y");
    assert_int_equal(pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, NULL), PARE_INPUT);
    assert_string_equal(g.ctx.message,
                        "m.onnx: node 'y' (MaxPool): its window of 9 is larger than the "
                        "padded input of 8");
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_round_up),
        cmocka_unit_test(max_pool_says_where),
        cmocka_unit_test(a_large_window_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
