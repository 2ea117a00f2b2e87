/* SPDX-License-Identifier: Apache-2.0 */
/* Training a student with BatchNormalization: its statistics are estimated again, follow the
   batches, freeze or stay. */
#include "tests/distill/distill_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* x -> MatMul w1 z -> BatchNormalization n -> Relu h -> Gemm w2, b -> y; statistics that are no
   good, the mean's after an Identity. */
static void normalized_net(graph_case *g, const distill_net *net, const float *mean,
                           const float *variance)
{
    static const float ones[HIDDEN] = {1, 1, 1, 1, 1, 1, 1, 1}, zeros[HIDDEN] = {0};
    pare_ctx ctx = g->ctx;
    graph_close(g);
    distill_usual_net(g, net, -1);
    g->ctx.log = ctx.log;
    g->ctx.log_user = ctx.log_user;
    g->ctx.interrupted = ctx.interrupted;
    graph_floats(g, "scale", 1, (int64_t[]){HIDDEN}, ones);
    graph_floats(g, "bias", 1, (int64_t[]){HIDDEN}, zeros);
    graph_floats(g, "mean0", 1, (int64_t[]){HIDDEN}, mean);
    graph_floats(g, "variance", 1, (int64_t[]){HIDDEN}, variance);
    graph_node(g, "Identity", "mean0", "mean");
    graph_node(g, "BatchNormalization", "z scale bias mean variance", "n");
    pare_node *relu = graph_value(g, "h")->producer;
    assert_int_equal(pare_node_set_in(relu, 0, graph_value(g, "n")), PARE_OK);
}

static void moments(const distill_net *net, int unit, double *mean, double *variance)
{
    double sum = 0, squares = 0;
    for (int s = 0; s < SAMPLES; s++) {
        double z = 0;
        for (int i = 0; i < WIDTH; i++) z += (double)distill_x[s][i] * (double)net->w1[i][unit];
        sum += z;
        squares += z * z;
    }
    *mean = sum / SAMPLES;
    *variance = squares / SAMPLES - *mean * *mean;
}

/* A student that differs from its teacher in its statistics alone. */
static void open_normalized(distill_case *c, pare_batchnorm_mode mode, int threads)
{
    float mean[2][HIDDEN], variance[2][HIDDEN];
    distill_open(c, -1, LABELS_NONE);
    for (int j = 0; j < HIDDEN; j++) {
        double m, v;
        moments(&c->t, j, &m, &v);
        mean[0][j] = (float)m;
        variance[0][j] = (float)v;
        mean[1][j] = (float)m + 1;
        variance[1][j] = 2 * (float)v;
    }
    c->s = c->t;
    normalized_net(&c->teacher, &c->t, mean[0], variance[0]);
    normalized_net(&c->student, &c->s, mean[1], variance[1]);
    c->options.batchnorm = mode;
    c->options.bn_recalib_samples = 0;
    c->options.threads = threads;
    c->options.learning_rate = 1e-30;
    c->options.batch = SAMPLES;
    c->options.steps = 2;
}

/* The data's own, which are the teacher's, are better than the student's. */
static void statistics_are_estimated_anew(void **state)
{
    distill_case c;
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        open_normalized(&c, PARE_BATCHNORM_TRAIN, threads);
        c.options.bn_recalib_samples = 1000;
        distill_expect_ok(&c, NULL);
        assert_int_equal(c.result.estimated, 1);
        assert_true(c.result.before.loss < 1e-6);
        assert_non_null(strstr(c.log, "1 BatchNormalization nodes estimated again"));
        for (int j = 0; j < HIDDEN; j++) {
            double m, v;
            moments(&c.t, j, &m, &v);
            distill_expect_near((double)distill_weight(&c.student, "mean")[j], m, 1e-5);
            distill_expect_near((double)distill_weight(&c.student, "variance")[j], v, 1e-5 * v);
        }
        distill_close(&c);
    }
}

/* The first n allocations succeed, for all n until all do: bf16 and the estimate among them. */
static void every_allocation_may_fail(void **state)
{
    distill_case c;
    pare_status st = PARE_MEMORY;
    long n = 0;
    (void)state;
    open_normalized(&c, PARE_BATCHNORM_HALF, 1);
    c.options.bn_recalib_samples = 1000;
    c.options.precision = PARE_TRAIN_BF16;
    c.options.steps = 2;
    const float *mean = distill_weight(&c.student, "mean0");
    for (; st != PARE_OK; n++) {
        pare_ctx_clear(c.ctx);
        c.ctx->fail_after = n;
        st = distill_run(&c, NULL);
        if (st == PARE_OK) break;
        if (st != PARE_MEMORY) fail_msg("allocation %ld: %d, %s", n, st, c.ctx->message);
        assert_true(*c.ctx->message);
        assert_ptr_equal(distill_weight(&c.student, "mean0"), mean);
    }
    c.ctx->fail_after = -1;
    assert_true(n > 100);
    assert_int_equal(c.result.estimated, 1);
    distill_close(&c);
}

/* The teacher's are others than the data's: the student's, which are the teacher's, stay. */
static void worse_statistics_are_not_used(void **state)
{
    distill_case c;
    float mean[HIDDEN], variance[HIDDEN];
    (void)state;
    open_normalized(&c, PARE_BATCHNORM_TRAIN, 1);
    memcpy(mean, distill_weight(&c.student, "mean0"), sizeof mean);
    memcpy(variance, distill_weight(&c.student, "variance"), sizeof variance);
    normalized_net(&c.teacher, &c.t, mean, variance);
    c.options.bn_recalib_samples = 1000;
    c.options.steps = 1;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.estimated, 0);
    assert_int_equal(c.result.best_step, 0);
    assert_memory_equal(distill_weight(&c.student, "mean"), mean, sizeof mean);
    assert_memory_equal(distill_weight(&c.student, "variance"), variance, sizeof variance);
    distill_close(&c);
}

static void running_statistics_follow_the_batch(void **state)
{
    distill_case c;
    (void)state;
    open_normalized(&c, PARE_BATCHNORM_TRAIN, 1);
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.best_step, 2);
    assert_int_equal(c.result.weights, 5);
    for (int j = 0; j < HIDDEN; j++) {
        double m, v;
        moments(&c.t, j, &m, &v);
        distill_expect_near((double)distill_weight(&c.student, "mean")[j], m + 0.81, 1e-5);
        distill_expect_near((double)distill_weight(&c.student, "variance")[j], v * (1 + 0.81),
                            1e-5 * v);
    }
    assert_int_equal(graph_count(&c.student, "Identity"), 0); /* its tensor now is its own */
    assert_int_equal(c.student.model->graph->init.count, 7);
    const double best = c.result.after.loss;
    c.options.steps = 1;
    distill_expect_ok(&c, NULL);
    distill_expect_near(c.result.before.loss, best, 0);
    distill_close(&c);
}

static void frozen_statistics_stay(void **state)
{
    distill_case c;
    (void)state;
    open_normalized(&c, PARE_BATCHNORM_FROZEN, 1);
    float before[HIDDEN];
    memcpy(before, distill_weight(&c.student, "variance"), sizeof before);
    c.options.learning_rate = 0.01;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.best_step, 2);
    assert_memory_equal(distill_weight(&c.student, "variance"), before, sizeof before);
    assert_int_equal(graph_count(&c.student, "Identity"), 1);
    distill_close(&c);
}

/* Half of the steps as PARE_BATCHNORM_TRAIN makes them, the others as PARE_BATCHNORM_FROZEN. */
static void statistics_freeze_after_half_of_the_steps(void **state)
{
    static const char *const names[] = {"mean", "variance", "scale", "bias", "w1", "w2", "b"};
    const pare_batchnorm_mode modes[2] = {PARE_BATCHNORM_HALF, PARE_BATCHNORM_TRAIN};
    distill_case c[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_normalized(&c[i], modes[i], 1 + i);
        c[i].options.optimizer = PARE_OPTIMIZER_SGD;
        c[i].options.schedule = PARE_SCHEDULE_CONSTANT;
        c[i].options.momentum = 0;
        c[i].options.warmup = 0;
        c[i].options.learning_rate = 0.01;
        c[i].options.steps = i ? 1 : 2;
        distill_expect_ok(&c[i], NULL);
        assert_int_equal(c[i].result.best_step, c[i].options.steps);
    }
    c[1].options.batchnorm = PARE_BATCHNORM_FROZEN;
    c[1].options.start = SAMPLES;
    distill_expect_ok(&c[1], NULL);
    assert_int_equal(c[1].result.best_step, 1);
    assert_int_equal(c[0].result.weights, c[1].result.weights);
    for (int i = 0; i < 7; i++) {
        const pare_tensor *t = graph_value(&c[0].student, names[i])->data;
        assert_memory_equal(t->data, distill_weight(&c[1].student, names[i]), t->bytes);
    }
    distill_close(&c[0]);
    distill_close(&c[1]);
}

static void half_of_the_steps_needs_no_normalization(void **state)
{
    distill_case c[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        distill_open(&c[i], -1, LABELS_NONE);
        c[i].options.steps = 4;
        c[i].options.batchnorm = i ? PARE_BATCHNORM_HALF : PARE_BATCHNORM_TRAIN;
        distill_expect_ok(&c[i], NULL);
    }
    distill_same_net(&c[0], &c[1], true);
    distill_close(&c[0]);
    distill_close(&c[1]);
}

/* The batch's statistics are summed over microbatches in one tree. */
static void statistics_do_not_depend_on_threads(void **state)
{
    distill_case c[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_normalized(&c[i], PARE_BATCHNORM_TRAIN, i + 1);
        c[i].options.learning_rate = 0.01;
        c[i].options.steps = 12;
        c[i].options.batch = 24;
        c[i].options.accumulate = 2;
        c[i].options.ema_decay = 0.8;
        distill_expect_ok(&c[i], NULL);
        assert_true(c[i].result.best_step > 0);
    }
    distill_same_net(&c[0], &c[1], true);
    static const char *const names[] = {"mean", "variance", "scale", "bias"};
    for (int i = 0; i < 4; i++)
        assert_memory_equal(distill_weight(&c[0].student, names[i]),
                            distill_weight(&c[1].student, names[i]), HIDDEN * sizeof(float));
    distill_close(&c[0]);
    distill_close(&c[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_estimated_anew),
        cmocka_unit_test(worse_statistics_are_not_used),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(running_statistics_follow_the_batch),
        cmocka_unit_test(frozen_statistics_stay),
        cmocka_unit_test(statistics_freeze_after_half_of_the_steps),
        cmocka_unit_test(half_of_the_steps_needs_no_normalization),
        cmocka_unit_test(statistics_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, distill_setup, distill_teardown);
}
