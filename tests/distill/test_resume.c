/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings that are cut off and continue: what comes out is what an undisturbed one gives, byte
   for byte, its events too. */
#include "runtime/ops/ops.h"
#include "tests/distill/resume_case.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int entries(void)
{
    int n = -2;
    DIR *dir = opendir(resume_folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* --- settings --- */

static void sgd(distill_case *c)
{
    c->options.steps = STEPS;
    c->options.optimizer = PARE_OPTIMIZER_SGD;
    c->options.start = 48;
    c->options.learning_rate = 0.05;
    c->options.accumulate = 3;
    c->options.validate_every = 5;
    c->options.checkpoint.every = 1;
}

/* x -> MatMul z -> BatchNormalization n -> Relu h; held-out samples of the data themselves. */
static void normalized(distill_case *c)
{
    static const float ones[HIDDEN] = {1, 1, 1, 1, 1, 1, 1, 1}, zeros[HIDDEN] = {0};
    graph_case *g = &c->student;
    pare_node *relu = graph_value(g, "h")->producer;
    graph_floats(g, "scale", 1, (int64_t[]){HIDDEN}, ones);
    graph_floats(g, "bias", 1, (int64_t[]){HIDDEN}, zeros);
    graph_floats(g, "mean", 1, (int64_t[]){HIDDEN}, zeros);
    graph_floats(g, "variance", 1, (int64_t[]){HIDDEN}, ones);
    graph_node(g, "BatchNormalization", "z scale bias mean variance", "n");
    assert_int_equal(pare_node_set_in(relu, 0, graph_value(g, "n")), PARE_OK);
    pare_data_close(c->options.held_out);
    c->options.held_out = NULL;
    c->options.steps = STEPS;
    c->options.learning_rate = 0.01;
    c->options.accumulate = 2;
    c->options.ema_decay = 0.8;
    c->options.validate_every = 4;
    c->options.checkpoint.every = 3;
}

static void scales(distill_case *c)
{
    static const pare_distill_scale learned[] = {{"s1", 0.1}};
    static const float start[HIDDEN] = {.01f, .01f, .02f, .01f, .01f, .01f, .01f, .01f};
    graph_case *g = &c->student;
    pare_value *w = graph_value(g, "w1"), *y;
    pare_node *reader = w->user[0], *made;
    pare_value *s = graph_floats(g, "s1", 1, (int64_t[]){HIDDEN}, start);
    assert_int_equal(pare_value_new(g->model->graph, &y, "w1_fake"), PARE_OK);
    assert_int_equal(pare_node_new(g->model->graph, &made, 0, "FakeQuantize", PARE_DOMAIN, "f",
                                   (pare_value *[]){w, s}, 2, &y, 1),
                     PARE_OK);
    assert_int_equal(pare_node_set_int(made, "to", PARE_s8), PARE_OK);
    assert_int_equal(pare_node_set_int(made, "low", -127), PARE_OK);
    assert_int_equal(pare_node_set_in(reader, 1, y), PARE_OK);
    c->options.scale = learned;
    c->options.scale_count = 1;
    c->options.steps = STEPS;
    c->options.learning_rate = 0.01;
    c->options.validate_every = 3;
}

/* The statistics begin again, and freeze after half of the steps. */
static void half(distill_case *c)
{
    normalized(c);
    float *mean = (float *)(uintptr_t)distill_weight(&c->student, "mean");
    for (int i = 0; i < HIDDEN; i++) mean[i] = 9; /* far off */
    c->options.batchnorm = PARE_BATCHNORM_HALF;
    c->options.precision = PARE_TRAIN_BF16;
    c->options.checkpoint.every = 1;
}

/* Far too fast: it ends by patience. */
static void impatient(distill_case *c)
{
    c->options.steps = 40;
    c->options.learning_rate = 0.5;
    c->options.schedule = PARE_SCHEDULE_CONSTANT;
    c->options.validate_every = 1;
    c->options.patience = 5;
    c->options.checkpoint.every = 4;
}

static const resume_settings all[] = {resume_adamw, sgd, normalized, scales, half, impatient};
enum { ALL = sizeof all / sizeof *all };

/* --- cut off anywhere --- */

/* A run that dies after step k leaves the last checkpoint, and what it said since is said again.
   Threads change in the midst. */
static void a_killed_run_goes_on(void **state)
{
    static resume_run whole, cut;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        resume_begin(&whole, all[i]);
        distill_expect_ok(&whole.c, NULL);
        assert_int_equal(whole.c.result.resumed, -1);
        assert_int_equal(whole.c.result.checkpoint, -1);
        assert_true(all[i] != half || whole.c.result.estimated == 1);
        int64_t latest = -1;
        for (int64_t k = 0; k <= whole.last; k++) {
            resume_begin(&cut, all[i]);
            cut.kill_at = k;
            cut.c.options.checkpoint.path = resume_path;
            distill_expect_refusal(&cut.c, NULL, PARE_IO, "killed");
            assert_int_equal(entries(), k > 0);
            resume_go_on(&cut, all[i], 1 + (int)(k & 1));
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.resumed, cut.first - 1);
            assert_true(cut.c.result.resumed < k && cut.c.result.resumed >= latest);
            latest = cut.c.result.resumed;
            assert_int_equal(cut.c.result.checkpoint, cut.last);
            resume_same(&whole, &cut);
            assert_int_equal(unlink(resume_path), 0);
            distill_close(&cut.c);
        }
        assert_true(latest > 0);
        distill_close(&whole.c);
    }
}

/* Asked to stop, it keeps the very step. */
static void a_stopped_run_goes_on(void **state)
{
    static resume_run whole, cut;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        resume_begin(&whole, all[i]);
        distill_expect_ok(&whole.c, NULL);
        for (int64_t k = 1; k < whole.last; k += 2) {
            resume_begin(&cut, all[i]);
            cut.c.options.checkpoint.path = resume_path;
            cut.c.stop_at = (int)k;
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.end, PARE_DISTILL_INTERRUPTED);
            assert_int_equal(cut.c.result.checkpoint, k);
            resume_go_on(&cut, all[i], 2);
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.resumed, k);
            assert_int_equal(cut.first, k + 1);
            resume_same(&whole, &cut);
            assert_int_equal(unlink(resume_path), 0);
            distill_close(&cut.c);
        }
        distill_close(&whole.c);
    }
}

static void longer(distill_case *c)
{
    normalized(c);
    c->options.steps = 600;
    c->options.validate_every = 2;
    c->options.checkpoint.every = 1000;
}

/* Was the run stopped, or did it come to its end? A stop before the first step gives no result, but
   a checkpoint. */
static bool stopped(resume_run *r)
{
    pare_status st = distill_run(&r->c, NULL);
    const pare_distill_result *result = &r->c.result;
    const bool early = st == PARE_INTERRUPTED && !result->checkpoint;
    if (st != PARE_OK && !early) fail_msg("%d: %s", st, r->c.ctx->message);
    pare_ctx_clear(r->c.ctx);
    return early || result->end == PARE_DISTILL_INTERRUPTED;
}

/* Stops that fall into a step or a validation: statistics that had followed half a step go back,
   an event that was not sent is sent. */
static void a_run_may_be_stopped_at_any_moment(void **state)
{
    static resume_run whole, cut;
    int stops = 0;
    (void)state;
    resume_begin(&whole, longer);
    distill_expect_ok(&whole.c, NULL);
    resume_begin(&cut, longer);
    resume_alarms(true);
    for (int i = 0;; i++) {
        resume_go_on(&cut, longer, 1 + i % 2);
        cut.timer = 300 + (useconds_t)i * 217;
        if (!stopped(&cut)) break;
        stops++;
    }
    resume_alarms(false);
    assert_true(stops > 2);
    resume_same(&whole, &cut);
    assert_int_equal(unlink(resume_path), 0);
    distill_close(&cut.c);
    distill_close(&whole.c);
}

/* Stopped between a step and its event: the event comes when it continues. */
static void an_event_may_be_stopped(void **state)
{
    static resume_run whole, cut;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        resume_begin(&whole, all[i]);
        distill_expect_ok(&whole.c, NULL);
        for (int64_t k = 0; k <= whole.last; k++) {
            resume_begin(&cut, all[i]);
            cut.c.options.checkpoint.path = resume_path;
            cut.stop_in = k;
            assert_true(stopped(&cut));
            assert_int_equal(cut.c.result.checkpoint, k);
            resume_go_on(&cut, all[i], 1);
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.resumed, k);
            assert_int_equal(cut.first, k);
            resume_same(&whole, &cut);
            assert_int_equal(unlink(resume_path), 0);
            distill_close(&cut.c);
        }
        distill_close(&whole.c);
    }
}

/* Nothing is trained, and the result is there again. */
static void an_ended_run_gives_its_result_again(void **state)
{
    static resume_run first, again;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        resume_begin(&first, all[i]);
        first.c.options.checkpoint.path = resume_path;
        distill_expect_ok(&first.c, NULL);
        again = first;
        resume_open(&again, all[i], 1);
        again.c.options.event_user = &again;
        again.c.options.checkpoint.path = resume_path;
        again.c.options.checkpoint.resume = true;
        distill_expect_ok(&again.c, NULL);
        assert_int_equal(again.events, 0);
        assert_int_equal(again.c.result.resumed, first.last);
        resume_same(&first, &again);
        assert_int_equal(unlink(resume_path), 0);
        distill_close(&again.c);
        distill_close(&first.c);
    }
}

/* --- a disk that is full --- */

static int count_of(const char *text, const char *words)
{
    int n = 0;
    for (; (text = strstr(text, words)); text++) n++;
    return n;
}

static void often(distill_case *c)
{
    resume_adamw(c);
    c->options.checkpoint.every = 1;
}

static void a_full_disk_is_a_warning(void **state)
{
    static resume_run whole, full;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    resume_begin(&whole, often);
    distill_expect_ok(&whole.c, NULL);
    resume_begin(&full, often);
    full.limit_at = 3; /* of 3 to 6 there is no checkpoint */
    full.c.options.checkpoint.path = resume_path;
    distill_expect_ok(&full.c, NULL);
    resume_same(&whole, &full);
    assert_int_equal(full.c.result.checkpoint, STEPS);
    assert_int_equal(count_of(full.c.log, "training continues without a checkpoint of step 3"), 1);
    assert_int_equal(count_of(full.c.log, "that of step 2 stays"), 1);
    assert_int_equal(count_of(full.c.log, "training continues without"), 1);
    assert_int_equal(count_of(full.c.log, "can be written again: checkpoint of step 7"), 1);
    assert_string_equal(full.c.ctx->message, "");
    assert_int_equal(unlink(resume_path), 0);
    distill_close(&full.c);
    resume_begin(&full, often);
    full.limit_at = 3;
    full.kill_at = 6;
    full.c.options.checkpoint.path = resume_path;
    distill_expect_refusal(&full.c, NULL, PARE_IO, "killed");
    resume_limit_files(RLIM_INFINITY);
    full.limit_at = -1;
    resume_go_on(&full, often, 1);
    distill_expect_ok(&full.c, NULL);
    assert_int_equal(full.c.result.resumed, 2);
    resume_same(&whole, &full);
    assert_int_equal(unlink(resume_path), 0);
    distill_close(&full.c);
    distill_close(&whole.c);
}

/* --- allocations that fail --- */

static void few(distill_case *c)
{
    c->options.steps = 2;
    c->options.ema_decay = 0.9;
    c->options.checkpoint.every = 1;
}

/* A file is replaced, never changed: another name of it keeps the checkpoint of step 1. */
static void every_allocation_may_fail(void **state)
{
    static resume_run r;
    char spare[80];
    (void)state;
    snprintf(spare, sizeof spare, "%s/spare", resume_folder);
    resume_begin(&r, few);
    r.c.options.checkpoint.path = resume_path;
    r.c.stop_at = 1;
    distill_expect_ok(&r.c, NULL);
    assert_int_equal(rename(resume_path, spare), 0);
    for (int resumed = 0; resumed < 2; resumed++) {
        pare_status st = PARE_MEMORY;
        long n = 0;
        for (; st != PARE_OK; n++) {
            resume_go_on(&r, few, 1);
            if (resumed) assert_int_equal(link(spare, resume_path), 0);
            r.c.ctx->fail_after = n;
            st = distill_run(&r.c, NULL);
            if (st != PARE_OK && st != PARE_MEMORY)
                fail_msg("allocation %ld: %d, %s", n, st, r.c.ctx->message);
            r.c.ctx->fail_after = -1;
            unlink(resume_path);
        }
        assert_int_equal(r.c.result.resumed, resumed ? 1 : -1);
        assert_true(n > 100);
    }
    assert_int_equal(unlink(spare), 0);
    distill_close(&r.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on),
        cmocka_unit_test(a_stopped_run_goes_on),
        cmocka_unit_test(a_run_may_be_stopped_at_any_moment),
        cmocka_unit_test(an_event_may_be_stopped),
        cmocka_unit_test(an_ended_run_gives_its_result_again),
        cmocka_unit_test(a_full_disk_is_a_warning),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, resume_setup, resume_teardown);
}
