/* SPDX-License-Identifier: Apache-2.0 */
/* Products, Cholesky and solving against plain loops, at sizes around tiles and blocks; the same
   bits on any number of threads. */
#include "calib/linear.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static pare_ctx ctx;

static double *numbers(int64_t n, uint64_t seed)
{
    double *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (double)(int32_t)(seed >> 32) * 0x1p-31;
    }
    return x;
}

/* c = 1 + sign a^T b, upper only or whole. */
static void check_product(int64_t rows, int64_t m, int64_t n, double sign, bool upper)
{
    double *a = numbers(rows * m, 1), *b = upper ? a : numbers(rows * n, 2);
    double *c = malloc((size_t)(m * n) * sizeof *c);
    for (int64_t i = 0; i < m * n; i++) c[i] = 1;
    assert_int_equal(pare_linear_product(&ctx, (pare_mat_view){c, n}, (pare_mat_view){a, m},
                                         (pare_mat_view){b, n}, rows, m, n, sign, upper, 2),
                     PARE_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = upper ? i : 0; j < n; j++) {
            double want = 1;
            for (int64_t r = 0; r < rows; r++) want += sign * a[r * m + i] * b[r * n + j];
            if (!(fabs(c[i * n + j] - want) < 1e-12 * (double)(rows + 1)))
                fail_msg("%d x %d x %d at %d, %d: %g, expected %g", (int)rows, (int)m, (int)n,
                         (int)i, (int)j, c[i * n + j], want);
        }
    if (b != a) free(b);
    free(a);
    free(c);
}

static void products(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 7, 8, 9, 16, 17, 33};
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 7; j++) check_product(5 + i, sizes[i], sizes[j], i % 2 ? 1 : -1, false);
    for (int i = 0; i < 7; i++) check_product(40, sizes[i], sizes[i], 1, true);
    check_product(300, 129, 129, 1, true);
}

/* a = x^T x + 0.1, its factor, and the solution of a z = b. */
static void check_solve(int64_t n, int threads, double *out)
{
    const int64_t columns = 5;
    double *x = numbers(2 * n * n, 3), *b = numbers(n * columns, 4);
    double *a = calloc((size_t)(n * n), sizeof *a), *u = calloc((size_t)(n * n), sizeof *u);
    bool ok = false;
    assert_int_equal(pare_linear_product(&ctx, (pare_mat_view){a, n}, (pare_mat_view){x, n},
                                         (pare_mat_view){x, n}, 2 * n, n, n, 1, true, threads),
                     PARE_OK);
    for (int64_t i = 0; i < n; i++) a[i * n + i] += 0.1;
    memcpy(u, a, (size_t)(n * n) * sizeof *a);
    memcpy(out, b, (size_t)(n * columns) * sizeof *b);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) a[j * n + i] = a[i * n + j];
    assert_int_equal(pare_linear_cholesky(&ctx, (pare_mat_view){u, n}, n, threads, &ok), PARE_OK);
    assert_true(ok);
    assert_int_equal(pare_linear_solve(&ctx, (pare_mat_view){u, n}, n,
                                       (pare_mat_view){out, columns}, columns, threads),
                     PARE_OK);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += a[i * n + k] * out[k * columns + j];
            if (!(fabs(sum - b[i * columns + j]) < 1e-9))
                fail_msg("n %d: row %d gives %g, expected %g", (int)n, (int)i, sum,
                         b[i * columns + j]);
        }
    double *one = malloc((size_t)n * sizeof *one);
    for (int64_t i = 0; i < n; i++) one[i] = b[i * columns + 2];
    pare_linear_solve_one(u, n, n, one);
    for (int64_t i = 0; i < n; i++) assert_true(fabs(one[i] - out[i * columns + 2]) < 1e-9);
    free(one);
    double *inverse = malloc((size_t)(n * n) * sizeof *inverse);
    assert_int_equal(pare_linear_inverse(&ctx, inverse, (pare_mat_view){u, n}, n, threads),
                     PARE_OK);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += a[i * n + k] * inverse[k * n + j];
            assert_true(fabs(sum - (i == j)) < 1e-9);
            assert_true(inverse[i * n + j] == inverse[j * n + i]);
        }
    free(inverse);
    free(x);
    free(b);
    free(a);
    free(u);
}

static void solutions(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 63, 64, 65, 130, 200};
    for (int i = 0; i < 7; i++) {
        double *one = malloc(sizeof(double) * 5 * (size_t)sizes[i]);
        double *two = malloc(sizeof(double) * 5 * (size_t)sizes[i]);
        check_solve(sizes[i], 1, one);
        check_solve(sizes[i], 3, two);
        assert_memory_equal(one, two, sizeof(double) * 5 * (size_t)sizes[i]);
        free(one);
        free(two);
    }
}

/* (4 2; 2 3) = u^T u with u = (2 1; 0 sqrt 2); (1 2; 2 1) has the eigenvalue -1. */
static void by_hand(void **state)
{
    (void)state;
    double a[4] = {4, 2, 2, 3}, not_definite[4] = {1, 2, 2, 1}, nan[1] = {NAN};
    bool ok = false;
    assert_int_equal(pare_linear_cholesky(&ctx, (pare_mat_view){a, 2}, 2, 1, &ok), PARE_OK);
    assert_true(ok && a[0] == 2 && a[1] == 1 && fabs(a[3] - sqrt(2)) < 1e-15);
    assert_int_equal(pare_linear_cholesky(&ctx, (pare_mat_view){not_definite, 2}, 2, 1, &ok),
                     PARE_OK);
    assert_false(ok);
    assert_int_equal(pare_linear_cholesky(&ctx, (pare_mat_view){nan, 1}, 1, 1, &ok), PARE_OK);
    assert_false(ok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(solutions),
        cmocka_unit_test(by_hand),
    };
    pare_ctx_init(&ctx);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
