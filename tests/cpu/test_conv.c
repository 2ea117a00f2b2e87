/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions where ONNX's rules are easy to get wrong. Expected numbers are ONNX Runtime's unless
 * a\n   line says otherwise. */
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
static void text(pare_node *n, const char *name, const char *v)
{
    assert_int_equal(pare_node_set_string(n, name, v), PARE_OK);
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

static const float one_to_seven[] = {1, 2, 3, 4, 5, 6, 7};

static pare_node *conv_1d(graph_case *g)
{
    graph_open(g, 13);
    graph_input(g, "x", PARE_f32, 3, DIMS(1, 1, 7));
    graph_floats(g, "w", 3, DIMS(1, 1, 4), FLOATS(1, 2, -1, 3));
    return graph_node(g, "Conv", "x w", "y");
}

static void conv_pads_by_itself(void **state)
{
    (void)state;
    graph_case g;
    pare_node *n = conv_1d(&g);
    text(n, "auto_pad", "SAME_UPPER");
    ints(n, "strides", 1, DIMS(2));
    expect(&g, 3, DIMS(1, 1, 7), one_to_seven, 4, FLOATS(9, 19, 29, 20));
    n = conv_1d(&g);
    text(n, "auto_pad", "SAME_LOWER");
    ints(n, "strides", 1, DIMS(2));
    expect(&g, 3, DIMS(1, 1, 7), one_to_seven, 4, FLOATS(5, 14, 24, 10));
}

static void conv_dilates(void **state)
{
    (void)state;
    graph_case g;
    pare_node *n = conv_1d(&g);
    ints(n, "dilations", 1, DIMS(2));
    ints(n, "pads", 2, DIMS(3, 1));
    expect(&g, 3, DIMS(1, 1, 7), one_to_seven, 5, FLOATS(10, 14, 18, 23, 4));
}

static void conv_groups(void **state)
{
    (void)state;
    graph_case g;
    float x[16], w[16];
    for (int i = 0; i < 16; i++) {
        x[i] = (float)i;
        w[i] = (float)(i - 7);
    }
    graph_open(&g, 13);
    graph_input(&g, "x", PARE_f32, 4, DIMS(1, 4, 2, 2));
    graph_floats(&g, "w", 4, DIMS(4, 2, 2, 1), w);
    graph_floats(&g, "b", 1, DIMS(4), FLOATS(1, 2, 3, 4));
    pare_node *n = graph_node(&g, "Conv", "x w b", "y");
    integer(n, "group", 2);
    ints(n, "pads", 4, DIMS(0, 1, 0, 0));
    ints(n, "strides", 2, DIMS(1, 2));
    expect(&g, 4, DIMS(1, 4, 2, 2), x, 8, FLOATS(1, -77, 2, -12, 3, 133, 4, 326));
}

static pare_node *transposed(graph_case *g)
{
    graph_open(g, 13);
    graph_input(g, "x", PARE_f32, 4, DIMS(1, 1, 2, 3));
    graph_floats(g, "w", 4, DIMS(1, 1, 3, 2), FLOATS(1, 2, 3, 4, 5, 6));
    pare_node *n = graph_node(g, "ConvTranspose", "x w", "y");
    ints(n, "strides", 2, DIMS(2, 2));
    return n;
}

static void conv_transpose_sizes(void **state)
{
    (void)state;
    graph_case g;
    pare_node *n = transposed(&g);
    ints(n, "strides", 2, DIMS(2, 1));
    ints(n, "output_padding", 2, DIMS(1, 0));
    ints(n, "pads", 4, DIMS(1, 0, 0, 1));
    expect(&g, 4, DIMS(1, 1, 2, 3), one_to_seven, 15,
           FLOATS(3, 10, 17, 9, 29, 43, 12, 31, 38, 20, 49, 60, 0, 0, 0));
    n = transposed(&g);
    ints(n, "output_shape", 2, DIMS(4, 5));
    text(n, "auto_pad", "SAME_UPPER");
    expect(&g, 4, DIMS(1, 1, 2, 3), one_to_seven, 20,
           FLOATS(1, 2, 2, 4, 3, 3, 4, 6, 8, 9, 9, 14, 15, 22, 21, 12, 16, 15, 20, 18));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_pads_by_itself),
        cmocka_unit_test(conv_dilates),
        cmocka_unit_test(conv_groups),
        cmocka_unit_test(conv_transpose_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
