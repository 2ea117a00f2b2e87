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
        {pare_text_add_escaped, "<b a=\"'&\x1b", "&lt;b a=&quot;&#39;&amp;\\x1B"},
        {pare_text_add_markdown, "a|b`<i>\n", "a\\|b\\`\\<i\\>\\\\n"},
        {pare_text_add_csv, "=1+1", "'=1+1"},
        {pare_text_add_csv, "@a,\"b\"", "\"'@a,\"\"b\"\"\""},
        {pare_text_add_csv, "\t=1", "\\t=1"},
        {pare_text_add_csv, "-1.5", "-1.5"},
        {pare_text_add_csv, "+2e-3", "+2e-3"},
        {pare_text_add_csv, "-x.onnx", "'-x.onnx"},
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
        CASE(bytes_become_printable),      CASE(what_does_not_fit_ends_whole),
        CASE(formats_are_those_of_printf), CASE(messages_escape_arguments_only),
        CASE(each_writer_escapes_its_own), CASE(a_bar_in_a_name_is_no_new_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
