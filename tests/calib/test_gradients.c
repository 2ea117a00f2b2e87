/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients run by run, and the Taylor score made of them, on x -> MatMul w1 -> Relu -> Gemm w2, b,
   against the same numbers worked out here in double. */
#include "calib/gradients.h"
#include "prune/score.h"
#include "tests/passes/graph_case.h"
#include "tests/warnings.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 23, WIDTH = 4, HIDDEN = 5, CLASSES = 3 };

static char folder[] = "/tmp/pare_gradients_XXXXXX", labelled[64], bare[64], wrong[64];
static float x[SAMPLES][WIDTH], w1[WIDTH][HIDDEN], w2[HIDDEN][CLASSES], b[CLASSES];
static int64_t label[SAMPLES];

static float number(int i) { return sinf((float)i * 1.7f) + 0.3f * cosf((float)i * 0.31f); }

static void write_data(pare_ctx *ctx, const char *path, bool labels, int64_t add)
{
    pare_data_column column[2] = {
        {.name = "x", .dtype = PARE_f32, .shape = {.rank = 1, .dim = {WIDTH}}},
        {.name = "labels", .dtype = PARE_s64, .shape = {.rank = 0}}};
    int64_t moved[SAMPLES];
    pare_data_writer *w = NULL;
    for (int i = 0; i < SAMPLES; i++) moved[i] = label[i] + (i == 7 ? add : 0);
    const void *block[2] = {x, moved};
    assert_int_equal(pare_data_create(ctx, &w, path, column, 1 + labels), PARE_OK);
    assert_int_equal(pare_data_append(w, block, SAMPLES), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

static int setup(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (!mkdtemp(folder)) return -1;
    snprintf(labelled, sizeof labelled, "%s/labelled.h5", folder);
    snprintf(bare, sizeof bare, "%s/bare.h5", folder);
    snprintf(wrong, sizeof wrong, "%s/wrong.h5", folder);
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i / WIDTH][i % WIDTH] = number(i);
    for (int i = 0; i < WIDTH * HIDDEN; i++) w1[i / HIDDEN][i % HIDDEN] = number(i + 500);
    for (int i = 0; i < HIDDEN * CLASSES; i++) w2[i / CLASSES][i % CLASSES] = number(i + 900);
    for (int i = 0; i < CLASSES; i++) b[i] = number(i + 1300);
    for (int i = 0; i < SAMPLES; i++) label[i] = i * 5 % CLASSES;
    write_data(&ctx, labelled, true, 0);
    write_data(&ctx, bare, false, 0);
    write_data(&ctx, wrong, true, CLASSES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(labelled);
    unlink(bare);
    unlink(wrong);
    rmdir(folder);
    return 0;
}

static void open_net(graph_case *g, int64_t batch)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){batch, WIDTH});
    graph_floats(g, "w1", 2, (int64_t[]){WIDTH, HIDDEN}, &w1[0][0]);
    graph_floats(g, "w2", 2, (int64_t[]){HIDDEN, CLASSES}, &w2[0][0]);
    graph_floats(g, "b", 1, (int64_t[]){CLASSES}, b);
    graph_node(g, "MatMul", "x w1", "h");
    graph_node(g, "Relu", "h", "r");
    graph_node(g, "Gemm", "r w2 b", "y");
    graph_output(g, "y");
}

/* r: hidden units; p: softmax less the label's 1 (label -1: the largest logit's). */
static void forward(int s, int64_t to, double *r, double *p)
{
    double sum = 0;
    int best = 0;
    for (int j = 0; j < HIDDEN; j++) {
        r[j] = 0;
        for (int i = 0; i < WIDTH; i++) r[j] += (double)x[s][i] * (double)w1[i][j];
        r[j] = fmax(r[j], 0);
    }
    for (int k = 0; k < CLASSES; k++) {
        p[k] = (double)b[k];
        for (int j = 0; j < HIDDEN; j++) p[k] += r[j] * (double)w2[j][k];
        if (p[k] > p[best]) best = k;
    }
    for (int k = 0; k < CLASSES; k++) sum += exp(p[k]);
    for (int k = 0; k < CLASSES; k++) p[k] = exp(p[k]) / sum;
    p[to < 0 ? best : to] -= 1;
}

static pare_data *open_data(pare_ctx *ctx, const char *path)
{
    pare_data *data = NULL;
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    if (pare_data_open(ctx, &data, path, &in, 1) != PARE_OK) fail_msg("%s", ctx->message);
    return data;
}

static const char *const by[] = {"w1", "w2", "b"};
static int64_t order[SAMPLES];

static pare_gradients_options options_of(int64_t count, int threads, bool top1)
{
    for (int i = 0; i < SAMPLES; i++) order[i] = SAMPLES - 1 - i;
    return (pare_gradients_options){.by = by,
                                    .by_count = 3,
                                    .samples = order,
                                    .sample_count = count,
                                    .threads = threads,
                                    .top1 = top1};
}

static void expect_near(double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed)) fail_msg("%.9g, expected %.9g", got, want);
}

static void expect_run(const float *const *of, int s, int64_t to)
{
    double r[HIDDEN], p[CLASSES];
    forward(s, to, r, p);
    for (int k = 0; k < CLASSES; k++) {
        expect_near(of[2][k], p[k], 1e-6);
        for (int j = 0; j < HIDDEN; j++) expect_near(of[1][j * CLASSES + k], r[j] * p[k], 3e-6);
    }
    for (int j = 0; j < HIDDEN; j++) {
        double dh = 0;
        for (int k = 0; k < CLASSES && r[j] > 0; k++) dh += p[k] * (double)w2[j][k];
        for (int i = 0; i < WIDTH; i++)
            expect_near(of[0][i * HIDDEN + j], (double)x[s][i] * dh, 3e-6);
    }
}

static void check_runs(const char *path, int threads, bool top1, bool labels)
{
    graph_case g;
    pare_gradients *gradients;
    pare_gradients_batch batch = {.count = 1};
    open_net(&g, -1);
    pare_data *data = open_data(&g.ctx, path);
    pare_gradients_options options = options_of(SAMPLES, threads, top1);
    if (pare_gradients_new(&g.ctx, &gradients, g.model, data, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    assert_int_equal(pare_gradients_runs(gradients), SAMPLES);
    int64_t seen = 0;
    while (batch.count) {
        if (pare_gradients_next(gradients, &batch) != PARE_OK) fail_msg("%s", g.ctx.message);
        assert_int_equal(batch.first, seen);
        for (int i = 0; i < batch.count; i++, seen++)
            expect_run(batch.of[i], (int)order[seen], labels ? label[order[seen]] : -1);
    }
    assert_int_equal(seen, SAMPLES);
    pare_gradients_free(gradients);
    pare_data_close(data);
    graph_close(&g);
}

static void each_run_has_its_gradients(void **state)
{
    (void)state;
    check_runs(labelled, 1, false, true);
    check_runs(labelled, 3, false, true);
    check_runs(labelled, 2, true, false);
    check_runs(bare, 2, false, false);
}

static void scores(double *score, int threads)
{
    graph_case g;
    pare_groups *groups;
    open_net(&g, -1);
    assert_int_equal(pare_prune_prepare(&g.ctx, g.model), PARE_OK);
    assert_int_equal(pare_groups_new(&g.ctx, &groups, g.model, NULL), PARE_OK);
    assert_int_equal(groups->coupled_count, HIDDEN);
    pare_data *data = open_data(&g.ctx, labelled);
    pare_gradients_options options = options_of(SAMPLES, threads, false);
    if (pare_score_from_gradients(&g.ctx, score, groups, data, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    pare_data_close(data);
    pare_groups_free(groups);
    graph_close(&g);
}

/* Hidden unit j is read by row j of w2: sum over k of w2[j][k] r[j] p[k]. */
static void the_taylor_score_is_the_change_of_the_loss(void **state)
{
    (void)state;
    double want[HIDDEN] = {0}, one[HIDDEN], four[HIDDEN];
    for (int s = 0; s < SAMPLES; s++) {
        double r[HIDDEN], p[CLASSES];
        forward(s, label[s], r, p);
        for (int j = 0; j < HIDDEN; j++) {
            double sum = 0;
            for (int k = 0; k < CLASSES; k++) sum += (double)w2[j][k] * r[j] * p[k];
            want[j] += fabs(sum) / SAMPLES;
        }
    }
    scores(one, 1);
    scores(four, 4);
    for (int j = 0; j < HIDDEN; j++) expect_near(one[j], want[j], 1e-6);
    assert_memory_equal(one, four, sizeof one);
}

/* Of w2[j][k]: the mean of |w2[j][k] r[j] p[k]|. */
static void single_weights_are_scored(void **state)
{
    (void)state;
    graph_case g;
    double w1_score[WIDTH * HIDDEN], w2_score[HIDDEN * CLASSES], b_score[CLASSES];
    double want[HIDDEN * CLASSES] = {0}, *score[] = {w1_score, w2_score, b_score};
    for (int s = 0; s < SAMPLES; s++) {
        double r[HIDDEN], p[CLASSES];
        forward(s, label[s], r, p);
        for (int i = 0; i < HIDDEN * CLASSES; i++)
            want[i] +=
                fabs((double)w2[i / CLASSES][i % CLASSES] * r[i / CLASSES] * p[i % CLASSES]) /
                SAMPLES;
    }
    open_net(&g, -1);
    pare_data *data = open_data(&g.ctx, labelled);
    pare_gradients_options options = options_of(SAMPLES, 2, false);
    if (pare_score_weights_from_gradients(&g.ctx, score, g.model, data, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    for (int i = 0; i < HIDDEN * CLASSES; i++) expect_near(w2_score[i], want[i], 1e-6);
    pare_data_close(data);
    graph_close(&g);
}

static void expect_refusal(graph_case *g, const char *path, pare_gradients_options options,
                           const char *words)
{
    pare_gradients *gradients = NULL;
    pare_gradients_batch batch = {.count = 1};
    pare_data *data = open_data(&g->ctx, path);
    pare_status st = pare_gradients_new(&g->ctx, &gradients, g->model, data, &options);
    while (st == PARE_OK && batch.count) st = pare_gradients_next(gradients, &batch);
    assert_int_equal(st, PARE_INPUT);
    if (!strstr(g->ctx.message, words)) fail_msg("%s", g->ctx.message);
    pare_gradients_free(gradients);
    pare_data_close(data);
    graph_close(g);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    graph_case g;
    open_net(&g, -1);
    expect_refusal(&g, wrong, options_of(SAMPLES, 2, false), "is outside the 3 classes of 'y'");
    open_net(&g, 8);
    expect_refusal(&g, bare, options_of(5, 1, false),
                   "its batch is fixed to 8, but only 5 samples");
    open_net(&g, -1);
    graph_ints(&g, "axes", 1, (int64_t[]){1}, (int64_t[]){1});
    graph_node(&g, "Unsqueeze", "y axes", "z");
    g.model->graph->out.count = 0;
    graph_output(&g, "z");
    expect_refusal(&g, bare, options_of(5, 1, false), "output 'z' f32 [1,1,3] is no classifier's");
}

/* CumSum has no rule: w1 stays as it is, w2 and b have their gradients. */
static void weights_behind_an_operator_without_a_rule_freeze(void **state)
{
    (void)state;
    graph_case g;
    pare_gradients *gradients;
    pare_gradients_batch batch;
    open_net(&g, -1);
    graph_ints(&g, "axis", 0, NULL, (int64_t[]){1});
    graph_node(&g, "CumSum", "h axis", "c");
    pare_node *relu = g.model->graph->node[1];
    assert_int_equal(pare_node_set_in(relu, 0, graph_value(&g, "c")), PARE_OK);
    hear_warnings(&g.ctx);
    pare_data *data = open_data(&g.ctx, bare);
    pare_gradients_options options = options_of(1, 1, false);
    if (pare_gradients_new(&g.ctx, &gradients, g.model, data, &options) != PARE_OK ||
        pare_gradients_next(gradients, &batch) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    assert_null(batch.of[0][0]);
    assert_non_null(batch.of[0][1]);
    assert_non_null(batch.of[0][2]);
    assert_string_equal(warning, "m.onnx: node 'c' (CumSum): it has no gradient rule; weights that "
                                 "reach the loss only through it stay as they are");
    assert_string_equal(g.ctx.message, "");
    pare_gradients_free(gradients);
    pare_data_close(data);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_run_has_its_gradients),
        cmocka_unit_test(the_taylor_score_is_the_change_of_the_loss),
        cmocka_unit_test(single_weights_are_scored),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(weights_behind_an_operator_without_a_rule_freeze),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
