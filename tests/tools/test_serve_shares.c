/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic that is shared between versions: exact in number, the same for an id, and as the server
   does it. */
#include "tests/tools/serve_desk.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static pare_shares shares_of(const char *text)
{
    pare_ctx ctx;
    pare_shares shares;
    pare_ctx_init(&ctx);
    if (pare_shares_read(&ctx, &shares, "here", text) != PARE_OK) fail_msg("%s", ctx.message);
    return shares;
}

static void weights_are_read(void **state)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"", "no version has a weight"},
        {"1:0", "no version has a weight"},
        {"1", "expected VERSION:WEIGHT"},
        {"0:1", "expected VERSION:WEIGHT"},
        {"1:-1", "expected VERSION:WEIGHT"},
        {"1:1000001", "expected VERSION:WEIGHT"},
        {"1:2x", "expected VERSION:WEIGHT"},
        {"1: 2", "expected VERSION:WEIGHT"},
        {"x:1", "expected VERSION:WEIGHT"},
        {"1:1 1:2", "version 1 has two weights"},
        {"9223372036854775808:1", "expected VERSION:WEIGHT"},
    };
    char text[PARE_SHARES_TEXT], many[1024] = "";
    (void)state;
    const pare_shares s = shares_of(" 3:90, 12:10  4:0,");
    assert_string_equal(pare_shares_text(&s, text), "3:90 12:10 4:0");
    assert_int_equal(s.sum, 100);
    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        pare_ctx ctx;
        pare_shares shares;
        pare_ctx_init(&ctx);
        for (int k = 1; k <= 65 && i == 11; k++) snprintf(many + strlen(many), 16, "%d:1 ", k);
        assert_int_equal(pare_shares_read(&ctx, &shares, "here", i < 11 ? wrong[i].text : many),
                         PARE_INPUT);
        if (!strstr(ctx.message, i < 11 ? wrong[i].words : "at most 64 versions"))
            fail_msg("%zu: %s", i, ctx.message);
    }
}

/* After every number of requests each version has its part to within less than one. */
static void turns_are_exact(void **state)
{
    static const char *const texts[] = {"1:1",
                                        "1:9 2:1",
                                        "1:1 2:1 3:1",
                                        "1:50 2:0 3:30 4:20",
                                        "1:7 2:11 3:13 4:1 5:1 6:1 7:200",
                                        "1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:993",
                                        "1:999999 2:1000000",
                                        "5:1000000 6:1 7:3"};
    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        pare_shares s = shares_of(texts[k]);
        int64_t given[10] = {0};
        for (int n = 1; n <= 20000; n++) {
            given[pare_shares_next(&s)]++;
            for (int i = 0; i < s.count; i++) {
                const double due = (double)s.share[i].weight * n / (double)s.sum;
                if (fabs((double)given[s.share[i].version] - due) >= 1)
                    fail_msg("%s: version %lld has %lld of %d", texts[k],
                             (long long)s.share[i].version, (long long)given[s.share[i].version],
                             n);
            }
        }
    }
}

static void ids_stay_where_they_are(void **state)
{
    enum { IDS = 20000 };
    const pare_shares all = shares_of("1:60 2:30 3:10"), less = shares_of("1:60 3:10"),
                      more = shares_of("1:60 2:30 3:10 4:25"), none = shares_of("1:60 2:0 3:10");
    int count[5] = {0};
    (void)state;
    for (int i = 0; i < IDS; i++) {
        char id[32];
        snprintf(id, sizeof id, "user-%d", i);
        const int64_t first = pare_shares_of(&all, id);
        count[first]++;
        assert_int_equal(pare_shares_of(&all, id), first);
        if (first != 2) assert_int_equal(pare_shares_of(&less, id), first);
        assert_int_equal(pare_shares_of(&none, id), pare_shares_of(&less, id));
        const int64_t then = pare_shares_of(&more, id);
        if (then != 4) assert_int_equal(then, first);
    }
    /* Within five standard deviations of a binomial. */
    assert_true(fabs(count[1] - 0.6 * IDS) < 5 * sqrt(IDS * 0.6 * 0.4));
    assert_true(fabs(count[2] - 0.3 * IDS) < 5 * sqrt(IDS * 0.3 * 0.7));
    assert_true(fabs(count[3] - 0.1 * IDS) < 5 * sqrt(IDS * 0.1 * 0.9));
}

/* --- as the server does it --- */

/* Requests so far, by version. */
static void has_answered(desk *d, int version, int count)
{
    char path[64], words[64];
    snprintf(path, sizeof path, "/v2/models/net/versions/%d/stats", version);
    snprintf(words, sizeof words, "\"success\":{\"count\":%d,", count);
    desk_gives(d, "GET", path, "", 200, words);
}

static void asks(desk *d, const char *path, const char *words, int n)
{
    float logits[CLASSES];
    for (int i = 0; i < n; i++)
        ask_take_logits(desk_send_images(d, path, words, (uint32_t)i, 1), 1, logits);
}

static void versions_share_requests(void **state)
{
    static const char path[] = "/v2/models/net/infer";
    desk *d = *state;
    const pare_serve_config config = desk_config(8, 0, 1);
    desk_put_model(d, "mlp", 1);
    desk_put_model(d, "mlp", 2);
    desk_put_model(d, "cnn", 5);
    desk_put_config(d,
                    "parameters { key: \"traffic_weight\" value { string_value: \"1:9 2:1\" } }");
    desk_open(d, d->path, 1, &config);
    desk_gives(d, "GET", "/v2/models/net", "", 200, "\"versions\":[\"1\",\"2\"]");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"traffic_weight\":{\"string_value\":\"1:9 2:1\"}");
    asks(d, path, "", 30);
    has_answered(d, 1, 27);
    has_answered(d, 2, 3);
    asks(d, "/v2/models/net/versions/2/infer", "", 4); /* is no part of the shares */
    has_answered(d, 2, 7);
    asks(d, path, "\"id\": \"a user\", ", 12);
    pare_shares shares = shares_of("1:9 2:1");
    const int64_t of = pare_shares_of(&shares, "a user");
    has_answered(d, 1, 27 + (of == 1 ? 12 : 0));
    has_answered(d, 2, 7 + (of == 2 ? 12 : 0));
    asks(d, path, "\"id\": \"\", ", 10); /* is no id, so these take turns */
    has_answered(d, 1, 27 + (of == 1 ? 12 : 0) + 9);
    has_answered(d, 2, 7 + (of == 2 ? 12 : 0) + 1);
    desk_gives(d, "POST", path, "x", 400, "the request's JSON");
    /* Another version comes, one goes. */
    desk_put_config(d, "version_policy { all { } } parameters { key: \"traffic_weight\" value { "
                       "string_value: \"2:1 5:1\" } }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net", "", 200, "\"versions\":[\"1\",\"2\",\"5\"]");
    asks(d, path, "", 10);
    has_answered(d, 1, 0);
    has_answered(d, 2, 5);
    has_answered(d, 5, 5);
    desk_put_config(d,
                    "parameters { key: \"traffic_weight\" value { string_value: \"1:1 3:1\" } }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "version 3 has a weight and is not served");
    desk_put_config(d, "parameters { key: \"traffic_weight\" value { string_value: \"3\" } }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "config.pbtxt: traffic_weight: '3': expected VERSION:WEIGHT");
    asks(d, path, "", 2); /* they go on */
    has_answered(d, 5, 6);
    desk_gives(d, "POST", "/v2/repository/models/net/unload", "", 200, "");
    desk_gives(d, "POST", path, "{\"inputs\": []}", 404, "model 'net' is not ready");
}

static void the_command_line_goes_before(void **state)
{
    static const char *const traffic[] = {"mlp=1:1", "net=1:1,2:3"};
    desk *d = *state;
    pare_repository_options options = {.path = d->path,
                                       .count = 1,
                                       .config = desk_config(8, 0, 1),
                                       .traffic = traffic + 1,
                                       .traffic_count = 1};
    desk_put_model(d, "mlp", 1);
    desk_put_model(d, "mlp", 2);
    desk_put_config(d,
                    "parameters { key: \"traffic_weight\" value { string_value: \"1:9 2:1\" } }");
    desk_open_with(d, &options);
    asks(d, "/v2/models/net/infer", "", 8);
    has_answered(d, 1, 2);
    has_answered(d, 2, 6);
    pare_repository_close(d->api.repository);
    d->api.repository = NULL;
    options.traffic = traffic;
    options.traffic_count = 2;
    pare_repository *none;
    assert_int_equal(pare_repository_open(&d->ctx, &none, &options), PARE_INPUT);
    assert_non_null(strstr(d->ctx.message, "--traffic mlp=1:1: there is no such model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_read),
        cmocka_unit_test(turns_are_exact),
        cmocka_unit_test(ids_stay_where_they_are),
        cmocka_unit_test_setup_teardown(versions_share_requests, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(the_command_line_goes_before, desk_setup, desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
