/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings that are cut off and go on: what comes out is what an undisturbed one gives, byte for
   byte, its events too; and what a checkpoint refuses. */
#include "runtime/ops/ops.h"
#include "tests/distill/distill_case.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

enum { STEPS = 12, ROWS = 1024 };

static char place[] = "/tmp/pare_resume_XXXXXX", path[64];

/* An event, every member 8 bytes. */
typedef struct row {
    int64_t step, scored, best;
    double rate, loss, norm, epoch;
    pare_distill_score score;
} row;

typedef struct run {
    distill_case c;
    row row[ROWS];             /* by step */
    int64_t last;              /* step of the last event; -1: none */
    int64_t first;             /* of the first one of a run */
    int64_t stop_in;           /* step whose event fails as a stop does; -1: none */
    int64_t kill_at, limit_at; /* -1: never; from limit_at on, files have no room for 4 steps */
    int64_t events;            /* of a run */
    useconds_t timer;          /* microseconds from the first event to a stop; 0: none */
} run;

/* --- a training with its checkpoint --- */

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

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static pare_status note(void *user, const pare_distill_event *e)
{
    run *r = user;
    if (e->step == r->stop_in) return PARE_FAIL(r->c.ctx, INTERRUPTED, "stopped");
    if (e->step == r->kill_at) return PARE_FAIL(r->c.ctx, IO, "killed");
    if (!r->events++) r->first = e->step;
    if (r->events == 1 && r->timer) {
        stop_here = &r->c.stop;
        arm(r->timer);
    }
    if (r->events > 1) assert_int_equal(e->step, r->last + 1);
    if (r->c.stop_at && e->step == r->c.stop_at) r->c.stop = 1;
    if (e->step == r->limit_at) limit_files(64);
    if (r->limit_at >= 0 && e->step == r->limit_at + 4) limit_files(RLIM_INFINITY);
    r->last = e->step;
    const pare_distill_score none = {0};
    r->row[e->step] = (row){.step = e->step,
                            .scored = e->score != NULL,
                            .best = e->best,
                            .rate = e->rate,
                            .loss = e->loss,
                            .norm = e->norm,
                            .epoch = e->epoch,
                            .score = e->score ? *e->score : none};
    return PARE_OK;
}

typedef void (*settings)(distill_case *c);

/* A run of its own, as another process would make it; what r noted before stays. */
static void open_run(run *r, settings set, int threads)
{
    distill_open(&r->c, -1, LABELS_NONE);
    set(&r->c);
    r->c.options.threads = threads;
    r->c.options.event = note;
    r->c.options.event_user = r;
    r->events = 0;
}

static void begin(run *r, settings set)
{
    unlink(path);
    memset(r, 0, sizeof *r);
    r->last = r->kill_at = r->stop_in = r->limit_at = -1;
    open_run(r, set, 1);
}

static void go_on(run *r, settings set, int threads)
{
    distill_close(&r->c);
    open_run(r, set, threads);
    r->kill_at = r->stop_in = -1;
    r->c.options.checkpoint.path = path;
    r->c.options.checkpoint.resume = true;
}

static const char *const names[] = {"w1", "w2", "b", "bias", "mean", "variance", "s1"};

/* Weights, events and what is known of the run. */
static void same_run(const run *a, const run *b)
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

static int entries(void)
{
    int n = -2;
    DIR *dir = opendir(place);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* --- settings --- */

static void adamw(distill_case *c)
{
    c->options.steps = STEPS;
    c->options.rate = 0.02;
    c->options.average = 0.9;
    c->options.clip = 0.5;
    c->options.validate_every = 2;
}

static void sgd(distill_case *c)
{
    c->options.steps = STEPS;
    c->options.optimizer = PARE_OPTIMIZER_SGD;
    c->options.start = 48;
    c->options.rate = 0.05;
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
    c->options.rate = 0.01;
    c->options.accumulate = 2;
    c->options.average = 0.8;
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
    c->options.rate = 0.01;
    c->options.validate_every = 3;
}

/* The statistics begin anew, and freeze behind half of the steps. */
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
    c->options.rate = 0.5;
    c->options.schedule = PARE_SCHEDULE_CONSTANT;
    c->options.validate_every = 1;
    c->options.patience = 5;
    c->options.checkpoint.every = 4;
}

static const settings all[] = {adamw, sgd, normalized, scales, half, impatient};
enum { ALL = sizeof all / sizeof *all };

/* --- cut off anywhere --- */

/* A run that dies behind step k leaves the last checkpoint, and what it said since is said again.
   Threads change in the midst. */
static void a_killed_run_goes_on(void **state)
{
    static run whole, cut;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        begin(&whole, all[i]);
        distill_expect_ok(&whole.c, NULL);
        assert_int_equal(whole.c.result.resumed, -1);
        assert_int_equal(whole.c.result.checkpoint, -1);
        assert_true(all[i] != half || whole.c.result.estimated == 1);
        int64_t latest = -1;
        for (int64_t k = 0; k <= whole.last; k++) {
            begin(&cut, all[i]);
            cut.kill_at = k;
            cut.c.options.checkpoint.path = path;
            distill_expect_refusal(&cut.c, NULL, PARE_IO, "killed");
            assert_int_equal(entries(), k > 0);
            go_on(&cut, all[i], 1 + (int)(k & 1));
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.resumed, cut.first - 1);
            assert_true(cut.c.result.resumed < k && cut.c.result.resumed >= latest);
            latest = cut.c.result.resumed;
            assert_int_equal(cut.c.result.checkpoint, cut.last);
            same_run(&whole, &cut);
            assert_int_equal(unlink(path), 0);
            distill_close(&cut.c);
        }
        assert_true(latest > 0);
        distill_close(&whole.c);
    }
}

/* Asked to stop, it keeps the very step. */
static void a_stopped_run_goes_on(void **state)
{
    static run whole, cut;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        begin(&whole, all[i]);
        distill_expect_ok(&whole.c, NULL);
        for (int64_t k = 1; k < whole.last; k += 2) {
            begin(&cut, all[i]);
            cut.c.options.checkpoint.path = path;
            cut.c.stop_at = (int)k;
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.end, PARE_DISTILL_INTERRUPTED);
            assert_int_equal(cut.c.result.checkpoint, k);
            go_on(&cut, all[i], 2);
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.resumed, k);
            assert_int_equal(cut.first, k + 1);
            same_run(&whole, &cut);
            assert_int_equal(unlink(path), 0);
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

/* Stops that fall into a step or a validation: statistics that had followed half a step go back,
   an event that was not sent is sent. */
static void a_run_may_be_stopped_at_any_moment(void **state)
{
    static run whole, cut;
    int stops = 0;
    (void)state;
    begin(&whole, longer);
    distill_expect_ok(&whole.c, NULL);
    begin(&cut, longer);
    signal(SIGALRM, on_alarm);
    for (int i = 0;; i++) {
        go_on(&cut, longer, 1 + i % 2);
        cut.timer = 300 + (useconds_t)i * 217;
        distill_expect_ok(&cut.c, NULL);
        if (cut.c.result.end == PARE_DISTILL_COMPLETE) break;
        assert_int_equal(cut.c.result.end, PARE_DISTILL_INTERRUPTED);
        stops++;
    }
    arm(0);
    signal(SIGALRM, SIG_DFL);
    assert_true(stops > 2);
    same_run(&whole, &cut);
    assert_int_equal(unlink(path), 0);
    distill_close(&cut.c);
    distill_close(&whole.c);
}

/* Stopped between a step and its event: the event comes when it goes on. */
static void an_event_may_be_stopped(void **state)
{
    static run whole, cut;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        begin(&whole, all[i]);
        distill_expect_ok(&whole.c, NULL);
        for (int64_t k = 0; k <= whole.last; k++) {
            begin(&cut, all[i]);
            cut.c.options.checkpoint.path = path;
            cut.stop_in = k;
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.end, PARE_DISTILL_INTERRUPTED);
            assert_int_equal(cut.c.result.checkpoint, k);
            go_on(&cut, all[i], 1);
            distill_expect_ok(&cut.c, NULL);
            assert_int_equal(cut.c.result.resumed, k);
            assert_int_equal(cut.first, k);
            same_run(&whole, &cut);
            assert_int_equal(unlink(path), 0);
            distill_close(&cut.c);
        }
        distill_close(&whole.c);
    }
}

/* Nothing is trained, and the result is there again. */
static void an_ended_run_gives_its_result_again(void **state)
{
    static run first, again;
    (void)state;
    for (int i = 0; i < ALL; i++) {
        begin(&first, all[i]);
        first.c.options.checkpoint.path = path;
        distill_expect_ok(&first.c, NULL);
        again = first;
        open_run(&again, all[i], 1);
        again.c.options.event_user = &again;
        again.c.options.checkpoint.path = path;
        again.c.options.checkpoint.resume = true;
        distill_expect_ok(&again.c, NULL);
        assert_int_equal(again.events, 0);
        assert_int_equal(again.c.result.resumed, first.last);
        same_run(&first, &again);
        assert_int_equal(unlink(path), 0);
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
    adamw(c);
    c->options.checkpoint.every = 1;
}

static void a_full_disk_is_a_warning(void **state)
{
    static run whole, full;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&whole, often);
    distill_expect_ok(&whole.c, NULL);
    begin(&full, often);
    full.limit_at = 3; /* of 3 to 6 there is no checkpoint */
    full.c.options.checkpoint.path = path;
    distill_expect_ok(&full.c, NULL);
    same_run(&whole, &full);
    assert_int_equal(full.c.result.checkpoint, STEPS);
    assert_int_equal(count_of(full.c.log, "training goes on without a checkpoint of step 3"), 1);
    assert_int_equal(count_of(full.c.log, "that of step 2 stays"), 1);
    assert_int_equal(count_of(full.c.log, "training goes on without"), 1);
    assert_int_equal(count_of(full.c.log, "can be written again: checkpoint of step 7"), 1);
    assert_string_equal(full.c.ctx->message, "");
    assert_int_equal(unlink(path), 0);
    distill_close(&full.c);
    begin(&full, often);
    full.limit_at = 3;
    full.kill_at = 6;
    full.c.options.checkpoint.path = path;
    distill_expect_refusal(&full.c, NULL, PARE_IO, "killed");
    limit_files(RLIM_INFINITY);
    full.limit_at = -1;
    go_on(&full, often, 1);
    distill_expect_ok(&full.c, NULL);
    assert_int_equal(full.c.result.resumed, 2);
    same_run(&whole, &full);
    assert_int_equal(unlink(path), 0);
    distill_close(&full.c);
    distill_close(&whole.c);
}

/* --- what is refused --- */

static void refuse(run *r, const char *words)
{
    float before[WIDTH * HIDDEN];
    memcpy(before, distill_weight(&r->c.student, "w1"), sizeof before);
    distill_expect_refusal(&r->c, NULL, PARE_INPUT, words);
    assert_int_equal(r->events, 0);
    assert_memory_equal(distill_weight(&r->c.student, "w1"), before, sizeof before);
}

static void keep_five(run *r, settings set)
{
    begin(r, set);
    r->c.options.checkpoint.path = path;
    r->c.stop_at = 5;
    distill_expect_ok(&r->c, NULL);
}

static void nothing_is_overwritten(void **state)
{
    static run r;
    struct stat before, after;
    (void)state;
    keep_five(&r, adamw);
    assert_int_equal(stat(path, &before), 0);
    go_on(&r, adamw, 1);
    r.c.options.checkpoint.resume = false;
    refuse(&r, "is the checkpoint of an earlier run; go on from it with --resume");
    assert_non_null(strstr(path, place));
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(unlink(path), 0);
    distill_close(&r.c);
}

/* One option after the other is another one. */
static void change(pare_distill_options *o, int which)
{
    static const pare_distill_scale scale[] = {{"w1", 2}};
    static const int64_t some[20] = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
    switch (which) {
    case 0: o->steps++; break;
    case 1: o->batch = 32; break;
    case 2: o->accumulate = 2; break;
    case 3: o->optimizer = PARE_OPTIMIZER_SGD; break;
    case 4: o->beta2 = 0.99; break;
    case 5: o->rate *= 1 + 1e-15; break;
    case 6: o->schedule = PARE_SCHEDULE_STEP; break;
    case 7: o->warmup = 1; break;
    case 8: o->decay = 0.5; break;
    case 9: o->clip = 0; break;
    case 10: o->average = 0.95; break;
    case 11: o->train_zeros = true; break;
    case 12: o->batchnorm = PARE_BATCHNORM_FROZEN; break;
    case 13:
        o->scale = scale;
        o->scale_count = 1;
        break;
    case 14: o->seed = 2; break;
    case 15:
        o->samples = some;
        o->sample_count = 17;
        break;
    case 16: o->validate_every = 3; break;
    case 17: o->start = 16; break;
    case 18: o->zeros_from = 0; break;
    case 19: o->precision = PARE_TRAIN_BF16; break;
    case 20: o->norm_samples = 64; break;
    default: o->patience = 9; break;
    }
}

static void other_options_are_refused(void **state)
{
    static const char *const words[] = {
        "its number of steps is 12, this run's is 13",
        "its batch is 16, this run's is 32",
        "its accumulation is 1, this run's is 2",
        "its optimizer is adamw betas 0.9, 0.999 epsilon 1e-08, this run's is sgd momentum 0.9",
        "betas 0.9, 0.999 epsilon 1e-08, this run's is adamw betas 0.9, 0.99 ",
        "its learning rate is 0.02, this run's is 0.0200000000000000",
        "its schedule is cosine, this run's is step",
        "its warm-up is 0, this run's is 1",
        "its decay is 0.01, this run's is 0.5",
        "its clip is 0.5, this run's is 0",
        "its EMA is 0.9, this run's is 0.95",
        "its treatment of zeros is keep from 0.2 on, this run's is train",
        "its BatchNormalization is train, this run's is frozen",
        "its list of learned scales is 0 ",
        "its seed is 1, this run's is 2",
        "its training data is 64 samples ",
        "its distance of validations is 2, this run's is 3",
        "its first sample of the stream is 0, this run's is 16",
        "its treatment of zeros is keep from 0.2 on, this run's is keep from 0 on",
        "its precision is f32, this run's is bf16",
        "its number of samples for statistics is 512, this run's is 64",
        "its patience is 0, this run's is 9"};
    static run r;
    (void)state;
    keep_five(&r, adamw);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        go_on(&r, adamw, 1);
        change(&r.c.options, (int)i);
        refuse(&r, words[i]);
    }
    go_on(&r, adamw, 1);
    distill_expect_refusal(&r.c, "kl:3*2,feature:h", PARE_INPUT,
                           "its loss is kl:2, this run's is kl:3*2,feature:h=h");
    go_on(&r, adamw, 2);
    distill_expect_ok(&r.c, NULL);
    assert_int_equal(unlink(path), 0);
    distill_close(&r.c);
}

static void other_files_are_refused(void **state)
{
    static run r;
    (void)state;
    keep_five(&r, adamw);
    go_on(&r, adamw, 1);
    *(float *)(uintptr_t)distill_weight(&r.c.student, "w2") += 1;
    refuse(&r, "its student is");
    go_on(&r, adamw, 1);
    *(float *)(uintptr_t)distill_weight(&r.c.teacher, "b") += 1;
    refuse(&r, "its teacher is");
    go_on(&r, adamw, 1);
    pare_data_close(r.c.data);
    r.c.data = distill_data(r.c.ctx, LABELS_RIGHT);
    refuse(&r, "its training data is 64 samples");
    go_on(&r, adamw, 1);
    pare_data_close(r.c.options.held_out);
    r.c.options.held_out = distill_data(r.c.ctx, LABELS_RIGHT);
    refuse(&r, "its held-out data is 64 samples");
    assert_int_equal(unlink(path), 0);
    distill_close(&r.c);
}

/* Reads the checkpoint, changes it, writes it. */
static void damage(void (*change_bytes)(uint8_t *file, size_t *size))
{
    static uint8_t file[1 << 16];
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    ssize_t n = read(fd, file, sizeof file);
    assert_true(n > 0 && n < (ssize_t)sizeof file);
    size_t size = (size_t)n;
    change_bytes(file, &size);
    assert_int_equal(pwrite(fd, file, size, 0), (ssize_t)size);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static void cut_it(uint8_t *file, size_t *size)
{
    (void)file;
    *size -= 9;
}

static void change_version(uint8_t *file, size_t *size)
{
    (void)size;
    file[8]++;
}

/* A state that no run can be in, with the right hashes: of the first blob, behind the facts, and of
   the head. */
static void step_beyond_the_end(uint8_t *file, size_t *size)
{
    uint32_t facts, length[2];
    uint64_t head, bytes;
    size_t at = 40;
    memcpy(&facts, file + 12, 4);
    memcpy(&head, file + 24, 8);
    for (; facts > 0; facts--) {
        memcpy(length, file + at, 8);
        at += 8 + length[0] + length[1];
    }
    memcpy(&bytes, file + at + 8, 8);
    assert_true(head + 16 + bytes < *size);
    const int64_t step = STEPS + 1;
    memcpy(file + head + 16, &step, 8);
    pare_hash hash = pare_hash_bytes(file + head + 16, bytes);
    memcpy(file + at + 16, &hash, 16);
    hash = pare_hash_bytes(file, head);
    memcpy(file + head, &hash, 16);
}

static void damage_is_refused(void **state)
{
    static const struct {
        void (*change)(uint8_t *file, size_t *size);
        const char *words;
    } cases[] = {{cut_it, "is cut: "},
                 {change_version, "has version 2 of the format"},
                 {step_beyond_the_end, "is damaged (step 13 of 12"}};
    static run r;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        keep_five(&r, adamw);
        damage(cases[i].change);
        go_on(&r, adamw, 1);
        refuse(&r, cases[i].words);
        assert_int_equal(unlink(path), 0);
        distill_close(&r.c);
    }
}

static void few(distill_case *c)
{
    c->options.steps = 2;
    c->options.average = 0.9;
    c->options.checkpoint.every = 1;
}

/* A file is replaced, never changed: another name of it keeps the checkpoint of step 1. */
static void every_allocation_may_fail(void **state)
{
    static run r;
    char spare[80];
    (void)state;
    snprintf(spare, sizeof spare, "%s/spare", place);
    begin(&r, few);
    r.c.options.checkpoint.path = path;
    r.c.stop_at = 1;
    distill_expect_ok(&r.c, NULL);
    assert_int_equal(rename(path, spare), 0);
    for (int resumed = 0; resumed < 2; resumed++) {
        pare_status st = PARE_MEMORY;
        long n = 0;
        for (; st != PARE_OK; n++) {
            go_on(&r, few, 1);
            if (resumed) assert_int_equal(link(spare, path), 0);
            r.c.ctx->fail_after = n;
            st = distill_run(&r.c, NULL);
            if (st != PARE_OK && st != PARE_MEMORY)
                fail_msg("allocation %ld: %d, %s", n, st, r.c.ctx->message);
            r.c.ctx->fail_after = -1;
            unlink(path);
        }
        assert_int_equal(r.c.result.resumed, resumed ? 1 : -1);
        assert_true(n > 100);
    }
    assert_int_equal(unlink(spare), 0);
    distill_close(&r.c);
}

static int setup(void **state)
{
    if (distill_setup(state) || !mkdtemp(place)) return -1;
    snprintf(path, sizeof path, "%s/checkpoint.pare", place);
    return 0;
}

static int teardown(void **state) { return rmdir(place) | distill_teardown(state); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on),
        cmocka_unit_test(a_stopped_run_goes_on),
        cmocka_unit_test(a_run_may_be_stopped_at_any_moment),
        cmocka_unit_test(an_event_may_be_stopped),
        cmocka_unit_test(an_ended_run_gives_its_result_again),
        cmocka_unit_test(a_full_disk_is_a_warning),
        cmocka_unit_test(nothing_is_overwritten),
        cmocka_unit_test(other_options_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
