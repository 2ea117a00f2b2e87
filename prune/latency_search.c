/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning to a latency: the dense model is timed step by step, the search forecasts by these times,
   and what it finds is timed against the dense model. */
#include "prune/latency_search.h"
#include "runtime/eval/eval.h"
#include "prune/latency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A model ready to run, with what its parts take. */
typedef struct ready {
    pare_timed timed;
    double *seconds; /* of each step */
    double ms;       /* of a run */
} ready;

struct pare_latency_search {
    pare_ctx *ctx;
    pare_arena arena;
    const pare_pruner_options *o;
    const pare_groups *groups;
    pare_timed_how how;      /* its shapes are in: */
    pare_input_shape *shape; /* of the inputs */
    ready dense, smaller;
    pare_step_times *times;
    pare_latency *cost;
    double goal; /* of the model in work: fraction */
    pare_latency_facts facts;
    bool disturbed; /* medians say otherwise */
};

enum { ROUNDS = 8 };
/* Other work on the machine only ever adds time: a step's quickest time counts, as in the table. */
static const double QUICKEST = 0, MEDIAN = 50;
static const double TOLERANCE = 0.05, SEARCH_TOLERANCE = 0.015, LEAST_SAVING = 0.05;

/* --- models that run --- */

static void ready_free(ready *r)
{
    pare_timed_close(&r->timed);
    pare_free(r->seconds);
    *r = (ready){0};
}

static pare_status ready_make(const pare_latency_search *l, ready *r, const pare_model *model)
{
    PARE_TRY(pare_timed_open(l->ctx, &r->timed, model, &l->how));
    const size_t steps = (size_t)pare_plan_step_count(r->timed.plan);
    r->seconds = pare_alloc(l->ctx, steps + 1, sizeof *r->seconds);
    return r->seconds ? PARE_OK : PARE_MEMORY;
}

static pare_status find_shapes(pare_latency_search *l)
{
    const pare_graph *g = l->groups->model->graph;
    l->shape = pare_arena_alloc(&l->arena, (size_t)g->in.count + 1, sizeof *l->shape);
    if (!l->shape) return PARE_MEMORY;
    for (int i = 0; i < g->in.count; i++) {
        if (g->in.item[i]->is_init) continue;
        pare_input_shape *s = &l->shape[l->how.shape_count++];
        s->name = g->in.item[i]->name;
        PARE_TRY(pare_groups_shape(l->groups, g->in.item[i], &s->shape));
    }
    return PARE_OK;
}

static pare_status open_dense(pare_latency_search *l,
                              void (*progress)(void *user, int64_t done, int64_t all), void *user)
{
    pare_ctx *ctx = l->ctx;
    pare_latency_options options = {.progress = progress, .progress_user = user};
    pare_step_times_options table = {
        .threads = l->o->threads, .device = l->o->device, .cache_dir = l->o->cache_dir};
    PARE_TRY(find_shapes(l));
    l->how.shapes = l->shape;
    l->how.options = (pare_plan_options){.threads = l->o->threads,
                                         .device = l->o->device,
                                         .tune = true,
                                         .cache_dir = l->o->cache_dir};
    PARE_TRY(ready_make(l, &l->dense, l->groups->model));
    PARE_TRY(pare_timed_ms(ctx, &l->dense.timed, &l->dense.ms));
    PARE_TRY(pare_measure_steps(ctx, l->dense.timed.runner, QUICKEST, l->dense.seconds));
    PARE_TRY(pare_step_times_open(ctx, &l->times, &table));
    options.dense = l->dense.timed.plan;
    options.seconds = l->dense.seconds;
    options.times = l->times;
    return pare_latency_new(ctx, &l->cost, l->groups, &options);
}

pare_status pare_latency_search_new(pare_ctx *ctx, pare_latency_search **out,
                                    const pare_groups *groups, const pare_pruner_options *options,
                                    void (*progress)(void *user, int64_t done, int64_t all),
                                    void *user)
{
    pare_latency_search *l = pare_alloc(ctx, 1, sizeof *l);
    if (!l) return PARE_MEMORY;
    *l = (pare_latency_search){.ctx = ctx, .o = options, .groups = groups};
    pare_arena_init(&l->arena, ctx);
    pare_status st = open_dense(l, progress, user);
    if (st == PARE_OK)
        *out = l;
    else
        pare_latency_search_free(l);
    return st;
}

void pare_latency_search_free(pare_latency_search *l)
{
    if (!l) return;
    pare_latency_free(l->cost);
    pare_step_times_close(l->times);
    ready_free(&l->smaller);
    ready_free(&l->dense);
    pare_arena_free(&l->arena);
    pare_free(l);
}

/* --- the search --- */

pare_status pare_latency_search_part(const pare_latency_search *l, double seconds, double *part)
{
    *part = seconds * 1000 / l->dense.ms;
    if (*part < 1) return PARE_OK;
    return PARE_FAIL(l->ctx, INPUT,
                     "%s: a run takes %.4g ms already, and %.4g s are allowed: nothing need be "
                     "removed",
                     l->groups->model->path, l->dense.ms, seconds);
}

void pare_latency_search_aim(pare_latency_search *l, pare_prune_target *target)
{
    target->cost = pare_latency_cost;
    target->user = l->cost;
    target->least = LEAST_SAVING;
    if (target->round <= 1) target->round_of = pare_latency_block;
}

static pare_status compare_models(pare_latency_search *l, const pare_model *model, double *ratio)
{
    pare_side_by_side found;
    ready_free(&l->smaller);
    PARE_TRY(ready_make(l, &l->smaller, model));
    PARE_TRY(pare_timed_compare(l->ctx, &l->dense.timed, l->groups->model, &l->smaller.timed, model,
                                &l->how, &found));
    l->dense.ms = found.a_ms;
    l->smaller.ms = found.b_ms;
    l->disturbed = found.disturbed;
    *ratio = found.ratio;
    return PARE_OK;
}

static pare_status measure(void *user, const pare_prune_plan *removal, double *ratio)
{
    pare_latency_search *l = user;
    pare_model *model;
    PARE_TRY(pare_latency_status(l->cost));
    PARE_TRY(pare_prune_remove(l->ctx, &model, removal));
    pare_status st = compare_models(l, model, ratio);
    pare_model_free(model);
    return st;
}

pare_status pare_latency_search_reach(pare_latency_search *l, pare_prune_plan *removal,
                                      const double *score, const pare_prune_target *target,
                                      bool last, double *reached)
{
    pare_ctx *ctx = l->ctx;
    pare_prune_plan *none;
    pare_latency_goal goal = {
        .tolerance = SEARCH_TOLERANCE, .rounds = ROUNDS, .measure = measure, .user = l};
    PARE_TRY(pare_prune_plan_new(ctx, &none, l->groups));
    const double dense = pare_latency_cost(l->cost, none);
    pare_prune_plan_free(none);
    l->goal = goal.ratio = target->goal / dense;
    goal.dense = dense;
    pare_status st = last ? pare_latency_reach(ctx, removal, score, target, &goal, &l->facts)
                          : pare_target_reach(ctx, removal, score, target, reached);
    if (st == PARE_OK) st = pare_latency_status(l->cost);
    if (last) *reached = l->facts.forecast * dense;
    return st;
}

/* --- the result --- */

static double total(const ready *r)
{
    double sum = 0;
    for (int i = 0; i < pare_plan_step_count(r->timed.plan); i++) sum += r->seconds[i];
    return sum;
}

pare_status pare_latency_search_time(pare_latency_search *l, const pare_model *smaller,
                                     pare_pruner_latency *out)
{
    double measured;
    PARE_TRY(compare_models(l, smaller, &measured));
    PARE_TRY(pare_measure_steps(l->ctx, l->dense.timed.runner, MEDIAN, l->dense.seconds));
    PARE_TRY(pare_measure_steps(l->ctx, l->smaller.timed.runner, MEDIAN, l->smaller.seconds));
    *out =
        (pare_pruner_latency){.goal = l->goal,
                              .forecast = l->facts.forecast,
                              .measured = measured,
                              .before_ms = l->dense.ms,
                              .after_ms = l->smaller.ms,
                              .fixed = pare_latency_fixed(l->cost) / fmax(total(&l->dense), 1e-12),
                              .met = fabs(measured - l->goal) <= TOLERANCE,
                              .stable = !l->disturbed,
                              .at_limit = l->facts.lowest > 0,
                              .rounds = l->facts.rounds,
                              .shapes_measured = pare_step_times_measured(l->times)};
    return PARE_OK;
}

/* Seconds of the step that has the node's weight or makes its result; negative: none does. */
static double step_seconds(const ready *r, const pare_node *node)
{
    for (int i = 0; i < pare_plan_step_count(r->timed.plan); i++) {
        const pare_node *step = pare_plan_node(r->timed.plan, i);
        for (int k = 0; k < step->in_count; k++) {
            const pare_value *v = step->in[k];
            if (!v || !v->data || v->shape.rank < 2) continue;
            for (int n = 0; n < node->in_count; n++)
                if (node->in[n] && node->in[n]->data && !strcmp(node->in[n]->name, v->name))
                    return r->seconds[i];
        }
        if (step->out_count && step->out[0] && !strcmp(step->out[0]->name, node->out[0]->name))
            return r->seconds[i];
    }
    return -1;
}

bool pare_latency_search_step(const pare_latency_search *l, const pare_node *node, double *before,
                              double *after)
{
    if (!l->dense.seconds || !l->smaller.seconds) return false;
    *before = step_seconds(&l->dense, node);
    *after = step_seconds(&l->smaller, node);
    return *before >= 0 && *after >= 0;
}

/* Search, measure, correct. The forecast knows single steps. What it does not know (memory that
   other steps left warm, caches that a whole net fits or does not fit, how far a search ends below
   what it was asked for) is taken as a function of what was asked for, straight between the pairs
   (asked, measured) nearest the goal, the dense model's (1, 1) among them. A search that ends where
   an earlier one did is not measured again: the next asks halfway to the other side of the goal. */

enum { MOST_ROUNDS = 16, MOST_SEARCHES = 3 * MOST_ROUNDS };

typedef struct pair {
    double asked, forecast, measured;
} pair;

typedef struct attempt {
    pare_ctx *ctx;
    pare_prune_plan *removal;
    const pare_latency_goal *goal;
    pair pair[MOST_SEARCHES + 1];
    int pairs;
    bool *first, *best; /* (coupled sets) removed as given, and in the nearest attempt */
} attempt;

static void restore(attempt *a, const bool *removed)
{
    const int n = a->removal->groups->coupled_count;
    for (int c = 0; c < n; c++)
        if (a->removal->removed[c] && !removed[c]) pare_prune_plan_drop(a->removal, c);
    for (int c = 0; c < n; c++)
        if (!a->removal->removed[c] && removed[c]) pare_prune_plan_add(a->removal, c, 0);
}

/* Of pairs on one side of the goal: the nearer one, of equals the one that asked nearer to it. */
static bool is_nearer(const pair *p, const pair *than, bool above)
{
    if (!than || p->measured != than->measured)
        return !than || (p->measured < than->measured) == above;
    return p->asked != than->asked && (p->asked < than->asked) == above;
}

/* The pairs nearest the goal: at or below it, and above; NULL: none yet. */
static void nearest_pairs(const attempt *a, const pair **below, const pair **above)
{
    *below = *above = NULL;
    for (int i = 0; i < a->pairs; i++) {
        const bool is_above = a->pair[i].measured > a->goal->ratio;
        const pair **side = is_above ? above : below;
        if (is_nearer(&a->pair[i], *side, is_above)) *side = &a->pair[i];
    }
}

/* What to ask for, so that the goal should be measured. */
static double next_asked(const attempt *a, bool repeated)
{
    const double goal = a->goal->ratio, least = 0.01;
    const pair *below, *above;
    nearest_pairs(a, &below, &above);
    if (!above) above = &a->pair[0];
    const pair *other = below ? below : &a->pair[0];
    if (repeated && below) return (below->asked + above->asked) / 2;
    double slope = 1;
    if (fabs(above->asked - other->asked) > 1e-3)
        slope = (above->measured - other->measured) / (above->asked - other->asked);
    /* a slope that noise made flat, or turned, asks for no more than it would at its steepest */
    slope = fmax(slope, 0.25);
    return fmax(above->asked - (above->measured - goal) / slope, least);
}

/* Measures what the removal leaves, unless an earlier search left the same. */
static pare_status measure_attempt(attempt *a, pair *now, bool *repeated)
{
    *repeated = false;
    for (int i = 1; i < a->pairs && !*repeated; i++) {
        *repeated = a->pair[i].forecast == now->forecast;
        if (*repeated) now->measured = a->pair[i].measured;
    }
    if (!*repeated) PARE_TRY(a->goal->measure(a->goal->user, a->removal, &now->measured));
    a->pair[a->pairs++] = *now;
    return PARE_OK;
}

static pare_status rounds(attempt *a, const double *score, const pare_prune_target *given,
                          pare_latency_facts *facts)
{
    pare_prune_target target = *given;
    const pare_latency_goal *goal = a->goal;
    const size_t bytes = (size_t)a->removal->groups->coupled_count * sizeof *a->best;
    const int most = goal->rounds < MOST_ROUNDS ? goal->rounds : MOST_ROUNDS;
    double nearest = INFINITY, wanted = goal->ratio, reached;
    bool repeated;
    a->pair[a->pairs++] = (pair){1, 1, 1};
    for (int search = 0; search < 3 * most && facts->rounds < most; search++) {
        pair now = {.asked = wanted};
        target.goal = wanted * goal->dense;
        restore(a, a->first);
        PARE_TRY(pare_target_reach(a->ctx, a->removal, score, &target, &reached));
        now.forecast = goal->dense > 0 ? reached / goal->dense : 1;
        PARE_TRY(measure_attempt(a, &now, &repeated));
        facts->rounds += !repeated;
        double off = now.measured - goal->ratio;
        if (fabs(off) < nearest) {
            nearest = fabs(off);
            facts->forecast = now.forecast;
            facts->measured = now.measured;
            memcpy(a->best, a->removal->removed, bytes);
        }
        if (reached > target.goal) facts->lowest = now.forecast;
        if (nearest <= goal->tolerance || (reached > target.goal && off > 0)) break;
        const double last = wanted;
        wanted = next_asked(a, repeated);
        if (fabs(wanted - last) < 1e-4) break; /* nothing is between the two sides */
    }
    restore(a, a->best);
    return PARE_OK;
}

pare_status pare_latency_reach(pare_ctx *ctx, pare_prune_plan *removal, const double *score,
                               const pare_prune_target *target, const pare_latency_goal *goal,
                               pare_latency_facts *facts)
{
    const size_t n = (size_t)removal->groups->coupled_count;
    attempt a = {.ctx = ctx, .removal = removal, .goal = goal};
    *facts = (pare_latency_facts){0};
    a.first = pare_alloc(ctx, n, sizeof *a.first);
    a.best = pare_alloc(ctx, n, sizeof *a.best);
    pare_status st = a.first && a.best ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        memcpy(a.first, removal->removed, n * sizeof *a.first);
        memcpy(a.best, removal->removed, n * sizeof *a.best);
        st = rounds(&a, score, target, facts);
    }
    pare_free(a.first);
    pare_free(a.best);
    return st;
}
