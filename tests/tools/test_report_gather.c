/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of many commands as comparisons: one for all that was compared with one model on one data
   set, each model found by hash or file. */
#include "tools/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* validate's facts of two models; hash "": none is said. */
static json_t *validate(const char *first, const char *first_hash, const char *file,
                        const char *hash, double top1)
{
    json_t *facts =
        json_pack("{s:i, s:s, s:s, s:{s:s, s:i}, s:{s:s}, s:[{s:s, s:s, s:f}, {s:s, s:s, s:f}]}",
                  "schema", 1, "command", "validate", "version", "1", "data", "file", "t.h5",
                  "samples", 9, "device", "name", "cpu", "models", "file", first, "hash",
                  first_hash, "top1", 91.0, "file", file, "hash", hash, "top1", top1);
    assert_non_null(facts);
    return facts;
}

static const char *file_of(const json_t *comparisons, size_t i, size_t k)
{
    const json_t *models = json_object_get(json_array_get(comparisons, i), "models");
    const char *file = json_string_value(json_object_get(json_array_get(models, k), "file"));
    return file ? file : "";
}

static void one_comparison_of_many_facts(void **state)
{
    (void)state;
    json_t *facts = json_array(), *all = json_array();
    json_array_append_new(facts, validate("a.onnx", "aa", "a.int8.onnx", "a1", 90));
    json_array_append_new(facts, validate("b.onnx", "bb", "b.int8.onnx", "b1", 80));
    json_array_append_new(facts, validate("a.onnx", "aa", "a.fp16.onnx", "a2", 89));
    json_array_append_new(facts, validate("a.onnx", "aa", "a.same.onnx", "a2", 89));
    json_t *got = pare_report_gather(facts);
    assert_int_equal(json_array_size(got), 2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(got, 0), "models")), 4);
    assert_string_equal(file_of(got, 0, 0), "a.onnx");
    assert_string_equal(file_of(got, 0, 1), "a.int8.onnx");
    assert_string_equal(file_of(got, 0, 2), "a.fp16.onnx");
    assert_string_equal(file_of(got, 0, 3), "a.same.onnx");
    assert_string_equal(file_of(got, 1, 1), "b.int8.onnx");

    /* equal to one validate over all */
    json_t *whole = validate("a.onnx", "aa", "a.int8.onnx", "a1", 90);
    for (int k = 2; k < 4; k++) {
        const json_t *other = json_array_get(facts, (size_t)k);
        json_array_append(json_object_get(whole, "models"),
                          json_array_get(json_object_get(other, "models"), 1));
    }
    json_array_append_new(all, whole);
    json_t *expected = pare_report_gather(all);
    assert_true(json_equal(json_array_get(got, 0), json_array_get(expected, 0)));
    json_decref(expected);
    json_decref(all);
    json_decref(got);
    json_decref(facts);
}

static void facts_given_twice_count_once(void **state)
{
    (void)state;
    json_t *facts = json_array(), *one = validate("a.onnx", "aa", "b.onnx", "bb", 90);
    json_array_append(facts, one);
    json_array_append_new(facts, one);
    json_t *got = pare_report_gather(facts);
    assert_int_equal(json_array_size(got), 1);
    assert_int_equal(json_array_size(json_object_get(json_array_get(got, 0), "models")), 2);
    assert_null(json_object_get(json_array_get(json_object_get(one, "models"), 0), "made"));
    json_decref(got);
    json_decref(facts);
}

/* How many comparisons two facts make, of which the second has another value at a key. */
static size_t count_with(const char *part, const char *key, json_t *value)
{
    json_t *facts = json_array(), *other = validate("a.onnx", "aa", "c.onnx", "cc", 90);
    json_t *at = part ? json_object_get(other, part) : other;
    if (json_is_array(at)) at = json_array_get(at, 0);
    json_object_set_new(at, key, value);
    json_array_append_new(facts, validate("a.onnx", "aa", "b.onnx", "bb", 90));
    json_array_append_new(facts, other);
    json_t *got = pare_report_gather(facts);
    const size_t n = json_array_size(got);
    json_decref(got);
    json_decref(facts);
    return n;
}

static void other_circumstances_stand_apart(void **state)
{
    (void)state;
    assert_int_equal(count_with("data", "file", json_string("t.h5")), 1);
    assert_int_equal(count_with("data", "seconds", json_real(3)), 1);
    assert_int_equal(count_with("data", "file", json_string("u.h5")), 2);
    assert_int_equal(count_with("data", "samples", json_integer(8)), 2);
    assert_int_equal(count_with("data", "range", json_string("0:9")), 2);
    assert_int_equal(count_with("device", "name", json_string("gpu")), 2);
    assert_int_equal(count_with("models", "hash", json_string("ab")), 2);
    assert_int_equal(count_with("models", "file", json_string("copy.onnx")), 2);
    assert_int_equal(count_with(NULL, "version", json_string("2")), 2);
    assert_int_equal(count_with(NULL, "command", json_string("prune")), 1); /* no comparison */
}

/* Of two facts in which the first model takes 1 ms and this many. */
static bool drifts(double ms)
{
    json_t *facts = json_array();
    for (int i = 0; i < 2; i++) {
        json_t *one = validate("a.onnx", "aa", i ? "c.onnx" : "b.onnx", i ? "cc" : "bb", 90);
        json_object_set_new(json_array_get(json_object_get(one, "models"), 0), "latency_ms",
                            json_pack("{s:f}", "median", i ? ms : 1.0));
        json_array_append_new(facts, one);
    }
    json_t *got = pare_report_gather(facts);
    const bool drifted = pare_report_drifted(got);
    json_decref(got);
    json_decref(facts);
    return drifted;
}

static void drift_is_said(void **state)
{
    (void)state;
    assert_false(drifts(1));
    assert_false(drifts(1.04));
    assert_true(drifts(1.06));
    assert_true(drifts(0.9));
}

/* A meter's readings of one run do not stand for several. */
static void readings_are_of_one_run(void **state)
{
    (void)state;
    json_t *facts = json_array();
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "m%d.onnx", i);
        json_t *one = validate("a.onnx", "aa", name, name, 90);
        json_object_set_new(one, "device",
                            json_pack("{s:s, s:s, s:{s:i}}", "name", "GPU", "cuda", "13.0",
                                      "vitals", "readings", i));
        json_array_append_new(facts, one);
    }
    json_t *got = pare_report_gather(facts);
    assert_int_equal(json_array_size(got), 1);
    const json_t *device = json_object_get(json_array_get(got, 0), "device");
    assert_true(json_is_null(json_object_get(device, "vitals")));
    device = json_object_get(json_array_get(facts, 0), "device");
    assert_true(json_is_object(json_object_get(device, "vitals"))); /* the facts are as they were */
    json_decref(got);
    json_decref(facts);
}

/* Clocks of two runs stand for neither; another processor is another comparison. */
static void processors_are_apart(void **state)
{
    (void)state;
    static const char *const names[] = {"A", "A", "B"};
    json_t *facts = json_array();
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "m%d.onnx", i);
        json_t *one = validate("a.onnx", "aa", name, name, 90);
        json_object_set_new(one, "device",
                            json_pack("{s:s, s:s, s:i, s:s, s:f}", "name", "cpu", "processor",
                                      names[i], "cores", 2, "isa", "AVX2", "mhz", 2000.0 + i));
        json_array_append_new(facts, one);
    }
    json_t *got = pare_report_gather(facts);
    assert_int_equal(json_array_size(got), 2);
    const json_t *device = json_object_get(json_array_get(got, 0), "device");
    assert_true(json_is_null(json_object_get(device, "mhz")));
    assert_null(json_object_get(device, "vitals"));
    device = json_object_get(json_array_get(got, 1), "device");
    assert_true(json_real_value(json_object_get(device, "mhz")) == 2002);
    json_decref(got);
    json_decref(facts);
}

/* By hash, else by file; a model without a hash gets that of who speaks of its file. */
static void models_are_found(void **state)
{
    (void)state;
    json_t *facts =
        json_pack("[{s:s, s:{s:s, s:s}, s:i}, {s:s, s:{s:s, s:s}, s:i}]", "command", "bench",
                  "model", "file", "else/b.onnx", "hash", "bb", "peak_memory_bytes", 7, "command",
                  "bench", "model", "file", "n.onnx", "hash", "ee", "peak_memory_bytes", 8);
    json_t *bare = validate("a.onnx", "aa", "n.onnx", "", 90);
    json_object_del(json_array_get(json_object_get(bare, "models"), 1), "hash");
    json_array_append_new(facts, validate("a.onnx", "aa", "b.onnx", "bb", 90));
    json_array_append_new(facts, bare);
    json_array_append_new(facts, json_pack("{s:s, s:{s:s, s:s}, s:i}", "command", "bench", "model",
                                           "file", "n.onnx", "hash", "ff", "runs", 9));
    json_t *got = pare_report_gather(facts), *models, *b, *n;
    assert_int_equal(json_array_size(got), 2); /* the last is of another model */
    models = json_object_get(json_array_get(got, 0), "models");
    assert_int_equal(json_array_size(models), 3);
    b = json_array_get(models, 1), n = json_array_get(models, 2);
    assert_int_equal(json_integer_value(json_object_get(b, "peak_memory_bytes")), 7);
    assert_int_equal(json_integer_value(json_object_get(n, "peak_memory_bytes")), 8);
    assert_string_equal(json_string_value(json_object_get(n, "hash")), "ee");
    assert_null(json_object_get(n, "runs"));
    json_decref(got);
    json_decref(facts);
}

/* Many facts: what was quadratic would take minutes. */
static void thousands(void **state)
{
    (void)state;
    enum { MODELS = 2000, VARIANTS = 3 };
    json_t *facts = json_array();
    for (int v = 0; v < VARIANTS; v++)
        for (int m = 0; m < MODELS; m++) {
            char first[32], file[48];
            snprintf(first, sizeof first, "net-%d.onnx", m);
            snprintf(file, sizeof file, "net-%d.%d.onnx", m, v);
            json_array_append_new(facts, validate(first, first, file, file, 90));
        }
    json_t *got = pare_report_gather(facts);
    assert_int_equal(json_array_size(got), MODELS);
    for (size_t m = 0; m < MODELS; m++)
        assert_int_equal(json_array_size(json_object_get(json_array_get(got, m), "models")),
                         1 + VARIANTS);
    assert_string_equal(file_of(got, 7, 2), "net-7.1.onnx");
    json_decref(got);
    json_decref(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_comparison_of_many_facts),
        cmocka_unit_test(facts_given_twice_count_once),
        cmocka_unit_test(other_circumstances_stand_apart),
        cmocka_unit_test(drift_is_said),
        cmocka_unit_test(readings_are_of_one_run),
        cmocka_unit_test(processors_are_apart),
        cmocka_unit_test(models_are_found),
        cmocka_unit_test(thousands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
