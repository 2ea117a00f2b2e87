/* SPDX-License-Identifier: Apache-2.0 */
/* Values come from published examples where one is named, else from a computation with 40 decimal
   digits (Python's decimal and fractions), written apart from the code under test. */
#include "runtime/eval/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void near(double a, double b, double within)
{
    if (!(fabs(a - b) <= within)) fail_msg("%.12g is not within %g of %.12g", a, within, b);
}

/* 81 of 263: the example of Newcombe 1998, Statistics in Medicine 17:857, gives 0.2553 to 0.3662.
 */
static void wilson_matches_the_published_example(void **state)
{
    (void)state;
    pare_interval i = pare_stats_wilson(81, 263);
    near(i.low, 0.25528851987827, 1e-12);
    near(i.high, 0.36620957698280, 1e-12);
    i = pare_stats_wilson(0, 20);
    near(i.low, 0, 0);
    near(i.high, 0.16112515805282, 1e-12);
    i = pare_stats_wilson(29, 29);
    near(i.low, 0.88303020150026, 1e-12);
    near(i.high, 1, 0);
    i = pare_stats_wilson(0, 0);
    near(i.high - i.low, 1, 0);
}

/* (36, 12, 2, 0) is in Newcombe's paper as 0.0569 to 0.3404; (1, 1, 7, 12) in Fagerland, Lydersen
   and Laake, Statistical Analysis of Contingency Tables, as -0.507 to -0.026. */
static void newcombe_matches_published_examples(void **state)
{
    (void)state;
    static const struct {
        pare_paired t;
        double low, high;
    } cases[] = {
        {{36, 12, 2, 0}, 0.056929584003, 0.340427602975},
        {{1, 1, 7, 12}, -0.506920226686, -0.025559124165},
        {{14, 5, 0, 22}, 0.011483241383, 0.226492684351},
        {{9200, 40, 55, 705}, -0.003454815775, 0.000439729420},
        {{20, 12, 2, 16}, 0.056156424842, 0.329206995400},
        {{50, 0, 0, 0}, -0.071347599133, 0.071347599133},
        {{0, 29, 0, 1}, 0.791529574287, 0.994091409618},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pare_interval got = pare_stats_newcombe(cases[i].t);
        near(got.low, cases[i].low, 1e-11);
        near(got.high, cases[i].high, 1e-11);
    }
}

static void mcnemar_is_exact_for_few_pairs(void **state)
{
    (void)state;
    static const struct {
        int64_t b, c;
        double p;
        bool exact;
    } cases[] = {
        {12, 2, 0.012939453125, true},
        {3, 9, 0.14599609375, true},
        {8, 8, 1, true},
        {0, 5, 0.0625, true},
        {1, 23, 2.9802322387695312e-06, true},
        {12, 13, 1, false},
        {121, 59, 5.450094825427e-06, false},
        {40, 55, 0.15089717233443, false},
        {13, 13, 1, false},
        {0, 0, 1, true},
        {30, 10, 0.0026631192591386, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool exact;
        double p = pare_stats_mcnemar((pare_paired){100, cases[i].b, cases[i].c, 7}, &exact);
        near(p, cases[i].p, 1e-9 * cases[i].p);
        assert_int_equal(exact, cases[i].exact);
    }
}

/* Decimal, 40 digits, of the formula in the header's source; the last one is Cavo's table as
   Fagerland, Lydersen and Laake have it in their R package contingencytables, to four digits. */
static void kept_is_the_ratio_of_paired_hits(void **state)
{
    (void)state;
    const struct {
        pare_paired table;
        double low, high;
    } cases[] = {
        {{9200, 40, 55, 705}, 0.9995460310907537, 1.0037050394803924},
        {{80, 10, 0, 10}, 0.8246564809905090, 0.9581243523862112},
        {{50, 0, 0, 50}, 0.9623084791068103, 1.0391678154266851}, /* they never differ */
        {{0, 0, 5, 3}, 1.3015888581350286, INFINITY},
        {{0, 5, 0, 3}, 0, 0.7682917641388250},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const pare_interval i = pare_stats_kept(cases[k].table);
        near(i.low, cases[k].low, 1e-12);
        if (isinf(cases[k].high))
            assert_true(isinf(i.high));
        else
            near(i.high, cases[k].high, 1e-12);
    }
    const pare_interval cavo = pare_stats_kept((pare_paired){59, 16, 6, 80});
    near(cavo.low, 0.7579, 5e-5);
    near(cavo.high, 0.9910, 5e-5);
    assert_true(isinf(pare_stats_kept((pare_paired){0, 0, 0, 50}).high));
    assert_true(pare_stats_kept((pare_paired){0, 0, 0, 50}).low == 0);
}

static void a_floor_is_met_missed_or_open(void **state)
{
    (void)state;
    assert_int_equal(pare_stats_floor((pare_interval){0.992, 0.999}, 0.99), PARE_FLOOR_MET);
    assert_int_equal(pare_stats_floor((pare_interval){0.99, 0.999}, 0.99), PARE_FLOOR_MET);
    assert_int_equal(pare_stats_floor((pare_interval){0.985, 0.999}, 0.99), PARE_FLOOR_OPEN);
    assert_int_equal(pare_stats_floor((pare_interval){0.985, 0.989}, 0.99), PARE_FLOOR_MISSED);
}

/* Ten beyond it: 10 / 0.01, 10 / 0.001, 10 / 0.1 from either side. */
static void percentiles_need_runs(void **state)
{
    (void)state;
    assert_int_equal(pare_stats_needed(99), 1000);
    assert_int_equal(pare_stats_needed(99.9), 10000);
    assert_int_equal(pare_stats_needed(95), 200);
    assert_int_equal(pare_stats_needed(90), 100);
    assert_int_equal(pare_stats_needed(10), 100);
    assert_int_equal(pare_stats_needed(50), 1);
    assert_int_equal(pare_stats_needed(0), 1);
    assert_int_equal(pare_stats_needed(100), 1);
}

static void apart_is_of_the_median(void **state)
{
    (void)state;
    const double v[] = {2, 2.5, 2.1};
    near(pare_stats_relative_spread(v, 3), 0.5 / 2.1, 1e-15);
    near(pare_stats_relative_spread(v, 1), 0, 0);
}

/* Guessing is 1 / classes, so 55 % of two classes is nothing and 55 % of ten is much. */
static void chance_depends_on_the_classes(void **state)
{
    (void)state;
    assert_true(pare_stats_near_chance(1003, 10000, 10));
    assert_true(pare_stats_near_chance(1400, 10000, 10)); /* 14 %: broken, though above 10 % */
    assert_false(pare_stats_near_chance(8900, 10000, 10));
    assert_true(pare_stats_near_chance(5200, 10000, 2));
    assert_false(pare_stats_near_chance(6000, 10000, 2));
    assert_false(pare_stats_near_chance(600, 10000, 1000)); /* 6 % of 1,000 classes is a weak net */
    assert_true(pare_stats_near_chance(12, 10000, 1000));
    assert_true(pare_stats_near_chance(6, 10, 2)); /* ten samples cannot tell 60 % from 50 % */
    assert_false(pare_stats_near_chance(9, 10, 10));
}

/* numpy.percentile (linear), numpy.std(ddof=1) of 3.5 1.25 9 4 7.75 2 6 */
static void percentiles_are_linear(void **state)
{
    (void)state;
    double v[] = {3.5, 1.25, 9, 4, 7.75, 2, 6}, one = 5;
    near(pare_stats_variation(v, 7), 0.60653173497032, 1e-13);
    pare_stats_sort(v, 7);
    near(pare_stats_percentile(v, 7, 0), 1.25, 0);
    near(pare_stats_percentile(v, 7, 10), 1.7, 1e-12);
    near(pare_stats_percentile(v, 7, 50), 4, 0);
    near(pare_stats_percentile(v, 7, 90), 8.25, 1e-12);
    near(pare_stats_percentile(v, 7, 99), 8.925, 1e-12);
    near(pare_stats_percentile(v, 7, 100), 9, 0);
    near(pare_stats_percentile(&one, 1, 99), 5, 0);
    near(pare_stats_variation(&one, 1), 0, 0);
}

/* Medians of the thirds are 2, 4 and 10; that of all is 4: (10 - 2) / 4. */
static void drift_sees_a_trend(void **state)
{
    (void)state;
    double v[] = {2, 2, 2, 2, 4, 4, 4, 4, 10, 10, 10, 10}, scratch[12];
    near(pare_stats_drift(v, 12, 3, scratch), 2, 0);
    near(pare_stats_drift(v, 11, 3, scratch), 0, 0); /* too short to say */
}

static void top_k_counts_ties_once(void **state)
{
    (void)state;
    const float v[] = {0.1f, 0.7f, 0.7f, NAN, -2};
    const float nan_first[] = {NAN, 1, 3};
    assert_int_equal(pare_stats_argmax(v, 5), 1);
    assert_int_equal(pare_stats_argmax(nan_first, 3), 2);
    assert_true(pare_stats_in_top(v, 5, 1, 1));
    assert_false(pare_stats_in_top(v, 5, 2, 1));
    assert_true(pare_stats_in_top(v, 5, 2, 2));
    assert_false(pare_stats_in_top(v, 5, 3, 5)); /* NaN is never a hit */
    assert_false(pare_stats_in_top(v, 5, 4, 3));
    assert_true(pare_stats_in_top(v, 5, 4, 4));
}

/* r = 1 -2 3.5 0.25, x = 1.1 -1.9 3.25 0.5: sum r^2 = 17.3125, sum (r-x)^2 = 0.145 */
static void errors_match_hand_values(void **state)
{
    (void)state;
    const float r[] = {1, -2, 3.5f, 0.25f, NAN}, x[] = {1.1f, -1.9f, 3.25f, 0.5f, 1};
    pare_error_stats sums = {0}, same = {0};
    pare_error_add(&sums, r, x, 2);
    pare_error_add(&sums, r + 2, x + 2, 3);
    near(pare_error_sqnr(&sums), 20.769917841735, 1e-5);
    near(pare_error_cosine(&sums), 0.99689573086484, 1e-8);
    near(pare_error_mse(&sums), 0.03625, 1e-8);
    near(sums.max_abs, 0.25, 0);
    assert_int_equal(sums.bad, 1);
    pare_error_add(&same, r, r, 4);
    assert_true(isinf(pare_error_sqnr(&same)));
    near(pare_error_cosine(&same), 1, 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wilson_matches_the_published_example),
        cmocka_unit_test(newcombe_matches_published_examples),
        cmocka_unit_test(mcnemar_is_exact_for_few_pairs),
        cmocka_unit_test(kept_is_the_ratio_of_paired_hits),
        cmocka_unit_test(a_floor_is_met_missed_or_open),
        cmocka_unit_test(percentiles_need_runs),
        cmocka_unit_test(apart_is_of_the_median),
        cmocka_unit_test(chance_depends_on_the_classes),
        cmocka_unit_test(percentiles_are_linear),
        cmocka_unit_test(drift_sees_a_trend),
        cmocka_unit_test(top_k_counts_ties_once),
        cmocka_unit_test(errors_match_hand_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
