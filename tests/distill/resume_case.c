/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/distill/resume_case.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

char resume_folder[] = "/tmp/pare_resume_XXXXXX", resume_path[64];

static volatile int *stop_here;

static void on_alarm(int number)
{
    (void)number;
    *stop_here = 1;
}

static void arm(useconds_t after)
{
    const struct itimerval when = {.it_value = {.tv_usec = (suseconds_t)after}};
    assert_int_equal(setitimer(ITIMER_REAL, &when, NULL), 0);
}

void resume_alarms(bool on)
{
    if (!on) arm(0);
    signal(SIGALRM, on ? on_alarm : SIG_DFL);
}

void resume_limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static pare_status note(void *user, const pare_distill_event *e)
{
    resume_run *r = user;
    if (e->step == r->stop_in) return PARE_FAIL(r->c.ctx, INTERRUPTED, "stopped");
    if (e->step == r->kill_at) return PARE_FAIL(r->c.ctx, IO, "killed");
    if (!r->events++) r->first = e->step;
    if (r->events == 1 && r->timer) {
        stop_here = &r->c.stop;
        arm(r->timer);
    }
    if (r->events > 1) assert_int_equal(e->step, r->last + 1);
    if (r->c.stop_at && e->step == r->c.stop_at) r->c.stop = 1;
    if (e->step == r->limit_at) resume_limit_files(64);
    if (r->limit_at >= 0 && e->step == r->limit_at + 4) resume_limit_files(RLIM_INFINITY);
    r->last = e->step;
    const pare_distill_score none = {0};
    r->row[e->step] = (resume_row){.step = e->step,
                                   .scored = e->score != NULL,
                                   .best = e->best,
                                   .rate = e->learning_rate,
                                   .loss = e->loss,
                                   .norm = e->norm,
                                   .epoch = e->epoch,
                                   .score = e->score ? *e->score : none};
    return PARE_OK;
}

void resume_open(resume_run *r, resume_settings set, int threads)
{
    distill_open(&r->c, -1, LABELS_NONE);
    set(&r->c);
    r->c.options.threads = threads;
    r->c.options.event = note;
    r->c.options.event_user = r;
    r->events = 0;
}

void resume_begin(resume_run *r, resume_settings set)
{
    unlink(resume_path);
    memset(r, 0, sizeof *r);
    r->last = r->kill_at = r->stop_in = r->limit_at = -1;
    resume_open(r, set, 1);
}

void resume_go_on(resume_run *r, resume_settings set, int threads)
{
    distill_close(&r->c);
    resume_open(r, set, threads);
    r->kill_at = r->stop_in = -1;
    r->c.options.checkpoint.path = resume_path;
    r->c.options.checkpoint.resume = true;
}

static const char *const names[] = {"w1", "w2", "b", "bias", "mean", "variance", "s1"};

void resume_same(const resume_run *a, const resume_run *b)
{
    const pare_distill_result *x = &a->c.result, *y = &b->c.result;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const pare_value *v = pare_graph_find_own(a->c.student.model->graph, names[i]);
        if (v)
            assert_memory_equal(distill_weight(&a->c.student, names[i]),
                                distill_weight(&b->c.student, names[i]), v->data->bytes);
    }
    assert_int_equal(a->last, b->last);
    assert_memory_equal(a->row, b->row, sizeof a->row);
    assert_int_equal(x->end, y->end);
    assert_int_equal(x->steps, y->steps);
    assert_int_equal(x->best_step, y->best_step);
    assert_int_equal(x->estimated, y->estimated);
    assert_memory_equal(&x->before, &y->before, sizeof x->before);
    assert_memory_equal(&x->after, &y->after, sizeof x->after);
    assert_string_equal(x->data_hash, y->data_hash);
}

void resume_adamw(distill_case *c)
{
    c->options.steps = STEPS;
    c->options.learning_rate = 0.02;
    c->options.ema_decay = 0.9;
    c->options.grad_clip_norm = 0.5;
    c->options.validate_every = 2;
}

int resume_setup(void **state)
{
    if (distill_setup(state) || !mkdtemp(resume_folder)) return -1;
    snprintf(resume_path, sizeof resume_path, "%s/checkpoint.pare", resume_folder);
    return 0;
}

int resume_teardown(void **state) { return rmdir(resume_folder) | distill_teardown(state); }
