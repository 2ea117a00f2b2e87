/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of defects: every correct program passes in all builds and schedules, every planted
   defect is caught where defects.inc says, with its message. Prints who caught what.
     simt_matrix PLAIN ASAN CHECK     the three builds of simt_defects */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

static const struct defect {
    const char *name;
    int schedules;
    const char *expect[3]; /* in the output of plain, asan, check */
} defects[] = {
#define X(name, schedules, plain, asan, check) {#name, schedules, {plain, asan, check}},
#include "defects.inc"
#undef X
};
enum { PLAIN, ASAN, CHECK, COUNT = sizeof defects / sizeof *defects };

static const char *programs[3];
static const char *const schedules[5] = {"fifo", "newest", "random", "warp", "reversed"};

/* Runs one form under a schedule; its output's end in text; the exit status, -1 for a signal. */
static int run(int build, const char *name, const char *form, const char *schedule, char *text,
               size_t size)
{
    char command[1024];
    snprintf(command, sizeof command,
             "SIMT_SCHEDULE=%s ASAN_OPTIONS=detect_leaks=0 timeout 60 '%s' %s %s 2>&1", schedule,
             programs[build], name, form);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = 0;
    while (fgetc(pipe) != EOF) {
    }
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void correct_twins_pass_everywhere(void **state)
{
    (void)state;
    static char text[20000];
    int failed = 0;
    for (int i = 0; i < COUNT; i++)
        for (int build = PLAIN; build <= CHECK; build++)
            for (int s = 0; s < 5; s++) {
                if (build == ASAN && s % 2) continue; /* to be short */
                int status =
                    run(build, defects[i].name, "correct", schedules[s], text, sizeof text);
                if (status)
                    print_error("%s, build %d, %s: exit %d\n%s\n", defects[i].name, build,
                                schedules[s], status, text);
                failed += status != 0;
            }
    assert_int_equal(failed, 0);
}

/* Is the defect caught in a build, and with the words that are expected? */
static int caught(const struct defect *d, int build, const char *schedule, int *named)
{
    static char text[20000];
    int status = run(build, d->name, "planted", schedule, text, sizeof text);
    *named = d->expect[build] && strstr(text, d->expect[build]) != NULL;
    if (status && !*named && d->expect[build])
        print_error("%s, build %d, %s: exit %d without \"%s\":\n%s\n", d->name, build, schedule,
                    status, d->expect[build], text);
    return status != 0;
}

static int check_defect(const struct defect *d)
{
    int times = 0, named = 0, plain_named = 0, wrong = 0;
    int by[3];
    for (int s = 0; s < 5; s++) {
        times += caught(d, PLAIN, schedules[s], &named);
        plain_named |= named;
    }
    wrong += times < d->schedules || (d->expect[PLAIN] && !plain_named);
    by[PLAIN] = times;
    for (int build = ASAN; build <= CHECK; build++) {
        by[build] = caught(d, build, "fifo", &named);
        wrong += d->expect[build] && !(by[build] && named);
    }
    print_message("%-32s plain %d/5  sanitizers %s  checker %s%s\n", d->name, by[PLAIN],
                  by[ASAN] ? "yes" : "no ", by[CHECK] ? "yes" : "no ", wrong ? "  MISSED" : "");
    return wrong || !(by[PLAIN] || by[ASAN] || by[CHECK]);
}

static void planted_defects_are_caught(void **state)
{
    (void)state;
    int missed = 0;
    assert_true(COUNT >= 20);
    for (int i = 0; i < COUNT; i++) missed += check_defect(&defects[i]);
    print_message("%d defects, %d missed\n", COUNT, missed);
    assert_int_equal(missed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(correct_twins_pass_everywhere),
        cmocka_unit_test(planted_defects_are_caught),
    };
    if (argc != 4) return 2;
    for (int i = 0; i < 3; i++) programs[i] = argv[i + 1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
