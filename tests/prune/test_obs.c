/* SPDX-License-Identifier: Apache-2.0 */
/* Second-order pruning against what it stands for: fitting the remaining weights again after each
   removal, by elimination without any inverse. */
#include "prune/unstructured.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static pare_ctx ctx;

enum { D = 12, ROWS = 5 };

typedef struct problem {
    double a[D * D], inverse[D * D], best[ROWS * D];
} problem;

/* Solves a z = b by Gauss-Jordan with pivots on the diagonal: a is positive definite. */
static void eliminate(const double *a, const double *b, int n, double *z)
{
    double m[D][D + 1];
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) m[i][j] = a[i * n + j];
        m[i][n] = b[i];
    }
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++) {
            if (i == k) continue;
            double f = m[i][k] / m[k][k];
            for (int j = k; j <= n; j++) m[i][j] -= f * m[k][j];
        }
    for (int i = 0; i < n; i++) z[i] = m[i][n] / m[i][i];
}

static void make(problem *p, uint64_t seed)
{
    double x[3 * D][D];
    for (int r = 0; r < 3 * D; r++)
        for (int i = 0; i < D; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x[r][i] = (double)(int32_t)(seed >> 32) * 0x1p-31 + (i ? 0.5 * x[r][i - 1] : 0);
        }
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            double sum = i == j ? 0.01 : 0;
            for (int r = 0; r < 3 * D; r++) sum += x[r][i] * x[r][j];
            p->a[i * D + j] = sum;
        }
    for (int k = 0; k < D; k++) {
        double channel[D] = {0}, z[D];
        channel[k] = 1;
        eliminate(p->a, channel, D, z);
        for (int i = 0; i < D; i++) p->inverse[i * D + k] = z[i];
    }
    for (int i = 0; i < ROWS * D; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        p->best[i] = (double)(int32_t)(seed >> 32) * 0x1p-31;
    }
}

/* What a row costs at best with these zeros: (w - w0)^T a (w - w0), w fitted; w may be NULL. */
static double cost(const problem *p, const double *best, const bool *zero, double *w)
{
    double a[D * D] = {0}, b[D] = {0}, z[D] = {0}, whole[D] = {0}, sum = 0;
    int n = 0, kept[D];
    for (int i = 0; i < D; i++)
        if (!zero[i]) kept[n++] = i;
    for (int i = 0; i < n; i++) {
        b[i] = 0;
        for (int j = 0; j < D; j++) b[i] += p->a[kept[i] * D + j] * best[j];
        for (int j = 0; j < n; j++) a[i * n + j] = p->a[kept[i] * D + kept[j]];
    }
    eliminate(a, b, n, z);
    for (int i = 0; i < n; i++) whole[kept[i]] = z[i];
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++)
            sum += (whole[i] - best[i]) * p->a[i * D + j] * (whole[j] - best[j]);
    if (w) memcpy(w, whole, sizeof whole);
    return sum;
}

/* Every step is the best single removal, and says what it costs. */
static void check_trace(int n, int m)
{
    problem p;
    make(&p, 7);
    int32_t order[ROWS * D];
    float loss[ROWS * D];
    pare_obs s = {&ctx, D, ROWS, p.inverse, p.best, n, m, 2};
    assert_int_equal(pare_obs_trace(&s, order, loss), PARE_OK);
    for (int r = 0; r < ROWS; r++) {
        bool zero[D] = {0};
        int gone[D] = {0}, steps = m ? D / m * (m - n) : D;
        double before = 0;
        for (int k = 0; k < steps; k++) {
            double least = INFINITY;
            int best = -1;
            for (int j = 0; j < D; j++) {
                if (zero[j] || (m && gone[j / m] == m - n)) continue;
                zero[j] = true;
                double c = cost(&p, p.best + r * D, zero, NULL) - before;
                zero[j] = false;
                if (c < least) least = c, best = j;
            }
            assert_int_equal(order[r * D + k], best);
            assert_true(fabs((double)loss[r * D + k] - least) < 1e-5 * (1 + least));
            zero[best] = true;
            if (m) gone[best / m]++;
            before += least;
        }
        for (int k = steps; k < D; k++) assert_int_equal(order[r * D + k], -1);
    }
}

static void a_trace_takes_the_cheapest_each_time(void **state)
{
    (void)state;
    check_trace(0, 0);
    check_trace(2, 4);
    check_trace(1, 3);
}

static void fitting_is_least_squares(void **state)
{
    (void)state;
    problem p;
    double b[D] = {0}, want[D], w[D], scratch[D * (D + 1)];
    make(&p, 11);
    bool zero[D];
    for (int i = 0; i < D; i++) {
        zero[i] = i % 3 == 1;
        for (int j = 0; j < D; j++) b[i] += p.a[i * D + j] * p.best[j];
    }
    (void)cost(&p, p.best, zero, want);
    assert_true(pare_obs_fit(p.a, b, zero, D, w, scratch));
    for (int i = 0; i < D; i++) assert_true(fabs(w[i] - want[i]) < 1e-9);
    p.a[0] = -1;
    assert_false(pare_obs_fit(p.a, b, zero, D, w, scratch));
}

/* Losses 1 2 9 | 3 1 4 (a later step is never cheaper than an earlier one of its row): of four
   zeros two fall in each row. */
static void rows_share_out_by_loss(void **state)
{
    (void)state;
    const int32_t order[] = {2, 0, 1, 1, 2, 0};
    const float loss[] = {1, 2, 9, 3, 1, 4};
    bool zero[6];
    assert_int_equal(pare_obs_cheapest(&ctx, order, loss, 2, 3, 4, zero), PARE_OK);
    const bool want[] = {true, false, true, false, true, true};
    assert_memory_equal(zero, want, sizeof want);
    assert_int_equal(pare_obs_cheapest(&ctx, order, loss, 2, 3, 3, zero), PARE_OK);
    assert_true(zero[2] && zero[0] && zero[3 + 1] && !zero[3 + 2]);
}

/* The sweep: right numbers of zeros, and never worse than no compensation. */
static void a_sweep_compensates(void **state)
{
    (void)state;
    problem p;
    make(&p, 5);
    bool zero[ROWS * D];
    double w[ROWS * D], with = 0, without = 0;
    for (int pass = 0; pass < 2; pass++) {
        pare_obs s = {&ctx, D, ROWS, p.inverse, p.best, pass ? 2 : 0, pass ? 4 : 0, 2};
        assert_int_equal(pare_obs_sweep(&s, 31, zero, w), PARE_OK);
        int count = 0;
        for (int i = 0; i < ROWS * D; i++) {
            count += zero[i];
            assert_true(!zero[i] || w[i] == 0);
        }
        assert_int_equal(count, pass ? ROWS * D / 2 : 31);
        for (int g = 0; pass && g < ROWS * D / 4; g++)
            assert_int_equal(zero[4 * g] + zero[4 * g + 1] + zero[4 * g + 2] + zero[4 * g + 3], 2);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < D; i++)
                for (int j = 0; j < D; j++) {
                    const double *b = p.best + r * D;
                    double di = w[r * D + i] - b[i], dj = w[r * D + j] - b[j];
                    with += di * p.a[i * D + j] * dj;
                    without += (zero[r * D + i] ? b[i] : 0) * p.a[i * D + j] *
                               (zero[r * D + j] ? b[j] : 0);
                }
        assert_true(with < 0.9 * without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_takes_the_cheapest_each_time),
        cmocka_unit_test(fitting_is_least_squares),
        cmocka_unit_test(rows_share_out_by_loss),
        cmocka_unit_test(a_sweep_compensates),
    };
    pare_ctx_init(&ctx);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
