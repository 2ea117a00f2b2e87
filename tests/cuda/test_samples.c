/* SPDX-License-Identifier: Apache-2.0 */
/* What calibration counts on the device against what it counts on the host: histograms and
   channels, bit for bit, whatever the memory order; pixels against the formula. */
#include "calib/calibrate.h"
#include "runtime/cuda/cuda.h"
#include "tests/simt/testing.h"

#include <math.h>

static pare_ctx ctx;
static const char *const names[] = {"t"};

static pare_device *open_device(void)
{
    pare_device *d;
    pare_ctx_init(&ctx);
    if (pare_cuda_open(&ctx, &d, 0, 0) != PARE_OK) fail_msg("%s", ctx.message);
    return d;
}

static pare_ranges *empty_table(void)
{
    pare_ranges *r;
    assert_int_equal(pare_ranges_new(&ctx, &r, names, 1), PARE_OK);
    return r;
}

/* Half zeros, many sizes, both signs. */
static void fill(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        float u = (float)test_random(&seed) / 16777216.0f - 0.6f;
        x[i] = test_random(&seed) % 3 ? u * u * u * 40 : 0;
    }
}

static void assert_same_histogram(const pare_histogram *a, const pare_histogram *b)
{
    assert_true(a->count == b->count && a->zero == b->zero && a->nan == b->nan && a->inf == b->inf);
    assert_memory_equal(&a->min, &b->min, sizeof a->min);
    assert_memory_equal(&a->max, &b->max, sizeof a->max);
    assert_true(a->first == b->first && a->top == b->top && a->negative == b->negative);
    for (int sign = 0; sign < 2; sign++) {
        const uint64_t *x = pare_histogram_bins(a, sign), *y = pare_histogram_bins(b, sign);
        assert_true(!x == !y);
        if (x) assert_memory_equal(x - 1, y - 1, (1 + PARE_HISTOGRAM_BINS) * sizeof *x);
    }
}

static void assert_same_channels(const pare_channels *a, const pare_channels *b)
{
    assert_true(a->count == b->count && a->each == b->each && a->lost == b->lost);
    if (!a->count) return;
    assert_memory_equal(a->sum, b->sum, (size_t)a->count * sizeof *a->sum);
    assert_memory_equal(a->largest, b->largest, (size_t)a->count * sizeof *a->largest);
}

/* Adds a tensor of `bytes` bytes twice, here and there, its samples apart. */
static void check_tensor(pare_device *d, pare_view view, size_t bytes, int64_t samples,
                         bool minmax_only)
{
    pare_ranges *here = empty_table(), *there = empty_table();
    pare_device_stats *stats;
    void *data;
    assert_int_equal(pare_device_stats_open(&ctx, &stats, d, 1, minmax_only), PARE_OK);
    assert_int_equal(pare_device_copy(&ctx, d, &data, view.data, bytes), PARE_OK);
    pare_view moved = view;
    moved.data = data;
    for (int turn = 0; turn < 2; turn++) {
        pare_histogram *h = here->stats[0].histogram;
        int64_t n = pare_view_count(&view);
        assert_int_equal((minmax_only ? pare_histogram_add_minmax
                                      : pare_histogram_add)(&ctx, h, view.dtype, view.data, n),
                         PARE_OK);
        if (!minmax_only)
            assert_int_equal(pare_channels_add(&ctx, here->stats[0].channels, &view, samples),
                             PARE_OK);
        if (pare_device_stats_add(stats, 0, &moved, samples, d->setup) != PARE_OK)
            fail_msg("%s", ctx.message);
    }
    assert_int_equal(d->backend->sync(&ctx, d->setup), PARE_OK);
    assert_int_equal(pare_device_stats_fetch(stats, there), PARE_OK);
    assert_same_histogram(there->stats[0].histogram, here->stats[0].histogram);
    assert_same_channels(there->stats[0].channels, here->stats[0].channels);
    d->backend->free(d, data);
    pare_device_stats_close(stats);
    pare_ranges_free(here);
    pare_ranges_free(there);
}

static pare_view view_of(int rank, const int64_t *dims, bool nhwc, float *data)
{
    pare_shape shape = {.rank = rank};
    pare_view v;
    memcpy(shape.dim, dims, (size_t)rank * sizeof *dims);
    pare_view_set(&v, PARE_f32, &shape, nhwc);
    v.data = data;
    return v;
}

static void tensors_of_every_rank_and_memory_order(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t dims[6], samples;
    } shapes[] = {{0, {0}, 1},
                  {1, {5}, 1},
                  {2, {1, 33}, 1},
                  {2, {6, 7}, 3},
                  {3, {2, 37, 40}, 2},
                  {4, {1, 3, 5, 7}, 1},
                  {4, {4, 17, 3, 11}, 2},
                  {4, {3, 5, 1, 1}, 1},
                  {4, {2, 1, 9, 4}, 1},
                  {5, {2, 3, 2, 5, 4}, 2},
                  {4, {2, 2, 30, 31}, 2}, /* several segments */
                  {3, {1, 700, 11}, 1},
                  {3, {2, 520, 5}, 2},
                  {3, {5, 2, 3}, 2}}; /* 5 rows are not 2 samples */
    pare_device *d = open_device();
    float x[8192];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int nhwc = 0; nhwc < (shapes[s].rank == 4 ? 2 : 1); nhwc++) {
            pare_view v = view_of(shapes[s].rank, shapes[s].dims, nhwc, x);
            int64_t n = pare_view_count(&v);
            assert_in_range(n, 1, 8192);
            fill(x, n, (uint32_t)(s + 1));
            check_tensor(d, v, (size_t)n * sizeof *x, shapes[s].samples, false);
        }
    d->backend->close(d);
}

/* (2, 6, 4) seen through a transposition: the last axis is the memory's second. */
static void transposed_views(void **state)
{
    (void)state;
    pare_device *d = open_device();
    float x[48];
    fill(x, 48, 9);
    pare_view v = view_of(3, (int64_t[]){2, 4, 6}, false, x);
    v.stride[1] = 1;
    v.stride[2] = 4;
    /* the host's histogram asks for a dense run: the same numbers */
    check_tensor(d, v, sizeof x, 1, false);
    check_tensor(d, v, sizeof x, 2, false);
    /* channels side by side, the other axes in another order */
    float y[4 * 6 * 9];
    fill(y, 4 * 6 * 9, 10);
    v = view_of(3, (int64_t[]){4, 6, 9}, false, y);
    v.stride[0] = 9;
    v.stride[1] = 36;
    check_tensor(d, v, sizeof y, 1, false);
    d->backend->close(d);
}

/* Sums that are no number, infinite, too large, tiny and negative. */
static void sums_that_are_lost_and_sums_of_both_signs(void **state)
{
    (void)state;
    enum { C = 10, ROWS = 3 };
    static const float columns[C] = {NAN,    INFINITY, 3e18f,   -3e18f, 1e-20f,
                                     -1e-6f, -7e17f,   2.5e17f, -0.0f,  1e-45f};
    float x[ROWS * C];
    pare_device *d = open_device();
    for (int i = 0; i < ROWS * C; i++) x[i] = i / C == 1 ? columns[i % C] : (float)(i % C);
    check_tensor(d, view_of(2, (int64_t[]){ROWS, C}, false, x), sizeof x, 1, false);
    for (int i = 0; i < ROWS * C; i++) x[i] = columns[i % C];
    check_tensor(d, view_of(2, (int64_t[]){ROWS, C}, false, x), sizeof x, 1, false);
    check_tensor(d, view_of(4, (int64_t[]){1, 2, 3, 5}, false, x), sizeof x, 1, false);
    d->backend->close(d);
}

static void nothing_but_zeros_and_nothing_finite(void **state)
{
    (void)state;
    pare_device *d = open_device();
    float zeros[7] = {0, -0.0f}, none[3] = {NAN, -INFINITY, INFINITY};
    check_tensor(d, view_of(1, (int64_t[]){7}, false, zeros), sizeof zeros, 1, false);
    check_tensor(d, view_of(1, (int64_t[]){3}, false, none), sizeof none, 1, false);
    d->backend->close(d);
}

static void extremes_have_no_bins(void **state)
{
    (void)state;
    pare_device *d = open_device();
    float x[300];
    fill(x, 300, 4);
    x[7] = NAN;
    check_tensor(d, view_of(2, (int64_t[]){30, 10}, false, x), sizeof x, 1, true);
    d->backend->close(d);
}

static void what_cannot_be_counted_is_refused(void **state)
{
    (void)state;
    pare_device *d = open_device();
    pare_device_stats *stats;
    float x[8] = {1};
    pare_view v = view_of(1, (int64_t[]){4}, false, x);
    assert_int_equal(pare_device_stats_open(&ctx, &stats, d, 1, false), PARE_OK);
    v.stride[0] = 2;
    assert_int_equal(pare_device_stats_add(stats, 0, &v, 1, d->setup), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "gaps"));
    pare_ctx_clear(&ctx);
    v.stride[0] = 1;
    v.dtype = PARE_s32;
    assert_int_equal(pare_device_stats_add(stats, 0, &v, 1, d->setup), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "not s32"));
    pare_device_stats_close(stats);
    d->backend->close(d);
}

/* A sample's pixels by the formula; place: where the file has element (channel, y, x). */
static void check_pixels(pare_device *d, pare_pixels p, int height, int width, bool channels_last)
{
    enum { SAMPLES = 2 };
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    int channels = (int)p.channels;
    float table[3 * 256], *out, got[SAMPLES * 3 * 40];
    uint8_t raw[SAMPLES * 3 * 40];
    void *there, *table_device;
    size_t n = (size_t)(SAMPLES * p.count);
    for (int i = 0; i < channels * 256; i++)
        table[i] = ((float)(i % 256) / 255.0f - mean[i / 256]) / std[i / 256];
    for (size_t i = 0; i < n; i++) raw[i] = (uint8_t)(i * 77 + i / 5);
    assert_int_equal(pare_device_copy(&ctx, d, &there, raw, n), PARE_OK);
    assert_int_equal(pare_device_copy(&ctx, d, &table_device, table, sizeof table), PARE_OK);
    void *memory;
    assert_int_equal(d->backend->alloc(&ctx, d, &memory, n * sizeof *out), PARE_OK);
    out = memory;
    p.table = table_device;
    assert_int_equal(d->samples->pixels(&ctx, d->setup, out, there, &p, SAMPLES), PARE_OK);
    assert_int_equal(d->samples->pixels(&ctx, d->setup, out, there, &p, 0), PARE_OK);
    assert_int_equal(d->backend->download(&ctx, d->setup, got, out, n * sizeof *out), PARE_OK);
    assert_int_equal(d->backend->sync(&ctx, d->setup), PARE_OK);
    for (int i = 0; i < (int)n; i++) {
        int sample = i / (int)p.count, at = i % (int)p.count, c = at / (height * width);
        int place = channels_last ? at % (height * width) * channels + c : at;
        float v = (float)raw[sample * p.count + place];
        float want = (v / 255.0f - mean[c]) / std[c];
        assert_memory_equal(&got[i], &want, sizeof want);
    }
    d->backend->free(d, there);
    d->backend->free(d, table_device);
    d->backend->free(d, memory);
}

static void pixels_become_floats(void **state)
{
    (void)state;
    pare_device *d = open_device();
    check_pixels(d, (pare_pixels){.channels = 3, .inner = 35, .count = 105}, 5, 7, false);
    check_pixels(d,
                 (pare_pixels){.channels = 3, .inner = 35, .rows = 35, .columns = 3, .count = 105},
                 5, 7, true);
    check_pixels(d, (pare_pixels){.channels = 1, .inner = 40, .count = 40}, 5, 8, false);
    d->backend->close(d);
}

/* Each call that can fail, in turn: the status says so, and nothing is left over. */
static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    pare_device *d = open_device();
    float x[24];
    void *data;
    fill(x, 24, 3);
    pare_view v = view_of(4, (int64_t[]){1, 2, 3, 4}, false, x);
    assert_int_equal(pare_device_copy(&ctx, d, &data, x, sizeof x), PARE_OK);
    v.data = data;
    int turns = 0;
    for (bool failed = true; failed; turns++) {
        pare_device_stats *stats = NULL;
        pare_ranges *table = empty_table();
        simt_fail_at((uint64_t)turns + 1, cudaErrorUnknown, false);
        pare_status st = pare_device_stats_open(&ctx, &stats, d, 1, false);
        if (st == PARE_OK) st = pare_device_stats_add(stats, 0, &v, 1, d->setup);
        if (st == PARE_OK) st = d->backend->sync(&ctx, d->setup);
        if (st == PARE_OK) st = pare_device_stats_fetch(stats, table);
        simt_fail_at(0, 0, false);
        failed = st != PARE_OK;
        assert_true(!failed || strlen(ctx.message) > 8);
        pare_ctx_clear(&ctx);
        pare_device_stats_close(stats);
        pare_ranges_free(table);
        assert_in_range(turns, 0, 60);
    }
    assert_true(turns > 15);
    d->backend->free(d, data);
    d->backend->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(tensors_of_every_rank_and_memory_order),
        device_test(transposed_views),
        device_test(sums_that_are_lost_and_sums_of_both_signs),
        device_test(nothing_but_zeros_and_nothing_finite),
        device_test(extremes_have_no_bins),
        device_test(what_cannot_be_counted_is_refused),
        device_test(pixels_become_floats),
        device_test(failing_calls_are_passed_on),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
