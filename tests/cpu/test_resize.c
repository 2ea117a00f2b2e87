/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and Upsample where ONNX's rules are easy to get wrong. Expected numbers are ONNX
 * Runtime's\n   unless a line says otherwise. */
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

static const float six[] = {0, 1, 2, 3, 4, 5};

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
        cmocka_unit_test(resize_nearest),
        cmocka_unit_test(resize_smooth),
        cmocka_unit_test(resize_filters_when_it_shrinks),
        cmocka_unit_test(upsample_is_resize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
