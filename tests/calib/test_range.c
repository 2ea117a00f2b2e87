/* SPDX-License-Identifier: Apache-2.0 */
/* Range methods against plain implementations that work on the values themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/range.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 60000 };

static pare_ctx ctx;
static float data[N];
static uint32_t seed;

static double uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) / 16777216.0;
}

/* Bell-shaped, with `tail` outliers of many times the width. */
static pare_histogram *make(int kind)
{
    pare_histogram *h = NULL;
    seed = (uint32_t)(kind + 1) * 77;
    for (int i = 0; i < N; i++) {
        double u = 0;
        for (int k = 0; k < 12; k++) u += uniform();
        double x = u - 6;
        if (kind == 0) x = fmax(x, 0);                         /* after a ReLU */
        if (kind == 1 && i % 500 == 0) x *= 10;                /* both signs, outliers */
        if (kind == 2) x = fmin(fmax(3 + 2 * x, 0), 6);        /* after a Clip */
        if (kind == 3) x = fmax(x, -0.3) * exp(2 * uniform()); /* like SiLU: one short side */
        if (kind == 4) x = -fabs(x);                           /* negative only */
        if (kind == 5) { /* pixels: 256 exact values, half of them the background's */
            int pixel = i % 2 ? 0 : (int)fmin(fabs(x) * 80, 255);
            x = (pixel / 255.0 - 0.286) / 0.353;
        }
        data[i] = (float)x;
    }
    assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, data, N), PARE_OK);
    return h;
}
enum { KINDS = 5, PIXELS = 5 };

static pare_range choose(const pare_histogram *h, const char *method, bool symmetric)
{
    pare_range_rule rule;
    pare_range range;
    assert_int_equal(pare_method_parse(&ctx, method, &rule), PARE_OK);
    rule.symmetric = symmetric;
    assert_int_equal(pare_range_choose(&ctx, h, &rule, &range), PARE_OK);
    return range;
}

/* --- min-max and percentile --- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void test_minmax(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        pare_histogram *h = make(k);
        float low = 0, high = 0, largest = 0;
        for (int i = 0; i < N; i++) {
            low = fminf(low, data[i]);
            high = fmaxf(high, data[i]);
            largest = fmaxf(largest, fabsf(data[i]));
        }
        pare_range u8 = choose(h, "minmax", false), s8 = choose(h, "minmax", true);
        assert_true(u8.low == low && u8.high == high);
        assert_true(s8.low == -largest && s8.high == largest);
        pare_histogram_free(h);
    }
}

static void test_percentile(void **state)
{
    (void)state;
    const char *names[] = {"percentile:99.99", "percentile:99.9", "percentile:90",
                           "percentile:100"};
    const int cut[] = {6, 60, 6000, 0};
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < 4; p++) {
            pare_histogram *h = make(k);
            float magnitude[N];
            for (int i = 0; i < N; i++) magnitude[i] = fabsf(data[i]);
            qsort(magnitude, N, sizeof *magnitude, by_value);
            qsort(data, N, sizeof *data, by_value);
            float s8 = choose(h, names[p], true).high, want = magnitude[N - 1 - cut[p]];
            assert_true(s8 >= want && s8 <= want * (1 + 1.0f / 1024));
            pare_range u8 = choose(h, names[p], false);
            want = data[N - 1 - cut[p] / 2];
            assert_true(u8.high >= want && u8.high <= want * (1 + 1.0f / 1024));
            want = data[cut[p] / 2];
            if (k == 0)
                assert_true(u8.low == 0);
            else
                assert_true(u8.low <= want && u8.low >= want * (1 + 1.0f / 1024));
            pare_histogram_free(h);
        }
}

/* --- entropy --- */

static void test_grid_is_an_exact_regrouping(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        pare_histogram *h = make(k);
        double got[PARE_GRID_BINS], want[PARE_GRID_BINS] = {0};
        double width = pare_grid_make(h, -1, got);
        for (int i = 0; i < N; i++)
            if (data[i] != 0) want[(int)(fabs((double)data[i]) / width)]++;
        assert_memory_equal(got, want, sizeof got);
        double largest = fmax(-(double)h->min, (double)h->max), end = width * PARE_GRID_BINS;
        assert_true(largest < end && largest >= end / 2);
        pare_histogram_free(h);
    }
}

/* Migacz 2017, step by step: p with the clipped mass, q level by level, spread over p's bins in
 * use. */
static double plain_kl(const double *bin, int n, int first, int last, int levels)
{
    double p[2 * PARE_GRID_BINS], q[2 * PARE_GRID_BINS], total = 0, inside = 0, kl = 0;
    int width = last - first;
    for (int i = 0; i < width; i++) p[i] = bin[first + i];
    for (int i = 0; i < first; i++) p[0] += bin[i];
    for (int i = last; i < n; i++) p[width - 1] += bin[i];
    for (int i = 0; i < width; i++) total += p[i], inside += bin[first + i];
    for (int g = 0; g < levels; g++) {
        int from = g * width / levels, to = (g + 1) * width / levels, used = 0;
        double mass = 0;
        for (int i = from; i < to; i++) mass += bin[first + i], used += p[i] > 0;
        for (int i = from; i < to; i++) q[i] = p[i] > 0 ? mass / used : 0;
    }
    for (int i = 0; i < width; i++) {
        if (p[i] > 0 && q[i] == 0) return INFINITY;
        if (p[i] > 0) kl += p[i] / total * log(p[i] / total / (q[i] / inside));
    }
    return kl;
}

static int plain_search(const double *bin, int n, int levels)
{
    double best = INFINITY;
    int at = n;
    for (int i = levels; i <= n; i++) {
        double kl = plain_kl(bin, n, 0, i, levels);
        if (kl <= best) best = kl, at = i;
    }
    return at;
}

static void test_entropy_equals_the_plain_search(void **state)
{
    (void)state;
    for (int k = 0; k <= PIXELS; k++) {
        pare_histogram *h = make(k);
        double bin[PARE_GRID_BINS], width = pare_grid_make(h, -1, bin);
        int n = PARE_GRID_BINS;
        while (bin[n - 1] == 0) n--;
        float largest = fmaxf(-h->min, h->max);
        float want = fminf((float)(plain_search(bin, n, 128) * width), largest);
        pare_range s8 = choose(h, "entropy", true);
        assert_true(s8.high == want && s8.low == -want);
        if (k == 0 || k == 2 || k == 4) { /* values of one sign */
            want = fminf((float)(plain_search(bin, n, 256) * width), largest);
            pare_range u8 = choose(h, "entropy", false);
            assert_true(k == 4 ? u8.low == -want && u8.high == 0 : u8.high == want && u8.low == 0);
        }
        pare_histogram_free(h);
    }
}

static void test_entropy_of_two_ends(void **state)
{
    (void)state;
    pare_histogram *h = make(1);
    double up[PARE_GRID_BINS], down[PARE_GRID_BINS], bin[2 * PARE_GRID_BINS];
    double count[2 * PARE_GRID_BINS + 1], used[2 * PARE_GRID_BINS + 1],
        logs[2 * PARE_GRID_BINS + 1];
    double width = pare_grid_make(h, 0, up);
    (void)pare_grid_make(h, 1, down);
    for (int i = 0; i < PARE_GRID_BINS; i++) {
        bin[PARE_GRID_BINS - 1 - i] = down[i];
        bin[PARE_GRID_BINS + i] = up[i];
    }
    pare_entropy_sums s = {bin, count, used, logs, 2 * PARE_GRID_BINS};
    pare_entropy_prepare(&s);
    seed = 5;
    for (int i = 0; i < 200; i++) {
        int first = (int)(uniform() * 1900), last = 2200 + (int)(uniform() * 1896);
        double want = plain_kl(bin, s.n, first, last, 256),
               got = pare_entropy_of(&s, first, last, 256);
        if (isinf(want))
            assert_true(isinf(got));
        else
            assert_true(fabs(got - want) <= 1e-9 * (1 + fabs(want)));
    }
    pare_range r = choose(h, "entropy", false);
    int first = PARE_GRID_BINS + (int)lrint((double)r.low / width);
    int last = PARE_GRID_BINS + (int)lrint((double)r.high / width);
    double best = pare_entropy_of(&s, first, last, 256);
    assert_true(r.low >= h->min && r.low < 0 && r.high <= h->max && r.high > 0);
    for (int step = -8; step <= 8; step++) { /* moving either end a little makes nothing better */
        assert_true(pare_entropy_of(&s, first + step, last, 256) >= best - 1e-12);
        assert_true(pare_entropy_of(&s, first, last + step, 256) >= best - 1e-12);
    }
    assert_true(best < pare_entropy_of(&s, 0, s.n, 256));
    pare_histogram_free(h);
}

static void test_entropy_ties_take_the_larger_range(void **state)
{
    (void)state;
    /* one value a level: every candidate whose levels are single bins loses nothing */
    pare_histogram *h = NULL;
    const float x[4] = {1.0f, 0.5f, 0.25f, 1.875f};
    assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, x, 4), PARE_OK);
    pare_range r = choose(h, "entropy", true);
    assert_true(r.high == 1.875f);
    pare_histogram_free(h);
}

/* --- squared error --- */

/* What quantizing the values costs, clipping weighed. */
static double plain_error(float low, float high, bool symmetric, double weight)
{
    double step = symmetric ? (double)high / 127 : ((double)high - (double)low) / 255, sum = 0;
    double zero = symmetric ? 0 : rint(-(double)low / step);
    double least = symmetric ? -127 : 0, most = symmetric ? 127 : 255;
    for (int i = 0; i < N; i++) {
        double exact = (double)data[i] / step + zero, q = rint(exact);
        bool clipped = exact < least - 0.5 || exact > most + 0.5;
        q = fmin(fmax(q, least), most);
        double e = ((q - zero) * step - (double)data[i]);
        sum += e * e * (clipped ? weight : 1);
    }
    return sum / N;
}

static void test_error_of_a_quantizer(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            pare_histogram *h = make(k);
            pare_error_sums s;
            assert_int_equal(pare_error_sums_new(&ctx, &s, h), PARE_OK);
            for (float part = 1; part > 0.05f; part *= 0.7f) {
                float largest = fmaxf(-h->min, h->max) * part;
                float low = symmetric ? -largest : fminf(h->min, 0) * part;
                float high = symmetric ? largest : fmaxf(h->max, 0) * part;
                pare_quantizer q = pare_range_quantizer(low, high, symmetric);
                for (double weight = 1; weight < 4; weight += 2) {
                    double got = pare_error_of(&s, &q, weight);
                    double want = plain_error(low, high, symmetric, weight);
                    assert_true(fabs(got - want) <= 0.01 * want);
                }
            }
            pare_error_sums_free(&s);
            pare_histogram_free(h);
        }
}

static void test_mse_finds_the_least_error(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        pare_histogram *h = make(k);
        float largest = fmaxf(-h->min, h->max);
        double best = INFINITY;
        for (int i = 1; i <= 400; i++) {
            float t = largest * (float)i / 400;
            best = fmin(best, plain_error(-t, t, true, 1));
        }
        pare_range s8 = choose(h, "mse", true);
        assert_true(plain_error(s8.low, s8.high, true, 1) <= 1.01 * best);
        best = INFINITY;
        for (int i = 0; i <= 24; i++)
            for (int j = 0; j <= 24; j++) {
                float low = fminf(h->min, 0) * (float)i / 24,
                      high = fmaxf(h->max, 0) * (float)j / 24;
                if (high > low) best = fmin(best, plain_error(low, high, false, 1));
            }
        pare_range u8 = choose(h, "mse", false);
        assert_true(plain_error(u8.low, u8.high, false, 1) <= 1.01 * best);
        pare_histogram_free(h);
    }
}

static void test_auto_is_no_worse_than_the_others(void **state)
{
    (void)state;
    const char *methods[] = {"minmax", "entropy", "mse", "percentile:99.99"};
    for (int k = 0; k < KINDS; k++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            pare_histogram *h = make(k);
            pare_range got = choose(h, "auto", symmetric);
            assert_true(got.chosen != PARE_METHOD_AUTO);
            double least = plain_error(got.low, got.high, symmetric, PARE_AUTO_CLIP_WEIGHT);
            for (int m = 0; m < 4; m++) {
                pare_range r = choose(h, methods[m], symmetric);
                double error = plain_error(r.low, r.high, symmetric, PARE_AUTO_CLIP_WEIGHT);
                assert_true(least <= 1.02 * error);
            }
            pare_histogram_free(h);
        }
}

/* --- scales, names, edges --- */

static void test_scale(void **state)
{
    (void)state;
    float scale;
    int zero;
    pare_range_scale(&(pare_range){-1.27f, 0.5f, PARE_METHOD_MINMAX}, true, &scale, &zero);
    assert_true(fabsf(scale - 0.01f) < 1e-8f);
    assert_int_equal(zero, 0);
    pare_range_scale(&(pare_range){-1, 1.55f, PARE_METHOD_MINMAX}, false, &scale, &zero);
    assert_true(fabsf(scale - 0.01f) < 1e-8f);
    assert_int_equal(zero, 100);
    pare_range_scale(&(pare_range){2, 5.1f, PARE_METHOD_MINMAX}, false, &scale, &zero);
    assert_true(fabsf(scale - 0.02f) < 1e-8f); /* widened to hold 0 */
    assert_int_equal(zero, 0);
    pare_range_scale(&(pare_range){0, 0, PARE_METHOD_MINMAX}, true, &scale, &zero);
    assert_true(scale == 1 && zero == 0);
}

static void test_method_names(void **state)
{
    (void)state;
    pare_range_rule rule;
    assert_int_equal(pare_method_parse(&ctx, "percentile:99.999", &rule), PARE_OK);
    assert_int_equal(rule.method, PARE_METHOD_PERCENTILE);
    assert_true(rule.percentile == 99.999);
    const char *bad[] = {"",
                         "kl",
                         "percentile",
                         "percentile:",
                         "percentile:49",
                         "percentile:101",
                         "percentile:99x",
                         "percentile:nan"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pare_ctx_clear(&ctx);
        assert_int_equal(pare_method_parse(&ctx, bad[i], &rule), PARE_USAGE);
        assert_non_null(strstr(ctx.message, "expected minmax"));
    }
}

static void test_degenerate_tensors(void **state)
{
    (void)state;
    const char *methods[] = {"minmax", "percentile:99.99", "entropy", "mse", "auto"};
    const float cases[][2] = {{0, 0}, {6, 6}, {-3, -3}, {1e-42f, 1e-42f}, {3e38f, -3e38f}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int m = 0; m < 5; m++)
            for (int symmetric = 0; symmetric < 2; symmetric++) {
                pare_histogram *h = NULL;
                assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
                assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, cases[c], 2), PARE_OK);
                pare_range r = choose(h, methods[m], symmetric);
                assert_true(isfinite(r.low) && isfinite(r.high) && r.low <= r.high);
                if (c == 1) assert_true(r.high > 5.9f && r.high <= 6);
                pare_histogram_free(h);
            }
    pare_histogram *h = NULL;
    pare_range_rule rule = {PARE_METHOD_AUTO, 0, true};
    pare_range range;
    const float nan = NAN;
    assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, &nan, 1), PARE_OK);
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_range_choose(&ctx, h, &rule, &range), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "NaN or infinite"));
    pare_histogram_free(h);
}

static int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minmax),
        cmocka_unit_test(test_percentile),
        cmocka_unit_test(test_grid_is_an_exact_regrouping),
        cmocka_unit_test(test_entropy_equals_the_plain_search),
        cmocka_unit_test(test_entropy_of_two_ends),
        cmocka_unit_test(test_entropy_ties_take_the_larger_range),
        cmocka_unit_test(test_error_of_a_quantizer),
        cmocka_unit_test(test_mse_finds_the_least_error),
        cmocka_unit_test(test_auto_is_no_worse_than_the_others),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_method_names),
        cmocka_unit_test(test_degenerate_tensors),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
