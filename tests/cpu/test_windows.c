/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, pools and Resize: cases where ONNX's rules are easy to get wrong. Expected numbers
   are ONNX Runtime's unless a line says otherwise. */
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

static const float one_to_seven[] = {1, 2, 3, 4, 5, 6, 7}, digits[] = {3, 1, 4, 1, 5, 9, 2, 6};
static const float six[] = {0, 1, 2, 3, 4, 5};

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

/* --- Resize of [[0 1 2] [3 4 5]] to 3 x 4 --- */

static void resize(const char *mode, const char *coordinate, const char *nearest, const float *want)
{
    graph_case g;
    graph_open(&g, 18);
    graph_input(&g, "x", PARE_f32, 4, DIMS(1, 1, 2, 3));
    graph_ints(&g, "sizes", 1, DIMS(4), DIMS(1, 1, 3, 4));
    pare_node *n = graph_node(&g, "Resize", "x - - sizes", "y");
    text(n, "mode", mode);
    text(n, "coordinate_transformation_mode", coordinate);
    if (nearest) text(n, "nearest_mode", nearest);
    expect(&g, 4, DIMS(1, 1, 2, 3), six, 12, want);
}

static void resize_nearest(void **state)
{
    (void)state;
    resize("nearest", "half_pixel", "round_prefer_floor",
           FLOATS(0, 1, 1, 2, 0, 1, 1, 2, 3, 4, 4, 5));
    resize("nearest", "asymmetric", "ceil", FLOATS(0, 1, 2, 2, 3, 4, 5, 5, 3, 4, 5, 5));
    resize("nearest", "align_corners", "round_prefer_ceil",
           FLOATS(0, 1, 1, 2, 3, 4, 4, 5, 3, 4, 4, 5));
}

static void resize_smooth(void **state)
{
    (void)state;
    resize("linear", "half_pixel", NULL,
           FLOATS(0, .625f, 1.375f, 2, 1.5f, 2.125f, 2.875f, 3.5f, 3, 3.625f, 4.375f, 5));
    resize("linear", "align_corners", NULL,
           FLOATS(0, .6666667f, 1.3333333f, 2, 1.5f, 2.1666667f, 2.8333333f, 3.5f, 3, 3.6666667f,
                  4.3333333f, 5));
    resize("cubic", "pytorch_half_pixel", NULL,
           FLOATS(-.3321941f, .2693686f, 1.209799f, 1.811361f, 1.428223f, 2.029785f, 2.970215f,
                  3.571777f, 3.188641f, 3.790203f, 4.730633f, 5.332196f));
}

static void resize_filters_when_it_shrinks(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 18);
    graph_input(&g, "x", PARE_f32, 4, DIMS(1, 1, 2, 3));
    graph_floats(&g, "scales", 1, DIMS(4), FLOATS(1, 1, .5f, .5f));
    pare_node *n = graph_node(&g, "Resize", "x - scales", "y");
    text(n, "mode", "linear");
    integer(n, "antialias", 1);
    expect(&g, 4, DIMS(1, 1, 2, 3), six, 1, FLOATS(2.125f));
}

/* By hand: asymmetric with floor copies each element twice, linear runs halfway to the next. */
static void upsample_is_resize(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 9);
    graph_input(&g, "x", PARE_f32, 4, DIMS(1, 1, 1, 3));
    graph_floats(&g, "scales", 1, DIMS(4), FLOATS(1, 1, 1, 2));
    text(graph_node(&g, "Upsample", "x scales", "y"), "mode", "linear");
    expect(&g, 4, DIMS(1, 1, 1, 3), six, 6, FLOATS(0, .5f, 1, 1.5f, 2, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_pads_by_itself),
        cmocka_unit_test(conv_dilates),
        cmocka_unit_test(conv_groups),
        cmocka_unit_test(conv_transpose_sizes),
        cmocka_unit_test(pools_round_up),
        cmocka_unit_test(max_pool_says_where),
        cmocka_unit_test(a_large_window_is_named),
        cmocka_unit_test(resize_nearest),
        cmocka_unit_test(resize_smooth),
        cmocka_unit_test(resize_filters_when_it_shrinks),
        cmocka_unit_test(upsample_is_resize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
