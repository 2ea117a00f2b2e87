/* SPDX-License-Identifier: Apache-2.0 */
/* Channel means and magnitudes: by hand, in every memory order, exact under merging, as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/ranges.h"

#include <math.h>
#include <string.h>

static pare_ctx ctx;

static pare_channels *fresh(void)
{
    pare_channels *c = NULL;
    assert_int_equal(pare_channels_new(&ctx, &c), PARE_OK);
    return c;
}

static pare_view view_of(int rank, const int64_t *dims, bool nhwc, const float *data)
{
    pare_shape shape = {.rank = rank};
    pare_view v;
    memcpy(shape.dim, dims, (size_t)rank * sizeof *dims);
    pare_view_set(&v, PARE_f32, &shape, nhwc);
    v.data = (float *)data;
    return v;
}

/* (1, 2, 1, 3): channel 0 is 1 2 6, channel 1 is -4 0 1. */
static void means_in_every_memory_order(void **state)
{
    (void)state;
    const int64_t dims[] = {1, 2, 1, 3};
    const float nchw[] = {1, 2, 6, -4, 0, 1}, nhwc[] = {1, -4, 2, 0, 6, 1};
    float gaps[12];
    for (int i = 0; i < 6; i++) gaps[2 * i] = nchw[i], gaps[2 * i + 1] = 1e6f;
    pare_view v[3] = {view_of(4, dims, false, nchw), view_of(4, dims, true, nhwc),
                      view_of(4, dims, false, gaps)};
    for (int k = 0; k < 4; k++) v[2].stride[k] *= 2;
    for (int i = 0; i < 3; i++) {
        pare_channels *c = fresh();
        assert_int_equal(pare_channels_add(&ctx, c, &v[i], 1), PARE_OK);
        assert_int_equal(c->count, 2);
        assert_int_equal(c->each, 3);
        assert_true(pare_channels_mean(c, 0) == 3 && pare_channels_mean(c, 1) == -1);
        assert_true(c->largest[0] == 6 && c->largest[1] == 4);
        pare_channels_free(c);
    }
}

enum { WIDE = 67, SIDE = 33, AREA = SIDE * SIDE };

/* By the definition: segments of 512 values, 16 sums of double, whole numbers of 2^-40. */
static pare_wide sum_of(const float *x)
{
    pare_wide sum = 0;
    for (int first = 0; first < AREA; first += 512) {
        double lane[16] = {0}, all = 0;
        for (int i = 0; i < 512 && first + i < AREA; i++) lane[i % 16] += (double)x[first + i];
        for (int k = 0; k < 16; k++) all += lane[k];
        sum += (pare_wide)rint(all * 0x1p40);
    }
    return sum;
}

/* Numbers of 40 octaves, whose sums in another order would differ. */
static void sums_are_those_of_the_definition(void **state)
{
    (void)state;
    static float nchw[WIDE * AREA], nhwc[WIDE * AREA], gaps[2 * WIDE * AREA];
    const int64_t dims[] = {1, WIDE, SIDE, SIDE};
    pare_view v[3] = {view_of(4, dims, false, nchw), view_of(4, dims, true, nhwc),
                      view_of(4, dims, false, gaps)};
    for (int i = 0; i < WIDE * AREA; i++) {
        nchw[i] = sinf((float)i) * ldexpf(1, i * 7 % 40 - 20);
        nhwc[i % AREA * WIDE + i / AREA] = nchw[i];
        gaps[2 * i] = nchw[i];
    }
    for (int k = 0; k < 4; k++) v[2].stride[k] *= 2;
    for (int i = 0; i < 3; i++) {
        pare_channels *c = fresh();
        assert_int_equal(pare_channels_add(&ctx, c, &v[i], 1), PARE_OK);
        for (int k = 0; k < WIDE; k++) assert_true(c->sum[k] == sum_of(nchw + k * AREA));
        pare_channels_free(c);
    }
}

/* The last axis of a matrix; halves of a batch make what the batch makes. */
static void columns_of_a_matrix(void **state)
{
    (void)state;
    const float x[] = {1, 10, 3, -30};
    pare_view whole = view_of(2, (int64_t[]){2, 2}, false, x);
    pare_channels *c = fresh();
    assert_int_equal(pare_channels_add(&ctx, c, &whole, 2), PARE_OK);
    assert_true(pare_channels_mean(c, 0) == 2 && pare_channels_mean(c, 1) == -10);
    assert_true(c->largest[0] == 3 && c->largest[1] == 30 && c->each == 2);
    pare_channels_free(c);
}

enum { SAMPLES = 23, CHANNELS = 3, PLACES = 37 };

static void add_sample(pare_channels *c, int first, int count)
{
    static float x[SAMPLES * CHANNELS * PLACES];
    for (int i = 0; i < count * CHANNELS * PLACES; i++) {
        int at = first * CHANNELS * PLACES + i;
        x[i] = sinf((float)at) * ldexpf(1, at * 7 % 40 - 20);
    }
    pare_view v = view_of(4, (int64_t[]){count, CHANNELS, 1, PLACES}, false, x);
    assert_int_equal(pare_channels_add(&ctx, c, &v, count), PARE_OK);
}

static void assert_same(const pare_channels *a, const pare_channels *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->each, b->each);
    assert_int_equal(a->lost, b->lost);
    assert_memory_equal(a->sum, b->sum, (size_t)a->count * sizeof *a->sum);
    assert_memory_equal(a->largest, b->largest, (size_t)a->count * sizeof *a->largest);
}

/* Numbers of 40 octaves: in doubles, sums of another order would differ. */
static void order_batches_and_merging_leave_no_trace(void **state)
{
    (void)state;
    pare_channels *one = fresh(), *turned = fresh(), *batch = fresh(), *a = fresh(), *b = fresh();
    for (int s = 0; s < SAMPLES; s++) add_sample(one, s, 1);
    for (int s = 0; s < SAMPLES; s++) add_sample(turned, s * 5 % SAMPLES, 1);
    add_sample(batch, 0, SAMPLES);
    assert_same(one, turned);
    assert_same(one, batch);
    for (int s = 0; s < SAMPLES; s++) add_sample(s % 3 ? a : b, s, 1);
    assert_int_equal(pare_channels_merge(&ctx, b, a), PARE_OK);
    assert_same(one, b);
    pare_channels_free(one);
    pare_channels_free(turned);
    pare_channels_free(batch);
    pare_channels_free(a);
    pare_channels_free(b);
}

static void an_infinite_sum_is_no_mean(void **state)
{
    (void)state;
    const float x[] = {1, INFINITY, 2, 5, NAN, 2};
    pare_view v = view_of(2, (int64_t[]){2, 3}, false, x);
    pare_channels *c = fresh();
    assert_int_equal(pare_channels_add(&ctx, c, &v, 2), PARE_OK);
    assert_int_equal(c->lost, 2);
    assert_false(pare_channels_known(c));
    assert_true(c->largest[0] == 5 && c->largest[2] == 2);
    pare_channels_free(c);
}

static void sizes_that_differ_leave_no_means(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3};
    pare_view two = view_of(2, (int64_t[]){1, 2}, false, x);
    pare_view three = view_of(2, (int64_t[]){1, 3}, false, x);
    pare_channels *a = fresh(), *b = fresh();
    assert_int_equal(pare_channels_add(&ctx, a, &two, 1), PARE_OK);
    assert_int_equal(pare_channels_add(&ctx, b, &three, 1), PARE_OK);
    assert_int_equal(pare_channels_add(&ctx, b, &two, 1), PARE_OK);
    assert_true(b->mixed && !b->count && !pare_channels_known(b));
    assert_int_equal(pare_channels_merge(&ctx, a, b), PARE_OK);
    assert_true(a->mixed && !a->count && !pare_channels_known(a));
    assert_int_equal(pare_channels_add(&ctx, a, &two, 1), PARE_OK);
    assert_int_equal(a->count, 0);
    pare_channels_free(a);
    pare_channels_free(b);
}

/* -1.5 * 2^40 is -18000000000 in hexadecimal; 1.5 is 3fc00000. */
static void text_and_back(void **state)
{
    (void)state;
    const float x[] = {-1.5f, 0, 0x1p59f};
    pare_view v = view_of(2, (int64_t[]){1, 3}, false, x);
    pare_channels *c = fresh(), *back = fresh();
    bool good = false;
    assert_int_equal(pare_channels_add(&ctx, c, &v, 1), PARE_OK);
    char *sums = pare_sums_print(&ctx, c), *largest = pare_largest_print(&ctx, c);
    assert_string_equal(sums, "-18000000000 0 8000000000000000000000000");
    assert_string_equal(largest, "3fc00000 0 5d000000");
    assert_int_equal(pare_channels_parse(&ctx, back, sums, largest, &good), PARE_OK);
    assert_true(good);
    back->each = c->each;
    assert_same(c, back);
    pare_free(sums);
    pare_free(largest);
    pare_channels_free(c);
    pare_channels_free(back);
}

static void damaged_text_is_refused(void **state)
{
    (void)state;
    const char *const wrong[][2] = {
        {"", ""},           {"1 2", "0"},
        {"1", "0 0"},       {"1 ", "0 0"},
        {"1", "80000000"},  {"1", "7fc00000"},
        {"A", "0"},         {"--1", "0"},
        {"-", "0"},         {"1  2", "0 0"},
        {"1", "123456789"}, {"1", "0 "},
        {"1g", "0"},        {"12345678901234567890123456789012", "0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pare_channels *c = fresh();
        bool good = true;
        assert_int_equal(pare_channels_parse(&ctx, c, wrong[i][0], wrong[i][1], &good), PARE_OK);
        if (good) fail_msg("taken: '%s' '%s'", wrong[i][0], wrong[i][1]);
        pare_channels_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_in_every_memory_order),
        cmocka_unit_test(sums_are_those_of_the_definition),
        cmocka_unit_test(columns_of_a_matrix),
        cmocka_unit_test(order_batches_and_merging_leave_no_trace),
        cmocka_unit_test(an_infinite_sum_is_no_mean),
        cmocka_unit_test(sizes_that_differ_leave_no_means),
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(damaged_text_is_refused),
    };
    pare_ctx_init(&ctx);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
