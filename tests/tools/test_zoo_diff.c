/* SPDX-License-Identifier: Apache-2.0 */
/* What changed between two zoos: which changes are regressions, which are none, and their order. */
#include "tools/zoo/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A row of a summary. */
static json_t *row_json(const char *model)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:[f, f], s:f, s:[f, f], s:s, s:i, s:s, s:f, "
                     "s:[f, f]}",
                     "model", model, "variant", "int8", "class", "done", "message", "", "bytes",
                     1000, "drop", 0.5, "drop_interval", 0.2, 0.8, "sqnr_db", 30.0, "sqnr_interval",
                     29.5, 30.5, "data", "data/test.h5", "samples", 100, "device", "cpu",
                     "latency_ms", 1.0, "latency_interval", 0.9, 1.1);
}

static json_t *summary_json(json_t *tasks)
{
    return json_pack("{s:{s:f}, s:o}", "goals", "drop", 0.6, "tasks", tasks);
}

static json_t *one(json_t *row) { return summary_json(json_pack("[o]", row)); }

static size_t count(const json_t *diff, const char *key)
{
    return json_array_size(json_object_get(diff, key));
}

static const char *said(const json_t *diff, const char *list, size_t i, const char *key)
{
    const json_t *found = json_array_get(json_object_get(diff, list), i);
    const char *text = json_string_value(json_object_get(found, key));
    return text ? text : "";
}

/* The key of the row after has this value (stolen): what is found. NULL: nothing. */
static void change(const char *key, json_t *value, const char *list, const char *what,
                   const char *words)
{
    json_t *changed = row_json("a");
    json_object_set_new(changed, key, value);
    json_t *before = one(row_json("a")), *after = one(changed);
    json_t *diff = pare_zoo_compare(before, after);
    assert_int_equal(count(diff, "regressions") + count(diff, "improvements"), list ? 1 : 0);
    if (list) {
        assert_string_equal(said(diff, list, 0, "what"), what);
        assert_string_equal(said(diff, list, 0, "text"), words);
        assert_string_equal(said(diff, list, 0, "model"), "a");
    }
    assert_int_equal(json_integer_value(json_object_get(diff, "equal")), list ? 0 : 1);
    json_decref(diff);
    json_decref(after);
    json_decref(before);
}

static void changes_beyond_their_intervals(void **state)
{
    (void)state;
    change("drop", json_real(0.8), NULL, NULL, NULL);
    change("drop", json_real(0.9), "regressions", "drop",
           "+0.50 -> +0.90 points, outside [+0.20, +0.80]");
    change("drop", json_real(0.1), "improvements", "drop",
           "+0.50 -> +0.10 points, outside [+0.20, +0.80]");
    change("sqnr_db", json_real(29.6), NULL, NULL, NULL);
    change("sqnr_db", json_real(29.0), "regressions", "sqnr_db", "30.0 -> 29.0 dB");
    change("sqnr_db", json_real(31.0), "improvements", "sqnr_db", "30.0 -> 31.0 dB");
    change("sqnr_db", json_null(), "improvements", "sqnr_db", "30.0 -> inf dB");
    change("latency_interval", json_pack("[f, f]", 1.05, 1.2), NULL, NULL, NULL);
    change("latency_interval", json_pack("[f, f]", 1.2, 1.3), "regressions", "latency_ms",
           "1 -> 1 ms (+0 %), the intervals do not touch");
    change("latency_interval", json_pack("[f, f]", 0.5, 0.6), "improvements", "latency_ms",
           "1 -> 1 ms (+0 %), the intervals do not touch");
    change("bytes", json_integer(1001), "regressions", "bytes", "1000 -> 1001 bytes (+0.1 %)");
    change("bytes", json_integer(900), "improvements", "bytes", "1000 -> 900 bytes (-10.0 %)");
    change("class", json_string("crash"), "regressions", "class", "done -> crash: ");
}

static void goals_now_missed(void **state)
{
    (void)state;
    json_t *missed =
        json_pack("[{s:s, s:f, s:f, s:f}]", "goal", "drop", "wanted", 0.6, "got", 0.7, "by", 0.1);
    change("goals", missed, "regressions", "goal",
           "missed now: drop 0.7 points, at most 0.6 wanted (0.1 over)");
}

static void another_goal_is_no_regression(void **state)
{
    (void)state;
    json_t *changed = row_json("a");
    json_object_set_new(
        changed, "goals",
        json_pack("[{s:s, s:f, s:f, s:f}]", "goal", "drop", "wanted", 0.4, "got", 0.5, "by", 0.1));
    json_t *before = one(row_json("a")), *after = one(changed);
    json_object_set_new(after, "goals", json_pack("{s:f}", "drop", 0.4));
    json_t *diff = pare_zoo_compare(before, after);
    assert_int_equal(count(diff, "regressions"), 0);
    assert_int_equal(count(diff, "notes"), 1);
    json_decref(diff);
    json_decref(after);
    json_decref(before);
}

static void other_data_and_devices(void **state)
{
    (void)state;
    json_t *changed = row_json("a"), *before = one(row_json("a"));
    json_object_set_new(changed, "drop", json_real(5));
    json_object_set_new(changed, "sqnr_db", json_real(5));
    json_object_set_new(changed, "samples", json_integer(50));
    json_object_set_new(changed, "device", json_string("gpu"));
    json_object_set_new(changed, "latency_interval", json_pack("[f, f]", 2.0, 3.0));
    json_t *after = one(changed), *diff = pare_zoo_compare(before, after);
    assert_int_equal(count(diff, "regressions"), 0);
    assert_int_equal(count(diff, "notes"), 2);
    json_object_set_new(changed, "samples", json_integer(100));
    json_object_set_new(changed, "data", json_string("/elsewhere/test.h5")); /* the same, moved */
    json_decref(diff);
    diff = pare_zoo_compare(before, after);
    assert_int_equal(count(diff, "regressions"), 2);
    json_decref(diff);
    json_decref(after);
    json_decref(before);
}

static json_t *failing(const char *model)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "model", model, "variant", "int8", "class", "time",
                     "message", "took more than 9 s");
}

static void the_order_of_findings(void **state)
{
    (void)state;
    json_t *larger = row_json("a"), *lossy = row_json("b");
    json_object_set_new(larger, "bytes", json_integer(2000));
    json_object_set_new(lossy, "drop", json_real(2));
    json_t *before =
        summary_json(json_pack("[o, o, o, o, o, o]", row_json("a"), row_json("b"), row_json("c"),
                               failing("d"), row_json("gone"), failing("e")));
    json_t *after = summary_json(json_pack("[o, o, o, o, o, o]", larger, lossy, failing("c"),
                                           row_json("d"), row_json("new"), failing("e")));
    json_t *diff = pare_zoo_compare(before, after);
    assert_int_equal(count(diff, "regressions"), 3);
    assert_string_equal(said(diff, "regressions", 0, "model"), "c");
    assert_string_equal(said(diff, "regressions", 0, "text"), "done -> time: took more than 9 s");
    assert_string_equal(said(diff, "regressions", 1, "model"), "b");
    assert_string_equal(said(diff, "regressions", 2, "model"), "a");
    assert_int_equal(count(diff, "improvements"), 1);
    assert_string_equal(said(diff, "improvements", 0, "text"), "time -> done");
    assert_string_equal(said(diff, "only_before", 0, "model"), "gone");
    assert_string_equal(said(diff, "only_after", 0, "model"), "new");
    assert_int_equal(json_integer_value(json_object_get(diff, "equal")), 1);
    assert_int_equal(json_integer_value(json_object_get(diff, "failing")), 1);

    pare_ctx ctx;
    pare_arena arena;
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    pare_zoo_diff_print(&arena, diff, "one/", "two/", file);
    fclose(file);
    assert_string_equal(text, "3 regressions:\n"
                              "c.int8  class  done -> time: took more than 9 s\n"
                              "b.int8  drop   +0.50 -> +2.00 points, outside [+0.20, +0.80]\n"
                              "a.int8  bytes  1000 -> 2000 bytes (+100.0 %)\n"
                              "\n"
                              "1 improvement:\n"
                              "d.int8  class  time -> done\n"
                              "\n"
                              "only in one/: gone.int8\n"
                              "only in two/: new.int8\n"
                              "1 task is equal (1 of them fail in both)\n");
    free(text);
    pare_arena_free(&arena);
    json_decref(diff);
    json_decref(after);
    json_decref(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_beyond_their_intervals), cmocka_unit_test(goals_now_missed),
        cmocka_unit_test(another_goal_is_no_regression),  cmocka_unit_test(other_data_and_devices),
        cmocka_unit_test(the_order_of_findings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
