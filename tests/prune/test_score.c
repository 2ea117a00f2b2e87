/* SPDX-License-Identifier: Apache-2.0 */
/* Scores and targets on nets small enough to work out by hand. */
#include "prune/score.h"
#include "prune/target.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static pare_status from_weights(pare_ctx *ctx, double *score, const pare_groups *groups,
                                pare_score kind, uint64_t seed)
{
    const pare_score_request request = {.groups = groups, .seed = seed};
    return pare_score_channels(ctx, score, kind, &request);
}

/* 1 -> 3 channels, BatchNormalization, Relu, 3 -> 1, on 2 x 2 pixels. */
typedef struct net {
    graph_case g;
    pare_groups *groups;
    pare_prune_plan *removal;
} net;

static const float first[3] = {1, -2, 0.5F}, second[3] = {3, 1, -0.5F},
                   scale[3] = {0.1F, 0.3F, -0.2F};

static void open_net(net *n, bool norm)
{
    static const float zero[3] = {0, 0, 0}, one[3] = {1, 1, 1};
    graph_open(&n->g, 17);
    graph_input(&n->g, "x", PARE_f32, 4, (int64_t[]){1, 1, 2, 2});
    graph_floats(&n->g, "w1", 4, (int64_t[]){3, 1, 1, 1}, first);
    graph_floats(&n->g, "w2", 4, (int64_t[]){1, 3, 1, 1}, second);
    graph_floats(&n->g, "scale", 1, (int64_t[]){3}, scale);
    graph_floats(&n->g, "zero", 1, (int64_t[]){3}, zero);
    graph_floats(&n->g, "one", 1, (int64_t[]){3}, one);
    graph_node(&n->g, "Conv", "x w1", "a");
    if (norm) graph_node(&n->g, "BatchNormalization", "a scale zero zero one", "b");
    graph_node(&n->g, "Relu", norm ? "b" : "a", "c");
    graph_node(&n->g, "Conv", "c w2", "y");
    graph_output(&n->g, "y");
    assert_int_equal(pare_prune_prepare(&n->g.ctx, n->g.model), PARE_OK);
    assert_int_equal(pare_groups_new(&n->g.ctx, &n->groups, n->g.model, NULL), PARE_OK);
    assert_int_equal(pare_prune_plan_new(&n->g.ctx, &n->removal, n->groups), PARE_OK);
    assert_int_equal(n->groups->coupled_count, 3);
}

static void close_net(net *n)
{
    pare_prune_plan_free(n->removal);
    pare_groups_free(n->groups);
    graph_close(&n->g);
}

static void expect_scores(pare_score kind, const double *want)
{
    net n;
    double score[3];
    open_net(&n, true);
    assert_int_equal(from_weights(&n.g.ctx, score, n.groups, kind, 0), PARE_OK);
    for (int i = 0; i < 3; i++)
        if (!(fabs(score[i] - want[i]) <= 1e-6))
            fail_msg("score %d of channel %d is %g, expected %g", (int)kind, i, score[i], want[i]);
    close_net(&n);
}

/* |w1| + |w2| is 4, 3, 1. */
static void l1(void **state)
{
    (void)state;
    expect_scores(PARE_SCORE_L1, (double[]){12.0 / 8, 9.0 / 8, 3.0 / 8});
}

static void l2(void **state)
{
    (void)state;
    double mean = (sqrt(10) + sqrt(5) + sqrt(0.5)) / 3;
    expect_scores(PARE_SCORE_L2, (double[]){sqrt(10) / mean, sqrt(5) / mean, sqrt(0.5) / mean});
}

static void bn(void **state)
{
    (void)state;
    expect_scores(PARE_SCORE_BN, (double[]){0.5, 1.5, 1});
}

/* Distances between 1, -2 and 0.5: 3 + 0.5, 3 + 2.5, 0.5 + 2.5. */
static void fpgm(void **state)
{
    (void)state;
    expect_scores(PARE_SCORE_FPGM, (double[]){3.5 / 4, 5.5 / 4, 3.0 / 4});
}

static void random_by_seed(void **state)
{
    (void)state;
    net n;
    double a[3], b[3], c[3];
    open_net(&n, true);
    assert_int_equal(from_weights(&n.g.ctx, a, n.groups, PARE_SCORE_RANDOM, 1), PARE_OK);
    assert_int_equal(from_weights(&n.g.ctx, b, n.groups, PARE_SCORE_RANDOM, 1), PARE_OK);
    assert_int_equal(from_weights(&n.g.ctx, c, n.groups, PARE_SCORE_RANDOM, 2), PARE_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    close_net(&n);
}

static void bn_without(void **state)
{
    (void)state;
    net n;
    double score[3];
    open_net(&n, false);
    assert_int_equal(from_weights(&n.g.ctx, score, n.groups, PARE_SCORE_BN, 0), PARE_INPUT);
    assert_non_null(strstr(n.g.ctx.message, "has no BatchNormalization"));
    close_net(&n);
}

/* 3 * 4 + 3 * 4 multiply-adds; each channel makes and feeds 8. */
static void expect_reached(const pare_prune_target *want, double reached, const bool *removed)
{
    net n;
    double score[3], got;
    pare_prune_target target = *want;
    target.cost = pare_target_macs;
    open_net(&n, true);
    assert_int_equal(from_weights(&n.g.ctx, score, n.groups, PARE_SCORE_L1, 0), PARE_OK);
    assert_int_equal(pare_target_reach(&n.g.ctx, n.removal, score, &target, &got), PARE_OK);
    assert_true(got == reached);
    assert_memory_equal(n.removal->removed, removed, 3 * sizeof *removed);
    close_net(&n);
}

static void reaches(void **state)
{
    (void)state;
    expect_reached(&(pare_prune_target){.goal = 24, .round = 1}, 24, (bool[]){false, false, false});
    expect_reached(&(pare_prune_target){.goal = 16, .round = 1}, 16, (bool[]){false, false, true});
    expect_reached(&(pare_prune_target){.goal = 15.9, .round = 1}, 8, (bool[]){false, true, true});
    expect_reached(&(pare_prune_target){.goal = 15.9, .round = 1, .per_layer = true}, 8,
                   (bool[]){false, true, true});
}

/* The last channel stays, --min-channels and --round hold: the nearest is what is reached. */
static void stops(void **state)
{
    (void)state;
    expect_reached(&(pare_prune_target){.goal = 1, .round = 1}, 8, (bool[]){false, true, true});
    expect_reached(&(pare_prune_target){.goal = 1, .round = 1, .floor = 2}, 16,
                   (bool[]){false, false, true});
    expect_reached(&(pare_prune_target){.goal = 1, .round = 2}, 16, (bool[]){false, false, true});
    expect_reached(&(pare_prune_target){.goal = 1, .round = 1, .keep_at_least = 0.5}, 16,
                   (bool[]){false, false, true});
}

/* 1 -> 4 channels, two groups of 2 -> 2, 4 -> 1: what goes of one half goes of the other. */
static void even_parts(void **state)
{
    (void)state;
    static const float a[4] = {1, 2, 9, 8}, b[8] = {1, 1, 1, 1, 1, 1, 1, 1}, c[4] = {1, 2, 9, 8};
    graph_case g;
    pare_groups *groups;
    pare_prune_plan *removal;
    double score[8], reached;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, 1, 1, 1});
    graph_floats(&g, "a", 4, (int64_t[]){4, 1, 1, 1}, a);
    graph_floats(&g, "b", 4, (int64_t[]){4, 2, 1, 1}, b);
    graph_floats(&g, "c", 4, (int64_t[]){1, 4, 1, 1}, c);
    graph_node(&g, "Conv", "x a", "p");
    assert_int_equal(pare_node_set_int(graph_node(&g, "Conv", "p b", "q"), "group", 2), PARE_OK);
    graph_node(&g, "Conv", "q c", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_prune_prepare(&g.ctx, g.model), PARE_OK);
    assert_int_equal(pare_groups_new(&g.ctx, &groups, g.model, NULL), PARE_OK);
    assert_int_equal(pare_prune_plan_new(&g.ctx, &removal, groups), PARE_OK);
    assert_int_equal(groups->coupled_count, 8);
    assert_int_equal(from_weights(&g.ctx, score, groups, PARE_SCORE_L1, 0), PARE_OK);
    pare_prune_target target = {.cost = pare_target_macs, .goal = 6, .round = 1};
    assert_int_equal(pare_target_reach(&g.ctx, removal, score, &target, &reached), PARE_OK);
    assert_true(reached == 6); /* 2 + 2 + 2 of 4 + 8 + 4 */
    assert_int_equal(pare_prune_plan_check(&g.ctx, removal), PARE_OK);
    assert_true(removal->removed[0] && !removal->removed[1]); /* the lesser one of each half */
    assert_true(!removal->removed[2] && removal->removed[3]);
    pare_prune_plan_free(removal);
    pare_groups_free(groups);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l1),
        cmocka_unit_test(l2),
        cmocka_unit_test(bn),
        cmocka_unit_test(fpgm),
        cmocka_unit_test(random_by_seed),
        cmocka_unit_test(bn_without),
        cmocka_unit_test(reaches),
        cmocka_unit_test(stops),
        cmocka_unit_test(even_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
