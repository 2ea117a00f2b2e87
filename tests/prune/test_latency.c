/* SPDX-License-Identifier: Apache-2.0 */
/* Time as a target: forecasts, the search and its correction. Nothing is timed: what a step takes
   and what a model takes are functions of their shapes here. */
#include "prune/latency.h"
#include "tests/prune/prune_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct world {
    graph_case g;
    pare_groups *groups;
    pare_prune_plan *removal;
    pare_plan *plan;
    pare_step_times *times;
    pare_latency *latency;
    double *seconds, *score;
    bool blocks; /* kernels work in whole blocks of 16 channels */
    bool flat;   /* kernels take the same from 9 channels on */
    bool square; /* a step takes the square of what it makes */
    bool fails;
} world;

/* Multiply-adds of a picture's point: channels read times channels made. */
static pare_status take(void *user, const pare_node *step, const pare_shape *in, double *seconds)
{
    const world *w = user;
    double c = (double)in[1].dim[1], m = (double)in[1].dim[0];
    if (w->fails) return PARE_FAIL_NODE(step, DEVICE, "no time");
    if (w->blocks) m = 16 * ceil(m / 16), c = c > 4 ? 16 * ceil(c / 16) : c;
    if (w->flat) m = m > 8 ? 48 : m, c = c > 8 ? 48 : c;
    *seconds = w->square ? m * m : c * m;
    return PARE_OK;
}

static void open_model(world *w)
{
    *w = (world){0};
    graph_open(&w->g, 17);
}

/* The plan of the model made so far; every step takes a second. */
static void open_latency(world *w)
{
    pare_step_times_options table = {.threads = 1, .measure = take, .measure_user = w};
    w->groups = prune_groups(&w->g, NULL);
    assert_int_equal(pare_prune_plan_new(&w->g.ctx, &w->removal, w->groups), PARE_OK);
    assert_int_equal(
        pare_plan_new(&w->g.ctx, &w->plan, w->g.model, NULL, 0, &(pare_plan_options){.threads = 1}),
        PARE_OK);
    assert_int_equal(pare_step_times_open(&w->g.ctx, &w->times, &table), PARE_OK);
    const int steps = pare_plan_step_count(w->plan);
    w->seconds = calloc((size_t)steps + 1, sizeof *w->seconds);
    w->score = calloc((size_t)w->groups->coupled_count + 1, sizeof *w->score);
    for (int i = 0; i < steps; i++) {
        pare_step_info info;
        pare_plan_step(w->plan, i, &info);
        w->seconds[i] = info.macs > 0;
    }
    for (int c = 0; c < w->groups->coupled_count; c++) w->score[c] = 1 + c % 7;
    pare_latency_options options = {.dense = w->plan, .seconds = w->seconds, .times = w->times};
    assert_int_equal(pare_latency_new(&w->g.ctx, &w->latency, w->groups, &options), PARE_OK);
}

static void close_world(world *w)
{
    pare_latency_free(w->latency);
    pare_step_times_close(w->times);
    pare_plan_free(w->plan);
    pare_prune_plan_free(w->removal);
    pare_groups_free(w->groups);
    free(w->seconds);
    free(w->score);
    graph_close(&w->g);
}

/* 3 -> 64 -> 48 -> 5 channels. */
static void open_chain(world *w)
{
    open_model(w);
    graph_input(&w->g, "x", PARE_f32, 4, (int64_t[]){1, 3, 6, 6});
    prune_conv(&w->g, "x", "a", 3, 64, 3, 1);
    graph_node(&w->g, "Relu", "a", "b");
    prune_conv(&w->g, "b", "c", 64, 48, 3, 1);
    graph_node(&w->g, "Relu", "c", "d");
    prune_conv(&w->g, "d", "y", 48, 5, 1, 1);
    graph_output(&w->g, "y");
    open_latency(w);
}

/* The first `count` coupled sets of a group. */
static void drop_some(world *w, int group, int count)
{
    const pare_dependency_group *g = &w->groups->group[group];
    for (int c = g->first; c < g->first + count; c++)
        assert_true(pare_prune_plan_add(w->removal, c, 1));
}

static int64_t left(const world *w, int group)
{
    return w->groups->group[group].count - pare_prune_plan_of_part(w->removal, group, 0);
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fmax(1, fabs(want))) fail_msg("%.12g, expected %.12g", got, want);
}

static void counts_are_blocks(void **state)
{
    (void)state;
    static const struct {
        int64_t n, channel;
        int count;
        int64_t want[PARE_LATENCY_COUNTS];
    } row[] = {
        {7, 1, 7, {1, 2, 3, 4, 5, 6, 7}},
        {10, 1, 3, {4, 8, 10}},
        {64, 1, 8, {8, 16, 24, 32, 40, 48, 56, 64}},
        {24, 3, 2, {12, 24}},
        {512, 1, 12, {16, 48, 96, 144, 192, 240, 288, 336, 384, 432, 480, 512}},
        {1, 1, 1, {1}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t got[PARE_LATENCY_COUNTS];
        assert_int_equal(pare_latency_counts(row[i].n, row[i].channel, got), row[i].count);
        for (int k = 0; k < row[i].count; k++) assert_int_equal(got[k], row[i].want[k]);
    }
    for (int64_t n = 1; n < 3000; n += 13) {
        int64_t got[PARE_LATENCY_COUNTS];
        int count = pare_latency_counts(n, 1, got);
        assert_true(count >= 1 && count <= PARE_LATENCY_COUNTS && got[count - 1] == n);
        for (int k = 1; k < count; k++) assert_true(got[k] > got[k - 1]);
    }
}

/* Times that are products of counts are forecast as they are, at any count: three steps of a second
   each with 40 of 64 and 36 of 48 channels left. */
static void a_forecast_is_the_table_times_the_dense_step(void **state)
{
    (void)state;
    world w;
    open_chain(&w);
    assert_int_equal(w.groups->group_count, 2);
    near(pare_latency_cost(w.latency, w.removal), 3);
    assert_int_equal(pare_step_times_measured(w.times), 0);
    drop_some(&w, 0, 24);
    drop_some(&w, 1, 12);
    near(pare_latency_cost(w.latency, w.removal), 40.0 / 64 + 40.0 / 64 * 36 / 48 + 36.0 / 48);
    assert_true(pare_step_times_measured(w.times) > 0);
    near(pare_latency_fixed(w.latency), 0);
    close_world(&w);
}

/* Squares: 30 of 64 channels are between 24 and 32. */
static void between_counts_times_are_linear(void **state)
{
    (void)state;
    world w;
    open_chain(&w);
    w.square = true;
    drop_some(&w, 0, 34);
    double want = (0.25 * 24 * 24 + 0.75 * 32 * 32) / (64.0 * 64);
    near(pare_latency_cost(w.latency, w.removal), want + 1 + 1);
    close_world(&w);
}

static void a_failed_measurement_is_said(void **state)
{
    (void)state;
    world w;
    open_chain(&w);
    drop_some(&w, 0, 8);
    w.fails = true;
    assert_true(pare_latency_cost(w.latency, w.removal) == 0);
    assert_int_equal(pare_latency_status(w.latency), PARE_DEVICE);
    close_world(&w);
}

/* BatchNormalization that is folded, a depthwise and a grouped convolution, a residual, a flattened
   picture before a Gemm: what the forecast takes for the inputs of each step is what the smaller
   model's plan has. */
static void shapes_are_those_of_the_smaller_plan(void **state)
{
    (void)state;
    world w;
    float ones[16];
    for (int i = 0; i < 16; i++) ones[i] = 1;
    open_model(&w);
    graph_input(&w.g, "x", PARE_f32, 4, (int64_t[]){1, 3, 4, 4});
    graph_floats(&w.g, "one", 1, (int64_t[]){16}, ones);
    prune_conv(&w.g, "x", "a", 3, 16, 3, 1);
    graph_node(&w.g, "BatchNormalization", "a one one one one", "b");
    graph_node(&w.g, "Relu", "b", "c");
    prune_conv(&w.g, "c", "d", 16, 16, 3, 16);
    graph_node(&w.g, "Relu", "d", "e");
    prune_conv(&w.g, "e", "f", 16, 8, 3, 4);
    prune_conv(&w.g, "f", "h", 8, 16, 1, 1);
    graph_node(&w.g, "Add", "h e", "i");
    graph_node(&w.g, "Relu", "i", "j");
    graph_node(&w.g, "Flatten", "j", "k");
    PRUNE_WEIGHT(&w.g, "wg", 256, 5);
    graph_node(&w.g, "Gemm", "k wg", "y");
    graph_output(&w.g, "y");
    open_latency(&w);
    assert_true(w.groups->group_count >= 2);
    for (int g = 0; g < w.groups->group_count; g++) {
        const pare_dependency_group *group = &w.groups->group[g];
        int each = group->count / group->parts;
        for (int c = group->first; c < group->first + group->count; c++) {
            int part = w.groups->coupled[c].part;
            if (pare_prune_plan_of_part(w.removal, g, part) < each / 2)
                pare_prune_plan_add(w.removal, c, 1);
        }
    }
    pare_model *smaller;
    pare_plan *plan;
    if (pare_prune_remove(&w.g.ctx, &smaller, w.removal) != PARE_OK)
        fail_msg("%s", w.g.ctx.message);
    assert_int_equal(
        pare_plan_new(&w.g.ctx, &plan, smaller, NULL, 0, &(pare_plan_options){.threads = 1}),
        PARE_OK);
    int compared = 0, products = 0;
    assert_int_equal(pare_plan_step_count(plan), pare_plan_step_count(w.plan));
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        const pare_node *step = pare_plan_node(plan, i);
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        products += info.macs > 0;
        for (int k = 0; k < step->in_count; k++) {
            pare_shape got;
            char a[128], b[128];
            if (!step->in[k]) continue;
            if (!pare_latency_shape(w.latency, w.removal, i, k, &got)) {
                if (info.macs > 0) fail_msg("input %d of step %s is not known", k, step->name);
                continue;
            }
            compared += info.macs > 0;
            if (!pare_shape_equal(&got, &step->in[k]->shape))
                fail_msg("input %d of step %s: %s, expected %s", k, step->name,
                         pare_shape_text(&got, a, sizeof a),
                         pare_shape_text(&step->in[k]->shape, b, sizeof b));
        }
    }
    assert_int_equal(products, 5);
    assert_true(compared >= 2 * products);
    pare_plan_free(plan);
    pare_model_free(smaller);
    close_world(&w);
}

/* --- the search --- */

static pare_prune_target by_time(world *w)
{
    return (pare_prune_target){.cost = pare_latency_cost,
                               .user = w->latency,
                               .floor = 1,
                               .round_of = pare_latency_block,
                               .least = 0.05};
}

/* Blocks of 16: 56 channels take what 64 take, and 40 what 48 take. */
static void no_channel_goes_that_buys_no_time(void **state)
{
    (void)state;
    for (int by_score = 0; by_score < 2; by_score++) {
        world w;
        double reached;
        open_chain(&w);
        w.blocks = true;
        pare_prune_target target = by_time(&w);
        target.by_score = by_score;
        target.goal = 0.6 * pare_latency_cost(w.latency, w.removal);
        assert_int_equal(pare_target_reach(&w.g.ctx, w.removal, w.score, &target, &reached),
                         PARE_OK);
        assert_true(reached <= target.goal);
        assert_int_equal(left(&w, 0) % 16, 0);
        assert_int_equal(left(&w, 1) % 16, 0);
        assert_true(left(&w, 0) < 64 || left(&w, 1) < 48);
        close_world(&w);
    }
}

/* Many channels that buy no time are no end where fewer do. */
static void a_search_looks_behind_what_is_flat(void **state)
{
    (void)state;
    world w;
    double reached;
    open_chain(&w);
    w.flat = true;
    pare_prune_target target = by_time(&w);
    target.goal = 0.4 * pare_latency_cost(w.latency, w.removal);
    assert_int_equal(pare_target_reach(&w.g.ctx, w.removal, w.score, &target, &reached), PARE_OK);
    assert_true(reached <= target.goal);
    assert_true(left(&w, 0) == 8 || left(&w, 1) == 8);
    close_world(&w);
}

/* What a model takes here: a function of the forecast. */
typedef struct clockwork {
    world *w;
    double slope, most; /* measured = 1 - slope * (1 - forecast), at least `most` */
    int asked;
    bool fails;
} clockwork;

static pare_status measure(void *user, const pare_prune_plan *removal, double *ratio)
{
    clockwork *c = user;
    c->asked++;
    if (c->fails) return PARE_FAIL(&c->w->g.ctx, DEVICE, "no time");
    *ratio = 1 - c->slope * (1 - pare_latency_cost(c->w->latency, removal) / 3);
    if (*ratio < c->most) *ratio = c->most;
    return PARE_OK;
}

static pare_status reach(world *w, clockwork *c, double ratio, pare_latency_facts *facts)
{
    pare_prune_target target = by_time(w);
    pare_latency_goal goal = {
        .ratio = ratio, .dense = 3, .tolerance = 0.03, .rounds = 5, .measure = measure, .user = c};
    c->w = w;
    return pare_latency_reach(&w->g.ctx, w->removal, w->score, &target, &goal, facts);
}

/* Models that gain less, or more, than their steps say. The channels left are those of the search
   that the facts speak of. */
static void what_is_measured_corrects_the_search(void **state)
{
    (void)state;
    static const double slopes[] = {0.6, 0.8, 1, 1.25};
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++) {
        world w;
        clockwork c = {.slope = slopes[i]};
        pare_latency_facts facts;
        open_chain(&w);
        assert_int_equal(reach(&w, &c, 0.6, &facts), PARE_OK);
        if (fabs(facts.measured - 0.6) > 0.05)
            fail_msg("slope %g: %g after %d searches", slopes[i], facts.measured, facts.rounds);
        near(facts.forecast, pare_latency_cost(w.latency, w.removal) / 3);
        near(facts.measured, 1 - slopes[i] * (1 - facts.forecast));
        if (slopes[i] == 0.6) assert_true(facts.rounds > 1);
        assert_int_equal(c.asked, facts.rounds);
        close_world(&w);
    }
}

/* Goals below what the floors leave end with the least there is, and it is said. */
static void the_least_is_taken_and_said(void **state)
{
    (void)state;
    world w;
    clockwork c = {.slope = 1};
    pare_latency_facts facts;
    open_chain(&w);
    assert_int_equal(reach(&w, &c, 0.001, &facts), PARE_OK);
    assert_true(facts.lowest > 0.001 && facts.lowest == facts.forecast);
    assert_int_equal(facts.rounds, 1);
    close_world(&w);
}

/* A model that never gains, whatever goes: the search ends, with the nearest. */
static void a_stopwatch_that_sees_nothing_ends(void **state)
{
    (void)state;
    world w;
    clockwork c = {.slope = 1, .most = 0.9};
    pare_latency_facts facts;
    open_chain(&w);
    assert_int_equal(reach(&w, &c, 0.5, &facts), PARE_OK);
    assert_true(facts.rounds <= 5 && facts.measured == 0.9);
    close_world(&w);
}

static void failures_end_the_search(void **state)
{
    (void)state;
    world w;
    clockwork c = {.slope = 1, .fails = true};
    pare_latency_facts facts;
    open_chain(&w);
    assert_int_equal(reach(&w, &c, 0.5, &facts), PARE_DEVICE);
    assert_int_equal(c.asked, 1);
    close_world(&w);
}

/* What was gone before stays gone in every search. */
static void earlier_steps_stay(void **state)
{
    (void)state;
    world w;
    clockwork c = {.slope = 0.7};
    pare_latency_facts facts;
    open_chain(&w);
    drop_some(&w, 1, 16);
    const int first = w.groups->group[1].first;
    assert_int_equal(reach(&w, &c, 0.6, &facts), PARE_OK);
    for (int i = 0; i < 16; i++) assert_true(w.removal->removed[first + i]);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_blocks),
        cmocka_unit_test(a_forecast_is_the_table_times_the_dense_step),
        cmocka_unit_test(between_counts_times_are_linear),
        cmocka_unit_test(a_failed_measurement_is_said),
        cmocka_unit_test(shapes_are_those_of_the_smaller_plan),
        cmocka_unit_test(no_channel_goes_that_buys_no_time),
        cmocka_unit_test(a_search_looks_behind_what_is_flat),
        cmocka_unit_test(what_is_measured_corrects_the_search),
        cmocka_unit_test(the_least_is_taken_and_said),
        cmocka_unit_test(a_stopwatch_that_sees_nothing_ends),
        cmocka_unit_test(failures_end_the_search),
        cmocka_unit_test(earlier_steps_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
