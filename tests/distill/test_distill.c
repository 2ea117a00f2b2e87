/* SPDX-License-Identifier: Apache-2.0 */
/* Training from end to end: the loss and its gradient against the same worked out in double, and
   what the options, a stop and the threads do to the result. */
#include "tests/distill/distill_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_near(double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed)) fail_msg("%.9g, expected %.9g", got, want);
}

/* --- by hand --- */

static void forward(const distill_net *net, int sample, double *h, double *y)
{
    for (int j = 0; j < HIDDEN; j++) {
        h[j] = 0;
        for (int i = 0; i < WIDTH; i++)
            h[j] += (double)distill_x[sample][i] * (double)net->w1[i][j];
        h[j] = fmax(h[j], 0);
    }
    for (int k = 0; k < CLASSES; k++) {
        y[k] = (double)net->b[k];
        for (int j = 0; j < HIDDEN; j++) y[k] += h[j] * (double)net->w2[j][k];
    }
}

static double log_sum(const double *y, double temperature)
{
    double sum = 0;
    for (int k = 0; k < CLASSES; k++) sum += exp(y[k] / temperature);
    return log(sum);
}

static double kl_of(const double *s, const double *t, double temperature)
{
    double sum = 0, of_s = log_sum(s, temperature), of_t = log_sum(t, temperature);
    for (int k = 0; k < CLASSES; k++) {
        double log_t = t[k] / temperature - of_t, log_s = s[k] / temperature - of_s;
        sum += exp(log_t) * (log_t - log_s);
    }
    return sum * temperature * temperature;
}

static double cosine_of(const double *s, const double *t)
{
    double st = 0, ss = 0, tt = 0;
    for (int k = 0; k < CLASSES; k++) {
        st += s[k] * t[k];
        ss += s[k] * s[k];
        tt += t[k] * t[k];
    }
    return 1 - st / sqrt(ss * tt);
}

static double square_of(const double *s, const double *t, int count)
{
    double sum = 0;
    for (int k = 0; k < count; k++) sum += (s[k] - t[k]) * (s[k] - t[k]);
    return sum / count;
}

typedef struct by_hand {
    double kl2, kl4, mse, cosine, feature, ce, agreement, top1;
} by_hand;

static int top1(const double *y) { return y[1] > y[0] ? y[2] > y[1] ? 2 : 1 : y[2] > y[0] ? 2 : 0; }

static by_hand work_out(const distill_case *c)
{
    by_hand sum = {0};
    for (int i = 0; i < SAMPLES; i++) {
        double hs[HIDDEN], ht[HIDDEN], s[CLASSES], t[CLASSES];
        forward(&c->s, i, hs, s);
        forward(&c->t, i, ht, t);
        sum.kl2 += kl_of(s, t, 2) / SAMPLES;
        sum.kl4 += kl_of(s, t, 4) / SAMPLES;
        sum.mse += square_of(s, t, CLASSES) / SAMPLES;
        sum.cosine += cosine_of(s, t) / SAMPLES;
        sum.feature += square_of(hs, ht, HIDDEN) / SAMPLES;
        sum.ce += (log_sum(s, 1) - s[distill_label[i]]) / SAMPLES;
        sum.agreement += (double)(top1(s) == top1(t)) / SAMPLES;
        sum.top1 += (double)(top1(s) == distill_label[i]) / SAMPLES;
    }
    return sum;
}

static void every_term_is_its_formula(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_RIGHT);
    c.options.steps = 1;
    const by_hand want = work_out(&c);
    const struct {
        const char *loss;
        double value;
    } cases[] = {{NULL, want.kl2},
                 {"kl:4", want.kl4},
                 {"mse", want.mse},
                 {"cosine", want.cosine},
                 {"feature:h", want.feature},
                 {"ce", want.ce},
                 {"kl:2*0.5,ce*3,feature:h=h", 0.5 * want.kl2 + 3 * want.ce + want.feature}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.options.rate = 1e-30; /* the student stays as it is */
        distill_expect_ok(&c, cases[i].loss);
        expect_near(c.result.before.loss, cases[i].value, 3e-6 * (1 + cases[i].value));
        expect_near(c.result.before.agreement, want.agreement, 1e-12);
        expect_near(c.result.before.top1, want.top1, 1e-12);
    }
    distill_close(&c);
}

/* One step of plain gradient descent on the mean squared error, all samples in the batch. */
static void a_step_goes_down_the_gradient(void **state)
{
    distill_case c;
    double db[CLASSES] = {0}, dw2[HIDDEN][CLASSES] = {{0}};
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    for (int i = 0; i < SAMPLES; i++) {
        double hs[HIDDEN], ht[HIDDEN], s[CLASSES], t[CLASSES];
        forward(&c.s, i, hs, s);
        forward(&c.t, i, ht, t);
        for (int k = 0; k < CLASSES; k++) {
            double d = 2 * (s[k] - t[k]) / (SAMPLES * CLASSES);
            db[k] += d;
            for (int j = 0; j < HIDDEN; j++) dw2[j][k] += hs[j] * d;
        }
    }
    c.options.optimizer = PARE_OPTIMIZER_SGD;
    c.options.schedule = PARE_SCHEDULE_CONSTANT;
    c.options.decay = 0;
    c.options.rate = 0.01;
    c.options.batch = SAMPLES / 2;
    c.options.accumulate = 2;
    distill_expect_ok(&c, "mse");
    assert_int_equal(c.result.steps, 1);
    assert_int_equal(c.result.best_step, 1);
    const float *b = distill_weight(&c.student, "b"), *w2 = distill_weight(&c.student, "w2");
    for (int k = 0; k < CLASSES; k++) {
        expect_near((double)b[k], (double)c.s.b[k] - 0.01 * db[k], 2e-7);
        for (int j = 0; j < HIDDEN; j++)
            expect_near((double)w2[j * CLASSES + k], (double)c.s.w2[j][k] - 0.01 * dw2[j][k], 2e-7);
    }
    distill_close(&c);
}

/* --- what comes of it --- */

static void a_student_learns(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.epochs = 100;
    c.options.rate = 0.02;
    c.options.average = 0.9;
    c.options.clip = 1;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.end, PARE_DISTILL_COMPLETE);
    assert_int_equal(c.result.steps, 400);
    assert_int_equal(c.events, 401);
    assert_int_equal(c.validations, 401); /* four an epoch, and an epoch has four steps */
    assert_int_equal(c.result.weights, 3);
    assert_int_equal(c.result.train_samples, SAMPLES);
    assert_true(c.result.after.loss < 0.02 * c.result.before.loss);
    assert_true(c.result.after.agreement > 0.9);
    assert_true(c.result.after.top1 < 0);
    assert_memory_equal(distill_weight(&c.teacher, "w1"), c.t.w1, sizeof c.t.w1);
    distill_close(&c);
}

/* The result is the best that was validated: its score is that of the student that is written. */
static void the_best_is_the_result(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.steps = 40;
    c.options.rate = 0.5; /* far too high: later is not better */
    c.options.schedule = PARE_SCHEDULE_CONSTANT;
    c.options.validate_every = 1;
    c.options.patience = 6;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.end, PARE_DISTILL_PATIENCE);
    assert_int_equal(c.result.steps, c.result.best_step + 6);
    const double best = c.result.after.loss;
    c.options.steps = 1;
    distill_expect_ok(&c, NULL);
    expect_near(c.result.before.loss, best, 0);
    distill_close(&c);
}

static void train_with(distill_case *c, int threads, uint64_t seed)
{
    distill_open(c, -1, LABELS_NONE);
    c->options.threads = threads;
    c->options.seed = seed;
    c->options.epochs = 3;
    c->options.rate = 0.01;
    distill_expect_ok(c, "kl:2,feature:h*0.1");
}

static void same_net(const distill_case *a, const distill_case *b, bool same)
{
    assert_int_equal(!memcmp(distill_weight(&a->student, "w1"), distill_weight(&b->student, "w1"),
                             sizeof a->s.w1),
                     same);
    assert_int_equal(!memcmp(distill_weight(&a->student, "w2"), distill_weight(&b->student, "w2"),
                             sizeof a->s.w2),
                     same);
}

static void the_seed_alone_decides(void **state)
{
    distill_case one, two, three, other;
    (void)state;
    train_with(&one, 1, 5);
    train_with(&two, 2, 5);
    train_with(&three, 3, 5);
    train_with(&other, 1, 6);
    same_net(&one, &two, true);
    same_net(&one, &three, true);
    same_net(&one, &other, false);
    assert_string_equal(one.result.data_hash, two.result.data_hash);
    distill_close(&one);
    distill_close(&two);
    distill_close(&three);
    distill_close(&other);
}

/* A third of w1 is zero, and of w2 less than a fifth. */
static void zeros_are_kept(void **state)
{
    (void)state;
    for (int train = 0; train < 2; train++) {
        distill_case c;
        distill_open(&c, -1, LABELS_NONE);
        float *w1 = (float *)(uintptr_t)distill_weight(&c.student, "w1");
        float *w2 = (float *)(uintptr_t)distill_weight(&c.student, "w2");
        for (int i = 0; i < WIDTH * HIDDEN; i += 3) w1[i] = 0;
        for (int i = 0; i < HIDDEN * CLASSES; i += 8) w2[i] = 0;
        c.options.train_zeros = train;
        c.options.average = 0.5;
        c.options.rate = 0.01;
        distill_expect_ok(&c, NULL);
        assert_true(c.result.best_step > 0);
        int kept = 0, kept2 = 0;
        w1 = (float *)(uintptr_t)distill_weight(&c.student, "w1");
        w2 = (float *)(uintptr_t)distill_weight(&c.student, "w2");
        for (int i = 0; i < WIDTH * HIDDEN; i++) kept += w1[i] == 0;
        for (int i = 0; i < HIDDEN * CLASSES; i++) kept2 += w2[i] == 0;
        /* a weight of a unit that is 0 for every sample has no gradient */
        assert_true(train ? kept < WIDTH * HIDDEN / 8 : kept == WIDTH * HIDDEN / 3);
        assert_true(kept2 < HIDDEN * CLASSES / 8);
        assert_int_equal(strstr(c.log, "'w1'") != NULL, !train);
        assert_null(strstr(c.log, "'w2'"));
        distill_close(&c);
    }
}

/* From a smaller share on, those of w2, too. */
static void few_zeros_are_kept_where_asked(void **state)
{
    distill_case c;
    int kept = 0;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    float *w2 = (float *)(uintptr_t)distill_weight(&c.student, "w2");
    for (int i = 0; i < HIDDEN * CLASSES; i += 8) w2[i] = 0;
    c.options.zeros_from = 0;
    c.options.rate = 0.01;
    distill_expect_ok(&c, NULL);
    w2 = (float *)(uintptr_t)distill_weight(&c.student, "w2");
    for (int i = 0; i < HIDDEN * CLASSES; i++) kept += w2[i] == 0;
    assert_int_equal(kept, HIDDEN * CLASSES / 8);
    distill_close(&c);
}

static void a_stop_gives_the_best_so_far(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.epochs = 50;
    c.options.rate = 0.01;
    c.options.validate_every = 2;
    c.stop_at = 5;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.end, PARE_DISTILL_INTERRUPTED);
    assert_int_equal(c.result.steps, 5);
    assert_int_equal(c.result.best_step, 4);
    assert_true(c.result.after.loss < c.result.before.loss);
    assert_string_equal(c.ctx->message, "");
    distill_close(&c);
}

/* Slices are of that batch; the last of the held-out samples do not fill one. */
static void a_fixed_batch_is_used(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, 5, LABELS_NONE);
    c.options.epochs = 4;
    c.options.rate = 0.01;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.batch, 15);
    assert_int_equal(c.result.held_out, 60);
    assert_non_null(strstr(c.log, "fixed to 5"));
    assert_true(c.result.after.loss < c.result.before.loss);
    distill_close(&c);
}

/* Some of the data are held out where there are no others. */
static void samples_are_held_out(void **state)
{
    distill_case c;
    static const int64_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    (void)state;
    distill_open(&c, -1, LABELS_RIGHT);
    pare_data_close(c.options.held_out);
    c.options.held_out = NULL;
    c.options.samples = odd;
    c.options.sample_count = 32;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.held_out, 2); /* 2 %, rounded up to a slice */
    assert_int_equal(c.result.train_samples, 30);
    distill_close(&c);
}

/* Or those that are named, of which two fill a slice. */
static void named_samples_are_held_out(void **state)
{
    distill_case c, same;
    static const int64_t even[9] = {0, 2, 8, 10, 20, 30, 40, 50, 60}, rest[3] = {1, 3, 5};
    (void)state;
    distill_open(&c, -1, LABELS_RIGHT);
    pare_data_close(c.options.held_out);
    c.options.held_out = NULL;
    c.options.samples = rest;
    c.options.sample_count = 3;
    c.options.held_sample = even;
    c.options.held_count = 9;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.held_out, 8);
    assert_int_equal(c.result.train_samples, 3);
    distill_open(&same, -1, LABELS_RIGHT);
    pare_data_close(same.options.held_out);
    same.options.held_out = NULL;
    same.options.samples = rest;
    same.options.sample_count = 3;
    same.options.held_sample = even + 1; /* others: another score */
    same.options.held_count = 8;
    distill_expect_ok(&same, NULL);
    assert_true(same.result.before.loss != c.result.before.loss);
    distill_close(&same);
    distill_close(&c);
}

/* Two trainings, the second from where the first one ended, are one of both lengths. */
static void a_training_begins_where_one_ended(void **state)
{
    distill_case c[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        distill_open(&c[k], -1, LABELS_NONE);
        c[k].options.optimizer = PARE_OPTIMIZER_SGD;
        c[k].options.schedule = PARE_SCHEDULE_CONSTANT;
        c[k].options.momentum = c[k].options.decay = 0;
        c[k].options.rate = 0.01;
        c[k].options.validate_every = 1;
        c[k].options.warmup = 0;
        c[k].options.steps = k ? 3 : 6;
        distill_expect_ok(&c[k], NULL);
        assert_int_equal(c[k].result.best_step, c[k].options.steps);
    }
    c[1].options.start = 3 * c[1].options.batch;
    distill_expect_ok(&c[1], NULL);
    assert_int_equal(c[1].result.best_step, 3);
    same_net(&c[0], &c[1], true);
    distill_close(&c[0]);
    distill_close(&c[1]);
}

/* --- BatchNormalization --- */

/* x -> MatMul w1 z -> BatchNormalization n -> Relu h -> Gemm w2, b -> y; statistics that are no
   good, the mean's behind an Identity. */
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
    c->options.norm_samples = 0;
    c->options.threads = threads;
    c->options.rate = 1e-30;
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
        c.options.norm_samples = 1000;
        distill_expect_ok(&c, NULL);
        assert_int_equal(c.result.estimated, 1);
        assert_true(c.result.before.loss < 1e-6);
        assert_non_null(strstr(c.log, "1 BatchNormalization nodes estimated anew"));
        for (int j = 0; j < HIDDEN; j++) {
            double m, v;
            moments(&c.t, j, &m, &v);
            expect_near((double)distill_weight(&c.student, "mean")[j], m, 1e-5);
            expect_near((double)distill_weight(&c.student, "variance")[j], v, 1e-5 * v);
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
    c.options.norm_samples = 1000;
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
    c.options.norm_samples = 1000;
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
        expect_near((double)distill_weight(&c.student, "mean")[j], m + 0.81, 1e-5);
        expect_near((double)distill_weight(&c.student, "variance")[j], v * (1 + 0.81), 1e-5 * v);
    }
    assert_int_equal(graph_count(&c.student, "Identity"), 0); /* its tensor now is its own */
    assert_int_equal(c.student.model->graph->init.count, 7);
    const double best = c.result.after.loss;
    c.options.steps = 1;
    distill_expect_ok(&c, NULL);
    expect_near(c.result.before.loss, best, 0);
    distill_close(&c);
}

static void frozen_statistics_stay(void **state)
{
    distill_case c;
    (void)state;
    open_normalized(&c, PARE_BATCHNORM_FROZEN, 1);
    float before[HIDDEN];
    memcpy(before, distill_weight(&c.student, "variance"), sizeof before);
    c.options.rate = 0.01;
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
        c[i].options.rate = 0.01;
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
    same_net(&c[0], &c[1], true);
    distill_close(&c[0]);
    distill_close(&c[1]);
}

/* The batch's statistics are summed over slices in order. */
static void statistics_do_not_depend_on_threads(void **state)
{
    distill_case c[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_normalized(&c[i], PARE_BATCHNORM_TRAIN, i + 1);
        c[i].options.rate = 0.01;
        c[i].options.steps = 12;
        c[i].options.batch = 24;
        c[i].options.accumulate = 2;
        c[i].options.average = 0.8;
        distill_expect_ok(&c[i], NULL);
        assert_true(c[i].result.best_step > 0);
    }
    same_net(&c[0], &c[1], true);
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
        cmocka_unit_test(every_term_is_its_formula),
        cmocka_unit_test(a_step_goes_down_the_gradient),
        cmocka_unit_test(a_student_learns),
        cmocka_unit_test(the_best_is_the_result),
        cmocka_unit_test(the_seed_alone_decides),
        cmocka_unit_test(zeros_are_kept),
        cmocka_unit_test(few_zeros_are_kept_where_asked),
        cmocka_unit_test(a_stop_gives_the_best_so_far),
        cmocka_unit_test(a_fixed_batch_is_used),
        cmocka_unit_test(samples_are_held_out),
        cmocka_unit_test(named_samples_are_held_out),
        cmocka_unit_test(a_training_begins_where_one_ended),
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
