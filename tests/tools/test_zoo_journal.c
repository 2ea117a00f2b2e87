/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a zoo: what was written is read again, whoever was killed in the middle of a line
   and however many write. */
#include "tests/warnings.h"
#include "tools/zoo/journal.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct seen {
    int lines, done;
    char last_key[33], last_message[200], last_hash[33];
    int per_writer[8];
} seen;

static void take(void *user, const pare_journal_line *line)
{
    seen *s = user;
    s->lines++;
    s->done += line->outcome == PARE_OUTCOME_DONE;
    snprintf(s->last_key, sizeof s->last_key, "%s", line->key);
    snprintf(s->last_message, sizeof s->last_message, "%s", line->message);
    snprintf(s->last_hash, sizeof s->last_hash, "%s", line->model_hash);
    if (line->peak_bytes >= 0 && line->peak_bytes < 8) s->per_writer[line->peak_bytes]++;
}

static char folder[] = "/tmp/pare_journal_XXXXXX", journal_folder[64];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(journal_folder, sizeof journal_folder, "%s/j", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    const int status = system(command);
    memcpy(strrchr(folder, '_') + 1, "XXXXXX", 6);
    return status;
}

static const pare_journal_line a_line = {.key = "0123456789abcdef0123456789abcdef",
                                         .verb = "quantize",
                                         .message = "",
                                         .finished = 1.5,
                                         .model_hash = "ffffffffffffffffffffffffffffffff",
                                         .facts_hash = "",
                                         .command = "pare quantize 'a b.onnx'"};

static void what_was_written_is_read(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_journal journal;
    seen s = {0};
    pare_ctx_init(&ctx);
    assert_int_equal(pare_journal_read(&ctx, journal_folder, take, &s), PARE_OK);
    assert_int_equal(s.lines, 0);
    assert_int_equal(pare_journal_open(&ctx, &journal, journal_folder), PARE_OK);
    assert_int_equal(pare_journal_start(&ctx, &journal, a_line.key, "quantize"), PARE_OK);
    assert_int_equal(pare_journal_finish(&ctx, &journal, &a_line), PARE_OK);
    pare_journal_line failed = a_line;
    failed.outcome = PARE_OUTCOME_UNSUPPORTED;
    failed.message = "node \"x\"\n\xff is odd";
    assert_int_equal(pare_journal_finish(&ctx, &journal, &failed), PARE_OK);
    pare_journal_close(&journal);
    assert_int_equal(pare_journal_read(&ctx, journal_folder, take, &s), PARE_OK);
    assert_int_equal(s.lines, 2);
    assert_int_equal(s.done, 1);
    assert_string_equal(s.last_hash, a_line.model_hash);
    assert_string_equal(s.last_message, "node \"x\"\\n\\xFF is odd");
}

/* At every length of the last line. */
static void a_cut_line_is_as_if_it_were_not_there(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_journal journal;
    char path[4096];
    pare_ctx_init(&ctx);
    hear_warnings(&ctx);
    assert_int_equal(pare_journal_open(&ctx, &journal, journal_folder), PARE_OK);
    snprintf(path, sizeof path, "%s", journal.path);
    assert_int_equal(pare_journal_finish(&ctx, &journal, &a_line), PARE_OK);
    const off_t whole = lseek(journal.fd, 0, SEEK_END);
    pare_journal_close(&journal);
    for (off_t cut = 1; cut < whole - 1; cut++) {
        seen s = {0};
        warnings = 0;
        assert_int_equal(truncate(path, whole), 0);
        assert_int_equal(pare_journal_open(&ctx, &journal, journal_folder), PARE_OK);
        assert_int_equal(pare_journal_finish(&ctx, &journal, &a_line), PARE_OK);
        pare_journal_close(&journal);
        assert_int_equal(truncate(path, whole + cut), 0);
        assert_int_equal(pare_journal_read(&ctx, journal_folder, take, &s), PARE_OK);
        assert_int_equal(s.lines, 1);
        assert_int_equal(warnings, 1);
        /* who continues begins a line of its own */
        assert_int_equal(pare_journal_open(&ctx, &journal, journal_folder), PARE_OK);
        assert_true(journal.cut);
        assert_int_equal(pare_journal_finish(&ctx, &journal, &a_line), PARE_OK);
        pare_journal_close(&journal);
        s.lines = 0;
        assert_int_equal(pare_journal_read(&ctx, journal_folder, take, &s), PARE_OK);
        assert_int_equal(s.lines, 2);
    }
    assert_non_null(strstr(warning, "1 line is cut or changed"));
}

static void lines_that_are_none_are_not_there(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_journal journal;
    seen s = {0};
    pare_ctx_init(&ctx);
    hear_warnings(&ctx);
    assert_int_equal(pare_journal_open(&ctx, &journal, journal_folder), PARE_OK);
    static const char *const odd[] = {
        "[]\n",
        "{}\n",
        "{\"key\":1,\"finished\":1,\"class\":\"done\"}\n",
        "{\"key\":\"a\",\"finished\":1,\"class\":\"fine\"}\n",
        "{\"key\":\"a\",\"class\":\"done\"}\n",
        "\xff\xfe\n",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_true(write(journal.fd, odd[i], strlen(odd[i])) > 0);
    assert_int_equal(pare_journal_finish(&ctx, &journal, &a_line), PARE_OK);
    pare_journal_close(&journal);
    assert_int_equal(pare_journal_read(&ctx, journal_folder, take, &s), PARE_OK);
    assert_int_equal(s.lines, 1);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "6 lines are cut or changed"));
}

/* Two processes at once, and two journals of one process (which share a file). */
static void several_writers_lose_nothing(void **state)
{
    (void)state;
    enum { WRITERS = 4, LINES = 300 };
    pare_ctx ctx;
    seen s = {0};
    pare_ctx_init(&ctx);
    for (int w = 0; w < WRITERS; w++) {
        if (fork()) continue;
        pare_journal journal;
        pare_journal_line line = a_line;
        line.peak_bytes = w;
        bool good = pare_journal_open(&ctx, &journal, journal_folder) == PARE_OK;
        for (int i = 0; i < LINES && good; i++)
            good = pare_journal_finish(&ctx, &journal, &line) == PARE_OK;
        _exit(!good);
    }
    pare_journal two[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pare_journal_open(&ctx, &two[i], journal_folder), PARE_OK);
    pare_journal_line line = a_line;
    line.peak_bytes = WRITERS;
    for (int i = 0; i < LINES; i++)
        assert_int_equal(pare_journal_finish(&ctx, &two[i % 2], &line), PARE_OK);
    for (int i = 0; i < 2; i++) pare_journal_close(&two[i]);
    for (int w = 0, status; w < WRITERS; w++) {
        wait(&status);
        assert_int_equal(status, 0);
    }
    assert_int_equal(pare_journal_read(&ctx, journal_folder, take, &s), PARE_OK);
    for (int w = 0; w <= WRITERS; w++) assert_int_equal(s.per_writer[w], LINES);
}

static void a_place_that_takes_nothing_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_journal journal;
    pare_ctx_init(&ctx);
    char path[96];
    snprintf(path, sizeof path, "%s/no/j", folder);
    assert_int_equal(pare_journal_open(&ctx, &journal, path), PARE_IO);
    assert_non_null(strstr(ctx.message, path));
    pare_journal_close(&journal);
    pare_ctx_clear(&ctx);
    journal =
        (pare_journal){.path = pare_strdup(&ctx, "/dev/full"), .fd = open("/dev/full", O_WRONLY)};
    if (journal.fd >= 0) {
        assert_int_equal(pare_journal_finish(&ctx, &journal, &a_line), PARE_IO);
        assert_non_null(strstr(ctx.message, "No space left"));
    }
    pare_journal_close(&journal);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_was_written_is_read),
        CASE(a_cut_line_is_as_if_it_were_not_there),
        CASE(lines_that_are_none_are_not_there),
        CASE(several_writers_lose_nothing),
        CASE(a_place_that_takes_nothing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
