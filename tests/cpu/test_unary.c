/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one tensor: plain kernels against values worked out by hand, vector kernels against
 * the\n   C library in double. */
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Runs the plain kernel of one operator on vectors; inputs are n elements each, or 1 (count[i]). */
static void run_vectors(kernel_case *k, pare_dtype dtype, int inputs, const void *const *data,
                        const int64_t *count, void *y)
{
    for (int i = 0; i < inputs; i++) {
        void *x = case_input(k, dtype, 1, &count[i], false, 0, 1);
        memcpy(x, data[i], pare_view_bytes(&k->in[i]));
    }
    case_infer(k);
    assert_true(case_run(k, case_plain(k), y));
}

static void floats_of(const char *op, const float *a, const float *b, int64_t n, float *y)
{
    kernel_case k;
    case_open(&k, "", op, 1);
    run_vectors(&k, PARE_f32, b ? 2 : 1, (const void *const[]){a, b}, (const int64_t[]){n, n}, y);
    case_close(&k);
}

static void assert_floats(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("element %d: %a, expected %a", i, (double)got[i], (double)want[i]);
    }
}

static void rounding_goes_to_even(void **state)
{
    (void)state;
    const float x[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 8388609, NAN, -INFINITY};
    const float want[] = {0, 2, 2, -0.0f, -2, -2, 0, 8388609, NAN, -INFINITY};
    float y[10];
    floats_of("Round", x, NULL, 10, y);
    assert_floats(y, want, 10);
}

static void nan_is_kept(void **state)
{
    (void)state;
    const float a[] = {NAN, 1, NAN, 2, -3, INFINITY}, b[] = {1, NAN, NAN, -3, 2, NAN};
    const float min[] = {NAN, NAN, NAN, -3, -3, NAN}, max[] = {NAN, NAN, NAN, 2, 2, NAN};
    const float relu[] = {NAN, 1, NAN, 2, 0, INFINITY}, sign[] = {NAN, 1, NAN, 1, -1, 1};
    float y[6];
    floats_of("Min", a, b, 6, y);
    assert_floats(y, min, 6);
    floats_of("Max", a, b, 6, y);
    assert_floats(y, max, 6);
    floats_of("Relu", a, NULL, 6, y);
    assert_floats(y, relu, 6);
    floats_of("Sign", a, NULL, 6, y);
    assert_floats(y, sign, 6);
}

static double exact(const char *op, double x)
{
    if (!strcmp(op, "Exp")) return exp(x);
    if (!strcmp(op, "Tanh")) return tanh(x);
    if (!strcmp(op, "Erf")) return erf(x);
    if (!strcmp(op, "Sigmoid")) return 1 / (1 + exp(-x));
    return x / 2 * (1 + erf(x * M_SQRT1_2));
}

static void vector_kernels_stay_close(void **state)
{
    (void)state;
    static const char *const ops[] = {"Exp", "Tanh", "Erf", "Sigmoid", "Gelu"};
    enum { N = 20001 };
    float *y = malloc(N * sizeof *y);
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        kernel_case k;
        case_open(&k, "", ops[o], 1);
        float *x = case_input(&k, PARE_f32, 1, (int64_t[]){N}, false, 0, 1);
        for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 0.01f;
        x[0] = NAN;
        x[1] = INFINITY;
        x[2] = -INFINITY;
        case_infer(&k);
        assert_true(case_run(&k, k.op->cpu[0], y));
        assert_false(k.op->cpu[0]->flags & PARE_KERNEL_REF);
        assert_true(isnan(y[0]));
        for (int i = 3; i < N; i++) {
            double want = exact(ops[o], (double)x[i]), scale = fabs(want);
            if (isinf((float)want) || scale < 1e-37) { /* overflow, and near what f32 can hold */
                assert_true(isinf((float)want) ? isinf(y[i]) : fabs((double)y[i]) < 2e-37);
                continue;
            }
            /* Gelu's tail is a difference of nearly equal numbers: absolute there */
            double error = fabs((double)y[i] - want) / (o == 4 ? fmax(scale, 1) : scale);
            if (error > 5e-7)
                fail_msg("%s(%g): %.9g, expected %.9g", ops[o], (double)x[i], (double)y[i], want);
        }
        if (o == 0) assert_true(isinf(y[1]) && y[2] == 0);
        if (o == 1 || o == 2) assert_true(y[1] == 1 && y[2] == -1);
        if (o == 3) assert_true(y[1] == 1 && y[2] == 0);
        case_close(&k);
    }
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_goes_to_even),
        cmocka_unit_test(nan_is_kept),
        cmocka_unit_test(vector_kernels_stay_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
