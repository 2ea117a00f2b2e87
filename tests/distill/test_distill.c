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
        c.options.learning_rate = 1e-30; /* the student stays as it is */
        distill_expect_ok(&c, cases[i].loss);
        distill_expect_near(c.result.before.loss, cases[i].value, 3e-6 * (1 + cases[i].value));
        distill_expect_near(c.result.before.agreement, want.agreement, 1e-12);
        distill_expect_near(c.result.before.top1, want.top1, 1e-12);
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
    c.options.weight_decay = 0;
    c.options.learning_rate = 0.01;
    c.options.batch = SAMPLES / 2;
    c.options.accumulate = 2;
    distill_expect_ok(&c, "mse");
    assert_int_equal(c.result.steps, 1);
    assert_int_equal(c.result.best_step, 1);
    const float *b = distill_weight(&c.student, "b"), *w2 = distill_weight(&c.student, "w2");
    for (int k = 0; k < CLASSES; k++) {
        distill_expect_near((double)b[k], (double)c.s.b[k] - 0.01 * db[k], 2e-7);
        for (int j = 0; j < HIDDEN; j++)
            distill_expect_near((double)w2[j * CLASSES + k],
                                (double)c.s.w2[j][k] - 0.01 * dw2[j][k], 2e-7);
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
    c.options.learning_rate = 0.02;
    c.options.ema_decay = 0.9;
    c.options.grad_clip_norm = 1;
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
    c.options.learning_rate = 0.5; /* far too high: later is not better */
    c.options.schedule = PARE_SCHEDULE_CONSTANT;
    c.options.validate_every = 1;
    c.options.patience = 6;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.end, PARE_DISTILL_PATIENCE);
    assert_int_equal(c.result.steps, c.result.best_step + 6);
    const double best = c.result.after.loss;
    c.options.steps = 1;
    distill_expect_ok(&c, NULL);
    distill_expect_near(c.result.before.loss, best, 0);
    distill_close(&c);
}

static void train_with(distill_case *c, int threads, uint64_t seed)
{
    distill_open(c, -1, LABELS_NONE);
    c->options.threads = threads;
    c->options.seed = seed;
    c->options.epochs = 3;
    c->options.learning_rate = 0.01;
    distill_expect_ok(c, "kl:2,feature:h*0.1");
}

static void the_seed_alone_decides(void **state)
{
    distill_case one, two, three, other;
    (void)state;
    train_with(&one, 1, 5);
    train_with(&two, 2, 5);
    train_with(&three, 3, 5);
    train_with(&other, 1, 6);
    distill_same_net(&one, &two, true);
    distill_same_net(&one, &three, true);
    distill_same_net(&one, &other, false);
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
        c.options.ema_decay = 0.5;
        c.options.learning_rate = 0.01;
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
        assert_int_equal(c.result.zero_count, !train);
        assert_int_equal(c.zeros_told, !train);
        if (!train) assert_string_equal(c.result.zeros[0], "w1");
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
    c.options.learning_rate = 0.01;
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
    c.options.learning_rate = 0.01;
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

static pare_status stop_now(void *user, const pare_distill_event *event)
{
    distill_case *c = user;
    assert_int_equal(event->step, 0);
    c->stop = 1;
    return PARE_OK;
}

static void a_stop_before_the_first_step_gives_nothing(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.event = stop_now;
    distill_expect_refusal(&c, NULL, PARE_INTERRUPTED, "interrupted");
    assert_int_equal(c.result.checkpoint, -1);
    assert_memory_equal(distill_weight(&c.student, "w1"), c.s.w1, sizeof c.s.w1);
    distill_close(&c);
}

/* Slices are of that batch; the last of the held-out samples do not fill one. */
static void a_fixed_batch_is_used(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, 5, LABELS_NONE);
    c.options.epochs = 4;
    c.options.learning_rate = 0.01;
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
        c[k].options.momentum = c[k].options.weight_decay = 0;
        c[k].options.learning_rate = 0.01;
        c[k].options.validate_every = 1;
        c[k].options.warmup = 0;
        c[k].options.steps = k ? 3 : 6;
        distill_expect_ok(&c[k], NULL);
        assert_int_equal(c[k].result.best_step, c[k].options.steps);
    }
    c[1].options.start = 3 * c[1].options.batch;
    distill_expect_ok(&c[1], NULL);
    assert_int_equal(c[1].result.best_step, 3);
    distill_same_net(&c[0], &c[1], true);
    distill_close(&c[0]);
    distill_close(&c[1]);
}

/* A Softmax at the end is a classifier's; one in between weighs values. */
static void attention_takes_a_lower_rate(void **state)
{
    (void)state;
    for (int attends = 0; attends < 2; attends++) {
        graph_case g;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 4});
        graph_node(&g, "Softmax", "x", attends ? "s" : "y");
        if (attends) graph_node(&g, "MatMul", "s x", "y");
        graph_output(&g, "y");
        assert_true(pare_distill_learning_rate(g.model) == (attends ? 3e-4 : 1e-3));
        graph_close(&g);
    }
}

/* Weights, or their running mean, and the gradients of all batches of a step. */
static void events_show_what_is_trained(void **state)
{
    distill_case c;
    (void)state;
    for (int k = 0; k < 2; k++) {
        distill_open(&c, -1, LABELS_NONE);
        c.options.learning_rate = 0.01;
        if (k) c.options.ema_decay = 0.8;
        if (k) c.options.accumulate = 2;
        distill_check_tensors(&c);
        distill_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_takes_a_lower_rate),
        cmocka_unit_test(every_term_is_its_formula),
        cmocka_unit_test(a_step_goes_down_the_gradient),
        cmocka_unit_test(a_student_learns),
        cmocka_unit_test(the_best_is_the_result),
        cmocka_unit_test(the_seed_alone_decides),
        cmocka_unit_test(zeros_are_kept),
        cmocka_unit_test(few_zeros_are_kept_where_asked),
        cmocka_unit_test(a_stop_gives_the_best_so_far),
        cmocka_unit_test(a_stop_before_the_first_step_gives_nothing),
        cmocka_unit_test(a_fixed_batch_is_used),
        cmocka_unit_test(samples_are_held_out),
        cmocka_unit_test(named_samples_are_held_out),
        cmocka_unit_test(a_training_begins_where_one_ended),
        cmocka_unit_test(events_show_what_is_trained),
    };
    return cmocka_run_group_tests(tests, distill_setup, distill_teardown);
}
