/* SPDX-License-Identifier: Apache-2.0 */
/* Models that shadow others: what is compared, what is dropped, and that no answer waits for it. */
#include "tests/tools/serve_desk.h"
#include "tools/serve/traffic/shadow.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --- numbers --- */

static void percentiles_of_bins_are_near(void **state)
{
    pare_time_bins bins = {0};
    (void)state;
    assert_true(pare_time_bins_percentile(&bins, 50) == 0);
    for (int i = 1; i <= 1000; i++) pare_time_bins_add(&bins, 1e-5 * i);
    assert_true(fabs(pare_time_bins_percentile(&bins, 50) / 5e-3 - 1) < 0.023);
    assert_true(fabs(pare_time_bins_percentile(&bins, 99) / 9.9e-3 - 1) < 0.023);
    assert_true(fabs(bins.seconds - 5.005) < 1e-9);
    pare_time_bins_add(&bins, 0);
    pare_time_bins_add(&bins, 1e30);
    assert_int_equal(bins.count, 1002);
    assert_int_equal(bins.bin[0] + bins.bin[PARE_TIME_BINS - 1], 2);
}

static void a_p99_needs_requests_enough(void **state)
{
    (void)state;
    pare_shadow_stats stats;
    pare_shadow_stats_init(&stats);
    for (int i = 1; i <= 1000; i++) {
        stats.compared++;
        for (int k = 0; k < 2; k++) {
            pare_time_bins_add(&stats.whole[k], 1e-3);
            pare_time_bins_add(&stats.compute[k], 1e-3);
        }
        if (i < 999) continue;
        json_t *json = pare_shadow_stats_json(&stats), *pair = json_object_get(json, "compute_ms");
        const json_t *times = json_object_get(pair, "shadow");
        assert_non_null(json_object_get(times, "median"));
        assert_int_equal(json_object_get(times, "p99") != NULL, i == 1000);
        json_decref(json);
    }
    pare_shadow_stats_free(&stats);
}

static void shares_are_exact(void **state)
{
    static const double shares[] = {0, 0.1, 0.25, 1.0 / 3, 0.9, 1};
    (void)state;
    for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
        pare_shadow_stats stats;
        pare_shadow_stats_init(&stats);
        int chosen = 0;
        for (int n = 1; n <= 1000; n++) {
            chosen += pare_shadow_stats_offer(&stats, shares[k]);
            assert_true(fabs(chosen - n * shares[k]) < 1);
        }
        pare_shadow_stats_free(&stats);
    }
}

static pare_infer_tensor tensor_of(const char *name, pare_dtype dtype, int64_t rows, int64_t each,
                                   const void *data)
{
    pare_infer_tensor t = {.name = name, .dtype = dtype, .rank = 2, .data = data};
    t.dim[0] = rows;
    t.dim[1] = each;
    t.bytes = (size_t)(rows * each) * (size_t)pare_type(dtype)->bits / 8;
    return t;
}

static void errors_and_agreement_are_those_of_hand(void **state)
{
    /* Errors 1 of one element of 3, -2 and 4: 10 log10(29 / 1). The second row changes its class.
     */
    const float a[] = {3, -2, 0, 4}, b[] = {3, -2, 1, 0.5f};
    const double a64[] = {1, 2}, b64[] = {1, 2};
    const int64_t i[] = {7}, k[] = {8};
    const pare_infer_tensor first[] = {tensor_of("y", PARE_f32, 2, 2, a),
                                       tensor_of("z", PARE_f64, 1, 2, a64),
                                       tensor_of("i", PARE_s64, 1, 1, i)};
    const pare_infer_tensor other[] = {tensor_of("y", PARE_f32, 2, 2, b),
                                       tensor_of("z", PARE_f64, 1, 2, b64),
                                       tensor_of("i", PARE_s64, 1, 1, k)};
    pare_ctx ctx;
    pare_shadow_stats stats;
    (void)state;
    pare_ctx_init(&ctx);
    pare_shadow_stats_init(&stats);
    assert_int_equal(pare_shadow_stats_compare(&stats, &ctx, first, other, 3, 0, true), PARE_OK);
    assert_int_equal(stats.output_count, 3);
    assert_true(fabs(pare_error_sqnr(&stats.output[0].error) - 10 * log10(29 / 13.25)) < 1e-6);
    assert_int_equal(stats.output[0].same, 0);
    assert_int_equal(stats.output[1].same, 1);
    assert_true(isinf(pare_error_sqnr(&stats.output[1].error)));
    assert_int_equal(stats.output[2].same, 0);
    assert_int_equal(stats.output[2].error.count, pare_type(PARE_s64)->to_f32 ? 1 : 0);
    assert_int_equal(stats.samples, 2);
    assert_int_equal(stats.agreed, 1);
    pare_shadow_stats_free(&stats);
}

/* --- rules --- */

static void bad_rules_are_refused(void **state)
{
    static const struct {
        const char *rule[2], *words;
    } cases[] = {
        {{"a"}, "expected MODEL=OTHER"},     {{"=b"}, "expected MODEL=OTHER"},
        {{"a="}, "expected MODEL=OTHER"},    {{"a=b/0"}, "a version from 1"},
        {{"a=b/x"}, "a version from 1"},     {{"a=/1"}, "a version from 1"},
        {{"a=a"}, "does not shadow itself"}, {{"a=b", "a=c"}, "has a shadow already"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pare_ctx ctx;
        pare_shadows *shadows;
        const pare_shadows_options options = {.rule = cases[i].rule,
                                              .count = cases[i].rule[1] ? 2 : 1};
        pare_ctx_init(&ctx);
        assert_int_equal(pare_shadows_new(&ctx, &shadows, &options), PARE_USAGE);
        if (!strstr(ctx.message, cases[i].words)) fail_msg("%s", ctx.message);
    }
}

/* --- requests --- */

enum { REQUESTS = 40 };

/* A server of mlp, cnn and what the folder holds, where a rule says what shadows what. */
static pare_shadow *open_shadow(desk *d, const char *rule, int64_t queue, double share)
{
    static const char *paths[] = {"datasets/zoo/mlp.onnx", "datasets/zoo/cnn.onnx", NULL};
    const pare_shadows_options options = {
        .rule = &rule, .count = 1, .share = share, .queue = queue};
    paths[2] = d->folder;
    return desk_open_shadow(d, paths, 3, &options);
}

static ask *ask_images(desk *d, const char *model, uint32_t seed, int rows)
{
    char path[64];
    snprintf(path, sizeof path, "/v2/models/%s/infer", model);
    return desk_send_images(d, path, "", seed, rows);
}

static void both_models_are_compared(void **state)
{
    desk *d = *state;
    static float first[3 * CLASSES], other[3 * CLASSES];
    const pare_shadow_stats *stats = pare_shadow_stats_of(open_shadow(d, "mlp=cnn/1", 64, 1));
    pare_error_stats error = {0};
    int agreed = 0, samples = 0;
    for (int i = 0; i < REQUESTS; i++) {
        const int rows = i % 3 + 1;
        ask_take_logits(ask_images(d, "mlp", (uint32_t)i, rows), rows, first);
        ask_take_logits(ask_images(d, "cnn", (uint32_t)i, rows), rows, other);
        pare_error_add(&error, first, other, rows * CLASSES);
        for (int r = 0; r < rows; r++, samples++)
            agreed += pare_stats_argmax(first + r * CLASSES, CLASSES) ==
                      pare_stats_argmax(other + r * CLASSES, CLASSES);
    }
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->offered, REQUESTS);
    assert_int_equal(stats->compared, REQUESTS);
    assert_int_equal(stats->samples, samples);
    assert_int_equal(stats->agreed, agreed);
    assert_true(agreed < samples);
    assert_int_equal(stats->output_count, 1);
    assert_true(fabs(pare_error_sqnr(&stats->output[0].error) - pare_error_sqnr(&error)) < 1e-9);
    assert_int_equal(stats->compute[0].count, REQUESTS);
    assert_int_equal(stats->compute[1].count, REQUESTS);
    desk_gives(d, "GET", "/v2/models/mlp/shadow", "", 200, "\"compared\":40");
    desk_gives(d, "GET", "/v2/models/cnn/shadow", "", 404, "no model shadows 'cnn'");
    desk_gives(d, "GET", "/metrics", "", 200,
               "pare_shadow_requests_total{model=\"mlp\",shadow=\"cnn/1\",outcome=\"compared\"} "
               "40\n");
}

static void a_version_shadows_another(void **state)
{
    desk *d = *state;
    float logits[CLASSES];
    desk_put_model(d, "mlp", 1);
    desk_put_model(d, "mlp", 2);
    desk_put_config(d, "version_policy { all { } }");
    const pare_shadow_stats *stats = pare_shadow_stats_of(open_shadow(d, "net=net/1", 64, 0.25));
    for (int i = 0; i < REQUESTS; i++)
        ask_take_logits(ask_images(d, "net", (uint32_t)i, 1), 1, logits);
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->compared, REQUESTS / 4);
    assert_int_equal(stats->output[0].same, REQUESTS / 4);
    assert_int_equal(stats->agreed, REQUESTS / 4);
    desk_gives(d, "GET", "/v2/models/net/shadow", "", 200, "\"sqnr_db\":null");
}

/* The shadow waits a minute for others; the answers do not wait for it. */
static void what_has_no_room_is_dropped(void **state)
{
    desk *d = *state;
    float logits[CLASSES];
    desk_put_model(d, "mlp", 1);
    desk_put_config(
        d, "max_batch_size: 64 dynamic_batching { max_queue_delay_microseconds: 60000000 }");
    const pare_shadow_stats *stats = pare_shadow_stats_of(open_shadow(d, "mlp=net", 3, 1));
    for (int i = 0; i < 10; i++) ask_take_logits(ask_images(d, "mlp", (uint32_t)i, 1), 1, logits);
    desk_gives(d, "GET", "/v2/models/mlp/stats", "", 200, "\"success\":{\"count\":10,");
    desk_gives(d, "GET", "/v2/models/net/stats", "", 200, "\"success\":{\"count\":0,");
    assert_int_equal(pare_repository_hurry(d->api.repository, &d->ctx), PARE_OK);
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->offered, 10);
    assert_int_equal(stats->compared, 3);
    assert_int_equal(stats->dropped, 7);
    assert_int_equal(stats->output[0].same, 3);
}

static void a_shadow_that_fails_fails_no_answer(void **state)
{
    desk *d = *state;
    float logits[CLASSES];
    pare_shadow *shadow = open_shadow(d, "mlp=cnn", 64, 1);
    desk_gives(d, "POST", "/v2/repository/models/cnn/unload", "", 200, "");
    ask_take_logits(ask_images(d, "mlp", 1, 1), 1, logits);
    pare_shadows_drain(d->api.shadows);
    desk_gives(d, "GET", "/v2/models/mlp/shadow", "", 200, "model 'cnn' is not ready");
    assert_int_equal(pare_shadow_stats_of(shadow)->failed, 1);
    desk_gives(d, "POST", "/v2/repository/models/cnn/load", "", 200, "");
    ask_take_logits(ask_images(d, "mlp", 1, 1), 1, logits);
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(pare_shadow_stats_of(shadow)->compared, 1);
}

/* The copies count with what requests hold, and take half of what these may. */
static void copies_stay_within_what_may_be_held(void **state)
{
    enum { COPY = PIXELS * sizeof(float) + CLASSES * sizeof(float) };
    desk *d = *state;
    float logits[CLASSES];
    size_t held = 0;
    const pare_shadow_stats *stats = pare_shadow_stats_of(open_shadow(d, "mlp=cnn", 64, 1));
    for (int i = 0; i < 2; i++) {
        d->held = &held;
        d->most_held = i ? 4 * COPY : COPY;
        ask_take_logits(ask_images(d, "mlp", 1, 1), 1, logits);
        pare_shadows_drain(d->api.shadows);
        assert_int_equal(stats->compared, i);
        assert_int_equal(stats->dropped, 1);
        assert_int_equal(held, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_of_bins_are_near),
        cmocka_unit_test(a_p99_needs_requests_enough),
        cmocka_unit_test(shares_are_exact),
        cmocka_unit_test(errors_and_agreement_are_those_of_hand),
        cmocka_unit_test(bad_rules_are_refused),
        cmocka_unit_test_setup_teardown(both_models_are_compared, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(a_version_shadows_another, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(what_has_no_room_is_dropped, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(a_shadow_that_fails_fails_no_answer, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(copies_stay_within_what_may_be_held, desk_setup,
                                        desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
