/* SPDX-License-Identifier: Apache-2.0 */
/* What people read: progress lines, durations, tables, sizes, escaped text, numbers from facts. */
#include "tools/progress.h"
#include "tools/report/report.h"
#include "tools/table.h"
#include "tools/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void progress_tells_rate_and_time_left(void **state)
{
    (void)state;
    char text[160];
    pare_progress p = {.label = "calibrate", .unit = "samples", .start = 100};
    pare_progress_line(&p, 102, 128, 512, false, text, sizeof text);
    assert_string_equal(text, "calibrate 128/512 samples, 25 %, 64/s, 6s left");
    pare_progress_line(&p, 102, 128, 512, true, text, sizeof text);
    assert_string_equal(
        text, "calibrate [######..................] 128/512 samples, 25 %, 64/s, 6s left");
    pare_progress_line(&p, 104, 10, 0, false, text, sizeof text);
    assert_string_equal(text, "calibrate 10 samples, 2.5/s");
    pare_progress_line(&p, 100, 0, 512, false, text, sizeof text);
    assert_string_equal(text, "calibrate 0/512 samples, 0 %, 0.0/s, ? left");
    p.from = 108; /* were there at the start */
    pare_progress_line(&p, 102, 128, 512, false, text, sizeof text);
    assert_string_equal(text, "calibrate 128/512 samples, 25 %, 10/s, 38s left");
    p.from = 127;
    pare_progress_line(&p, 140, 128, 512, false, text, sizeof text);
    assert_string_equal(text, "calibrate 128/512 samples, 25 %, 40s each, 4h16m left");
}

/* Other words come between two bars, and none after the end. */
static void a_bar_makes_room(void **state)
{
    (void)state;
    char text[600] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    pare_progress p = {
        .file = file, .terminal = true, .label = "zoo", .unit = "tasks", .start = pare_seconds()};
    pare_progress_step(&p, 1, 4);
    pare_progress_clear(&p);
    pare_progress_clear(&p);
    fprintf(file, "a warning\n");
    p.shown = 0; /* some time later */
    pare_progress_step(&p, 2, 4);
    pare_progress_end(&p);
    p.shown = 0;
    pare_progress_step(&p, 3, 4);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    const char *warning = strstr(text, " \ra warning\n\rzoo ");
    assert_non_null(strstr(text, "1/4 tasks"));
    assert_non_null(warning);
    assert_non_null(strstr(warning, "2/4 tasks"));
    assert_null(strstr(text, "3/4 tasks"));
}

static void durations_and_sizes_are_short(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(pare_duration_text(12.4, text, sizeof text), "12s");
    assert_string_equal(pare_duration_text(185, text, sizeof text), "3m05s");
    assert_string_equal(pare_duration_text(3725, text, sizeof text), "1h02m");
    assert_string_equal(pare_bytes_text(999, text, sizeof text), "999 B");
    assert_string_equal(pare_bytes_text(1234567, text, sizeof text), "1.2 MB");
    assert_string_equal(pare_bytes_text(999600, text, sizeof text), "1.0 MB");
    assert_string_equal(pare_bytes_text(234567890, text, sizeof text), "235 MB");
    assert_string_equal(pare_count_text(421642, text, sizeof text), "422 k");
}

static void tables_line_up(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_arena arena;
    pare_table table;
    char *text;
    size_t size;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    pare_table_init(&table, &arena, "lrl");
    pare_table_add(&table, "name|size|note");
    pare_table_add(&table, "%s|%d|%s", "mlp", 12345, "x");
    pare_table_add(&table, "a-long-name||");
    FILE *file = open_memstream(&text, &size);
    pare_table_print(&table, file);
    fclose(file);
    assert_string_equal(text, "name          size  note\n"
                              "mlp          12345  x\n"
                              "a-long-name         \n");
    free(text);
    pare_arena_free(&arena);
}

static void markup_in_names_is_text(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    pare_text text = {.ctx = &ctx};
    pare_text_add(&text, "%d ", 7);
    pare_text_html(&text, "%s", "<b a=\"x\">&'");
    assert_string_equal(text.data, "7 &lt;b a=&quot;x&quot;&gt;&amp;&#39;");
    pare_free(text.data);
}

static void facts_are_found_by_path(void **state)
{
    (void)state;
    char stem[32];
    json_t *json = json_loads("{\"a\": {\"b\": [1, {\"c\": 2.5}]}, \"d\": null}", 0, NULL);
    assert_true(pare_report_number(json, "a.b.0", -1) == 1);
    assert_true(pare_report_number(json, "a.b.1.c", -1) == 2.5);
    assert_true(pare_report_number(json, "a.b.7.c", -1) == -1);
    assert_true(isnan(pare_report_number(json, "d", NAN)));
    assert_string_equal(pare_report_stem("a/b.d/resnet.int8.onnx", stem, sizeof stem), "resnet");
    assert_string_equal(pare_report_stem("n-0.50.int8.onnx", stem, sizeof stem), "n-0.50");
    assert_string_equal(pare_report_stem("v1.2.3.onnx", stem, sizeof stem), "v1.2.3");
    assert_string_equal(pare_report_stem("net1.int8.onnx", stem, sizeof stem), "net1");
    assert_string_equal(pare_report_stem(".5", stem, sizeof stem), "");
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_tells_rate_and_time_left),
        cmocka_unit_test(a_bar_makes_room),
        cmocka_unit_test(durations_and_sizes_are_short),
        cmocka_unit_test(tables_line_up),
        cmocka_unit_test(markup_in_names_is_text),
        cmocka_unit_test(facts_are_found_by_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
