/* SPDX-License-Identifier: Apache-2.0 */
/* TopK and CumSum over any axis against what is made here element by element. */
#include "tests/cpu/kernel_case.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void cast_to(graph_case *g, const char *in, const char *out, pare_dtype type)
{
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", in, out), "to", type), PARE_OK);
}

static float *values_new(int64_t n, int spread)
{
    float *x = malloc((size_t)n * sizeof *x + 4);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 7919 % spread - spread / 3);
    return x;
}

static void check_sums(pare_dtype type, const int64_t *dims, int axis, int mode)
{
    graph_case g;
    int64_t inner = 1, n = dims[axis], count = dims[0] * dims[1] * dims[2],
            at = axis - 3 * (mode & 1);
    bool exclusive = mode & 1, reverse = mode & 2;
    for (int i = axis + 1; i < 3; i++) inner *= dims[i];
    float *x = values_new(count, 11), *y = malloc((size_t)count * sizeof *y + 4);
    graph_open(&g, 20);
    graph_input(&g, "x", PARE_f32, 3, dims);
    graph_ints(&g, "axis", 0, NULL, &at);
    cast_to(&g, "x", "c", type);
    pare_node *sum = graph_node(&g, "CumSum", "c axis", "s");
    assert_int_equal(pare_node_set_int(sum, "exclusive", exclusive), PARE_OK);
    assert_int_equal(pare_node_set_int(sum, "reverse", reverse), PARE_OK);
    cast_to(&g, "s", "y", PARE_f32);
    graph_output(&g, "y");
    graph_run(&g, 3, dims, x, y, count);
    for (int64_t lane = 0; lane < (n ? count / n : 0); lane++) {
        int64_t from = lane / inner * inner * n + lane % inner;
        double want = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t k = from + (reverse ? n - 1 - i : i) * inner;
            if (!exclusive) want += (double)x[k];
            if (!(fabs((double)y[k] - want) <= 1e-3 * (1 + fabs(want))))
                fail_msg("element %d is %g, expected %g", (int)k, (double)y[k], want);
            if (exclusive) want += (double)x[k];
        }
    }
    graph_close(&g);
    free(x);
    free(y);
}

static void sums_along_an_axis(void **state)
{
    (void)state;
    static const pare_dtype some[] = {PARE_f32, PARE_f16, PARE_s32, PARE_s64, PARE_f64, PARE_bf16};
    for (int mode = 0; mode < 4; mode++) {
        for (int axis = 0; axis < 3; axis++)
            check_sums(some[mode], (const int64_t[]){3, 5, 41}, axis, mode);
        check_sums(mode & 1 ? PARE_f32 : PARE_s64, (const int64_t[]){1, 2, 1100}, 2, mode);
        check_sums(mode & 1 ? PARE_s32 : PARE_f32, (const int64_t[]){1, 4, 1100}, 1, mode);
        check_sums(PARE_f32, (const int64_t[]){2, 0, 3}, 1, mode);
    }
    check_sums(PARE_bf16, (const int64_t[]){2, 3, 4}, 1, 0);
}

/* Place of element i of a lane among its neighbours: how many are before it. */
static int64_t rank_of(const float *x, int64_t n, int64_t step, int64_t i, bool largest)
{
    int64_t rank = 0;
    for (int64_t k = 0; k < n; k++) {
        float a = x[k * step], b = x[i * step];
        bool more = isnan(a) ? !isnan(b) : a > b, less = isnan(b) ? !isnan(a) : a < b;
        rank += (largest ? more : less) || (!more && !less && k < i);
    }
    return rank;
}

static void check_top(pare_dtype type, const int64_t *dims, int axis, int64_t take, int mode)
{
    graph_case g;
    bool largest = mode & 1, indices = mode & 2;
    int64_t n = dims[axis], count = dims[0] * dims[1], one = 1, step = axis ? 1 : dims[1];
    int64_t lanes = count / n, results = lanes * take;
    float *x = values_new(count, (int)(n / 2 + 3)), *y = malloc((size_t)results * sizeof *y + 4);
    if (mode & 4) x[n / 2] = NAN, x[count - 1] = -0.0f, x[0] = INFINITY, x[1] = -INFINITY;
    graph_open(&g, 20);
    graph_input(&g, "x", PARE_f32, 2, dims);
    graph_ints(&g, "k", 1, &one, &take);
    cast_to(&g, "x", "c", type);
    pare_node *top = graph_node(&g, "TopK", "c k", indices ? "v i" : "v");
    assert_int_equal(pare_node_set_int(top, "axis", axis), PARE_OK);
    assert_int_equal(pare_node_set_int(top, "largest", largest), PARE_OK);
    cast_to(&g, indices ? "i" : "v", "y", PARE_f32);
    graph_output(&g, "y");
    graph_run(&g, 2, dims, x, y, results);
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int64_t i = 0; i < n; i++) {
            const float *from = x + (axis ? lane * n : lane);
            int64_t rank = rank_of(from, n, step, i, largest);
            if (rank >= take) continue;
            float got = y[axis ? lane * take + rank : rank * dims[1] + lane];
            float want = indices ? (float)i : from[i * step];
            if (!(got == want || (isnan(got) && isnan(want))))
                fail_msg("lane %d, rank %d: %g, expected %g", (int)lane, (int)rank, (double)got,
                         (double)want);
        }
    graph_close(&g);
    free(x);
    free(y);
}

static void the_largest_and_the_smallest(void **state)
{
    (void)state;
    static const pare_dtype some[] = {PARE_f32, PARE_f16, PARE_s32, PARE_s64,
                                      PARE_f64, PARE_s8,  PARE_f32, PARE_f32};
    for (int mode = 0; mode < 8; mode++) {
        pare_dtype type = mode & 4 ? PARE_f32 : some[mode];
        check_top(type, (const int64_t[]){3, 37}, 1, 5, mode);
        check_top(mode & 4 ? PARE_f16 : some[mode + 4], (const int64_t[]){9, 4}, 0, 9, mode);
        check_top(PARE_f32, (const int64_t[]){1, 300}, 1, 300, mode);
    }
    check_top(PARE_f32, (const int64_t[]){2, 2500}, 1, 70, 3 | 4);
    check_top(PARE_s32, (const int64_t[]){2100, 2}, 0, 2100, 0);
    check_top(PARE_f32, (const int64_t[]){1, 1}, 1, 1, 0);
    check_top(PARE_f32, (const int64_t[]){4, 3}, 1, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_and_the_smallest),
        cmocka_unit_test(sums_along_an_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
