/* SPDX-License-Identifier: Apache-2.0 */
/* Work in its own process: what it says, what its limits do, and that nothing of it stays. */
#include "tools/zoo/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* What works tell the tests. */
static struct shared {
    volatile pid_t child, daemon;
    volatile int open_files;
} * shared;

static int setup(void **state)
{
    (void)state;
    pare_process_prepare();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static pare_process_result run_within(pare_status (*work)(pare_ctx *, void *), double seconds,
                                      int64_t bytes)
{
    pare_ctx ctx;
    pare_process p;
    pare_process_result r;
    pare_ctx_init(&ctx);
    const pare_process_job job = {
        .work = work, .log = "/dev/null", .seconds = seconds, .bytes = bytes};
    assert_int_equal(pare_process_start(&ctx, &p, &job), PARE_OK);
    while (!pare_process_poll(&p, &r)) pare_process_wait(0.05);
    assert_int_equal(p.pid, 0);
    pare_process_sweep(&p, 1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left, not even a zombie */
    assert_int_equal(errno, ECHILD);
    return r;
}

static pare_status say_hello(pare_ctx *ctx, void *user)
{
    (void)user;
    snprintf(ctx->message, sizeof ctx->message, "hello");
    return PARE_OK;
}

static pare_status be_unsupported(pare_ctx *ctx, void *user)
{
    (void)user;
    return PARE_FAIL(ctx, UNSUPPORTED, "m.onnx: node 'x' (Frob): no kernel");
}

static pare_status be_bad(pare_ctx *ctx, void *user)
{
    (void)user;
    return PARE_FAIL(ctx, INPUT, "m.onnx: is no model");
}

static pare_status fail_to_write(pare_ctx *ctx, void *user)
{
    (void)user;
    return PARE_FAIL(ctx, IO, "disk full");
}

static pare_status want_memory(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    return PARE_MEMORY;
}

static void statuses_become_outcomes(void **state)
{
    (void)state;
    pare_process_result r = run_within(say_hello, 0, 0);
    assert_int_equal(r.outcome, PARE_OUTCOME_DONE);
    assert_string_equal(r.message, "hello");
    assert_true(r.peak_bytes > 0);
    r = run_within(be_unsupported, 0, 0);
    assert_int_equal(r.outcome, PARE_OUTCOME_UNSUPPORTED);
    assert_string_equal(r.message, "m.onnx: node 'x' (Frob): no kernel");
    assert_int_equal(run_within(be_bad, 0, 0).outcome, PARE_OUTCOME_BAD_MODEL);
    assert_int_equal(run_within(fail_to_write, 0, 0).outcome, PARE_OUTCOME_FAILED);
    r = run_within(want_memory, 0, 0);
    assert_int_equal(r.outcome, PARE_OUTCOME_MEMORY);
    assert_string_equal(r.message, "out of memory");
    for (int o = 0; o < PARE_OUTCOME_COUNT; o++)
        assert_int_equal(pare_outcome_find(pare_outcome_text((pare_outcome)o)), o);
    assert_int_equal(pare_outcome_find("fine"), PARE_OUTCOME_COUNT);
    assert_int_equal(pare_outcome_find(NULL), PARE_OUTCOME_COUNT);
}

static pare_status hang(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    signal(SIGTERM, SIG_IGN);
    while (pause()) continue;
    return PARE_OK;
}

static void hanging_work_is_ended_at_its_time(void **state)
{
    (void)state;
    const pare_process_result r = run_within(hang, 0.2, 0);
    assert_int_equal(r.outcome, PARE_OUTCOME_TIME);
    assert_string_equal(r.message, "took longer than its limit of 0.2 s");
}

enum { HUNK = 8 << 20 };

static pare_status eat(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    for (int i = 0; i < 4000; i++) { /* 32 GB, which the limit comes long before */
        char *hunk = malloc(HUNK);
        if (hunk) memset(hunk, i + 1, HUNK);
        usleep(2000);
    }
    return PARE_OK;
}

/* A child eats, its parent waits: the sum counts. */
static pare_status eat_in_a_child(pare_ctx *ctx, void *user)
{
    const pid_t pid = fork();
    if (pid == 0) _exit(eat(ctx, user));
    waitpid(pid, NULL, 0);
    return PARE_OK;
}

static void eaten_memory_is_seen_wherever_it_is(void **state)
{
    (void)state;
    pare_process_result r = run_within(eat, 0, 300000000);
    assert_int_equal(r.outcome, PARE_OUTCOME_MEMORY);
    assert_string_equal(r.message, "needed more memory than its limit of 300 MB");
    assert_true(r.peak_bytes > 300000000);
    r = run_within(eat_in_a_child, 0, 300000000);
    assert_int_equal(r.outcome, PARE_OUTCOME_MEMORY);
}

static pare_status crash(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
    raise(SIGSEGV);
    return PARE_OK;
}

static pare_status leave(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    _exit(3);
}

static void crashes_are_named(void **state)
{
    (void)state;
    pare_process_result r = run_within(crash, 0, 0);
    assert_int_equal(r.outcome, PARE_OUTCOME_CRASH);
    assert_string_equal(r.message, "was ended by signal 11 (Segmentation fault)");
    r = run_within(leave, 0, 0);
    assert_int_equal(r.outcome, PARE_OUTCOME_CRASH);
    assert_string_equal(r.message, "ended with exit status 3 and no result");
}

static void sleep_on(void)
{
    signal(SIGTERM, SIG_IGN);
    for (;;) pause();
}

/* Leaves a child in its session, and one that has made a session of its own and has a child. */
static pare_status fork_away(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    const pid_t child = fork();
    if (child == 0) sleep_on();
    shared->child = child;
    if (fork() == 0) {
        setsid();
        shared->daemon = getpid();
        if (fork() == 0) sleep_on();
        sleep_on();
    }
    while (!shared->daemon) usleep(1000);
    return PARE_OK;
}

static pare_status fork_away_and_hang(pare_ctx *ctx, void *user)
{
    (void)!fork_away(ctx, user);
    return hang(ctx, user);
}

static void what_was_forked_away_ends_with_the_work(void **state)
{
    (void)state;
    assert_int_equal(run_within(fork_away, 0, 0).outcome, PARE_OUTCOME_DONE);
    assert_int_equal(kill(shared->child, 0), -1);
    assert_int_equal(kill(shared->daemon, 0), -1);
    shared->daemon = 0;
    assert_int_equal(run_within(fork_away_and_hang, 0.3, 0).outcome, PARE_OUTCOME_TIME);
    assert_int_equal(kill(shared->child, 0), -1);
    assert_int_equal(kill(shared->daemon, 0), -1);
}

static pare_status count_files(pare_ctx *ctx, void *user)
{
    (void)ctx;
    (void)user;
    DIR *list = opendir("/proc/self/fd");
    struct dirent *entry;
    shared->open_files = 0;
    while (list && (entry = readdir(list))) shared->open_files += entry->d_name[0] != '.';
    return list ? PARE_OK : PARE_IO;
}

static void the_callers_files_are_closed(void **state)
{
    (void)state;
    int more[20];
    for (int i = 0; i < 20; i++) more[i] = open("/dev/null", O_RDONLY);
    assert_int_equal(run_within(count_files, 0, 0).outcome, PARE_OUTCOME_DONE);
    assert_int_equal(shared->open_files, 5); /* 0, 1, 2, the result's pipe, the listing itself */
    for (int i = 0; i < 20; i++) close(more[i]);
}

static pare_status wait_for_a_stop(pare_ctx *ctx, void *user)
{
    (void)user;
    shared->child = getpid();
    while (pare_ctx_poll(ctx) == PARE_OK) usleep(1000);
    return PARE_OK; /* as a training does that writes what it has */
}

static void asked_to_stop_it_stops(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_process p[2];
    pare_process_result r;
    pare_ctx_init(&ctx);
    const pare_process_job job = {.work = wait_for_a_stop, .log = "/dev/null"};
    for (int by_another = 0; by_another < 2; by_another++) {
        shared->child = 0;
        assert_int_equal(pare_process_start(&ctx, p, &job), PARE_OK);
        while (!shared->child) usleep(1000);
        if (by_another)
            kill(shared->child, SIGTERM);
        else
            pare_process_stop(p);
        while (!pare_process_poll(p, &r)) pare_process_wait(0.05);
        assert_int_equal(r.outcome, PARE_OUTCOME_STOPPED);
        assert_string_equal(r.message, "interrupted");
    }
}

/* A process that starts work and is killed: the work ends, too. */
static void it_dies_with_its_caller(void **state)
{
    (void)state;
    shared->child = 0;
    const pid_t caller = fork();
    if (caller == 0) {
        pare_ctx ctx;
        pare_process p;
        pare_ctx_init(&ctx);
        const pare_process_job job = {.work = wait_for_a_stop, .log = "/dev/null"};
        if (pare_process_start(&ctx, &p, &job) != PARE_OK) _exit(1);
        for (;;) pause();
    }
    while (!shared->child) usleep(1000);
    kill(caller, SIGKILL);
    assert_int_equal(waitpid(caller, NULL, 0), caller);
    assert_int_equal(waitpid(shared->child, NULL, 0), shared->child); /* this one adopted it */
}

/* What lives in the session of one that runs is not swept away when another ends. */
static void the_session_of_a_running_one_is_left_alone(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_process p[2];
    pare_process_result r;
    pare_ctx_init(&ctx);
    shared->daemon = 0;
    const pare_process_job slow = {.work = fork_away_and_hang, .log = "/dev/null"};
    const pare_process_job quick = {.work = say_hello, .log = "/dev/null"};
    assert_int_equal(pare_process_start(&ctx, &p[0], &slow), PARE_OK);
    while (!shared->daemon) usleep(1000);
    assert_int_equal(pare_process_start(&ctx, &p[1], &quick), PARE_OK);
    while (!pare_process_poll(&p[1], &r)) pare_process_wait(0.05);
    pare_process_sweep(p, 2);
    assert_int_equal(kill(shared->child, 0), 0);
    pare_process_kill(&p[0]);
    while (!pare_process_poll(&p[0], &r)) pare_process_wait(0.05);
    pare_process_sweep(p, 2);
    assert_int_equal(r.outcome, PARE_OUTCOME_STOPPED);
    assert_int_equal(kill(shared->child, 0), -1);
    assert_int_equal(kill(shared->daemon, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_become_outcomes),
        cmocka_unit_test(hanging_work_is_ended_at_its_time),
        cmocka_unit_test(eaten_memory_is_seen_wherever_it_is),
        cmocka_unit_test(crashes_are_named),
        cmocka_unit_test(what_was_forked_away_ends_with_the_work),
        cmocka_unit_test(the_callers_files_are_closed),
        cmocka_unit_test(asked_to_stop_it_stops),
        cmocka_unit_test(it_dies_with_its_caller),
        cmocka_unit_test(the_session_of_a_running_one_is_left_alone),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
