/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms against a plain count of the numbers' upper 19 bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/histogram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pare_ctx ctx;

static uint32_t seed;

static uint32_t draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* Numbers of many octaves, zeros of both signs, and what is not a number. */
static float *make_data(int n, bool special)
{
    float *x = malloc((size_t)n * sizeof *x);
    seed = 7;
    for (int i = 0; i < n; i++) {
        uint32_t kind = draw() % 16;
        x[i] = ldexpf((float)(draw() % 4096) / 4096, (int)(draw() % 24) - 16);
        if (kind < 6) x[i] = -x[i];
        if (kind == 6) x[i] = 0.0f;
        if (kind == 7) x[i] = -0.0f;
        if (kind == 8 && i % 7 == 0) x[i] = 1e-40f;
        if (special && kind == 9 && i % 5 == 0) x[i] = i % 2 ? NAN : -INFINITY;
    }
    return x;
}

static pare_histogram *count_all(const float *x, int n, int piece)
{
    pare_histogram *h = NULL;
    assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
    for (int i = 0; i < n; i += piece)
        assert_int_equal(
            pare_histogram_add(&ctx, h, PARE_f32, x + i, n - i < piece ? n - i : piece), PARE_OK);
    return h;
}

static void assert_same(const pare_histogram *a, const pare_histogram *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->zero, b->zero);
    assert_int_equal(a->nan, b->nan);
    assert_int_equal(a->inf, b->inf);
    assert_memory_equal(&a->min, &b->min, sizeof a->min);
    assert_memory_equal(&a->max, &b->max, sizeof a->max);
    assert_int_equal(a->top, b->top);
    assert_int_equal(a->first, b->first);
    for (int s = 0; s < 2; s++) {
        const uint64_t *x = pare_histogram_bins(a, s), *y = pare_histogram_bins(b, s);
        assert_int_equal(x == NULL, y == NULL);
        if (x) assert_memory_equal(x - 1, y - 1, (PARE_HISTOGRAM_BINS + 1) * sizeof *x);
    }
}

static void test_against_plain_count(void **state)
{
    (void)state;
    int n = 50001;
    float *x = make_data(n, true);
    uint64_t *plain = calloc(1 << 19, sizeof *plain), zero = 0, nan = 0, inf = 0;
    float low = INFINITY, high = -INFINITY;
    int top = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        if (isnan(x[i]))
            nan++;
        else if (isinf(x[i]))
            inf++;
        else {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
            if (x[i] == 0)
                zero++;
            else {
                plain[bits >> 13]++;
                int octave = (int)(bits >> 23 & 255);
                top = octave > top ? octave : top;
            }
        }
    }
    pare_histogram *h = count_all(x, n, n);
    assert_int_equal(h->count, n);
    assert_int_equal(h->zero, zero);
    assert_int_equal(h->nan, nan);
    assert_int_equal(h->inf, inf);
    assert_true(h->min == low && h->max == high);
    assert_int_equal(h->top, top);
    assert_int_equal(h->first, top - 11);
    for (int s = 0; s < 2; s++) {
        const uint64_t *bins = pare_histogram_bins(h, s);
        uint64_t below = 0;
        for (int key = 0; key < 1 << 18; key++) {
            uint64_t want = plain[s << 18 | key];
            int at = key - (h->first << 10);
            if (at < 0)
                below += want;
            else if (at < PARE_HISTOGRAM_BINS)
                assert_int_equal(bins[at], want);
            else
                assert_int_equal(want, 0);
        }
        assert_int_equal(bins[-1], below);
        assert_true(below > 0); /* the data has octaves below the window */
    }
    pare_histogram_free(h);
    free(plain);
    free(x);
}

static void test_order_pieces_and_merging_do_not_matter(void **state)
{
    (void)state;
    int n = 20011;
    float *x = make_data(n, true), *sorted = malloc((size_t)n * sizeof *x);
    pare_histogram *whole = count_all(x, n, n);
    const int pieces[] = {1, 7, 64, 1000, 2048, 2049};
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        pare_histogram *h = count_all(x, n, pieces[p]);
        assert_same(whole, h);
        pare_histogram_free(h);
    }
    for (int i = 0; i < n; i++) sorted[i] = x[(int)((int64_t)i * 7919 % n)];
    for (int i = 1; i < n; i++) /* small numbers first: the window rises all the time */
        for (int k = i; k > 0 && k > i - 40 && fabsf(sorted[k]) < fabsf(sorted[k - 1]); k--) {
            float t = sorted[k];
            sorted[k] = sorted[k - 1];
            sorted[k - 1] = t;
        }
    pare_histogram *other = count_all(sorted, n, 100);
    assert_same(whole, other);
    pare_histogram_free(other);
    for (int cut = 0; cut <= n; cut += n / 3) {
        pare_histogram *a = count_all(x, cut, 500), *b = count_all(x + cut, n - cut, 300);
        assert_int_equal(pare_histogram_merge(&ctx, a, b), PARE_OK);
        assert_same(whole, a);
        pare_histogram_free(a);
        pare_histogram_free(b);
    }
    pare_histogram_free(whole);
    free(sorted);
    free(x);
}

static void test_far_windows_merge(void **state)
{
    (void)state;
    const float small[3] = {1e-20f, -2e-20f, 3e-20f}, large[2] = {1e20f, 2e20f};
    float all[5];
    memcpy(all, small, sizeof small);
    memcpy(all + 3, large, sizeof large);
    pare_histogram *whole = count_all(all, 5, 5);
    for (int turn = 0; turn < 2; turn++) {
        pare_histogram *a = count_all(small, 3, 1), *b = count_all(large, 2, 1);
        assert_int_equal(pare_histogram_merge(&ctx, turn ? a : b, turn ? b : a), PARE_OK);
        assert_same(whole, turn ? a : b);
        pare_histogram_free(a);
        pare_histogram_free(b);
    }
    assert_int_equal(pare_histogram_bins(whole, 0)[-1], 2);
    assert_int_equal(pare_histogram_bins(whole, 1)[-1], 1);
    assert_true(whole->min == -2e-20f && whole->max == 2e20f);
    pare_histogram_free(whole);
}

static void test_small_cases(void **state)
{
    (void)state;
    const float zeros[5] = {0, -0.0f, 0, 0, -0.0f}, lost[2] = {NAN, INFINITY}, one = 1.0f;
    pare_histogram *h = count_all(zeros, 5, 5);
    assert_int_equal(h->zero, 5);
    assert_int_equal(h->top, -1);
    assert_false(signbit(h->min) || signbit(h->max));
    assert_null(pare_histogram_bins(h, 0));
    assert_int_equal(pare_histogram_nonzero(h), 0);
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, &one, 1), PARE_OK);
    assert_int_equal(h->top, 127);
    assert_int_equal(pare_histogram_bins(h, 0)[PARE_HISTOGRAM_BINS - 1024], 1);
    assert_true(pare_histogram_edge(h, PARE_HISTOGRAM_BINS - 1024) == 1.0f);
    assert_true(pare_histogram_edge(h, PARE_HISTOGRAM_BINS - 1023) == 1.0f + 1.0f / 1024);
    assert_true(pare_histogram_edge(h, PARE_HISTOGRAM_BINS) == 2.0f);
    assert_null(pare_histogram_bins(h, 1)); /* no negative value came */
    pare_histogram_free(h);
    h = count_all(lost, 2, 1);
    assert_int_equal(h->nan, 1);
    assert_int_equal(h->inf, 1);
    assert_true(h->min == 0 && h->max == 0);
    float below = -4.0f; /* the first finite value sets both minmax_only */
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_f32, &below, 1), PARE_OK);
    assert_true(h->min == -4 && h->max == -4);
    pare_histogram_free(h);
}

static void test_other_types(void **state)
{
    (void)state;
    enum { N = 3000 };
    float *x = make_data(N, true);
    uint16_t half[N], brain[N];
    double wide[N];
    float back[3][N];
    for (int i = 0; i < N; i++) {
        half[i] = pare_f32_to_f16(x[i]);
        brain[i] = pare_f32_to_bf16(x[i]);
        wide[i] = (double)x[i];
        back[0][i] = pare_f16_to_f32(half[i]);
        back[1][i] = pare_bf16_to_f32(brain[i]);
        back[2][i] = x[i];
    }
    const void *data[3] = {half, brain, wide};
    const pare_dtype types[3] = {PARE_f16, PARE_bf16, PARE_f64};
    for (int t = 0; t < 3; t++) {
        pare_histogram *want = count_all(back[t], N, N), *h = NULL;
        assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
        assert_int_equal(pare_histogram_add(&ctx, h, types[t], data[t], N), PARE_OK);
        assert_same(want, h);
        pare_histogram_free(want);
        pare_histogram_free(h);
    }
    pare_histogram *h = NULL;
    assert_int_equal(pare_histogram_new(&ctx, &h), PARE_OK);
    assert_int_equal(pare_histogram_add(&ctx, h, PARE_s32, x, 1), PARE_UNSUPPORTED);
    pare_histogram_free(h);
    free(x);
}

/* Extremes only: the same counts of what is no number, smallest and largest, in pieces or merged;
   no bins, and min-max can be chosen from it. */
static void test_extremes(void **state)
{
    (void)state;
    enum { N = 5000, CUT = 2777 };
    float *x = make_data(N, true);
    pare_histogram *whole = count_all(x, N, N), *part[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        const float *from = i ? x + CUT : x;
        assert_int_equal(pare_histogram_new(&ctx, &part[i]), PARE_OK);
        assert_int_equal(
            pare_histogram_add_minmax(&ctx, part[i], PARE_f32, from, i ? N - CUT : CUT), PARE_OK);
    }
    assert_int_equal(pare_histogram_merge(&ctx, part[0], part[1]), PARE_OK);
    assert_true(whole->nan > 0 && whole->inf > 0 && whole->min < 0);
    assert_true(part[0]->min == whole->min && part[0]->max == whole->max);
    assert_true(part[0]->count == whole->count && part[0]->nan == whole->nan);
    assert_true(part[0]->inf == whole->inf);
    assert_null(part[0]->slot);
    pare_range_rule rule = {.method = PARE_METHOD_MINMAX};
    pare_range range;
    assert_int_equal(pare_range_choose(&ctx, part[0], &rule, &range), PARE_OK);
    assert_true(range.low == whole->min && range.high == whole->max);
    pare_histogram_free(whole);
    for (int i = 0; i < 2; i++) pare_histogram_free(part[i]);
    free(x);
}

static void test_size(void **state)
{
    (void)state;
    assert_true(2 * PARE_HISTOGRAM_BINS * sizeof(uint64_t) == 192 << 10);
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
        cmocka_unit_test(test_against_plain_count),
        cmocka_unit_test(test_order_pieces_and_merging_do_not_matter),
        cmocka_unit_test(test_far_windows_merge),
        cmocka_unit_test(test_small_cases),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
