/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/prune/latency.h"

#include "runtime/eval/eval.h"
#include "tools/profile.h"
#include "tools/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The same small net, made ready again, was up to a tenth quicker or slower (0.9 MB of weights, 512
   KiB of L2): where weights are in memory seems to decide how many of them a cache keeps. So small
   nets are measured in several places, side by side; the median counts. */
enum { PLACEMENTS = 5 };
static const double SMALL_BYTES = 64e6; /* of all places together */

/* A model compiled and ready to run. */
typedef struct ready {
    pare_plan *plan;
    pare_runner *runner;
    double *seconds; /* of each step */
    double ms;       /* of a run, see QUICK */
} ready;

struct pare_prune_latency {
    pare_tool *tool;
    const pare_prune_options *o;
    const pare_groups *groups;
    pare_input_shape *shape; /* of the inputs */
    int shape_count;
    ready dense, smaller;
    ready placed[2 * PLACEMENTS]; /* the pairs that are measured, while they are */
    pare_step_times *times;
    pare_latency *cost;
    pare_progress bar;
    double goal; /* of the model in work: fraction */
    pare_latency_facts facts;
    double measured; /* fraction, of the model as it is written */
    bool disturbed;  /* medians say otherwise */
};

static const pare_measure_options measuring = {100, 1.0, 31}, placed_measuring = {20, 0.25, 9};
enum { ROUNDS = 8 };
/* Other work on the machine only ever adds: of a step's times the quickest counts, as in the table,
   of samples of whole models the quickest tenth. That the median of the pairs' ratios, what counts
   where a machine is quiet, says otherwise, is told. */
static const double QUICKEST = 0, QUICK = 10, MEDIAN = 50;
static const double TOLERANCE = 0.05, SEARCH_TOLERANCE = 0.015, LEAST_SAVING = 0.05;

pare_status pare_prune_parse_latency(pare_ctx *ctx, const char *text, double *fraction,
                                     double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } unit[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    char *end;
    double value = strtod(text, &end);
    bool number = end != text && value > 0 && isfinite(value);
    *fraction = *seconds = 0;
    for (int i = 0; number && i < 3; i++)
        if (!strcmp(end, unit[i].name)) *seconds = value * unit[i].seconds;
    if (number && !*end && value <= 1) *fraction = value;
    if (*seconds > 0 || *fraction > 0) return PARE_OK;
    return PARE_FAIL(ctx, USAGE,
                     "prune: --latency %s: expected the part of the time that is kept, above 0 and "
                     "at most 1, or a time as 3.2ms (us, ms, s)",
                     text);
}

/* --- models that run --- */

static void ready_free(ready *r)
{
    pare_runner_free(r->runner);
    pare_plan_free(r->plan);
    pare_free(r->seconds);
    *r = (ready){0};
}

static pare_status ready_make(const pare_prune_latency *l, ready *r, const pare_model *model)
{
    pare_ctx *ctx = l->tool->ctx;
    pare_plan_options options = {.threads = (int)l->o->common.threads,
                                 .device = l->tool->device,
                                 .tune = true,
                                 .cache_dir = l->o->cache};
    PARE_TRY(pare_plan_new(ctx, &r->plan, model, l->shape, l->shape_count, &options));
    PARE_TRY(pare_runner_new(ctx, &r->runner, r->plan));
    pare_measure_fill(r->runner);
    r->seconds = pare_alloc(ctx, (size_t)pare_plan_step_count(r->plan) + 1, sizeof *r->seconds);
    return r->seconds ? PARE_OK : PARE_MEMORY;
}

static pare_status find_shapes(pare_prune_latency *l)
{
    const pare_graph *g = l->groups->model->graph;
    l->shape = pare_arena_alloc(&l->tool->arena, (size_t)g->in.count + 1, sizeof *l->shape);
    if (!l->shape) return PARE_MEMORY;
    for (int i = 0; i < g->in.count; i++) {
        if (g->in.item[i]->is_init) continue;
        pare_input_shape *s = &l->shape[l->shape_count++];
        s->name = g->in.item[i]->name;
        PARE_TRY(pare_groups_shape(l->groups, g->in.item[i], &s->shape));
    }
    return PARE_OK;
}

static pare_status open_dense(pare_prune_latency *l)
{
    pare_ctx *ctx = l->tool->ctx;
    pare_times times = {0};
    pare_latency_options options = {.progress = pare_progress_step, .progress_user = &l->bar};
    pare_step_times_options table = {
        .threads = (int)l->o->common.threads, .device = l->tool->device, .cache_dir = l->o->cache};
    PARE_TRY(find_shapes(l));
    PARE_TRY(ready_make(l, &l->dense, l->groups->model));
    pare_status st = pare_measure(ctx, l->dense.runner, &measuring, &times);
    if (st == PARE_OK) st = pare_times_percentile(ctx, &times, QUICK, &l->dense.ms);
    pare_times_free(&times);
    PARE_TRY(st);
    PARE_TRY(pare_profile_seconds(ctx, l->dense.runner, QUICKEST, l->dense.seconds));
    PARE_TRY(pare_step_times_open(ctx, &l->times, &table));
    options.dense = l->dense.plan;
    options.seconds = l->dense.seconds;
    options.times = l->times;
    return pare_latency_new(ctx, &l->cost, l->groups, &options);
}

pare_status pare_prune_latency_open(pare_tool *tool, pare_prune_latency **out,
                                    const pare_prune_options *o, const pare_groups *groups)
{
    pare_prune_latency *l = pare_alloc(tool->ctx, 1, sizeof *l);
    if (!l) return PARE_MEMORY;
    *l = (pare_prune_latency){.tool = tool, .o = o, .groups = groups};
    pare_status st = pare_tool_open_device(tool);
    if (st == PARE_OK) st = open_dense(l);
    if (st == PARE_OK)
        *out = l;
    else
        pare_prune_latency_close(l);
    return st;
}

void pare_prune_latency_close(pare_prune_latency *l)
{
    if (!l) return;
    pare_latency_free(l->cost);
    pare_step_times_close(l->times);
    ready_free(&l->smaller);
    ready_free(&l->dense);
    pare_free(l);
}

/* --- the search --- */

pare_status pare_prune_latency_ratio(const pare_prune_latency *l, double *ratio)
{
    double seconds;
    PARE_TRY(pare_prune_parse_latency(l->tool->ctx, l->o->latency, ratio, &seconds));
    if (!seconds) return PARE_OK;
    *ratio = seconds * 1000 / l->dense.ms;
    if (*ratio < 1) return PARE_OK;
    return PARE_FAIL(l->tool->ctx, INPUT,
                     "%s: --latency %s: a run takes %.4g ms already, nothing need be removed",
                     l->groups->model->path, l->o->latency, l->dense.ms);
}

void pare_prune_latency_aim(pare_prune_latency *l, pare_prune_target *target)
{
    target->cost = pare_latency_cost;
    target->user = l->cost;
    target->least = LEAST_SAVING;
    if (target->round <= 1) target->round_of = pare_latency_block;
}

/* What one pair of models that run says. off: by how much the median of all ratios says otherwise
   than the quickest tenths. */
typedef struct compared {
    double dense_ms, smaller_ms, ratio, off;
} compared;

static pare_status compare_times(pare_ctx *ctx, const pare_times *dense, const pare_times *smaller,
                                 compared *c)
{
    PARE_TRY(pare_times_percentile(ctx, dense, QUICK, &c->dense_ms));
    PARE_TRY(pare_times_percentile(ctx, smaller, QUICK, &c->smaller_ms));
    PARE_TRY(pare_times_ratio(ctx, smaller, dense, &c->off));
    c->ratio = c->smaller_ms / fmax(c->dense_ms, 1e-9);
    c->off = fabs(c->off - c->ratio);
    return PARE_OK;
}

/* More pairs, some times, where other work disturbs. */
static pare_status compare(pare_ctx *ctx, const ready *dense, const ready *smaller,
                           const pare_measure_options *options, compared *c)
{
    enum { TRIES = 3 };
    pare_times dense_times = {0}, smaller_times = {0};
    pare_status st = PARE_OK;
    c->off = INFINITY;
    for (int i = 0; i < TRIES && c->off > TOLERANCE && st == PARE_OK; i++) {
        st = pare_measure_pairs(ctx, dense->runner, smaller->runner, options, &dense_times,
                                &smaller_times);
        if (st == PARE_OK) st = compare_times(ctx, &dense_times, &smaller_times, c);
    }
    pare_times_free(&dense_times);
    pare_times_free(&smaller_times);
    return st;
}

static int by_ratio(const void *a, const void *b)
{
    double x = ((const compared *)a)->ratio, y = ((const compared *)b)->ratio;
    return (x > y) - (x < y);
}

static pare_status compare_places(pare_prune_latency *l, const pare_model *model, int places,
                                  compared *c)
{
    pare_ctx *ctx = l->tool->ctx;
    /* all stay until the last is measured: what is freed would be the next one's place */
    for (int i = 0; i < places; i++) {
        ready *dense = &l->placed[2 * i], *smaller = dense + 1;
        PARE_TRY(ready_make(l, dense, l->groups->model));
        PARE_TRY(ready_make(l, smaller, model));
        PARE_TRY(compare(ctx, dense, smaller, &placed_measuring, &c[i]));
    }
    qsort(c, (size_t)places, sizeof *c, by_ratio);
    c[0] = c[places / 2];
    return PARE_OK;
}

static pare_status pair(pare_prune_latency *l, const pare_model *model, double *ratio)
{
    compared c[PLACEMENTS];
    const double bytes = (double)pare_plan_weight_bytes(l->dense.plan) +
                         (double)pare_plan_activation_bytes(l->dense.plan);
    pare_status st;
    ready_free(&l->smaller);
    PARE_TRY(ready_make(l, &l->smaller, model));
    if (bytes * 2 * PLACEMENTS > SMALL_BYTES)
        st = compare(l->tool->ctx, &l->dense, &l->smaller, &measuring, c);
    else
        st = compare_places(l, model, PLACEMENTS, c);
    for (int i = 0; i < 2 * PLACEMENTS; i++) ready_free(&l->placed[i]);
    PARE_TRY(st);
    l->dense.ms = c->dense_ms;
    l->smaller.ms = c->smaller_ms;
    l->disturbed = c->off > TOLERANCE;
    *ratio = c->ratio;
    return PARE_OK;
}

static pare_status measure(void *user, const pare_prune_plan *removal, double *ratio)
{
    pare_prune_latency *l = user;
    pare_model *model;
    PARE_TRY(pare_latency_status(l->cost));
    PARE_TRY(pare_prune_remove(l->tool->ctx, &model, removal));
    pare_status st = pair(l, model, ratio);
    pare_model_free(model);
    return st;
}

pare_status pare_prune_latency_reach(pare_prune_latency *l, pare_prune_plan *removal,
                                     const double *score, const pare_prune_target *target,
                                     bool last, double *reached)
{
    pare_ctx *ctx = l->tool->ctx;
    pare_prune_plan *none;
    pare_latency_goal goal = {
        .tolerance = SEARCH_TOLERANCE, .rounds = ROUNDS, .measure = measure, .user = l};
    PARE_TRY(pare_prune_plan_new(ctx, &none, l->groups));
    const double dense = pare_latency_cost(l->cost, none);
    pare_prune_plan_free(none);
    l->goal = goal.ratio = target->goal / dense;
    goal.dense = dense;
    pare_progress_begin(&l->bar, stderr, l->o->common.quiet, "time", "shapes");
    pare_status st = last ? pare_latency_reach(ctx, removal, score, target, &goal, &l->facts)
                          : pare_target_reach(ctx, removal, score, target, reached);
    pare_progress_end(&l->bar);
    if (st == PARE_OK) st = pare_latency_status(l->cost);
    if (last) *reached = l->facts.forecast * dense;
    return st;
}

/* --- the result --- */

pare_status pare_prune_latency_compare(pare_prune_latency *l, const pare_model *smaller)
{
    pare_ctx *ctx = l->tool->ctx;
    PARE_TRY(pair(l, smaller, &l->measured));
    PARE_TRY(pare_profile_seconds(ctx, l->dense.runner, MEDIAN, l->dense.seconds));
    return pare_profile_seconds(ctx, l->smaller.runner, MEDIAN, l->smaller.seconds);
}

static double total(const ready *r)
{
    double sum = 0;
    for (int i = 0; i < pare_plan_step_count(r->plan); i++) sum += r->seconds[i];
    return sum;
}

static double number_of(const json_t *row, const char *what, const char *when)
{
    return json_number_value(json_object_get(json_object_get(row, what), when));
}

/* The layers that took most before. */
static void say_layers(const json_t *row)
{
    enum { TOLD = 8 };
    const json_t *layers = json_object_get(row, "layers"), *layer;
    double below = INFINITY;
    for (int told = 0; told < TOLD; told++) {
        const json_t *next = NULL;
        size_t i;
        json_array_foreach(layers, i, layer)
        {
            double ms = number_of(layer, "time_ms", "before");
            if (ms > 0 && ms < below && (!next || ms > number_of(next, "time_ms", "before")))
                next = layer;
        }
        if (!next) return;
        below = number_of(next, "time_ms", "before");
        pare_print(stderr, "  %-36s %9.2f -> %9.2f M multiply-adds, %8.1f -> %8.1f us\n",
                   json_string_value(json_object_get(next, "node")),
                   1e-6 * json_number_value(json_object_get(next, "before")),
                   1e-6 * json_number_value(json_object_get(next, "after")), 1e3 * below,
                   1e3 * number_of(next, "time_ms", "after"));
    }
}

void pare_prune_latency_log(const pare_prune_latency *l, const json_t *row)
{
    const double fixed = 100 * pare_latency_fixed(l->cost) / fmax(total(&l->dense), 1e-12);
    if (!l->o->common.quiet) {
        pare_print(stderr,
                   "%.4g ms before, %.4g ms after: %.1f %% of the time (target %.1f %%, forecast "
                   "%.1f %%)\n",
                   l->dense.ms, l->smaller.ms, 100 * l->measured, 100 * l->goal,
                   100 * l->facts.forecast);
        say_layers(row);
    }
    if (l->disturbed)
        pare_log(l->tool->ctx, PARE_LOG_WARNING,
                 "%s: medians of the runs say otherwise than the quickest tenth: other work shares "
                 "the cores, or the clock changes; prune again when it is quiet",
                 l->groups->model->path);
    if (l->measured - l->goal > TOLERANCE && l->facts.lowest > 0)
        pare_log(
            l->tool->ctx, PARE_LOG_WARNING,
            "%s: latency cannot come down to %.1f %% of the dense model's; %.1f %% is the "
            "least that single layers' times, --min-channels, --round, --keep and what is tied "
            "together allow, and is written; %.0f %% of the time goes into steps without channels "
            "to remove",
            l->groups->model->path, 100 * l->goal, 100 * l->measured, fixed);
    else if (fabs(l->measured - l->goal) > TOLERANCE)
        pare_log(l->tool->ctx, PARE_LOG_WARNING,
                 "%s: %.1f %% of the dense model's time, target %.1f %%: the nearest of %d "
                 "searches is written",
                 l->groups->model->path, 100 * l->measured, 100 * l->goal, l->facts.rounds);
}

/* Seconds of the step that has the node's weight or makes its result; negative: none does. */
static double step_seconds(const ready *r, const pare_node *node)
{
    for (int i = 0; i < pare_plan_step_count(r->plan); i++) {
        const pare_node *step = pare_plan_node(r->plan, i);
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

void pare_prune_latency_layer(const pare_prune_latency *l, const pare_node *node, json_t *row)
{
    double before = step_seconds(&l->dense, node), after = step_seconds(&l->smaller, node);
    if (before < 0 || after < 0) return;
    json_object_set_new(row, "time_ms",
                        json_pack("{s:f, s:f}", "before", 1e3 * before, "after", 1e3 * after));
}

json_t *pare_prune_latency_facts(const pare_prune_latency *l)
{
    return json_pack("{s:f, s:f, s:f, s:b, s:f, s:f, s:i, s:b, s:I, s:s}", "goal", l->goal,
                     "forecast", l->facts.forecast, "measured", l->measured, "met",
                     fabs(l->measured - l->goal) <= TOLERANCE, "before_ms", l->dense.ms, "after_ms",
                     l->smaller.ms, "searches", l->facts.rounds, "stable", !l->disturbed,
                     "shapes_measured", (json_int_t)pare_step_times_measured(l->times), "device",
                     l->tool->device ? l->tool->device->name : "cpu");
}
