/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/augment.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static pare_ctx ctx;

static int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    return 0;
}

/* --- what is asked for --- */

static void test_parse(void **state)
{
    (void)state;
    pare_augment a;
    assert_int_equal(pare_augment_parse(&ctx, &a, "flip,shift:2,mixup:0.2"), PARE_OK);
    assert_true(a.flip && a.shift == 2 && a.mixup == 0.2);
    assert_int_equal(pare_augment_parse(&ctx, &a, "mixup:1"), PARE_OK);
    assert_true(!a.flip && a.shift == 0 && a.mixup == 1);
    const char *const bad[] = {
        "",          "flip,",     "flap",      "shift",      "shift:",      "shift:0",
        "shift:1.5", "shift:-1",  "shift:2x",  "shift:5000", "mixup:0",     "mixup:0.1.2",
        "mixup:nan", "mixup:1e9", "mixup:101", " flip",      "flip shift:2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pare_ctx_clear(&ctx);
        if (pare_augment_parse(&ctx, &a, bad[i]) != PARE_USAGE) fail_msg("'%s' is taken", bad[i]);
        assert_non_null(strstr(ctx.message, "expected flip, shift:PIXELS"));
    }
    const char *const twice[] = {"flip,flip", "shift:1,shift:2", "mixup:1,flip,mixup:1"};
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        pare_ctx_clear(&ctx);
        assert_int_equal(pare_augment_parse(&ctx, &a, twice[i]), PARE_USAGE);
        assert_non_null(strstr(ctx.message, "already"));
    }
}

static pare_status fit(pare_image_axes *axes, int shift, pare_dtype dtype, int rank, int64_t a,
                       int64_t b, int64_t c)
{
    pare_augment augment = {.shift = shift};
    pare_shape shape = {.rank = rank, .dim = {1, a, b, c}};
    pare_ctx_clear(&ctx);
    return pare_augment_fit(&ctx, axes, &augment, "x", dtype, &shape);
}

static void test_fit(void **state)
{
    (void)state;
    pare_image_axes a;
    assert_int_equal(fit(&a, 2, PARE_f32, 4, 3, 8, 5), PARE_OK);
    assert_true(a.channels == 3 && a.height == 8 && a.width == 5 && !a.last);
    assert_int_equal(fit(&a, 0, PARE_f32, 4, 8, 5, 1), PARE_OK);
    assert_true(a.channels == 1 && a.height == 8 && a.width == 5 && a.last);
    assert_int_equal(fit(&a, 0, PARE_f32, 4, 3, 3, 3), PARE_OK); /* ONNX's own order */
    assert_true(!a.last);
    assert_int_equal(fit(&a, 0, PARE_f32, 4, 8, 8, 8), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "input 'x': has type f32 and shape [1,8,8,8], expected"));
    assert_int_equal(fit(&a, 0, PARE_f32, 3, 3, 8, 0), PARE_INPUT);
    assert_int_equal(fit(&a, 0, PARE_s64, 2, 128, 0, 0), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "has type s64 and shape [1,128]"));
    assert_int_equal(fit(&a, 5, PARE_f32, 4, 3, 8, 5), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "8 x 5 pixels, too small to shift by 5"));
}

/* --- images --- */

enum { H = 5, W = 6, C = 3, SIZE = H * W * C, BATCH = 64 };

typedef struct images {
    float pixel[BATCH * SIZE];
    int64_t epoch[BATCH], sample[BATCH];
    void *input[1];
    pare_loader_batch batch;
} images;

/* Pixel values name their place: 1000 c + 10 y + x, and the sample in the fraction. */
static float pixel_at(int sample, int64_t c, int64_t y, int64_t x)
{
    return (float)(1000 * c + 10 * y + x) + (float)sample / 64;
}

static void make_images(images *m, bool last)
{
    for (int i = 0; i < BATCH; i++) {
        m->epoch[i] = 2;
        m->sample[i] = 100 + i;
        float *at = m->pixel + i * SIZE;
        for (int c = 0; c < C; c++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++)
                    at[last ? (y * W + x) * C + c : (c * H + y) * W + x] = pixel_at(i, c, y, x);
    }
    m->input[0] = m->pixel;
    m->batch = (pare_loader_batch){
        .count = BATCH, .input = m->input, .epoch = m->epoch, .sample = m->sample};
}

static int64_t within(int64_t i, int64_t n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* Is out the image i moved so? */
static bool is_moved(const float *out, bool last, int i, bool flip, int down, int right)
{
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                int64_t from = within(x - right, W);
                float want = pixel_at(i, c, within(y - down, H), flip ? W - 1 - from : from);
                if (out[last ? (y * W + x) * C + c : (c * H + y) * W + x] != want) return false;
            }
    return true;
}

/* Which move made out of image i; counts[flip][down + 2][right + 2] goes up. */
static void count_move(const float *out, bool last, int i, int counts[2][5][5])
{
    for (int flip = 0; flip < 2; flip++)
        for (int down = -2; down <= 2; down++)
            for (int right = -2; right <= 2; right++)
                if (is_moved(out, last, i, flip, down, right)) {
                    counts[flip][down + 2][right + 2]++;
                    return;
                }
    fail_msg("image %d is none of its moves", i);
}

static void test_moves(void **state)
{
    (void)state;
    static images m;
    pare_augment both = {.flip = true, .shift = 2}, none = {0};
    float out[SIZE], again[SIZE], scratch[SIZE];
    for (int last = 0; last < 2; last++) {
        pare_image_axes axes = {C, H, W, last};
        int counts[2][5][5] = {{{0}}}, flips = 0, all = 0;
        make_images(&m, last);
        for (int e = 0; e < 40; e++)
            for (int i = 0; i < BATCH; i++) {
                m.epoch[i] = e;
                pare_augment_sample(&both, &axes, 7, &m.batch, 0, i, scratch, out);
                count_move(out, last, i, counts);
                pare_augment_sample(&both, &axes, 7, &m.batch, 0, i, scratch, again);
                assert_memory_equal(out, again, sizeof out);
            }
        for (int k = 0; k < 50; k++) {
            int n = counts[k / 25][k / 5 % 5][k % 5];
            assert_true(n > 20 && n < 90); /* 2560 in 50 cells: 51, deviation 7 */
            all += n;
            flips += k >= 25 ? n : 0;
        }
        assert_int_equal(all, 40 * BATCH);
        assert_true(flips > 1150 && flips < 1410);
        pare_augment_sample(&none, &axes, 7, &m.batch, 0, 3, scratch, out);
        assert_memory_equal(out, m.pixel + 3 * SIZE, sizeof out);
    }
}

/* A sample's move does not depend on its place in the batch, and does on seed and epoch. */
static void test_moves_follow_the_sample(void **state)
{
    (void)state;
    static images m;
    pare_augment both = {.flip = true, .shift = 2};
    pare_image_axes axes = {C, H, W, false};
    float out[SIZE], other[SIZE], scratch[SIZE];
    int seeds = 0, epochs = 0;
    make_images(&m, false);
    for (int i = 0; i + 1 < BATCH; i++) {
        pare_augment_sample(&both, &axes, 7, &m.batch, 0, i, scratch, out);
        pare_augment_sample(&both, &axes, 8, &m.batch, 0, i, scratch, other);
        seeds += memcmp(out, other, sizeof out) != 0;
        m.epoch[i]++;
        pare_augment_sample(&both, &axes, 7, &m.batch, 0, i, scratch, other);
        epochs += memcmp(out, other, sizeof out) != 0;
        m.epoch[i]--;
        memcpy(m.pixel + (i + 1) * SIZE, m.pixel + i * SIZE, sizeof out);
        m.sample[i + 1] = m.sample[i];
        pare_augment_sample(&both, &axes, 7, &m.batch, 0, i + 1, scratch, other);
        assert_memory_equal(out, other, sizeof out);
        make_images(&m, false);
    }
    assert_true(seeds > 50 && epochs > 50); /* 1 in 50 moves is the same by chance */
}

/* --- mixing --- */

static void test_partners(void **state)
{
    (void)state;
    assert_int_equal(pare_augment_partner(0, 1), 0);
    for (int count = 2; count < 9; count++) {
        int seen[9] = {0};
        for (int i = 0; i < count; i++) {
            int k = pare_augment_partner(i, count);
            assert_true(k != i && k >= 0 && k < count);
            seen[k]++;
        }
        for (int i = 0; i < count; i++) assert_int_equal(seen[i], 1);
    }
}

static void test_mix(void **state)
{
    (void)state;
    static images m;
    pare_augment mix = {.mixup = 1};
    pare_image_axes axes = {C, H, W, false};
    float out[SIZE], scratch[SIZE];
    make_images(&m, false);
    for (int i = 0; i < BATCH; i++) {
        double share = pare_augment_share(&mix, 7, &m.batch, i);
        int k = pare_augment_partner(i, BATCH);
        assert_true(share > 0 && share < 1);
        pare_augment_sample(&mix, &axes, 7, &m.batch, 0, i, scratch, out);
        for (int p = 0; p < SIZE; p++) {
            double want =
                share * (double)m.pixel[i * SIZE + p] + (1 - share) * (double)m.pixel[k * SIZE + p];
            assert_true(fabs((double)out[p] - want) < 1e-3);
        }
    }
    m.batch.count = 1;
    assert_true(pare_augment_share(&mix, 7, &m.batch, 0) == 1);
    pare_augment_sample(&mix, &axes, 7, &m.batch, 0, 0, scratch, out);
    assert_memory_equal(out, m.pixel, sizeof out);
}

/* Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)), in 4 deviations of 20,000 draws' means. */
static void test_shares_are_beta(void **state)
{
    (void)state;
    const double alphas[] = {0.001, 0.2, 1, 2.5, 100};
    int64_t epoch[2] = {0}, sample[2] = {0};
    pare_loader_batch batch = {.count = 2, .epoch = epoch, .sample = sample};
    for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
        enum { N = 20000 };
        pare_augment mix = {.mixup = alphas[k]};
        double sum = 0, squares = 0, variance = 1 / (4 * (2 * alphas[k] + 1));
        for (int i = 0; i < N; i++) {
            epoch[0] = i / 100;
            sample[0] = i % 100;
            double x = pare_augment_share(&mix, 3, &batch, 0);
            assert_true(x >= 0 && x <= 1);
            sum += x;
            squares += (x - 0.5) * (x - 0.5);
        }
        assert_true(fabs(sum / N - 0.5) < 4 * sqrt(variance / N));
        assert_true(fabs(squares / N - variance) < 0.05 * variance);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),           cmocka_unit_test(test_fit),
        cmocka_unit_test(test_moves),           cmocka_unit_test(test_moves_follow_the_sample),
        cmocka_unit_test(test_partners),        cmocka_unit_test(test_mix),
        cmocka_unit_test(test_shares_are_beta),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
