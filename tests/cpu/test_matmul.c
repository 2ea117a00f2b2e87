/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: values worked out by hand. */
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void products_sum_over_k(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {4, 128, 3}, {5, 129, 7},
                                       {3, 2, 0}, {0, 3, 2},   {9, 300, 33}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        kernel_case k;
        int64_t m = sizes[s][0], n = sizes[s][1], inner = sizes[s][2];
        case_open(&k, "", "MatMul", s);
        const float *a = case_input(&k, PARE_f32, 3, (int64_t[]){2, m, inner}, false, 0, 1);
        const float *b = case_input(&k, PARE_f32, 2, (int64_t[]){inner, n}, false, 0, 1);
        case_infer(&k);
        float *y = malloc(case_bytes(&k) + 4);
        assert_true(case_run(&k, case_plain(&k), y));
        for (int64_t r = 0; r < 2 * m; r++)
            for (int64_t c = 0; c < n; c++) {
                double want = 0;
                for (int64_t i = 0; i < inner; i++)
                    want += (double)a[r * inner + i] * (double)b[i * n + c];
                assert_true(fabs((double)y[r * n + c] - want) < 1e-5);
            }
        free(y);
        case_close(&k);
    }
}

static void gemm_scales_and_transposes(void **state)
{
    (void)state;
    /* A' = [[1, 2], [3, 4]], B' = [[1, 0], [2, 1]]: A'B' = [[5, 2], [11, 4]]; C = [10, 20] */
    const float a[4] = {1, 3, 2, 4}, b[4] = {1, 2, 0, 1}, c[2] = {10, 20};
    const float want[4] = {0.5f * 5 + 20, 0.5f * 2 + 40, 0.5f * 11 + 20, 0.5f * 4 + 40};
    kernel_case k;
    float y[4];
    case_open(&k, "", "Gemm", 1);
    assert_int_equal(pare_node_set_int(k.node, "transA", 1), PARE_OK);
    assert_int_equal(pare_node_set_int(k.node, "transB", 1), PARE_OK);
    assert_int_equal(pare_node_set_float(k.node, "alpha", 0.5f), PARE_OK);
    assert_int_equal(pare_node_set_float(k.node, "beta", 2), PARE_OK);
    memcpy(case_input(&k, PARE_f32, 2, (int64_t[]){2, 2}, false, 0, 1), a, sizeof a);
    memcpy(case_input(&k, PARE_f32, 2, (int64_t[]){2, 2}, false, 0, 1), b, sizeof b);
    memcpy(case_input(&k, PARE_f32, 1, (int64_t[]){2}, false, 0, 1), c, sizeof c);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_memory_equal(y, want, sizeof y);
    case_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_sum_over_k),
        cmocka_unit_test(gemm_scales_and_transposes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
