/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's nodes run by a made-up step: who has its turn when, what a failure ends, what a second
   run does not do again. */
#include "tools/zoo/work.h"
#include "tools/zoo/run.h"
#include "tools/zoo/tables.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Two models, two variants that share their first step; validate is the last of four tasks. */
enum { NODES = 10, TASKS = 4, JOBS = 4 };

/* Seen by all processes. */
static struct shared {
    int now, most, beside_alone, runs[NODES];
    volatile int interrupted;
} * shared;

static pare_zoo_node nodes[NODES];
static pare_zoo_task tasks[TASKS];
static int chains[TASKS][3] = {{0, 1, 2}, {0, 3, 4}, {5, 6, 7}, {5, 8, 9}};
static pare_zoo_plan plan = {nodes, NODES, tasks, TASKS};
static const pare_zoo_model models[] = {{.name = "a"}, {.name = "b"}};
static const pare_zoo_variant variants[] = {{.name = "x"}, {.name = "y"}};
static const pare_zoo zoo = {
    .name = "z", .models = models, .model_count = 2, .variants = variants, .variant_count = 2};
static char folder[] = "/tmp/pare_run_XXXXXX", out[64];
static const char *word[NODES][5];

static void put(const char *path, const char *text)
{
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fputs(text, file);
    fclose(file);
}

/* words: what to do, node, model, facts. */
static pare_status step(pare_ctx *ctx, char *const *words, int count)
{
    const int node = atoi(words[1]);
    if (count != 4) return PARE_USAGE;
    __atomic_fetch_add(&shared->runs[node], 1, __ATOMIC_SEQ_CST);
    const int now = __atomic_add_fetch(&shared->now, 1, __ATOMIC_SEQ_CST);
    if (now > shared->most) shared->most = now;
    if (nodes[node].alone && now > 1) shared->beside_alone++;
    usleep(20000);
    if (nodes[node].alone && shared->now > 1) shared->beside_alone++;
    __atomic_fetch_sub(&shared->now, 1, __ATOMIC_SEQ_CST);
    if (!strcmp(words[0], "bad")) return PARE_FAIL(ctx, INPUT, "%s: is bad", words[2]);
    if (!strcmp(words[0], "crash")) abort();
    if (!strcmp(words[0], "signal")) raise(SIGKILL);
    if (!strcmp(words[0], "full")) return PARE_FAIL(ctx, IO, "disk full");
    if (!strcmp(words[0], "stop")) kill(getppid(), SIGTERM), usleep(1000000);
    if (strcmp(words[2], "-") != 0) put(words[2], words[1]);
    put(words[3], "{}");
    return PARE_OK;
}

static void make_node(int i, int parent, int task, const char *what)
{
    static char text[NODES][4][128];
    snprintf(text[i][0], 128, "%s/steps/%d", out, i);
    snprintf(text[i][1], 128, "%s/steps/%d/model.onnx", out, i);
    snprintf(text[i][2], 128, "%s/steps/%d/facts.json", out, i);
    snprintf(text[i][3], 128, "%s/steps/%d/log.txt", out, i);
    static char number[NODES][4];
    snprintf(number[i], 4, "%d", i);
    const bool judges = parent > 0 && plan.nodes[parent].parent >= 0;
    nodes[i] = (pare_zoo_node){.parent = parent,
                               .model = task / 2,
                               .variant = task % 2,
                               .verb = judges ? "validate" : "quantize",
                               .words = word[i],
                               .word_count = 4,
                               .folder = text[i][0],
                               .output = judges ? NULL : text[i][1],
                               .facts = text[i][2],
                               .log = text[i][3]};
    snprintf(nodes[i].key, sizeof nodes[i].key, "%032d", 7 * i % 10);
    const char *const words[] = {what, number[i], judges ? "-" : text[i][1], text[i][2]};
    memcpy(word[i], words, sizeof words);
}

static int setup(void **state)
{
    static char link[TASKS][128];
    (void)state;
    memcpy(strrchr(folder, '_') + 1, "XXXXXX", 6);
    if (!mkdtemp(folder)) return 1;
    snprintf(out, sizeof out, "%s/out", folder);
    memset(shared, 0, sizeof *shared);
    for (int t = 0; t < TASKS; t++) {
        snprintf(link[t], 128, "%s/models/%d.onnx", out, t);
        tasks[t] = (pare_zoo_task){t / 2, t % 2, chains[t], 3, link[t]};
        for (int k = 0; k < 3; k++)
            make_node(chains[t][k], k ? chains[t][k - 1] : -1, k ? t : t - t % 2, "ok");
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static long fail_after = -1; /* allocations of a run that succeed */

/* One run; outcomes of the tasks into `outcome` where it is given. */
static pare_status run(pare_zoo_run_result *result, pare_outcome *outcome, int jobs, int task)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_zoo_records records;
    int lock;
    pare_ctx_init(&ctx);
    ctx.interrupted = &shared->interrupted;
    pare_arena_init(&arena, &ctx);
    const pare_zoo_run_options o = {
        .folder = out, .jobs = jobs, .quiet = true, .task = task, .step = step};
    const pare_zoo_holder holder = task < 0 ? PARE_ZOO_ALONE : PARE_ZOO_BESIDE;
    assert_int_equal(pare_zoo_workdir_open(&ctx, &lock, out, "z", holder, true), PARE_OK);
    assert_int_equal(pare_zoo_records_init(&arena, &records, &plan), PARE_OK);
    ctx.fail_after = fail_after;
    const pare_status st = pare_zoo_run(&ctx, result, &records, &zoo, &o);
    for (int t = 0; outcome && t < TASKS; t++) pare_zoo_task_end(&records, &tasks[t], &outcome[t]);
    pare_zoo_records_free(&records);
    pare_arena_free(&arena);
    close(lock);
    return st;
}

static int all_runs(void)
{
    int n = 0;
    for (int i = 0; i < NODES; i++) n += shared->runs[i];
    return n;
}

static void every_node_runs_once_and_never_again(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(result.done, TASKS);
    assert_int_equal(all_runs(), NODES);
    assert_true(shared->most > 1);
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(result.done, TASKS);
    assert_int_equal(result.nodes, 0);
    assert_int_equal(all_runs(), NODES);
}

static void what_measures_time_has_nothing_beside_it(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    for (int t = 0; t < TASKS; t++) nodes[chains[t][2]].alone = true;
    nodes[3].alone = true;
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(result.done, TASKS);
    assert_int_equal(all_runs(), NODES);
    assert_int_equal(shared->beside_alone, 0);
}

/* The second node of the second task. */
static void a_failure_ends_its_tasks_alone(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        pare_outcome outcome;
        bool again;
    } rows[] = {{"bad", PARE_OUTCOME_BAD_MODEL, false},
                {"crash", PARE_OUTCOME_CRASH, true},
                {"signal", PARE_OUTCOME_CRASH, true},
                {"full", PARE_OUTCOME_FAILED, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pare_zoo_run_result result;
        pare_outcome outcome[TASKS];
        word[3][0] = rows[i].what;
        assert_int_equal(run(&result, outcome, JOBS, -1), PARE_OK);
        assert_int_equal(result.done, 3);
        assert_int_equal(result.failed, 1);
        assert_int_equal(outcome[1], rows[i].outcome);
        assert_int_equal(shared->runs[4], 0);
        word[3][0] = "ok"; /* now it would be done */
        assert_int_equal(run(&result, outcome, JOBS, -1), PARE_OK);
        assert_int_equal(outcome[1], rows[i].again ? PARE_OUTCOME_DONE : rows[i].outcome);
        assert_int_equal(all_runs(), rows[i].again ? NODES + 1 : NODES - 1);
        teardown(NULL);
        setup(NULL);
    }
}

static void a_shared_node_that_fails_ends_all_its_tasks(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    word[0][0] = "bad";
    assert_int_equal(run(&result, NULL, 1, -1), PARE_OK);
    assert_int_equal(result.failed, 2);
    assert_int_equal(result.done, 2);
    assert_int_equal(all_runs(), 6);
}

static void files_that_were_changed_are_made_again(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    put(nodes[0].output, "0");                   /* the same content */
    put(nodes[5].output, "55");                  /* another */
    assert_int_equal(unlink(nodes[2].facts), 0); /* none */
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(result.done, TASKS);
    assert_int_equal(shared->runs[0], 1);
    assert_int_equal(shared->runs[5], 2);
    assert_int_equal(shared->runs[2], 2);
    assert_int_equal(all_runs(), NODES + 2); /* what is made of 5 stays: it is the same again */
}

static void one_task_alone_does_its_own_nodes(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    assert_int_equal(run(&result, NULL, 1, 3), PARE_OK);
    assert_int_equal(result.done, 1);
    assert_int_equal(all_runs(), 3);
    assert_int_equal(run(&result, NULL, 1, 2), PARE_OK);
    assert_int_equal(all_runs(), 5);
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(all_runs(), NODES);
}

/* Another process does the same task after a node's folder is made and before its lock is held. */
static bool comes_between;
int flock(int file, int operation)
{
    if (comes_between && operation == LOCK_EX) {
        pare_zoo_run_result result;
        comes_between = false;
        const pid_t pid = fork();
        if (!pid) _exit(run(&result, NULL, 1, 0) != PARE_OK);
        waitpid(pid, NULL, 0);
    }
    return (int)syscall(SYS_flock, file, operation);
}

static void two_at_one_task_do_a_node_once(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    comes_between = true;
    assert_int_equal(run(&result, NULL, 1, 0), PARE_OK);
    assert_false(comes_between);
    assert_int_equal(result.done, 1);
    assert_int_equal(result.nodes, 0);
    assert_int_equal(all_runs(), 3);
}

static void on_signal(int number) { shared->interrupted = number; }

static void an_interrupted_run_continues_later(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    signal(SIGTERM, on_signal);
    word[6][0] = "stop"; /* asks its parent to stop */
    assert_int_equal(run(&result, NULL, 1, -1), PARE_INTERRUPTED);
    assert_int_equal(result.done, 2);
    assert_int_equal(result.left, 2);
    shared->interrupted = 0;
    word[6][0] = "ok";
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(result.done, TASKS);
    assert_int_equal(all_runs(), NODES + 1);
}

/* Without memory a run ends with its status, and the next one finds what it did. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    pare_zoo_run_result result;
    pare_status st = PARE_MEMORY;
    word[3][0] = "bad";
    for (fail_after = 0; fail_after < 40; fail_after++) {
        st = run(&result, NULL, JOBS, -1);
        assert_true(st == PARE_OK || st == PARE_MEMORY);
    }
    fail_after = -1;
    assert_int_equal(run(&result, NULL, JOBS, -1), PARE_OK);
    assert_int_equal(result.done, 3);
    assert_int_equal(result.failed, 1);
    assert_int_equal(all_runs(), NODES - 1);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(every_node_runs_once_and_never_again),
        CASE(what_measures_time_has_nothing_beside_it),
        CASE(a_failure_ends_its_tasks_alone),
        CASE(a_shared_node_that_fails_ends_all_its_tasks),
        CASE(files_that_were_changed_are_made_again),
        CASE(one_task_alone_does_its_own_nodes),
        CASE(two_at_one_task_do_a_node_once),
        CASE(an_interrupted_run_continues_later),
        CASE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
