/* SPDX-License-Identifier: Apache-2.0 */
/* Training on the device: near the CPU's, the same bytes in every run and after a checkpoint, and
   what it says when a call fails. */
#include "runtime/exec/exec.h"
#include "tests/distill/resume_case.h"
#include "tests/simt/testing.h"

#include <math.h>
#include <unistd.h>

static pare_ctx device_ctx;
static pare_device *device; /* of the test that runs */

static void open_device(void)
{
    pare_ctx_init(&device_ctx);
    if (pare_device_open(&device_ctx, &device, "cuda") != PARE_OK)
        fail_msg("%s", device_ctx.message);
}

static void close_device(void)
{
    pare_device_close(device);
    device = NULL;
}

/* --- settings: each trains on `device` --- */

static void usual(distill_case *c)
{
    resume_adamw(c);
    c->options.device = device;
}

static void sgd(distill_case *c)
{
    c->options.steps = STEPS;
    c->options.optimizer = PARE_OPTIMIZER_SGD;
    c->options.learning_rate = 0.05;
    c->options.accumulate = 3;
    c->options.validate_every = 5;
    c->options.checkpoint.every = 1;
    c->options.device = device;
}

static void bf16(distill_case *c)
{
    usual(c);
    c->options.precision = PARE_TRAIN_BF16;
}

/* On the CPU f32. */
static void fp16(distill_case *c)
{
    usual(c);
    if (device) c->options.precision = PARE_TRAIN_FP16;
}

/* x -> MatMul z -> BatchNormalization n -> Relu h; statistics freeze after half of the steps. */
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
    c->options.steps = STEPS;
    c->options.learning_rate = 0.01;
    c->options.ema_decay = 0.8;
    c->options.batchnorm = PARE_BATCHNORM_HALF;
    c->options.validate_every = 4;
    c->options.checkpoint.every = 3;
    c->options.device = device;
}

static const struct {
    resume_settings set;
    double near; /* largest distance of the result's held-out loss from the CPU's, relative */
} kinds[] = {
    /* sums of 6 to 16 floats in another order: 1e-6 a step, and a dozen steps */
    {usual, 1e-4},
    {sgd, 1e-4},
    {normalized, 1e-4},
    /* such a difference can turn a rounding to bf16, 2^-9 of a number */
    {bf16, 2e-2},
    /* 2^-11; no step is skipped */
    {fp16, 5e-3},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void train(resume_run *r)
{
    if (distill_run(&r->c, NULL) != PARE_OK) fail_msg("%s", r->c.ctx->message);
}

/* --- results --- */

static void it_learns_as_on_the_cpu(void **state)
{
    static resume_run here, there;
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        device = NULL;
        resume_begin(&here, kinds[k].set);
        train(&here);
        open_device();
        resume_begin(&there, kinds[k].set);
        train(&there);
        const double want = here.c.result.after.loss, got = there.c.result.after.loss;
        assert_true(want < 0.9 * here.c.result.before.loss);
        if (!(fabs(got - want) <= kinds[k].near * want))
            fail_msg("kind %d: loss %.9g, expected %.9g", k, got, want);
        assert_string_equal(there.c.result.data_hash, here.c.result.data_hash);
        distill_close(&here.c);
        distill_close(&there.c);
        close_device();
    }
}

/* After a failure at some step another run continues from the checkpoint. */
static void runs_and_resumed_runs_have_the_same_bytes(void **state)
{
    static resume_run whole, parts;
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        open_device();
        resume_begin(&whole, kinds[k].set);
        train(&whole);
        resume_begin(&parts, kinds[k].set);
        parts.c.options.checkpoint.path = resume_path;
        parts.kill_at = 3 + 2 * k;
        assert_int_equal(distill_run(&parts.c, NULL), PARE_IO);
        pare_ctx_clear(parts.c.ctx);
        resume_go_on(&parts, kinds[k].set, 2);
        train(&parts);
        assert_true(parts.c.result.resumed > 0);
        resume_same(&whole, &parts);
        distill_close(&whole.c);
        distill_close(&parts.c);
        unlink(resume_path);
        close_device();
    }
}

/* A checkpoint of the CPU's is none of the device's. */
static void checkpoints_know_their_device(void **state)
{
    static resume_run r;
    (void)state;
    device = NULL;
    resume_begin(&r, usual);
    r.c.options.checkpoint.path = resume_path;
    r.kill_at = 4;
    assert_int_equal(distill_run(&r.c, NULL), PARE_IO);
    open_device();
    resume_go_on(&r, usual, 1);
    assert_int_equal(distill_run(&r.c, NULL), PARE_INPUT);
    assert_non_null(strstr(r.c.ctx->message, "device"));
    distill_close(&r.c);
    unlink(resume_path);
    close_device();
}

/* In FP16 gradients are of a loss that is scaled. */
static void events_show_what_is_trained(void **state)
{
    distill_case c;
    (void)state;
    for (int k = 0; k < 2; k++) {
        open_device();
        distill_open(&c, -1, LABELS_NONE);
        c.options.device = device;
        c.options.learning_rate = 0.01;
        if (k) c.options.precision = PARE_TRAIN_FP16;
        distill_check_tensors(&c);
        distill_close(&c);
        close_device();
    }
}

/* --- fp16 --- */

static pare_status note_scale(void *user, const pare_distill_event *e)
{
    distill_case *c = user;
    assert_true(isfinite(e->norm) && e->loss_scale >= 1);
    assert_true(e->loss_scale * pow(2, (double)e->skipped) == 65536);
    assert_true((e->gradient_factor > 0) == (e->step > e->skipped));
    c->events++;
    return PARE_OK;
}

/* Gradients of a loss a thousand times as large overflow f16 until it is scaled by less; what was
   skipped changed no weight. */
static void steps_that_overflow_are_skipped(void **state)
{
    distill_case c;
    (void)state;
    open_device();
    for (int steps = 1; steps <= 24; steps += 23) {
        distill_open(&c, -1, LABELS_NONE);
        c.options.device = device;
        c.options.precision = PARE_TRAIN_FP16;
        c.options.steps = steps;
        c.options.learning_rate = 0.02;
        c.options.event = note_scale;
        distill_expect_ok(&c, "kl:2*10000");
        assert_int_equal(c.events, steps + 1);
        assert_true(c.result.skipped > 0 && c.result.skipped < 16);
        assert_non_null(strstr(c.log, "step 1: the norm of the gradients is"));
        assert_int_equal(!memcmp(distill_weight(&c.student, "w1"), c.s.w1, sizeof c.s.w1),
                         steps == 1);
        assert_true(steps == 1 || c.result.after.loss < 0.9 * c.result.before.loss);
        distill_close(&c);
    }
    close_device();
}

/* No scale helps where the student itself overflows. */
static void a_scale_below_one_ends_it(void **state)
{
    distill_case c;
    (void)state;
    open_device();
    distill_open(&c, -1, LABELS_NONE);
    float *w1 = (float *)(uintptr_t)distill_weight(&c.student, "w1");
    for (int i = 0; i < WIDTH * HIDDEN; i++) w1[i] *= 1e5f;
    c.options.device = device;
    c.options.precision = PARE_TRAIN_FP16;
    c.options.steps = 24;
    distill_expect_refusal(&c, NULL, PARE_INPUT, "step 17: the ");
    distill_close(&c);
    close_device();
}

/* --- what goes wrong --- */

static void a_loss_that_is_not_finite_is_blamed(void **state)
{
    distill_case c;
    (void)state;
    open_device();
    distill_open(&c, -1, LABELS_NONE);
    c.options.device = device;
    c.options.learning_rate = 1e30;
    c.options.steps = 8;
    distill_expect_refusal(&c, NULL, PARE_INPUT, "is the first to hold");
    assert_memory_equal(distill_weight(&c.student, "w1"), c.s.w1, sizeof c.s.w1);
    distill_close(&c);
    close_device();
}

static pare_status short_training(uint64_t fail_at, int code)
{
    distill_case c;
    distill_open(&c, -1, LABELS_NONE);
    c.options.device = device;
    c.options.steps = 2;
    c.options.batch = 4;
    c.options.ema_decay = 0.5;
    simt_fail_at(fail_at, code, false);
    pare_status st = distill_run(&c, NULL);
    simt_fail_at(0, 0, false);
    (void)cudaGetLastError();
    if (st != PARE_OK) {
        assert_true(strlen(c.ctx->message) > 0);
        assert_memory_equal(distill_weight(&c.student, "w1"), c.s.w1, sizeof c.s.w1);
    }
    distill_close(&c);
    return st;
}

/* One in so many calls of a training fails: a message, the student as it was, nothing leaks. */
static void calls_fail_cleanly(void **state)
{
    enum { FAULTS = 60 };
    int failed = 0;
    (void)state;
    if (!simt_emulated()) skip();
    open_device();
    uint64_t before = simt_calls();
    assert_int_equal(short_training(0, 0), PARE_OK);
    const uint64_t calls = simt_calls() - before;
    close_device();
    for (int i = 0; i < FAULTS; i++) {
        open_device();
        const int code = i % 2 ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure;
        failed += short_training(1 + calls * (uint64_t)i / FAULTS, code) != PARE_OK;
        close_device();
        assert_int_equal(simt_live(NULL, 0), 0);
    }
    assert_true(failed > FAULTS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(it_learns_as_on_the_cpu),
        device_test(runs_and_resumed_runs_have_the_same_bytes),
        device_test(checkpoints_know_their_device),
        device_test(events_show_what_is_trained),
        device_test(steps_that_overflow_are_skipped),
        device_test(a_scale_below_one_ends_it),
        device_test(a_loss_that_is_not_finite_is_blamed),
        device_test(calls_fail_cleanly),
    };
    if (!device_is_present()) return 77;
    return cmocka_run_group_tests(tests, resume_setup, resume_teardown);
}
