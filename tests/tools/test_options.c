/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/commands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct toy_options {
    pare_common common;
    const char *out;
    int64_t n;
    double x;
    int kind;
    pare_list many;
    bool flag;
} toy_options;

static const pare_option toy_table[] = {
    {"output", 'o', PARE_OPTION_FILE, "F", offsetof(toy_options, out), 0, 0, "file"},
    {"samples", 0, PARE_OPTION_INT, "N", offsetof(toy_options, n), 0, 100, "samples"},
    {"ratio", 0, PARE_OPTION_REAL, "X", offsetof(toy_options, x), 0, 1, "ratio"},
    {"kind", 0, PARE_OPTION_CHOICE, "int8|fp16|bf16", offsetof(toy_options, kind), 0, 0, "kind"},
    {"many", 0, PARE_OPTION_LIST, "T", offsetof(toy_options, many), 0, 0, "list"},
    {"flag", 'f', PARE_OPTION_FLAG, NULL, offsetof(toy_options, flag), 0, 0, "flag"},
    {0},
};
static const toy_options toy_defaults = {.n = 7};
static const pare_command toy = {.name = "toy",
                                 .arguments = "A [B]",
                                 .min = 1,
                                 .max = 2,
                                 .summary = "s",
                                 .example = "pare toy",
                                 .options = toy_table,
                                 .size = sizeof(toy_options),
                                 .defaults = &toy_defaults};

typedef struct fixture {
    pare_ctx ctx;
    pare_arena arena;
    toy_options options;
    pare_list arguments;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pare_ctx_init(&f->ctx);
    pare_arena_init(&f->arena, &f->ctx);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    pare_arena_free(&f->arena);
    free(f);
    return 0;
}

/* Parses a line split at spaces. */
static pare_status parse(fixture *f, const char *line)
{
    char *words[32], *copy = pare_arena_strdup(&f->arena, line);
    int n = 0;
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) words[n++] = w;
    pare_ctx_clear(&f->ctx);
    return pare_options_parse(&f->arena, &toy, &f->options, &f->arguments, words, n);
}

static void every_kind_is_read(void **state)
{
    fixture *f = *state;
    assert_int_equal(
        parse(f, "a --samples 12 -o x.onnx --ratio=0.25 --kind fp16 --many p --many -q b -f "
                 "--threads 3"),
        PARE_OK);
    assert_int_equal(f->options.n, 12);
    assert_string_equal(f->options.out, "x.onnx");
    assert_true(f->options.x == 0.25);
    assert_int_equal(f->options.kind, 1);
    assert_int_equal(f->options.many.count, 2);
    assert_string_equal(f->options.many.item[1], "-q"); /* a value is what is after it */
    assert_true(f->options.flag);
    assert_int_equal(f->options.common.threads, 3);
    assert_int_equal(f->arguments.count, 2);
    assert_string_equal(f->arguments.item[1], "b");
}

static void defaults_hold_and_dashes_end_options(void **state)
{
    fixture *f = *state;
    assert_int_equal(parse(f, "-- -o --flag"), PARE_OK);
    assert_int_equal(f->options.n, 7);
    assert_null(f->options.out);
    assert_string_equal(f->arguments.item[0], "-o");
    assert_string_equal(f->arguments.item[1], "--flag");
}

static void expect_usage(fixture *f, const char *line, const char *message)
{
    assert_int_equal(parse(f, line), PARE_USAGE);
    assert_string_equal(f->ctx.message, message);
}

static void mistakes_are_named(void **state)
{
    fixture *f = *state;
    expect_usage(f, "a --sampels 3",
                 "toy: no option '--sampels', did you mean --samples; "
                 "'pare toy --help' lists them");
    expect_usage(f, "a --zzzzzz", "toy: no option '--zzzzzz'; 'pare toy --help' lists them");
    expect_usage(f, "a --samples 101", "toy: --samples 101: expected a whole number from 0 to 100");
    expect_usage(f, "a --samples 3x", "toy: --samples 3x: expected a whole number from 0 to 100");
    expect_usage(f, "a --ratio nan", "toy: --ratio nan: expected a number from 0 to 1");
    expect_usage(f, "a --kind int4", "toy: --kind int4: expected one of int8|fp16|bf16");
    expect_usage(f, "a --kind int", "toy: --kind int: expected one of int8|fp16|bf16");
    expect_usage(f, "a -o", "toy: --output needs a value: --output F");
    expect_usage(f, "a -o --flag", "toy: --output needs a value: --output F");
    expect_usage(f, "a --flag=1", "toy: --flag takes no value");
    expect_usage(f, "a b c", "toy: 'c' is one argument too many; usage: pare toy A [B]");
    expect_usage(f, "-f", "toy: an argument is missing; usage: pare toy A [B]");
    assert_int_equal(parse(f, "--help"), PARE_OK);
}

static void commands_are_found(void **state)
{
    fixture *f = *state;
    const pare_command *command;
    int used;
    char *bench[] = {"bench", "m.onnx"}, *import[] = {"data", "import"}, *wrong[] = {"qantize"};
    assert_int_equal(pare_command_find(&f->ctx, &command, bench, 2, &used), PARE_OK);
    assert_int_equal(used, 1);
    assert_int_equal(pare_command_find(&f->ctx, &command, import, 2, &used), PARE_OK);
    assert_int_equal(used, 2);
    assert_string_equal(command->name, "data import");
    assert_int_equal(pare_command_find(&f->ctx, &command, wrong, 1, &used), PARE_USAGE);
    assert_non_null(strstr(f->ctx.message, "did you mean 'quantize'"));
}

/* Every row of every command is in its help and in the completion, and fits its options. A row that
   is in place of a common one takes the same, so that no reader of the line is led astray. */
static void tables_are_whole(void **state)
{
    (void)state;
    char *text = NULL, *script = NULL;
    size_t size;
    FILE *file = open_memstream(&script, &size);
    pare_completion_bash(file);
    fclose(file);
    for (const pare_command *const *c = pare_commands; *c; c++) {
        file = open_memstream(&text, &size);
        pare_help_print(file, *c);
        fclose(file);
        assert_non_null(strstr(text, (*c)->example));
        for (const pare_option *o = (*c)->options; o && o->name; o++) {
            char name[64];
            snprintf(name, sizeof name, "--%s", o->name);
            assert_non_null(strstr(text, name));
            assert_non_null(strstr(script, name));
            assert_true(
                (o->offset >= sizeof(pare_common) || o->offset == offsetof(pare_common, gpus)) &&
                o->offset < (*c)->size);
            for (const pare_option *k = pare_common_options; k->name; k++)
                assert_true(strcmp(k->name, o->name) != 0 || k->kind == o->kind);
        }
        free(text);
    }
    free(script);
}

/* Memory for a list grows with its length, not with the square of it. */
static void a_long_list_keeps_its_order(void **state)
{
    fixture *f = *state;
    enum { COUNT = 5000 };
    static char *words[1 + COUNT];
    static char text[COUNT][24];
    words[0] = "a";
    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "--many=%d", i);
        words[1 + i] = text[i];
    }
    assert_int_equal(
        pare_options_parse(&f->arena, &toy, &f->options, &f->arguments, words, 1 + COUNT), PARE_OK);
    assert_int_equal(f->options.many.count, COUNT);
    for (int i = 0; i < COUNT; i++) assert_string_equal(f->options.many.item[i], text[i] + 7);
    assert_true(f->arena.bytes < (size_t)COUNT * 100);
}

static void sizes_read_back(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } plain[] = {{0, "0kB"},          {1000, "1kB"},       {1024, "1KiB"},
                 {400000, "400kB"},   {1500000, "1.5MB"},  {256 << 20, "256MiB"},
                 {5LL << 40, "5TiB"}, {2000000000, "2GB"}, {1234567, "1234.567kB"}};
    char text[32];
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_string_equal(pare_bytes_exact(plain[i].bytes, text, sizeof text), plain[i].text);
    uint64_t random = 1;
    for (int i = 0; i < 1000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t bytes = (int64_t)(random >> (11 + i % 40));
        assert_true((int64_t)pare_bytes_parse(pare_bytes_exact(bytes, text, sizeof text)) == bytes);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_kind_is_read), TEST(defaults_hold_and_dashes_end_options),
        TEST(mistakes_are_named), TEST(commands_are_found),
        TEST(tables_are_whole),   TEST(a_long_list_keeps_its_order),
        TEST(sizes_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
