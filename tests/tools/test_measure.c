/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about times, from times made up here. */
#include "runtime/eval/eval.h"
#include "tools/telemetry.h"
#include "tools/times.h"
#include "tools/report/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const double percentiles[] = {50, 90, 99};

static json_t *facts_of(double *ms, size_t n, double batch)
{
    pare_ctx ctx;
    pare_times times = {.ms = ms, .count = n};
    pare_ctx_init(&ctx);
    for (size_t i = 0; i < n; i++) times.wall += ms[i] / 1000;
    json_t *json = pare_times_json(&ctx, &times, batch, percentiles, 3);
    assert_non_null(json);
    return json;
}

static bool is_stable(json_t *json) { return json_is_true(json_object_get(json, "stable")); }

static bool has_note(json_t *json, const char *words)
{
    size_t i;
    json_t *note;
    json_array_foreach(json_object_get(json, "notes"), i,
                       note) if (strstr(json_string_value(note), words)) return true;
    return false;
}

static void even_times_are_stable(void **state)
{
    (void)state;
    double ms[2000];
    for (int i = 0; i < 2000; i++) ms[i] = 2 + 0.01 * (i % 5); /* 2.00 to 2.04, median 2.02 */
    json_t *json = facts_of(ms, 2000, 32);
    assert_true(is_stable(json));
    assert_int_equal(json_array_size(json_object_get(json, "notes")), 0);
    assert_true(fabs(pare_report_number(json, "latency_ms.median", 0) - 2.02) < 1e-9);
    assert_true(fabs(pare_report_number(json, "latency_ms.p99", 0) - 2.04) < 1e-9);
    assert_true(fabs(pare_report_number(json, "throughput_per_s", 0) - 32 / 0.00202) < 1e-3);
    assert_true(pare_report_number(json, "runs", 0) == 2000);
    json_decref(json);
}

static void a_drift_is_said(void **state)
{
    (void)state;
    double ms[1000];
    for (int i = 0; i < 1000; i++)
        ms[i] = 2 + 0.0002 * i; /* the last fifth is 8 % above the first */
    json_t *json = facts_of(ms, 1000, 1);
    assert_false(is_stable(json));
    assert_true(has_note(json, "the median moved by"));
    json_decref(json);
}

static void a_wide_middle_is_said(void **state)
{
    (void)state;
    double ms[1000];
    for (int i = 0; i < 1000; i++) ms[i] = i % 2 ? 2 : 3;
    json_t *json = facts_of(ms, 1000, 1);
    assert_false(is_stable(json));
    assert_true(has_note(json, "the middle half"));
    json_decref(json);
}

static void few_runs_are_said(void **state)
{
    (void)state;
    double ms[200];
    for (int i = 0; i < 200; i++) ms[i] = 2;
    json_t *json = facts_of(ms, 5, 1);
    assert_false(is_stable(json));
    assert_true(has_note(json, "only 5 runs"));
    json_decref(json);
    json = facts_of(ms, 200, 1);
    assert_true(is_stable(json));
    assert_true(has_note(json, "p99 is not given: it needs 1000 runs, there are 200"));
    assert_true(isnan(pare_report_number(json, "latency_ms.p99", NAN)));
    assert_true(pare_report_number(json, "latency_ms.p90", NAN) == 2);
    assert_true(pare_report_number(json, "latency_interval.0", NAN) == 2);
    json_decref(json);
}

/* Medians 4, 3, 2, 2.02, 2.01: the last three agree within 2 % (0.02 / 2.01), the last four do not:
   six runs stay. Then a last one of 3 that agrees with nothing. */
static void windows_that_agree_are_kept(void **state)
{
    (void)state;
    static const double median[] = {4, 3, 2, 2.02, 2.01};
    pare_ctx own;
    double ms[12];
    pare_times times = {.ms = ms};
    pare_windows windows = {0};
    pare_ctx_init(&own);
    for (int w = 0; w < 5; w++) {
        ms[2 * w] = ms[2 * w + 1] = median[w];
        times.count += 2;
        times.wall += 0.5;
        assert_false(pare_windows_agree(&windows));
        assert_int_equal(pare_windows_note(&own, &windows, &times), PARE_OK);
    }
    assert_true(pare_windows_agree(&windows));
    assert_int_equal(pare_windows_first(&windows), 2);
    pare_times copy = times;
    double again[12];
    memcpy(again, ms, sizeof ms);
    copy.ms = again;
    pare_windows_cut(&windows, 2, &copy);
    assert_int_equal(copy.count, 6);
    assert_true(again[0] == 2 && again[5] == 2.01 && copy.wall == 1.5);
    ms[10] = ms[11] = 3;
    times.count += 2;
    assert_int_equal(pare_windows_note(&own, &windows, &times), PARE_OK);
    assert_false(pare_windows_agree(&windows));
    assert_int_equal(pare_windows_first(&windows), 0);
    pare_windows_cut(&windows, 0, &times);
    assert_int_equal(times.count, 12);
    json_t *json = pare_times_json(&own, &times, 1, percentiles, 3);
    assert_true(has_note(json,
                         "not settled: after 6 windows the medians of the last three still are "
                         "49.0 % apart, expected 2 %"));
    assert_true(json_is_false(json_object_get(json, "settled")));
    json_decref(json);
}

/* Even times of a machine that others use, too: 0.5 s without a core in 4 s. */
static void waiting_is_said(void **state)
{
    (void)state;
    pare_ctx ctx;
    double ms[2000];
    pare_times times = {.ms = ms, .count = 2000, .wall = 4, .waited = 0.5};
    pare_ctx_init(&ctx);
    for (int i = 0; i < 2000; i++) ms[i] = 2;
    json_t *json = pare_times_json(&ctx, &times, 1, percentiles, 3);
    assert_non_null(json);
    assert_false(is_stable(json));
    assert_true(has_note(json, "threads waited 0.5 s for a core in 4 s"));
    json_decref(json);
}

static void memory_is_measured(void **state)
{
    (void)state;
    assert_true(pare_peak_memory() > 1 << 20);
}

/* Ratios 1/2, 3/2, 2: the pair that was disturbed counts as one of three. */
static void a_ratio_is_the_median_of_pairs(void **state)
{
    (void)state;
    pare_ctx own;
    double a[] = {1, 3, 80}, b[] = {2, 2, 40}, ratio;
    pare_ctx_init(&own);
    const pare_times x = {.ms = a, .count = 3}, y = {.ms = b, .count = 3}, none = {0};
    assert_int_equal(pare_times_ratio(&own, &x, &y, &ratio), PARE_OK);
    assert_true(ratio == 1.5);
    assert_int_equal(pare_times_ratio(&own, &x, &none, &ratio), PARE_OK);
    assert_true(isnan(ratio));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ratio_is_the_median_of_pairs),
        cmocka_unit_test(even_times_are_stable),
        cmocka_unit_test(a_drift_is_said),
        cmocka_unit_test(a_wide_middle_is_said),
        cmocka_unit_test(few_runs_are_said),
        cmocka_unit_test(windows_that_agree_are_kept),
        cmocka_unit_test(waiting_is_said),
        cmocka_unit_test(memory_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
