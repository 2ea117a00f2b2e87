/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of histograms, and what a range costs, by hand. */
#include "tools/range_facts.h"

#include "calib/histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const float values[] = {1, 2, 3, -4, 0, 0, NAN};

static pare_histogram *histogram_of(pare_ctx *ctx, const float *data, int64_t count)
{
    pare_histogram *h;
    pare_ctx_init(ctx);
    assert_int_equal(pare_histogram_new(ctx, &h), PARE_OK);
    assert_int_equal(pare_histogram_add(ctx, h, PARE_f32, data, count), PARE_OK);
    return h;
}

/* From -4 to 3 in 64 bins of 7/64: 0 is in bin 36 (4 * 64 / 7 = 36.6), 1 in 45, 2 in 54, 3 in the
   last one. NaN is nowhere. */
static void bins_are_equal_parts(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_range_plot picture;
    const pare_range range = {.low = -4, .high = 4};
    double sum = 0;
    pare_histogram *h = histogram_of(&ctx, values, 7);
    pare_range_plot_make(&picture, h, &range, PARE_s8);
    for (int i = 0; i < PARE_RANGE_PLOT_BINS; i++) sum += picture.count[i];
    assert_true(sum == 6);
    assert_true(picture.count[0] == 1 && picture.count[36] == 2 && picture.count[45] == 1);
    assert_true(picture.count[54] == 1 && picture.count[63] == 1);
    pare_histogram_free(h);
}

/* Within +-2, 3 becomes 2 and -4 becomes -2: noise 1 + 4, signal 1 + 4 + 9 + 16, 10 log10(30 / 5) =
   7.78 dB; as u8 in [0, 3] only -4 is lost, all of it: 10 log10(30 / 16) = 2.73 dB. */
static void clipping_costs(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_range_plot picture;
    pare_range range = {.low = -2, .high = 2};
    pare_histogram *h = histogram_of(&ctx, values, 7);
    pare_range_plot_make(&picture, h, &range, PARE_s8);
    assert_true(fabs(picture.sqnr_db - 7.78) < 0.02);
    range = (pare_range){.low = 0, .high = 3};
    pare_range_plot_make(&picture, h, &range, PARE_u8);
    assert_true(fabs(picture.sqnr_db - 2.73) < 0.02);
    pare_histogram_free(h);
}

/* Within +-4 the steps of E4M3 are 4 / 448: 1, 2 and 4 are 112, 224 and 448 of them, which are
   codes; 3.1 is 347.2, between 320 and 352, and becomes 352, 0.0429 more: 10 log10(46.61 /
   0.00184) = 44.0 dB. In 127 steps 1, 2 and 3.1 are 31.75, 63.5 and 98.43, rounded by up to half of
   0.0315: about 50 dB. */
static void codes_of_fp8_are_coarser_where_numbers_are_large(void **state)
{
    (void)state;
    static const float numbers[] = {1, 2, 3.1f, 4, -4};
    pare_ctx ctx;
    pare_range_plot picture;
    const pare_range range = {.low = -4, .high = 4};
    pare_histogram *h = histogram_of(&ctx, numbers, 5);
    pare_range_plot_make(&picture, h, &range, PARE_f8e4m3);
    assert_true(fabs(picture.sqnr_db - 44.0) < 0.3);
    pare_range_plot_make(&picture, h, &range, PARE_s8);
    assert_true(picture.sqnr_db > 48);
    pare_histogram_free(h);
}

static void nothing_has_no_error(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_range_plot picture;
    const float zeros[2] = {0, 0}, none[1] = {NAN};
    const pare_range range = {0};
    pare_histogram *h = histogram_of(&ctx, zeros, 2);
    pare_range_plot_make(&picture, h, &range, PARE_s8);
    assert_true(isinf(picture.sqnr_db) && picture.count[0] == 2);
    pare_histogram_free(h);
    h = histogram_of(&ctx, none, 1);
    pare_range_plot_make(&picture, h, &range, PARE_s8);
    assert_true(isnan(picture.sqnr_db));
    pare_histogram_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_are_equal_parts),
        cmocka_unit_test(clipping_costs),
        cmocka_unit_test(codes_of_fp8_are_coarser_where_numbers_are_large),
        cmocka_unit_test(nothing_has_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
