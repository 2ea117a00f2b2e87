/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals of which the distribution of all sets is known: two or three units by hand, a
   proportion by the binomial. */
#include "runtime/eval/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static pare_ctx ctx;

static int init(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    return 0;
}

static double mean(void *user, const int *pick, int units)
{
    const double *v = user;
    double sum = 0;
    for (int i = 0; i < units; i++) sum += v[pick[i]];
    return sum / units;
}

/* Of {0, 1} the sets are 00, 01, 10, 11: a mean of 0, 1/2, 1 in 1/4, 1/2, 1/4 of them, so that the
   middle 95 % are all of it. Of 100 values, half of them 1, the mean is binomial: 2.5 % and 97.5 %
   are at 40 and 60 hundredths. */
static void means_are_binomial(void **state)
{
    (void)state;
    double two[] = {0, 1}, many[100];
    pare_interval i;
    assert_int_equal(pare_resample(&ctx, &i, mean, two, 2), PARE_OK);
    assert_true(i.low == 0 && i.high == 1);
    for (int k = 0; k < 100; k++) many[k] = k % 2;
    assert_int_equal(pare_resample(&ctx, &i, mean, many, 100), PARE_OK);
    assert_true(fabs(i.low - 0.4) < 0.011 && fabs(i.high - 0.6) < 0.011);
}

static void the_same_values_give_the_same_interval(void **state)
{
    (void)state;
    double v[] = {3, 1, 4, 1, 5, 9, 2, 6};
    pare_interval a, b;
    assert_int_equal(pare_resample(&ctx, &a, mean, v, 8), PARE_OK);
    assert_int_equal(pare_resample(&ctx, &b, mean, v, 8), PARE_OK);
    assert_true(a.low == b.low && a.high == b.high && a.low < a.high);
}

/* 20 times are four stretches of five, here of 1, 2, 3 and 4 ms. A set's median is 1 where at least
   three of its four draws are the first: 4 * 3 + 1 = 13 of 256 sets, 5.1 %, and likewise 4. */
static void a_median_is_drawn_in_stretches(void **state)
{
    (void)state;
    double ms[20];
    pare_interval i;
    for (int k = 0; k < 20; k++) ms[k] = 1 + k / 5;
    assert_int_equal(pare_resample_median(&ctx, &i, ms, 20), PARE_OK);
    assert_true(i.low == 1 && i.high == 4);
    assert_int_equal(pare_resample_median(&ctx, &i, ms, 19), PARE_OK);
    assert_true(isnan(i.low) && isnan(i.high));
    for (int k = 0; k < 20; k++) ms[k] = 7;
    assert_int_equal(pare_resample_median(&ctx, &i, ms, 20), PARE_OK);
    assert_true(i.low == 7 && i.high == 7);
}

/* Both slow down together: their ratio is 2 throughout, and so is each set's, though either median
   alone is anywhere between its ends. */
static void a_ratio_draws_both_at_the_same_time(void **state)
{
    (void)state;
    double slow[400], fast[800];
    pare_interval i;
    for (int k = 0; k < 400; k++) slow[k] = 2 + 0.02 * (k / 10);
    for (int k = 0; k < 800; k++) fast[k] = 1 + 0.01 * (k / 20);
    assert_int_equal(pare_resample_ratio(&ctx, &i, slow, 400, fast, 800), PARE_OK);
    assert_true(fabs(i.low - 2) < 1e-12 && fabs(i.high - 2) < 1e-12);
    assert_int_equal(pare_resample_median(&ctx, &i, slow, 400), PARE_OK);
    assert_true(i.low < 2.39 && i.high > 2.39 && i.high < 2.8);
}

/* Signal 1, error 0.01 in one unit and 0.0001 in the other: 20 dB, 40 dB, and 10 log10(2 / 0.0101)
   where each is drawn once. */
static void an_sqnr_is_of_sums(void **state)
{
    (void)state;
    const pare_error_stats sums[] = {{.rr = 1, .dd = 0.01}, {.rr = 1, .dd = 0.0001}};
    const pare_error_stats none[] = {{.rr = 1, .dd = 0.01}, {.rr = 1}};
    pare_interval i;
    assert_int_equal(pare_resample_sqnr(&ctx, &i, sums, 2), PARE_OK);
    assert_true(fabs(i.low - 20) < 1e-9 && fabs(i.high - 40) < 1e-9);
    assert_int_equal(pare_resample_sqnr(&ctx, &i, none, 2), PARE_OK);
    assert_true(isnan(i.low)); /* a set without any error */
}

static void memory_may_run_out(void **state)
{
    (void)state;
    const double ms[20] = {1};
    pare_interval i;
    int failed = 0;
    for (long n = 0; n < 8; n++) {
        pare_ctx own;
        pare_ctx_init(&own);
        own.fail_after = n;
        pare_status st = pare_resample_median(&own, &i, ms, 20);
        assert_true(st == PARE_OK || st == PARE_MEMORY);
        failed += st == PARE_MEMORY;
    }
    assert_int_equal(failed, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_binomial),
        cmocka_unit_test(the_same_values_give_the_same_interval),
        cmocka_unit_test(a_median_is_drawn_in_stretches),
        cmocka_unit_test(a_ratio_draws_both_at_the_same_time),
        cmocka_unit_test(an_sqnr_is_of_sums),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, init, NULL);
}
