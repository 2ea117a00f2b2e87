/* SPDX-License-Identifier: Apache-2.0 */
/* What training refuses, with which words, and that a refusal leaves the student as it was. */
#include "tests/distill/distill_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void unchanged(const distill_case *c)
{
    assert_memory_equal(distill_weight(&c->student, "w1"), c->s.w1, sizeof c->s.w1);
    assert_memory_equal(distill_weight(&c->student, "b"), c->s.b, sizeof c->s.b);
}

/* A teacher x -> MatMul w -> y of so many classes, called "t.onnx". */
static void other_teacher(distill_case *c, int64_t classes)
{
    static const float w[WIDTH * 5] = {1, 2, 3};
    graph_close(&c->teacher);
    graph_open(&c->teacher, 17);
    c->teacher.model->path = "t.onnx";
    graph_input(&c->teacher, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_floats(&c->teacher, "w", 2, (int64_t[]){WIDTH, classes}, w);
    graph_node(&c->teacher, "MatMul", "x w", "y");
    graph_output(&c->teacher, "y");
}

static void outputs_must_match(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    other_teacher(&c, 5);
    distill_expect_refusal(&c, NULL, PARE_INPUT, "'y' f32 [2,3] does not match t.onnx");
    distill_expect_refusal(&c, "mse", PARE_INPUT, "'y' f32 [2,5]");
    other_teacher(&c, CLASSES);
    graph_node(&c.teacher, "Relu", "y", "z");
    graph_output(&c.teacher, "z");
    distill_expect_refusal(&c, NULL, PARE_INPUT, "it has 1 outputs, t.onnx has 2");
    unchanged(&c);
    distill_close(&c);
}

/* A student x -> MatMul w -> y of one value a row. */
static void student_of_one_value(distill_case *c)
{
    pare_log_fn log = c->ctx->log;
    graph_close(&c->student);
    graph_open(&c->student, 17);
    c->ctx->log = log;
    c->ctx->log_user = c;
    graph_input(&c->student, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_floats(&c->student, "w", 2, (int64_t[]){WIDTH, 1}, &c->s.w1[0][0]);
    graph_node(&c->student, "MatMul", "x w", "y");
    graph_output(&c->student, "y");
}

/* Softmax of one value is 1 whatever it is. */
static void a_loss_must_differ(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    other_teacher(&c, 1);
    student_of_one_value(&c);
    distill_expect_refusal(&c, NULL, PARE_INPUT, "one value a row ('y')");
    distill_expect_refusal(&c, "cosine,kl:4", PARE_INPUT, "such as mse");
    distill_expect_ok(&c, "mse");
    distill_expect_ok(&c, "kl:2,mse");
    assert_true(c.result.best_step > 0);
    distill_close(&c);
}

static void outputs_need_samples(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    graph_case *const net[2] = {&c.teacher, &c.student};
    for (int i = 0; i < 2; i++) {
        pare_value *y = graph_value(net[i], "y");
        y->is_output = false;
        net[i]->model->graph->out.count = 0;
        pare_node *mean = graph_node(net[i], "ReduceMean", "y", "m");
        assert_int_equal(pare_node_set_int(mean, "keepdims", 0), PARE_OK);
        graph_output(net[i], "m");
    }
    distill_expect_refusal(&c, "mse", PARE_INPUT, "output 'm' f32 [] has no axis of samples");
    distill_close(&c);
}

static void features_must_match(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    distill_expect_refusal(&c, "feature:nothing", PARE_INPUT, "there is no tensor 'nothing'");
    distill_expect_refusal(&c, "feature:h=nothing", PARE_INPUT, "there is no tensor 'nothing'");
    distill_expect_refusal(&c, "feature:w1", PARE_INPUT, "nothing computes tensor 'w1'");
    distill_expect_refusal(&c, "feature:h=y", PARE_INPUT, "tensor 'h' f32 [2,8] does not match");
    unchanged(&c);
    distill_close(&c);
}

static void inputs_must_match(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    other_teacher(&c, CLASSES);
    graph_input(&c.teacher, "mask", PARE_f32, 2, (int64_t[]){-1, CLASSES});
    graph_node(&c.teacher, "Mul", "y mask", "m");
    distill_expect_refusal(&c, NULL, PARE_INPUT, "t.onnx: input 'mask': m.onnx has no input");
    graph_close(&c.teacher);
    graph_open(&c.teacher, 17);
    graph_input(&c.teacher, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH + 1});
    graph_node(&c.teacher, "Relu", "x", "y");
    graph_output(&c.teacher, "y");
    distill_expect_refusal(&c, NULL, PARE_INPUT, "but a sample is [1,6]");
    distill_close(&c);
}

static void labels_are_needed_for_ce(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    distill_expect_refusal(&c, "kl:2,ce", PARE_INPUT, "no dataset '/labels'");
    c.options.augment.mixup = 0.2;
    distill_expect_refusal(&c, "ce", PARE_USAGE, "mixup");
    unchanged(&c);
    distill_close(&c);
    distill_open(&c, -1, LABELS_WRONG);
    distill_expect_refusal(&c, "ce", PARE_INPUT, "sample 9 has label 3, but output 'y'");
    unchanged(&c);
    distill_close(&c);
}

/* Without ce labels are for people: those of another task are told, and judge nothing. */
static void labels_of_another_task_judge_nothing(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_WRONG);
    distill_expect_ok(&c, NULL);
    assert_true(c.result.before.agreement >= 0);
    assert_true(c.result.before.top1 < 0 && c.result.after.top1 < 0);
    assert_non_null(strstr(c.log, "sample 9 has label 3"));
    assert_non_null(strstr(c.log, "judged without labels"));
    pare_data_close(c.options.held_out);
    c.options.held_out = distill_data(c.ctx, LABELS_RIGHT);
    *c.log = 0; /* wrong ones that are only trained on are not looked at */
    distill_expect_ok(&c, NULL);
    assert_true(c.result.after.top1 >= 0);
    assert_null(strstr(c.log, "label"));
    distill_close(&c);
}

static void something_must_train(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    other_teacher(&c, CLASSES);
    graph_close(&c.student);
    pare_log_fn log = c.ctx->log;
    graph_open(&c.student, 17);
    c.ctx->log = log;
    c.ctx->log_user = &c;
    graph_input(&c.student, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_ints(&c.student, "half", 1, (int64_t[]){2}, (int64_t[]){CLASSES, CLASSES});
    pare_node *split = graph_node(&c.student, "Split", "x half", "y z");
    assert_int_equal(pare_node_set_int(split, "axis", 1), PARE_OK);
    graph_output(&c.student, "y");
    distill_expect_refusal(&c, NULL, PARE_INPUT, "nothing to train");
    distill_close(&c);
}

/* CumSum has no gradient rule: w1 is after it, w2 and b do not. */
static void weights_without_a_rule_freeze(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    pare_node *relu = graph_value(&c.student, "h")->producer;
    graph_ints(&c.student, "axis", 0, NULL, (int64_t[]){1});
    graph_node(&c.student, "CumSum", "z axis", "sums");
    assert_int_equal(pare_node_set_in(relu, 0, graph_value(&c.student, "sums")), PARE_OK);
    c.options.learning_rate = 0.01;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.weights, 2);
    assert_true(c.result.best_step > 0);
    assert_memory_equal(distill_weight(&c.student, "w1"), c.s.w1, sizeof c.s.w1);
    assert_memory_not_equal(distill_weight(&c.student, "w2"), c.s.w2, sizeof c.s.w2);
    assert_non_null(strstr(c.log, "CumSum"));
    assert_non_null(strstr(c.log, "'w1'"));
    distill_close(&c);
}

/* w1 is f64 between two Casts: it stays, and is named. */
static void weights_of_other_types_stay(void **state)
{
    double w1[WIDTH * HIDDEN];
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    distill_expect_ok(&c, NULL);
    assert_null(strstr(c.log, "another type"));
    distill_close(&c);
    distill_open(&c, -1, LABELS_NONE);
    for (int i = 0; i < WIDTH * HIDDEN; i++) w1[i] = (double)c.s.w1[i / HIDDEN][i % HIDDEN];
    pare_node *product = graph_value(&c.student, "z")->producer;
    pare_node *relu = graph_value(&c.student, "h")->producer;
    const int64_t dims[2] = {WIDTH, HIDDEN};
    pare_value *w1d;
    assert_int_equal(pare_init_new(c.student.model->graph, &w1d, "w1d", PARE_f64, 2, dims, w1),
                     PARE_OK);
    pare_node *to = graph_node(&c.student, "Cast", "x", "xd");
    assert_int_equal(pare_node_set_int(to, "to", 11), PARE_OK);
    assert_int_equal(pare_node_set_in(product, 0, graph_value(&c.student, "xd")), PARE_OK);
    assert_int_equal(pare_node_set_in(product, 1, w1d), PARE_OK);
    pare_node *back = graph_node(&c.student, "Cast", "z", "zf");
    assert_int_equal(pare_node_set_int(back, "to", 1), PARE_OK);
    assert_int_equal(pare_node_set_in(relu, 0, graph_value(&c.student, "zf")), PARE_OK);
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.weights, 2);
    assert_non_null(strstr(c.log, "1 weight of another type than f32 (f64) stays as it is: 'w1d'"));
    distill_close(&c);
}

static void too_few_samples(void **state)
{
    static const int64_t one[1] = {3};
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.batch = 1024;
    distill_expect_refusal(&c, NULL, PARE_INPUT, "held-out samples are too few");
    pare_data_close(c.options.held_out);
    c.options.held_out = NULL;
    distill_expect_refusal(&c, NULL, PARE_INPUT, "too few for batches of 1024");
    c.options.samples = one;
    c.options.sample_count = 0;
    distill_expect_refusal(&c, NULL, PARE_INPUT, "no samples");
    distill_close(&c);
}

static void steps_must_be_countable(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.steps = INT64_MAX / 64 + 1;
    c.options.accumulate = 4; /* of 16 */
    distill_expect_refusal(&c, NULL, PARE_USAGE, "steps of 64 samples");
    c.options.steps = INT64_MAX / 64;
    c.options.start = 64;
    distill_expect_refusal(&c, NULL, PARE_USAGE, "give fewer steps");
    distill_close(&c);
}

static void a_loss_that_is_not_finite_is_told(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    float *w1 = (float *)(uintptr_t)distill_weight(&c.student, "w1");
    for (int i = 0; i < WIDTH * HIDDEN; i++) w1[i] = 3e38f;
    distill_expect_refusal(&c, "mse", PARE_INPUT, "step 1: the loss is");
    distill_expect_refusal(&c, "mse", PARE_INPUT, "no step was made yet");
    distill_close(&c);
    distill_open(&c, -1, LABELS_NONE);
    c.options.schedule = PARE_SCHEDULE_CONSTANT;
    c.options.optimizer = PARE_OPTIMIZER_SGD;
    c.options.learning_rate = 1e38;
    c.options.epochs = 4;
    distill_expect_refusal(&c, "mse", PARE_INPUT, "node '");
    assert_true(c.events > 1);
    distill_expect_refusal(&c, "mse", PARE_INPUT, "a lower learning rate may help");
    unchanged(&c);
    distill_close(&c);
}

static void a_teacher_that_is_not_finite_is_named(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    other_teacher(&c, CLASSES);
    float *w = (float *)(uintptr_t)distill_weight(&c.teacher, "w");
    for (int i = 0; i < WIDTH * CLASSES; i++) w[i] = 3e38f;
    distill_expect_refusal(&c, "mse", PARE_INPUT, "output 'y' of the teacher, t.onnx, holds");
    unchanged(&c);
    distill_close(&c);
}

static pare_status no_room(void *user, const pare_distill_event *event)
{
    pare_ctx *ctx = user;
    return event->step < 2 ? PARE_OK : PARE_FAIL(ctx, IO, "log.jsonl: no space left");
}

static void a_failing_event_ends_it(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.event = no_room;
    c.options.event_user = c.ctx;
    distill_expect_refusal(&c, NULL, PARE_IO, "no space left");
    unchanged(&c);
    distill_close(&c);
}

/* The first n allocations succeed, for all n until all do. */
static void every_allocation_may_fail(void **state)
{
    distill_case c;
    pare_status st = PARE_MEMORY;
    long n = 0;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.steps = 1;
    c.options.ema_decay = 0.5;
    for (; st != PARE_OK; n++) {
        pare_ctx_clear(c.ctx);
        c.ctx->fail_after = n;
        st = distill_run(&c, "kl:2,feature:h");
        if (st == PARE_OK) break;
        if (st != PARE_MEMORY) fail_msg("allocation %ld: %d, %s", n, st, c.ctx->message);
        assert_true(*c.ctx->message);
        unchanged(&c);
    }
    c.ctx->fail_after = -1;
    assert_true(n > 100);
    distill_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_must_match),
        cmocka_unit_test(a_loss_must_differ),
        cmocka_unit_test(outputs_need_samples),
        cmocka_unit_test(features_must_match),
        cmocka_unit_test(inputs_must_match),
        cmocka_unit_test(labels_are_needed_for_ce),
        cmocka_unit_test(labels_of_another_task_judge_nothing),
        cmocka_unit_test(something_must_train),
        cmocka_unit_test(weights_without_a_rule_freeze),
        cmocka_unit_test(weights_of_other_types_stay),
        cmocka_unit_test(too_few_samples),
        cmocka_unit_test(steps_must_be_countable),
        cmocka_unit_test(a_loss_that_is_not_finite_is_told),
        cmocka_unit_test(a_teacher_that_is_not_finite_is_named),
        cmocka_unit_test(a_failing_event_ends_it),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, distill_setup, distill_teardown);
}
