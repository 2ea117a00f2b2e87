/* SPDX-License-Identifier: Apache-2.0 */
/* The table that grows: what a row says, and what is kept when several write, a disk is full, a
   writer died. */
#include "tools/results.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];
static pare_ctx ctx;

static int begin(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    snprintf(path, sizeof path, "/tmp/pare-results-%ld.csv", (long)getpid());
    unlink(path);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static char *content(void)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void put(const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static json_t *facts_of(const char *model)
{
    json_t *facts =
        json_pack("{s:s, s:s, s:{s:s, s:i}, s:{s:s, s:s, s:s}, s:[{s:s, s:s, s:f}, {s:s, s:s, s:f, "
                  "s:[f, f], s:b}]}",
                  "command", "validate", "version", "9", "data", "file", "test.h5", "samples", 7,
                  "device", "name", "cpu", "processor", "A CPU", "isa", "AVX2", "models", "file",
                  "a.onnx", "hash", "aa", "top1", 50.0, "file", model, "hash", "bb", "top1", 49.5,
                  "top1_interval", 40.25, 60.0, "stable", 0);
    assert_non_null(facts);
    return facts;
}

static void add(const char *model)
{
    json_t *facts = facts_of(model);
    assert_int_equal(pare_results_append(&ctx, path, facts), PARE_OK);
    json_decref(facts);
}

/* Line k's field, commas in quotes not minded. */
static const char *field(const char *text, int line, int column)
{
    static char out[128];
    while (line--) text = strchr(text, '\n') + 1;
    while (column--) text += strcspn(text, ",") + 1;
    snprintf(out, sizeof out, "%.*s", (int)strcspn(text, ",\n"), text);
    return out;
}

static int column_of(const char *text, const char *name)
{
    for (int c = 0; c < 64; c++)
        if (!strcmp(field(text, 0, c), name)) return c;
    fail_msg("no column %s", name);
    return -1;
}

static void a_row_says_what_was_measured(void **state)
{
    (void)state;
    add("b.onnx");
    const char *text = content();
    assert_string_equal(field(text, 0, 0), "pare_results_1");
    assert_string_equal(field(text, 2, 0), "validate");
    assert_string_equal(field(text, 2, column_of(text, "model")), "b.onnx");
    assert_string_equal(field(text, 2, column_of(text, "reference")), "aa");
    assert_string_equal(field(text, 1, column_of(text, "reference")), "");
    assert_string_equal(field(text, 2, column_of(text, "top1")), "49.5");
    assert_string_equal(field(text, 2, column_of(text, "top1_low")), "40.25");
    assert_string_equal(field(text, 2, column_of(text, "latency_ms")), "");
    assert_string_equal(field(text, 2, column_of(text, "stable")), "false");
    assert_string_equal(field(text, 2, column_of(text, "samples")), "7");
    assert_string_equal(field(text, 2, column_of(text, "device")), "A CPU (AVX2)");
    add("c.onnx"); /* no second header */
    text = content();
    assert_string_equal(field(text, 4, column_of(text, "model")), "c.onnx");
}

static void odd_names_stay_one_field(void **state)
{
    (void)state;
    add("a \"b\",\nc");
    assert_non_null(strstr(content(), ",\"a \"\"b\"\",\\nc\","));
}

static void another_header_is_refused(void **state)
{
    (void)state;
    json_t *facts = facts_of("b");
    put("net,top1\nresnet,93\n");
    assert_int_equal(pare_results_check(&ctx, path), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "line 1"));
    assert_int_equal(pare_results_append(&ctx, path, facts), PARE_INPUT);
    assert_string_equal(content(), "net,top1\nresnet,93\n");
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_results_append(&ctx, "/dev/null", facts), PARE_INPUT);
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_results_append(&ctx, "/nowhere/x.csv", facts), PARE_IO);
    assert_int_equal(pare_results_check(&ctx, "/nowhere/x.csv"), PARE_OK);
    json_decref(facts);
}

static void an_unfinished_line_is_cut_off(void **state)
{
    (void)state;
    add("b.onnx");
    put("validate,9,2026");
    add("c.onnx");
    assert_null(strstr(content(), "2026validate"));
    assert_null(strstr(content(), "\nvalidate,9,2026\n"));
    assert_string_equal(field(content(), 4, 3), "c.onnx");
}

/* A limit on the file's size stops a write in its middle. */
static void a_full_disk_leaves_the_file_as_it_was(void **state)
{
    (void)state;
    struct rlimit was, low;
    static char before[1 << 20];
    add("b.onnx");
    strcpy(before, content());
    json_t *facts = facts_of("c.onnx");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    low = was;
    low.rlim_cur = strlen(before) + 20;
    setrlimit(RLIMIT_FSIZE, &low);
    const pare_status st = pare_results_append(&ctx, path, facts);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(st, PARE_IO);
    assert_string_equal(content(), before);
    json_decref(facts);
}

static void eight_writers_lose_and_tear_nothing(void **state)
{
    (void)state;
    enum { WRITERS = 8, EACH = 100 };
    int seen[WRITERS][EACH] = {{0}};
    for (int w = 0; w < WRITERS; w++)
        if (!fork()) {
            for (int i = 0; i < EACH; i++) {
                char name[64];
                snprintf(name, sizeof name, "w%d-%d.onnx", w, i);
                json_t *facts = facts_of(name);
                if (pare_results_append(&ctx, path, facts) != PARE_OK) _exit(1);
                json_decref(facts);
            }
            _exit(0);
        }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        wait(&status);
        assert_int_equal(status, 0);
    }
    char *text = content(), *line = strtok(text, "\n");
    int commas = 0, rows = 0;
    for (char *c = line; *c; c++) commas += *c == ',';
    for (; (line = strtok(NULL, "\n")); rows++) {
        int own = 0, w, i;
        for (char *c = line; *c; c++) own += *c == ',';
        assert_int_equal(own, commas);
        assert_int_equal(strncmp(line, "validate,9,", 11), 0);
        if (rows % 2 == 0) continue; /* a.onnx: a writer's two rows are together */
        const char *name = strstr(line, ",w");
        assert_non_null(name);
        assert_int_equal(sscanf(name, ",w%d-%d.onnx,bb,", &w, &i), 2);
        seen[w][i]++;
    }
    assert_int_equal(rows, 2 * WRITERS * EACH);
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < EACH; i++) assert_int_equal(seen[w][i], 1);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    json_t *facts = facts_of("b");
    ctx.fail_after = 0;
    assert_int_equal(pare_results_append(&ctx, path, facts), PARE_MEMORY);
    assert_int_equal(access(path, F_OK), -1);
    json_decref(facts);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_row_says_what_was_measured),
        CASE(odd_names_stay_one_field),
        CASE(another_header_is_refused),
        CASE(an_unfinished_line_is_cut_off),
        CASE(a_full_disk_leaves_the_file_as_it_was),
        CASE(eight_writers_lose_and_tear_nothing),
        CASE(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
