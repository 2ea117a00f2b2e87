/* SPDX-License-Identifier: Apache-2.0 */
/* Whole calibrations on the device: they do not depend on batch, threads or order; what counts come
   out is close to the CPU's, whose activations differ in their last bits: every method's range is
   within one bin of it. Pixels are normalized on the device: the input's counts are equal. Copies
   of the next run are queued while the one before computes. */
#include "calib/range.h"
#include "calib/ranges.h"
#include "formats/onnx.h"
#include "quant/quant.h"
#include "runtime/cuda/cuda.h"
#include "tests/calib/tables.h"
#include "tests/simt/testing.h"

#include <math.h>

enum { SAMPLES = 67, SIDE = 28, PIXELS = SIDE * SIDE };

static pare_ctx ctx;
static tables files;

/* Blobs on a background: half of the pixels are 0. */
static void write_data(void)
{
    static uint8_t x[SAMPLES * PIXELS];
    const float mean = 0.286f, std = 0.353f;
    pare_data_column column = {.name = "input",
                               .dtype = PARE_u8,
                               .shape = {.rank = 3, .dim = {1, SIDE, SIDE}},
                               .mean = &mean,
                               .std = &std,
                               .channels = 1,
                               .layout = "nchw"};
    pare_data_writer *w = NULL;
    for (int i = 0; i < SAMPLES * PIXELS; i++) {
        int sample = i / PIXELS, row = i % PIXELS / SIDE - 14, at = i % SIDE - 10 - sample % 8;
        double inside = 120 - 2.3 * row * row - (1.5 + 0.2 * sample) * at * at;
        x[i] = (uint8_t)(inside > 0 ? inside * 2 + (i * 29 % 13) : 0);
    }
    const void *block[1] = {x};
    assert_int_equal(pare_data_create(&ctx, &w, files.data, &column, 1), PARE_OK);
    assert_int_equal(pare_data_append(w, block, SAMPLES), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

typedef struct run {
    const char *net;
    pare_device *device;
    int samples, batch, threads;
    bool turned, minmax_only;
    pare_status (*traced)(void *user, const pare_timeline *timeline, const pare_plan *plan);
} run;

static pare_status calibrate(pare_ranges **out, const run *o)
{
    pare_model *m;
    pare_data *d = NULL;
    char path[64];
    int64_t samples[SAMPLES];
    pare_quant_options quant = {0};
    pare_data_input in = {"input", PARE_f32, {4, {-1, 1, SIDE, SIDE}, {0}}, NULL};
    for (int i = 0; i < o->samples; i++) samples[i] = o->turned ? o->samples - 1 - i : i;
    snprintf(path, sizeof path, "datasets/zoo/%s.onnx", o->net);
    if (pare_onnx_read(&ctx, &m, path) != PARE_OK) fail_msg("%s", ctx.message);
    if (pare_quant_prepare(&ctx, m, &quant, NULL) != PARE_OK) fail_msg("%s", ctx.message);
    if (pare_data_open(&ctx, &d, files.data, &in, 1) != PARE_OK) fail_msg("%s", ctx.message);
    pare_calib_options options = {.samples = samples,
                                  .sample_count = o->samples,
                                  .batch = o->batch,
                                  .threads = o->threads,
                                  .device = o->device,
                                  .minmax_only = o->minmax_only,
                                  .traced = o->traced,
                                  .model_hash = "00112233445566778899aabbccddeeff"};
    pare_status st = pare_calibrate(&ctx, out, m, d, &options);
    pare_data_close(d);
    pare_model_free(m);
    return st;
}

static pare_ranges *table_of(const run *o)
{
    pare_ranges *r = NULL;
    if (calibrate(&r, o) != PARE_OK) fail_msg("%s", ctx.message);
    return r;
}

static pare_device *open_device(void)
{
    pare_device *d;
    if (pare_cuda_open(&ctx, &d, 0, 0) != PARE_OK) fail_msg("%s", ctx.message);
    return d;
}

static void assert_same_tables(pare_ranges *a, pare_ranges *b)
{
    assert_int_equal(pare_ranges_write(&ctx, a, files.a), PARE_OK);
    assert_int_equal(pare_ranges_write(&ctx, b, files.b), PARE_OK);
    tables_assert_same(&files, &ctx);
}

static void batch_threads_and_order_leave_no_trace(void **state)
{
    (void)state;
    pare_device *d = open_device();
    pare_ranges *first = table_of(&(run){"mlp", d, 5, 1, 1, false, false, NULL});
    pare_ranges *second = table_of(&(run){"mlp", d, 5, 4, 2, true, false, NULL});
    assert_same_tables(first, second);
    /* nor does where ranges are searched */
    pare_ranges_use_device(second, NULL);
    assert_same_tables(first, second);
    pare_ranges_free(first);
    pare_ranges_free(second);
    d->backend->close(d);
}

/* --- against the CPU --- */

static const char *const methods[] = {
    "minmax", "percentile:99.9", "percentile:99.99", "entropy", "mse", "auto"};
enum { METHODS = sizeof methods / sizeof *methods, RULES = 2 * METHODS };

/* The width of a bin at an end of a range: of the histogram, of the grid that entropy searches
   (2,048 bins below the next power of two), or the step between candidates of the least error. */
static double bin_at(const pare_histogram *h, pare_method method, float end)
{
    double magnitude = fabs((double)end);
    if (method == PARE_METHOD_ENTROPY) return pare_grid_width(h->top);
    if (method == PARE_METHOD_MSE) return magnitude * (exp2(1.0 / PARE_RANGE_FINE) - 1);
    return magnitude / PARE_OCTAVE_BINS;
}

/* What the two-sided search of entropy minimizes, of a range. */
static double divergence_of(const pare_histogram *h, const pare_range *r)
{
    enum { G = PARE_GRID_BINS };
    static double up[G], down[G], bin[2 * G], count[2 * G + 1], used[2 * G + 1], logs[2 * G + 1];
    double width = pare_grid_make(h, 0, up);
    (void)pare_grid_make(h, 1, down);
    for (int i = 0; i < G; i++) bin[G - 1 - i] = down[i], bin[G + i] = up[i];
    pare_entropy_sums sums = {bin, count, used, logs, 2 * G};
    pare_entropy_prepare(&sums);
    int first = G + (int)floor((double)r->low / width),
        last = G + (int)ceil((double)r->high / width);
    return pare_entropy_of(&sums, first, last, PARE_ENTROPY_LEVELS);
}

/* Both ends of entropy's range are found one after the other, and few samples leave several places
   that are almost as good: then the divergence of both in the same counts is almost the same. */
static bool is_as_good(const pare_histogram *h, const pare_range *here, const pare_range *there)
{
    bool both = here->chosen == PARE_METHOD_ENTROPY && here->low != -here->high;
    return both && there->chosen == here->chosen &&
           divergence_of(h, there) <= 1.01 * divergence_of(h, here);
}

static void assert_near(const pare_stats *s, const pare_range *here, const pare_range *there,
                        int rule)
{
    double low = bin_at(s->histogram, here->chosen, here->low);
    double high = bin_at(s->histogram, here->chosen, here->high);
    bool near = here->chosen == there->chosen &&
                fabs((double)here->low - (double)there->low) <= low * 1.0001 &&
                fabs((double)here->high - (double)there->high) <= high * 1.0001;
    if (!near && !is_as_good(s->histogram, here, there))
        fail_msg("tensor '%s', %s: [%.9g, %.9g] by %d there, [%.9g, %.9g] by %d here", s->name,
                 methods[rule / 2], (double)there->low, (double)there->high, (int)there->chosen,
                 (double)here->low, (double)here->high, (int)here->chosen);
}

static void compare_ranges(const pare_ranges *here, const pare_ranges *there)
{
    pare_range_rule rules[RULES];
    pare_range a[128 * RULES], b[128 * RULES];
    assert_in_range(here->count, 3, 128);
    assert_int_equal(here->count, there->count);
    for (int i = 0; i < RULES; i++) {
        assert_int_equal(pare_method_parse(&ctx, methods[i / 2], &rules[i]), PARE_OK);
        rules[i].symmetric = i % 2;
    }
    assert_int_equal(pare_ranges_choose(&ctx, here, rules, RULES, a), PARE_OK);
    assert_int_equal(pare_ranges_choose(&ctx, there, rules, RULES, b), PARE_OK);
    for (int t = 0; t < here->count; t++) {
        assert_string_equal(here->stats[t].name, there->stats[t].name);
        for (int i = 0; i < RULES; i++)
            assert_near(&here->stats[t], &a[t * RULES + i], &b[t * RULES + i], i);
    }
}

/* Means of channels within 1e-5 of the tensor's largest value. */
static void compare_channels(const pare_ranges *here, const pare_ranges *there)
{
    for (int t = 0; t < here->count; t++) {
        const pare_channels *a = here->stats[t].channels, *b = there->stats[t].channels;
        const pare_histogram *h = here->stats[t].histogram;
        double largest = fmax(-(double)h->min, (double)h->max);
        assert_int_equal(a->count, b->count);
        assert_int_equal(a->each, b->each);
        for (int64_t c = 0; c < a->count; c++) {
            assert_true(fabs(pare_channels_mean(a, c) - pare_channels_mean(b, c)) <=
                        1e-5 * largest);
            assert_true(fabs((double)a->largest[c] - (double)b->largest[c]) <= 1e-5 * largest);
        }
    }
}

/* Of the input nothing was computed but pixels to floats: the same bits. */
static void compare_input(const pare_ranges *here, const pare_ranges *there)
{
    const pare_histogram *a = pare_ranges_find(here, "input")->histogram;
    const pare_histogram *b = pare_ranges_find(there, "input")->histogram;
    assert_true(a->count == b->count && a->zero == b->zero && a->min == b->min && a->max == b->max);
    for (int sign = 0; sign < 2; sign++)
        assert_memory_equal(pare_histogram_bins(a, sign) - 1, pare_histogram_bins(b, sign) - 1,
                            (1 + PARE_HISTOGRAM_BINS) * sizeof(uint64_t));
}

static void compare_net(const char *net, int samples)
{
    pare_device *d = open_device();
    pare_ranges *here = table_of(&(run){net, NULL, samples, 3, 1, false, false, NULL});
    pare_ranges *there = table_of(&(run){net, d, samples, 3, 1, false, false, NULL});
    compare_input(here, there);
    compare_channels(here, there);
    compare_ranges(here, there);
    pare_ranges_free(here);
    pare_ranges_free(there);
    d->backend->close(d);
}

static void mlp_is_within_a_bin_of_the_cpu(void **state)
{
    (void)state;
    compare_net("mlp", 6);
}

/* Runs of 32 samples, the last with zeros behind its last one, which no one counts, be it recorded
   or behind those that are played; the order leaves no trace. */
static void batches_are_within_a_bin_of_the_cpu(void **state)
{
    (void)state;
    compare_net("mlp", 35);
    compare_net("mlp", SAMPLES);
    pare_device *d = open_device();
    uint64_t start = simt_launches();
    pare_ranges *few = table_of(&(run){"mlp", d, 5, 1, 1, false, false, NULL});
    const uint64_t five_runs = simt_launches() - start;
    start = simt_launches();
    pare_ranges *first = table_of(&(run){"mlp", d, 35, 1, 1, false, false, NULL});
    assert_true(simt_launches() - start < five_runs); /* of two runs */
    pare_ranges *second = table_of(&(run){"mlp", d, 35, 4, 2, true, false, NULL});
    assert_same_tables(first, second);
    pare_ranges_free(few);
    pare_ranges_free(first);
    pare_ranges_free(second);
    d->backend->close(d);
}

static void cnn_is_within_a_bin_of_the_cpu(void **state)
{
    (void)state;
    compare_net("cnn", simt_checks() ? 3 : 6);
}

static void vit_is_within_a_bin_of_the_cpu(void **state)
{
    (void)state;
    compare_net("vit", 2);
}

/* Every f32 tensor's minmax_only, for forecasts of overflow. */
static void extremes_are_near_the_cpu(void **state)
{
    (void)state;
    pare_device *d = open_device();
    pare_ranges *here = table_of(&(run){"mlp", NULL, 3, 3, 1, false, true, NULL});
    pare_ranges *there = table_of(&(run){"mlp", d, 3, 3, 1, false, true, NULL});
    assert_true(pare_ranges_see_all(there));
    assert_in_range(here->count, 3, 128);
    assert_int_equal(here->count, there->count);
    for (int i = 0; i < here->count; i++) {
        const pare_histogram *a = here->stats[i].histogram, *b = there->stats[i].histogram;
        double largest = fmax(-(double)a->min, (double)a->max);
        assert_true(a->count == b->count && !b->slot);
        assert_true(fabs((double)a->min - (double)b->min) <= 1e-5 * largest);
        assert_true(fabs((double)a->max - (double)b->max) <= 1e-5 * largest);
    }
    pare_ranges_free(here);
    pare_ranges_free(there);
    d->backend->close(d);
}

/* --- copies and computing --- */

/* Kernels that had run when a sample's pixels were put into a stream. */
typedef struct copies {
    const pare_backend *backend;
    int count;
    uint64_t launches[SAMPLES];
} copies;

static copies seen;

static pare_status upload_seen(pare_ctx *c, pare_stream *stream, void *to, const void *from,
                               size_t bytes)
{
    if (bytes == PIXELS) {
        assert_in_range(seen.count, 0, SAMPLES - 1);
        seen.launches[seen.count++] = simt_launches();
    }
    return seen.backend->upload(c, stream, to, from, bytes);
}

/* The copy, then the steps in order with what observers do. */
static pare_status check_trace(void *user, const pare_timeline *timeline, const pare_plan *plan)
{
    (void)user;
    const int steps = pare_plan_step_count(plan), spans = pare_timeline_count(timeline);
    int runs = -1, step = 0, observed = 0;
    for (int i = 0; i < spans; i++) {
        const pare_span *s = pare_timeline_span(timeline, i);
        if (s->lane == PARE_LANE_IN) {
            assert_true(runs < 0 || (step == steps && observed >= 3));
            runs++, step = 0, observed = 0;
            assert_string_equal(s->name, "input");
        } else if (s->lane == PARE_LANE_COMPUTE)
            assert_int_equal(s->step, step++);
        else if (s->lane == PARE_LANE_OBSERVE)
            observed++;
        assert_int_equal(s->track, 0);
        assert_true(s->seconds >= 0 && s->start >= 0);
    }
    assert_int_equal(runs + 1, 6);
    return PARE_OK;
}

/* Of lazy streams nothing runs before someone waits for it. The first run ends before the second is
   queued. From then on, when the pixels of run n + 1 were queued, the kernels of runs 0 .. n - 1
   had run, those of run n had not: traced, recorded, played. */
static void copies_are_queued_before_computing_ends(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    const simt_streams streams = simt_set.streams;
    simt_set.streams = SIMT_LAZY;
    for (int trace = 0; trace < 2; trace++) {
        pare_device *d = open_device();
        pare_backend watched = *d->backend;
        seen = (copies){.backend = d->backend};
        watched.upload = upload_seen;
        d->backend = &watched;
        pare_ranges_free(
            table_of(&(run){"mlp", d, 6, 3, 1, false, false, trace ? check_trace : NULL}));
        assert_int_equal(seen.count, 6);
        const uint64_t kernels = seen.launches[3] - seen.launches[2];
        assert_true(seen.launches[1] > seen.launches[0] + 3);
        assert_int_equal(seen.launches[2], seen.launches[1]);
        assert_true(kernels > 3);
        for (int n = 3; n < seen.count; n++)
            assert_int_equal(seen.launches[n] - seen.launches[n - 1], kernels);
        d->backend->close(d);
    }
    simt_set.streams = streams;
}

/* Each call that can fail, one after the other (in strides): a message, and nothing is left over.
 */
static void failing_calls_end_it_cleanly(void **state)
{
    (void)state;
    if (!simt_emulated() || simt_checks()) skip();
    pare_device *d = open_device();
    int failures = 0;
    for (uint64_t n = 1;; n += n < 60 ? 3 : 11) {
        pare_ranges *r = NULL;
        simt_fail_at(n, n % 2 ? cudaErrorUnknown : cudaErrorLaunchFailure, false);
        pare_status st = calibrate(&r, &(run){"mlp", d, 3, 3, 1, false, false, NULL});
        simt_fail_at(0, 0, false);
        (void)cudaGetLastError(); /* of a release that was told to fail */
        if (st == PARE_OK) {
            pare_ranges_free(r);
            break;
        }
        failures++;
        assert_true(strlen(ctx.message) > 8);
        pare_ctx_clear(&ctx);
    }
    assert_true(failures > 20);
    d->backend->close(d);
}

static int open_folder(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    tables_open(&files);
    write_data();
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    return tables_close(&files);
}

/* PARE_NETS=large: those that take seconds. */
int main(void)
{
    const struct CMUnitTest small[] = {
        device_test(batch_threads_and_order_leave_no_trace),
        device_test(mlp_is_within_a_bin_of_the_cpu),
        device_test(batches_are_within_a_bin_of_the_cpu),
        device_test(cnn_is_within_a_bin_of_the_cpu),
        device_test(extremes_are_near_the_cpu),
        device_test(copies_are_queued_before_computing_ends),
    };
    const struct CMUnitTest large[] = {
        device_test(failing_calls_end_it_cleanly),
        device_test(vit_is_within_a_bin_of_the_cpu),
    };
    const char *which = getenv("PARE_NETS");
    if (!device_is_present()) return 77;
    if (which && !strcmp(which, "large"))
        return cmocka_run_group_tests(large, open_folder, close_folder);
    return cmocka_run_group_tests(small, open_folder, close_folder);
}
