/* SPDX-License-Identifier: Apache-2.0 */
/* Names from files in messages, tables and every other writer: hand-made cases. */
#include "formats/json.h"
#include "runtime/base/text.h"
#include "tools/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static const char *escaped(const char *bytes)
{
    static char text[128];
    const size_t n = pare_text_escape(text, sizeof text, bytes, strlen(bytes));
    assert_int_equal(n, strlen(text));
    return text;
}

static void bytes_become_printable(void **state)
{
    (void)state;
    assert_string_equal(escaped("layer1/conv \xc3\xa9 \xe5\xb1\x82"),
                        "layer1/conv \xc3\xa9 \xe5\xb1\x82");
    assert_string_equal(escaped("a\x1b[31m\n\t\r\x7f"), "a\\x1B[31m\\n\\t\\r\\x7F");
    assert_string_equal(escaped("\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80"),
                        "\\xFF\\xC0\\xAF\\xED\\xA0\\x80\\xF4\\x90\\x80\\x80");
    assert_string_equal(escaped("\xc2\x9b\xe2\x80\xae"), "\\xC2\\x9B\\xE2\\x80\\xAE");
    assert_string_equal(escaped("\xe2\x82"), "\\xE2\\x82");
    assert_string_equal(escaped("C:\\x1B\\n"), "C:\\x1B\\n");
}

static void what_does_not_fit_ends_whole(void **state)
{
    (void)state;
    char text[5];
    assert_int_equal(pare_text_escape(text, sizeof text, "ab\xe2\x82\xac", 5), 5);
    assert_string_equal(text, "ab");
    assert_int_equal(pare_text_escape(text, sizeof text, "a\x1b", 2), 5);
    assert_string_equal(text, "a");
    assert_int_equal(pare_text_escape(NULL, 0, "a\x1b", 2), 5);
}

static size_t format(char *out, size_t size, const char *form, ...)
{
    va_list args;
    va_start(args, form);
    const size_t n = pare_text_format(out, size, '|', form, args);
    va_end(args);
    return n;
}

static void formats_are_those_of_printf(void **state)
{
    (void)state;
    char text[200], wanted[200];
    const char *form = "%5d %-5d| %+.2f %zu %lld %.3s %-6s %6s %c %% %x %.*f %*d %016llx %g\n";
    format(text, sizeof text, form, 42, -7, 1.5, (size_t)9, -5LL, "abcdef", "ab", "cd", 'z', 255u,
           2, 3.14159, 4, 8, 0xfeedULL, 1e-9);
    snprintf(wanted, sizeof wanted,
             "%5d %-5d%c %+.2f %zu %lld %.3s %-6s %6s %c %% %x %.*f %*d %016llx %g\n", 42, -7, 0,
             1.5, (size_t)9, -5LL, "abcdef", "ab", "cd", 'z', 255u, 2, 3.14159, 4, 8, 0xfeedULL,
             1e-9);
    assert_memory_equal(text, wanted, strlen(wanted));
    assert_string_equal(text + strlen(text) + 1, wanted + strlen(wanted) + 1);
}

static void messages_escape_arguments_only(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    assert_int_equal(PARE_FAIL(&ctx, INPUT, "two\nlines: '%s'", "a\nb\x1b"), PARE_INPUT);
    assert_string_equal(ctx.message, "two\nlines: 'a\\nb\\x1B'");
    (void)pare_fail_prefix(&ctx, PARE_INPUT, "%s", "f\x9b.onnx");
    assert_string_equal(ctx.message, "f\\x9B.onnx: two\nlines: 'a\\nb\\x1B'");
}

static void each_writer_escapes_its_own(void **state)
{
    static const struct {
        void (*add)(pare_text *, const char *);
        const char *plain, *wanted;
    } cases[] = {
        {pare_text_add_csv, "=1+1", "'=1+1"},  {pare_text_add_csv, "@a,\"b\"", "\"'@a,\"\"b\"\"\""},
        {pare_text_add_csv, "\t=1", "\\t=1"},  {pare_text_add_csv, "-1.5", "-1.5"},
        {pare_text_add_csv, "+2e-3", "+2e-3"}, {pare_text_add_csv, "-x.onnx", "'-x.onnx"},
        {pare_text_add_csv, "-inf", "'-inf"},
    };
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pare_text text = {.ctx = &ctx};
        cases[i].add(&text, cases[i].plain);
        assert_string_equal(text.data, cases[i].wanted);
        pare_free(text.data);
    }
    json_t *json = pare_json_text("n\xff\x01");
    assert_string_equal(json_string_value(json), "n\\xFF\\x01");
    json_decref(json);
}

static void arguments_are_escaped_for_their_medium(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    static const struct {
        pare_medium medium;
        const char *plain, *wanted;
    } cases[] = {
        {PARE_PLAIN, "<a>|\x1b", "<b>   7% [<a>|\\x1B]  1.50"},
        {PARE_HTML, "<b a=\"'&\x1b", "<b>   7% [&lt;b a=&quot;&#39;&amp;\\x1B]  1.50"},
        {PARE_MARKDOWN, "a|b`<i>\n", "<b>   7% [a\\|b\\`\\<i\\>\\\\n]  1.50"},
        {PARE_HTML, "\x01\x01", "<b>   7% [\\x01\\x01]  1.50"},
        {PARE_HTML, "", "<b>   7% []  1.50"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pare_text text = {.ctx = &ctx};
        pare_text_put(&text, cases[i].medium, "<b>%*d%% [%s]%6.2f", 4, 7, cases[i].plain, 1.5);
        assert_string_equal(text.data, cases[i].wanted);
        pare_free(text.data);
    }
}

/* One list of columns in every medium. */
static void columns_are_shown_in_every_medium(void **state)
{
    static const pare_column columns[] = {
        PARE_COLUMN("net", "network", "name", pare_cell_words),
        PARE_COLUMN("drop", "drop", "drop", pare_cell_signed),
        PARE_COLUMN("speed-up", "speed-up", "speed", pare_cell_times),
        PARE_COLUMN("size", "size", "bytes", pare_cell_bytes),
        PARE_COLUMN("dB", NULL, "db", pare_cell_fixed, 1),
        PARE_COLUMN(NULL, "SQNR", "db", pare_cell_fixed, 1, " dB"),
        PARE_COLUMN("hidden", "hidden", "name", pare_cell_words, .when = 2),
        {0},
    };
    static const pare_column fields[] = {
        PARE_CSV_VALUE("net", "name"),
        PARE_CSV_ENDS("db", "ends"),
        PARE_CSV_VALUE("none", "none"),
        {0},
    };
    (void)state;
    pare_ctx ctx;
    pare_arena arena;
    pare_grid grid;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    pare_text text = {.ctx = &ctx}, csv = text, down = text;
    json_t *row = json_pack("{s:s, s:f, s:f, s:i, s:f, s:[f, i]}", "name", "a|<b>", "drop", -0.25,
                            "speed", 2.0, "bytes", 1500, "db", 31.25, "ends", 0.5, 2);
    json_t *rows = json_pack("[o]", row);
    pare_grid_html_all(&text, columns, 1, "sort", "All", rows);
    assert_string_equal(
        text.data,
        "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"All\"><table "
        "class=\"sort\"><thead><tr><th scope=\"col\">network</th><th scope=\"col\">drop</th><th "
        "scope=\"col\">speed-up</th><th scope=\"col\">size</th><th scope=\"col\">SQNR</th></tr>"
        "</thead><tbody>\n<tr><td>a|&lt;b&gt;</td><td>&minus;0.25</td><td>2.00&times;</td>"
        "<td data-v=\"1500\">1.5 kB</td><td>31.2 dB</td></tr>\n</tbody></table></div>\n");
    pare_grid_table(&grid, &arena, columns, 1);
    pare_grid_row(&grid, row, NULL, NULL);
    assert_string_equal(grid.table.align, "lrrrr");
    pare_table_markdown(&grid.table, &down);
    assert_string_equal(down.data,
                        "\n| net | drop | speed-up | size | dB |\n|---|--:|--:|--:|--:|\n"
                        "| a\\|\\<b\\> | -0.25 | 2.00x | 1.5 kB | 31.2 |\n");
    pare_grid_csv(&grid, &csv, fields);
    pare_grid_row(&grid, row, NULL, NULL);
    assert_string_equal(csv.data, "net,db_low,db_high,none\na|<b>,0.5,2,\n");
    json_decref(rows);
    pare_free(text.data);
    pare_free(csv.data);
    pare_free(down.data);
    pare_arena_free(&arena);
}

static void a_bar_in_a_name_is_no_new_cell(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_arena arena;
    pare_table table;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    pare_table_init(&table, &arena, "ll");
    pare_table_add(&table, "%s|%s", "a|b\n", "c");
    assert_string_equal(table.row[0][0], "a|b\\n");
    assert_string_equal(table.row[0][1], "c");
    pare_arena_free(&arena);
}

#define CASE(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_become_printable),
        CASE(what_does_not_fit_ends_whole),
        CASE(formats_are_those_of_printf),
        CASE(messages_escape_arguments_only),
        CASE(each_writer_escapes_its_own),
        CASE(a_bar_in_a_name_is_no_new_cell),
        CASE(arguments_are_escaped_for_their_medium),
        CASE(columns_are_shown_in_every_medium),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
