/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.json: round trips, merging, and files that are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/ranges.h"
#include "formats/json.h"
#include "tests/calib/tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pare_ctx ctx;
static tables files;

static const char *const names[3] = {"a/1", "b \"quoted\" \xc3\xa9", "c"};
static const char *const model = "0123456789abcdef0123456789abcdef";

/* Values of samples first .. last: both signs, zeros, a NaN in tensor c. */
static pare_ranges *make(int first, int last)
{
    pare_ranges *r = NULL;
    assert_int_equal(pare_ranges_new(&ctx, &r, names, 3), PARE_OK);
    memcpy(r->model, model, 33);
    for (int i = first; i < last; i++) {
        float x[40];
        for (int k = 0; k < 40; k++)
            x[k] = sinf((float)(i * 40 + k)) * ldexpf(1, (i * 7 + k) % 30 - 15);
        assert_int_equal(pare_histogram_add(&ctx, r->stats[0].histogram, PARE_f32, x, 40), PARE_OK);
        for (int k = 0; k < 40; k++) x[k] = k % 2 ? fabsf(x[k]) : 0;
        assert_int_equal(pare_histogram_add(&ctx, r->stats[1].histogram, PARE_f32, x, 40), PARE_OK);
        x[3] = i == 5 ? NAN : 1.5f;
        assert_int_equal(pare_histogram_add(&ctx, r->stats[2].histogram, PARE_f32, x + 3, 1),
                         PARE_OK);
        r->data = pare_hash_sum(r->data, pare_hash_bytes(&i, sizeof i));
    }
    r->samples = last - first;
    return r;
}

static void test_round_trip(void **state)
{
    (void)state;
    pare_ranges *r = make(0, 20), *back = NULL;
    assert_int_equal(pare_ranges_write(&ctx, r, files.a), PARE_OK);
    if (pare_ranges_read(&ctx, &back, files.a) != PARE_OK) fail_msg("%s", ctx.message);
    assert_int_equal(pare_ranges_count(back), 3);
    assert_int_equal(pare_ranges_samples(back), 20);
    assert_string_equal(pare_ranges_model_hash(back), model);
    assert_memory_equal(&r->data, &back->data, sizeof r->data);
    for (int i = 0; i < 3; i++) {
        const pare_histogram *x = r->stats[i].histogram;
        const pare_stats *found = pare_ranges_find(back, names[i]);
        assert_non_null(found);
        const pare_histogram *y = found->histogram;
        assert_int_equal(x->count, y->count);
        assert_int_equal(x->zero, y->zero);
        assert_int_equal(x->nan, y->nan);
        assert_true(x->min == y->min && x->max == y->max && x->top == y->top &&
                    x->first == y->first);
        for (int s = 0; s < 2; s++) {
            const uint64_t *p = pare_histogram_bins(x, s), *q = pare_histogram_bins(y, s);
            assert_int_equal(p == NULL, q == NULL);
            if (p) assert_memory_equal(p - 1, q - 1, (PARE_HISTOGRAM_BINS + 1) * sizeof *p);
        }
    }
    assert_null(pare_ranges_find(back, "d"));
    assert_int_equal(pare_ranges_write(&ctx, back, files.b), PARE_OK);
    tables_assert_same(&files, &ctx);
    pare_ranges_free(back);
    pare_ranges_free(r);
}

/* As bytes and back: with channels, with a tensor no one saw, and as minmax_only without bins. */
static void test_packed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        pare_ranges *r = make(0, kind ? 0 : 20), *back = NULL;
        void *data, *again;
        size_t bytes, bytes_again;
        const float x[3] = {-2, 0, INFINITY};
        r->samples = 20;
        if (kind) {
            r->minmax_only = true;
            assert_int_equal(pare_histogram_add_minmax(&ctx, r->stats[1].histogram, PARE_f32, x, 3),
                             PARE_OK);
        } else {
            assert_int_equal(pare_channels_open(&ctx, r->stats[0].channels, 2), PARE_OK);
            r->stats[0].channels->each = 400;
            r->stats[0].channels->sum[1] = -((pare_wide)1 << 100);
            r->stats[0].channels->largest[1] = 3.5f;
        }
        assert_int_equal(pare_ranges_pack(&ctx, r, &data, &bytes), PARE_OK);
        assert_int_equal(pare_ranges_unpack(&ctx, &back, data, bytes), PARE_OK);
        assert_int_equal(back->minmax_only, kind);
        assert_int_equal(pare_ranges_samples(back), 20);
        assert_true(back->stats[1].histogram->inf == r->stats[1].histogram->inf);
        assert_true(back->stats[1].histogram->min == r->stats[1].histogram->min);
        assert_int_equal(pare_ranges_pack(&ctx, back, &again, &bytes_again), PARE_OK);
        assert_int_equal(bytes, bytes_again);
        assert_memory_equal(data, again, bytes);
        if (!kind) {
            assert_true(back->stats[0].channels->sum[1] == -((pare_wide)1 << 100));
            assert_true(back->stats[0].channels->largest[1] == 3.5f);
            back->stats[0].channels->count = r->stats[0].channels->count = 0;
            assert_int_equal(pare_ranges_write(&ctx, r, files.a), PARE_OK);
            assert_int_equal(pare_ranges_write(&ctx, back, files.b), PARE_OK);
            tables_assert_same(&files, &ctx);
        }
        pare_free(data);
        pare_free(again);
        pare_ranges_free(back);
        pare_ranges_free(r);
    }
}

/* No length and no byte of another value crashes; what is cut is refused. */
static void test_packed_and_damaged(void **state)
{
    (void)state;
    pare_ranges *r = make(0, 2), *back = NULL;
    void *data;
    size_t bytes;
    assert_int_equal(pare_ranges_pack(&ctx, r, &data, &bytes), PARE_OK);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *cut = malloc(n ? n : 1); /* so that a sanitizer sees the end */
        memcpy(cut, data, n);
        pare_ctx_clear(&ctx);
        assert_int_equal(pare_ranges_unpack(&ctx, &back, cut, n), PARE_INPUT);
        free(cut);
    }
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *at = (uint8_t *)data + n, was = *at;
        for (int k = 0; k < 3; k++) {
            *at = k == 0 ? 0xff : k == 1 ? 0 : was ^ 1;
            pare_ctx_clear(&ctx);
            if (pare_ranges_unpack(&ctx, &back, data, bytes) == PARE_OK) pare_ranges_free(back);
        }
        *at = was;
    }
    pare_ctx_clear(&ctx);
    for (long n = 0;; n++) {
        ctx.fail_after = n;
        const pare_status st = pare_ranges_unpack(&ctx, &back, data, bytes);
        ctx.fail_after = -1;
        pare_ctx_clear(&ctx);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
    }
    pare_ranges_free(back);
    pare_free(data);
    pare_ranges_free(r);
}

static void test_what_the_file_says(void **state)
{
    (void)state;
    pare_ranges *r = make(0, 20);
    json_t *root = NULL;
    assert_int_equal(pare_ranges_write(&ctx, r, files.a), PARE_OK);
    assert_int_equal(pare_json_read(&ctx, &root, files.a), PARE_OK);
    const json_t *c = json_array_get(json_object_get(root, "tensors"), 2);
    assert_int_equal(json_integer_value(json_object_get(c, "count")), 20);
    assert_int_equal(json_integer_value(json_object_get(c, "nan")), 1);
    assert_true(json_real_value(json_object_get(c, "max")) == 1.5);
    const json_t *u8 = json_object_get(c, "u8"), *range = json_object_get(u8, "minmax");
    assert_true(json_real_value(json_array_get(range, 0)) == 0);
    assert_true(json_real_value(json_array_get(range, 1)) == 1.5);
    const char *methods[] = {"percentile:99.99", "entropy", "mse", "auto"};
    for (int i = 0; i < 4; i++) assert_non_null(json_object_get(u8, methods[i]));
    json_decref(root);
    pare_ranges_free(r);
}

static void test_merged_halves_equal_the_whole(void **state)
{
    (void)state;
    for (int cut = 1; cut < 20; cut += 6) {
        pare_ranges *whole = make(0, 20), *a = make(0, cut), *b = make(cut, 20);
        assert_int_equal(pare_ranges_merge(&ctx, b, a), PARE_OK);
        assert_int_equal(pare_ranges_write(&ctx, whole, files.a), PARE_OK);
        assert_int_equal(pare_ranges_write(&ctx, b, files.b), PARE_OK);
        tables_assert_same(&files, &ctx);
        pare_ranges_free(whole);
        pare_ranges_free(a);
        pare_ranges_free(b);
    }
}

static void test_merging_refusals(void **state)
{
    (void)state;
    pare_ranges *a = make(0, 3), *b = make(3, 6), *few = NULL;
    b->model[0] = 'f';
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_ranges_merge(&ctx, a, b), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "made for model f123"));
    memcpy(b->model, model, 33);
    b->stats[1].histogram->count = INT64_MAX;
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_ranges_merge(&ctx, a, b), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "overflows"));
    assert_int_equal(pare_ranges_new(&ctx, &few, names + 1, 2), PARE_OK);
    memcpy(few->model, model, 33);
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_ranges_merge(&ctx, a, few), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "has 2 tensors"));
    assert_int_equal(a->samples, 3);
    pare_ranges_free(a);
    pare_ranges_free(b);
    pare_ranges_free(few);
}

static void test_bins_text(void **state)
{
    (void)state;
    uint64_t store[PARE_HISTOGRAM_BINS + 1] = {0}, *bins = store + 1;
    bins[0] = 1, bins[1] = 0xabc, bins[5] = 16, bins[PARE_HISTOGRAM_BINS - 1] = 2;
    char *text = pare_bins_print(&ctx, bins);
    assert_string_equal(text, "1 abc -3 10 -2ff9 2");
    uint64_t back[PARE_HISTOGRAM_BINS] = {0};
    assert_true(pare_bins_parse(text, back));
    assert_memory_equal(back, bins, sizeof back);
    pare_free(text);
    const char *bad[] = {"x",
                         "1 ",
                         "1  2",
                         " 1",
                         "-",
                         "0",
                         "-0",
                         "-1",
                         "1 -5",
                         "-3000 1",
                         "11112222333344445",
                         "8000000000000000",
                         "1,2",
                         "A"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(back, 0, sizeof back);
        assert_false(pare_bins_parse(bad[i], back));
    }
    assert_true(pare_bins_parse("", back));
}

/* --- files that are --- */

static const char *const good = "{\"format\": \"pare ranges\", \"version\": 1, \"model\": "
                                "\"0123456789abcdef0123456789abcdef\","
                                " \"data\": \"0123456789abcdef0123456789abcdef\", \"samples\": 2, "
                                "\"tensors\": [{\"name\": \"x\","
                                " \"count\": 6, \"zero\": 1, \"nan\": 0, \"inf\": 0, \"min\": "
                                "-1.0, \"max\": 1.5, \"top\": 127,"
                                " \"positive\": {\"below\": 1, \"bins\": \"-2c00 2 -1ff 1\"},"
                                " \"negative\": {\"below\": 0, \"bins\": \"-2c00 1\"}}]}";

static pare_status parse(const char *text)
{
    pare_ranges *r = NULL;
    pare_ctx_clear(&ctx);
    pare_status st = pare_ranges_parse(&ctx, &r, text, strlen(text), "r.json");
    pare_ranges_free(r);
    return st;
}

/* The good text with one part replaced is refused with these words. */
static void refused(const char *part, const char *by, const char *words)
{
    char text[2048];
    const char *at = strstr(good, part);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, by, at + strlen(part));
    assert_int_equal(parse(text), PARE_INPUT);
    if (!strstr(ctx.message, words)) print_error("%s -> %s: %s\n", part, by, ctx.message);
    assert_non_null(strstr(ctx.message, words));
    assert_non_null(strstr(ctx.message, "r.json"));
}

static void test_lies(void **state)
{
    (void)state;
    if (parse(good) != PARE_OK) fail_msg("%s", ctx.message);
    refused("pare ranges", "something", "is not a table of ranges");
    refused("\"version\": 1", "\"version\": 2", "version");
    refused("\"samples\"", "\"batch\": 1, \"samples\"", "unknown key 'batch'");
    refused("\"zero\": 1", "\"zero\": 1, \"mean\": 0", "unknown key 'mean'");
    refused("\"samples\": 2", "\"samples\": -2", "'samples' is not a count");
    refused("\"samples\": 2", "\"samples\": 99999999999999999999", "not valid JSON");
    refused("0123456789abcdef0123456789abcdef", "0123", "hash of model or data");
    refused("\"count\": 6", "\"count\": 7", "do not add up");
    refused("\"count\": 6", "\"count\": 6.5", "'count' is not a count");
    refused("\"zero\": 1", "\"zero\": 9223372036854775807", "do not add up");
    refused("\"nan\": 0", "\"nan\": true", "'nan' is not a count");
    refused("\"max\": 1.5", "\"max\": 1.25", "min and max");
    refused("\"max\": 1.5", "\"max\": 2.5", "min and max");
    refused("\"max\": 1.5", "\"max\": 1e300", "not a float");
    refused("\"min\": -1.0", "\"min\": 1.0", "min and max");
    refused("\"top\": 127", "\"top\": 128", "min and max");
    refused("\"top\": 127", "\"top\": 255", "top octave is wrong");
    refused("\"top\": 127", "\"top\": -1", "no top octave");
    refused("-2c00 2 -1ff 1", "-2c00 2 -1ff 1 -1fff 1", "bins are damaged");
    refused("-2c00 2 -1ff 1", "-2c00 2 -1ff 7fffffffffffffff", "do not add up");
    refused("\"bins\": \"-2c00 1\"", "\"bins\": 3", "bins are damaged");
    refused("\"bins\": \"-2c00 1\"", "\"bins\": \"\"", "do not add up");
    refused("\"name\": \"x\"", "\"name\": 4", "no name");
    refused("[{", "[{\"name\": \"x\"}, {", "in it twice");
    refused("[{", "[7, {", "no name");
    refused("\"tensors\": [", "\"tensors\": {}, \"tensors\": [",
            "not valid JSON"); /* a key twice */
}

static void test_cut_file(void **state)
{
    (void)state;
    size_t size = strlen(good);
    char *text = malloc(size + 1);
    for (size_t cut = 0; cut < size; cut++) {
        memcpy(text, good, cut);
        text[cut] = 0;
        assert_int_equal(parse(text), PARE_INPUT);
        assert_true(ctx.message[0] != 0);
    }
    free(text);
}

static void test_failed_allocations(void **state)
{
    (void)state;
    bool done = false;
    for (long n = 0; !done && n < 100; n++) {
        ctx.fail_after = n;
        done = parse(good) == PARE_OK;
        if (!done) assert_non_null(strstr(ctx.message, "out of memory"));
    }
    ctx.fail_after = -1;
    assert_true(done);
}

static int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    tables_open(&files);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return tables_close(&files);
}

static pare_status parse_cache(pare_ranges **out, const char *text)
{
    return pare_ranges_parse(&ctx, out, text, strlen(text), "calib.cache");
}

/* 3c010204: 1 / 127. A name may hold ": ", lines may end as on Windows, and the last one not. */
static void test_tensorrt_cache(void **state)
{
    (void)state;
    pare_ranges *r = NULL;
    assert_int_equal(parse_cache(&r, "TRT-8205-EntropyCalibration2\nx: 3c010204\r\n"
                                     "(Unnamed Layer* 2) [a: b]: 00000000\n\ny: 3F800000"),
                     PARE_OK);
    assert_int_equal(pare_ranges_count(r), 3);
    const pare_range_rule rule = {.method = PARE_METHOD_MINMAX, .symmetric = true};
    pare_range range[3];
    assert_int_equal(pare_ranges_choose(&ctx, r, &rule, 1, range), PARE_OK);
    assert_true(fabsf(range[0].high - 1) < 1e-6f && range[0].low == -range[0].high);
    assert_string_equal(pare_ranges_at(r, 1)->name, "(Unnamed Layer* 2) [a: b]");
    assert_true(range[1].high == 0 && range[2].high == 127);
    pare_ranges_free(r);
}

static void test_tensorrt_refusals(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {{"TRT-8205-EntropyCalibration2\nx: 3c010a1", "line 2"},
                 {"TRT-8205-EntropyCalibration2\n\nx=3c010204\n", "line 3"},
                 {"TRT-8205-EntropyCalibration2\nx: 3c010a1g\n", "line 2"},
                 {"TRT-8205-EntropyCalibration2\nx: 7fc00000\n", "tensor 'x' has the scale"},
                 {"TRT-8205-EntropyCalibration2\nx: bc010a14\n", "tensor 'x' has the scale"},
                 {"TRT-8205-EntropyCalibration2\nx: 7f000000\n", "tensor 'x' has the scale"},
                 {"TRT-8205-EntropyCalibration2", "holds no tensor"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pare_ranges *r = NULL;
        assert_int_equal(parse_cache(&r, cases[i].text), PARE_INPUT);
        if (!strstr(ctx.message, cases[i].words) || strncmp(ctx.message, "calib.cache: ", 13))
            fail_msg("%s", ctx.message);
        pare_ctx_clear(&ctx);
    }
    for (long after = 0;; after++) {
        pare_ranges *r = NULL;
        ctx.fail_after = after;
        const pare_status st =
            parse_cache(&r, "TRT-8205-EntropyCalibration2\nx: 3c010204\ny: 3c010204\n");
        ctx.fail_after = -1;
        pare_ctx_clear(&ctx);
        if (st == PARE_OK) {
            pare_ranges_free(r);
            break;
        }
        assert_int_equal(st, PARE_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_packed_and_damaged),
        cmocka_unit_test(test_what_the_file_says),
        cmocka_unit_test(test_merged_halves_equal_the_whole),
        cmocka_unit_test(test_merging_refusals),
        cmocka_unit_test(test_bins_text),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_cut_file),
        cmocka_unit_test(test_failed_allocations),
        cmocka_unit_test(test_tensorrt_cache),
        cmocka_unit_test(test_tensorrt_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
