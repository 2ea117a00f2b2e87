/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges searched on the device against those searched on the host: every method, with and without
   a zero point, over ordinary and adversarial histograms. The arithmetic is one text: ranges are
   equal. */
#include "calib/range.h"
#include "calib/ranges.h"
#include "runtime/cuda/cuda.h"
#include "tests/simt/testing.h"

#include <math.h>

enum { N = 3000, KINDS = 16 };

static pare_ctx ctx;
static const char *const methods[] = {"minmax",
                                      "percentile:99.9",
                                      "percentile:99.99",
                                      "percentile:99.999",
                                      "percentile:80",
                                      "entropy",
                                      "mse",
                                      "auto"};
enum { METHODS = sizeof methods / sizeof *methods, RULES = 2 * METHODS };

static float normal(uint32_t *seed)
{
    float sum = 0; /* of 12: variance 1 */
    for (int i = 0; i < 12; i++) sum += (float)test_random(seed) / 16777216.0f;
    return sum - 6;
}

static float value_of(int kind, int i, uint32_t *seed)
{
    float g = normal(seed);
    switch (kind) {
    case 0: return g;
    case 1: return g > 0 ? g : 0;                                            /* a ReLU's */
    case 2: return i % 500 ? g : g * 300;                                    /* outliers */
    case 3: return g * g * g + 2;                                            /* lopsided */
    case 4: return -fabsf(g) - 0.5f;                                         /* one sign */
    case 5: return ((i % 2 ? 0 : (float)(i % 256)) / 255 - 0.286f) / 0.353f; /* pixels */
    case 6: return 3;                                                        /* one value */
    case 7: return i % 2 ? 1.5f : -1.5f;                       /* every candidate a tie */
    case 8: return g * 1e-42f;                                 /* denormal */
    case 9: return g * 5e37f;                                  /* next to the end of f32 */
    case 10: return ldexpf(1 + (float)(i % 7) / 8, -(i % 40)); /* most of it below the window */
    case 11: return i ? 0 : -1e-3f;                            /* a single number */
    case 12: return i % 3 == 0 ? NAN : i % 3 == 1 ? g : INFINITY;
    case 13: return (float)(i % 2048) / 2048;                    /* flat */
    case 14: return i % 2 ? -1e-12f * (float)i : (float)(i % 5); /* a sliver below zero */
    default: return 0;                                           /* nothing to search */
    }
}

static void fill(pare_histogram *h, int kind)
{
    float x[N];
    uint32_t seed = (uint32_t)kind + 17;
    for (int i = 0; i < N; i++) x[i] = value_of(kind, i, &seed);
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, x, N), PARE_OK);
}

/* One table of every kind, some often; the last tensor has no finite value. */
static pare_ranges *make_table(int count)
{
    pare_ranges *r;
    const char *names[100];
    float none[2] = {NAN, INFINITY};
    for (int i = 0; i < count; i++) names[i] = "t";
    assert_int_equal(pare_ranges_new(&ctx, &r, names, count), PARE_OK);
    for (int i = 0; i + 1 < count; i++) fill(r->stats[i].histogram, i % KINDS);
    assert_int_equal(pare_histogram_add(&ctx, r->stats[count - 1].histogram, PARE_f32, none, 2),
                     PARE_OK);
    return r;
}

static int make_rules(pare_range_rule *rules, const char *only)
{
    int n = 0;
    for (int i = 0; i < RULES; i++) {
        if (only && strcmp(methods[i / 2], only) != 0) continue;
        assert_int_equal(pare_method_parse(&ctx, methods[i / 2], &rules[n]), PARE_OK);
        rules[n++].symmetric = i % 2;
    }
    return n;
}

static void check(pare_device *d, pare_ranges *r, const char *only)
{
    pare_range_rule rules[RULES];
    pare_range here[100 * RULES], there[100 * RULES];
    int n = make_rules(rules, only);
    pare_ranges_use_device(r, NULL);
    if (pare_ranges_choose(&ctx, r, rules, n, here) != PARE_OK) fail_msg("%s", ctx.message);
    memset(there, 0x55, sizeof there);
    pare_ranges_use_device(r, d);
    if (pare_ranges_choose(&ctx, r, rules, n, there) != PARE_OK) fail_msg("%s", ctx.message);
    for (int i = 0; i < r->count * n; i++) {
        bool same = !memcmp(&here[i].low, &there[i].low, 4) &&
                    !memcmp(&here[i].high, &there[i].high, 4) && here[i].chosen == there[i].chosen;
        if (!same)
            fail_msg("tensor %d, rule %d: [%a, %a] by %d there, [%a, %a] by %d here", i / n, i % n,
                     (double)there[i].low, (double)there[i].high, (int)there[i].chosen,
                     (double)here[i].low, (double)here[i].high, (int)here[i].chosen);
    }
}

static pare_device *open_device(size_t limit)
{
    pare_device *d;
    pare_ctx_init(&ctx);
    if (pare_cuda_open(&ctx, &d, 0, limit) != PARE_OK) fail_msg("%s", ctx.message);
    return d;
}

static void every_method_chooses_the_same(void **state)
{
    (void)state;
    pare_device *d = open_device(0);
    pare_ranges *r = make_table(simt_checks() ? 3 : KINDS + 1); /* the checker is slow */
    check(d, r, NULL);
    pare_ranges_free(r);
    d->backend->close(d);
}

/* A rule alone searches no more than it needs. */
static void each_method_alone(void **state)
{
    (void)state;
    pare_device *d = open_device(0);
    pare_ranges *r = make_table(simt_checks() ? 2 : 4);
    for (int i = simt_checks() ? METHODS - 3 : 0; i < METHODS; i++) check(d, r, methods[i]);
    pare_ranges_free(r);
    d->backend->close(d);
}

/* Memory for three tensors at once: eleven are searched in turns; for none: a message. */
static void little_memory(void **state)
{
    (void)state;
    pare_device *d = open_device(4 << 20);
    pare_ranges *r = make_table(12);
    check(d, r, "percentile:99.9");
    d->backend->close(d);
    d = open_device(1 << 20);
    pare_range_rule rule = {.method = PARE_METHOD_MSE};
    pare_range out[12];
    pare_ranges_use_device(r, d);
    assert_int_equal(pare_ranges_choose(&ctx, r, &rule, 1, out), PARE_MEMORY);
    assert_non_null(strstr(ctx.message, "bytes"));
    pare_ranges_free(r);
    d->backend->close(d);
}

/* More percents than the device looks for at once: the host does. */
static void many_percents(void **state)
{
    (void)state;
    pare_device *d = open_device(0);
    pare_ranges *r = make_table(3);
    pare_range_rule rules[4];
    pare_range here[12], there[12];
    for (int i = 0; i < 4; i++)
        rules[i] = (pare_range_rule){.method = PARE_METHOD_PERCENTILE, .percentile = 90 + i};
    assert_int_equal(pare_ranges_choose(&ctx, r, rules, 4, here), PARE_OK);
    pare_ranges_use_device(r, d);
    assert_int_equal(pare_ranges_choose(&ctx, r, rules, 4, there), PARE_OK);
    for (int i = 0; i < 12; i++)
        assert_true(here[i].low == there[i].low && here[i].high == there[i].high);
    pare_ranges_free(r);
    d->backend->close(d);
}

static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    pare_device *d = open_device(0);
    pare_ranges *r = make_table(2);
    pare_range_rule rule = {.method = PARE_METHOD_AUTO, .symmetric = true};
    pare_range out[2];
    pare_ranges_use_device(r, d);
    int turns = 0;
    for (bool failed = true; failed; turns++) {
        simt_fail_at((uint64_t)turns + 1, cudaErrorLaunchFailure, false);
        failed = pare_ranges_choose(&ctx, r, &rule, 1, out) != PARE_OK;
        simt_fail_at(0, 0, false);
        assert_true(!failed || strlen(ctx.message) > 8);
        pare_ctx_clear(&ctx);
        assert_in_range(turns, 0, 40);
    }
    assert_true(turns > 10);
    pare_ranges_free(r);
    d->backend->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(every_method_chooses_the_same),
        device_test(each_method_alone),
        device_test(little_memory),
        device_test(many_percents),
        device_test(failing_calls_are_passed_on),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
