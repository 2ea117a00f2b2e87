/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision: weighted nodes whose rounding costs much accuracy and whose int8 form buys
   little stay float.

   What a node costs is measured: the error at the outputs where it alone is int8, as a part of the
   error where all are; rounding errors of different nodes are nearly independent, so that such
   parts add up to about 1. What its int8 form buys is estimated: its part of all work, and of all
   weights. Nodes are taken by their ratio while their parts of the work and of the weights stay
   within a budget. */
#include "calib/histogram.h"
#include "quant/internal.h"
#include "quant/output_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SAMPLES = 4, FEWEST = 8, MOVED = 16 };
static const double MOST_TRIALS = 2e12; /* multiply-adds of trials of so few samples */

/* A weighted node of the main graph. */
typedef struct candidate {
    int node; /* its place among all nodes */
    double work, weights, macs;
    double error; /* of all of it; negative: not measured */
} candidate;

struct pare_quant_ranking {
    pare_ctx *ctx;
    pare_arena *arena; /* the model's */
    candidate *item;   /* (count) by error over price */
    int count, node_count;
};

typedef struct search {
    pare_ctx *ctx;
    const pare_model *model; /* prepared */
    const pare_ranges *ranges;
    const pare_quant_options *options;
    const pare_quant_search *asked;
    double most; /* of the work or of the weights: a node beyond it is no candidate */
    pare_arena arena;
    int node_count;
    candidate *item;
    int count;
    pare_output_error outputs;
    const char **keep; /* scratch: (node_count) */
    pare_range *chosen;
    pare_arena *model_arena;
} search;

/* --- what a node's int8 form buys --- */

/* Numbers that are moved count, too: a depthwise convolution has few multiply-adds. */
static void cost_of(const pare_node *node, candidate *c)
{
    const double macs = pare_node_macs(node);
    c->macs = macs > 0 ? macs : 0;
    c->work = c->macs;
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && !node->in[i]->data) c->work += MOVED * pare_quant_values(node->in[i]);
    c->work += MOVED * pare_quant_values(node->out[0]);
}

static pare_status list_candidates(search *s, const pare_model *sized)
{
    pare_node **node;
    PARE_TRY(pare_graph_all_nodes(s->model->graph, &s->arena, &node, &s->node_count));
    s->item = pare_arena_alloc(&s->arena, (size_t)s->node_count + 1, sizeof *s->item);
    s->keep = pare_arena_alloc(&s->arena, (size_t)s->node_count + 1, sizeof *s->keep);
    if (!s->item || !s->keep) return PARE_MEMORY;
    for (int n = 0; n < s->node_count; n++) {
        pare_weighted part;
        if (pare_quant_kind_of(node[n]) != PARE_QUANT_WEIGHTED || node[n]->graph->parent) continue;
        candidate *c = &s->item[s->count];
        *c = (candidate){.node = n, .error = -1};
        const pare_value *like = pare_graph_find_own(sized->graph, node[n]->out[0]->name);
        PARE_TRY(pare_op_of(node[n])->quant.weighted(node[n], &part));
        const pare_value *w = pare_node_in(node[n], part.w);
        if (!like || !like->producer || !w || w->dtype != PARE_f32) continue;
        cost_of(like->producer, c);
        c->weights = w->data ? (double)w->data->count : 0;
        s->count++;
    }
    return PARE_OK;
}

static double sum_of(const search *s, size_t offset)
{
    double sum = 0;
    for (int i = 0; i < s->count; i++) sum += *(const double *)((const char *)&s->item[i] + offset);
    return sum > 0 ? sum : 1;
}

static double price(const candidate *c) { return c->work > c->weights ? c->work : c->weights; }

static int by_price(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const double p = price(x), q = price(y);
    if (p != q) return p < q ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* Of a large model within a small budget the cheapest candidates only: trials cost a run each. */
static void within_time(search *s, double macs)
{
    const double most = fmax(MOST_TRIALS / (macs * LEAST_SAMPLES + 1), FEWEST);
    if (s->most >= 1 || (double)s->count <= most) return;
    qsort(s->item, (size_t)s->count, sizeof *s->item, by_price);
    s->count = (int)most;
}

/* Becomes parts of all; those within the budget are candidates. */
static void within_budget(search *s)
{
    const double work = sum_of(s, offsetof(candidate, work)),
                 weights = sum_of(s, offsetof(candidate, weights));
    int left = 0;
    for (int i = 0; i < s->count; i++) {
        candidate c = s->item[i];
        c.work /= work;
        c.weights /= weights;
        if (c.work <= s->most && c.weights <= s->most) s->item[left++] = c;
    }
    s->count = left;
}

/* --- what it costs --- */

/* The error where all nodes but those of s->keep are int8. */
static pare_status error_of(search *s, double *error)
{
    pare_model *model;
    pare_quant_options options = *s->options;
    options.keep = s->keep;
    options.inputs = options.correct = NULL; /* by inputs each trial would take minutes */
    options.float_fp16 = false;              /* int8's error alone */
    options.chosen = s->chosen;
    *error = 0;
    PARE_TRY(pare_model_clone(s->ctx, &model, s->model));
    pare_status st = pare_quantize(s->ctx, model, s->ranges, &options, NULL);
    if (st == PARE_OK) st = pare_output_error_of(&s->outputs, model, error);
    pare_model_free(model);
    return st;
}

/* A node that cannot become int8, for a pattern, its form or its data are against it, is no
   candidate: a trial of it alone has nothing to quantize. */
static pare_status measure(search *s, double all)
{
    pare_node **node;
    int count;
    PARE_TRY(pare_graph_all_nodes(s->model->graph, &s->arena, &node, &count));
    for (int i = 0; i < s->count; i++) {
        double error;
        for (int n = 0; n < count; n++) s->keep[n] = "";
        s->keep[s->item[i].node] = NULL;
        const pare_status st = error_of(s, &error);
        if (st == PARE_INPUT || st == PARE_UNSUPPORTED) {
            pare_ctx_clear(s->ctx);
            continue;
        }
        PARE_TRY(st);
        s->item[i].error = error >= 0 ? error / all : -1; /* NaN: not measured */
        if (s->asked->progress) s->asked->progress(s->asked->progress_user, i + 1, s->count);
    }
    return PARE_OK;
}

/* --- the choice --- */

static int by_ratio(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const double p = x->error * price(y), q = y->error * price(x);
    if (p != q) return p > q ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

pare_status pare_quant_keep(const pare_quant_ranking *r, double budget, double least,
                            const char *const **keep)
{
    double work = 0, weights = 0;
    const char **made = pare_arena_alloc(r->arena, (size_t)r->node_count + 1, sizeof *made);
    if (!made) return PARE_MEMORY;
    for (int i = 0; i < r->count; i++) {
        const candidate *c = &r->item[i];
        if (c->error < least || work + c->work > budget || weights + c->weights > budget) continue;
        work += c->work;
        weights += c->weights;
        made[c->node] =
            pare_arena_printf(r->arena,
                              "as int8 it makes %.0f %% of the outputs' error, for %.1f %% of the "
                              "work and %.1f %% of the weights",
                              100 * c->error, 100 * c->work, 100 * c->weights);
        if (!made[c->node]) return PARE_MEMORY;
    }
    *keep = made;
    return PARE_OK;
}

void pare_quant_ranking_free(pare_quant_ranking *ranking)
{
    if (!ranking) return;
    pare_free(ranking->item);
    pare_free(ranking);
}

/* NaN and infinite values are warned of when the model is quantized; once is enough, and errors
   mean nothing where they are. */
static bool all_finite(const pare_ranges *ranges)
{
    for (int i = 0; i < pare_ranges_count(ranges); i++) {
        const pare_histogram *h = pare_ranges_at(ranges, i)->histogram;
        if (h->nan || h->inf) return false;
    }
    return true;
}

/* Lists the candidates and opens what measures them. sized: the model with the shapes of a run. */
static pare_status open_trials(search *s, const pare_model *sized)
{
    double values = 0;
    PARE_TRY(list_candidates(s, sized));
    for (int i = 0; i < sized->graph->out.count; i++)
        values += pare_quant_values(sized->graph->out.item[i]);
    const double macs = sum_of(s, offsetof(candidate, macs));
    within_budget(s);
    within_time(s, macs);
    PARE_TRY(pare_output_error_open(s->ctx, &s->outputs, s->model, s->asked, macs, values,
                                    s->count + 2, PARE_OUTPUT_SAMPLES));
    if (!s->outputs.count) s->count = 0;
    return s->count ? pare_output_error_begin_late(&s->outputs, s->model, sized) : PARE_OK;
}

static pare_status find(search *s)
{
    pare_model *sized = NULL;
    double all;
    pare_status st = pare_quant_run_shapes(s->ctx, s->model, s->asked->data, &sized);
    if (st == PARE_OK) st = open_trials(s, sized);
    pare_model_free(sized);
    PARE_TRY(st);
    if (!s->count) return PARE_OK;
    PARE_TRY(pare_output_error_keep(&s->outputs, s->model));
    PARE_TRY(pare_quant_rule(s->ctx, s->ranges, s->options, &s->chosen));
    PARE_TRY(error_of(s, &all));
    if (!(all > 0)) s->count = 0; /* nothing to mend, or NaN */
    PARE_TRY(measure(s, all));
    qsort(s->item, (size_t)s->count, sizeof *s->item, by_ratio);
    return PARE_OK;
}

static pare_status ranking_new(const search *s, pare_quant_ranking **out)
{
    pare_quant_ranking *r = pare_alloc(s->ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    *r = (pare_quant_ranking){s->ctx, s->model_arena, NULL, s->count, s->node_count};
    r->item = pare_alloc(s->ctx, (size_t)s->count + 1, sizeof *r->item);
    if (!r->item) {
        pare_free(r);
        return PARE_MEMORY;
    }
    if (s->count) memcpy(r->item, s->item, (size_t)s->count * sizeof *r->item);
    *out = r;
    return PARE_OK;
}

pare_status pare_quant_rank(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                            const pare_quant_options *options, const pare_quant_search *asked,
                            double most, pare_quant_ranking **out)
{
    search s = {.ctx = ctx,
                .model = model,
                .ranges = ranges,
                .options = options,
                .asked = asked,
                .most = most,
                .model_arena = &model->arena};
    *out = NULL;
    if (options->precision != PARE_PRECISION_INT8 || !ranges || !all_finite(ranges)) return PARE_OK;
    const pare_log_fn log = ctx->log;
    ctx->log = NULL; /* trials would say everything many times */
    pare_arena_init(&s.arena, ctx);
    pare_status st = find(&s);
    if (st == PARE_OK) st = ranking_new(&s, out);
    ctx->log = log;
    pare_output_error_close(&s.outputs);
    pare_free(s.chosen);
    pare_arena_free(&s.arena);
    if (st != PARE_UNSUPPORTED && st != PARE_INPUT) return st;
    pare_log(ctx, PARE_LOG_INFO, "sensitivity of nodes is not measured: %s", ctx->message);
    pare_ctx_clear(ctx);
    return PARE_OK;
}

pare_status pare_quant_find_sensitive(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                                      const pare_quant_options *options,
                                      const pare_quant_search *asked, const char *const **keep)
{
    pare_quant_ranking *ranking = NULL;
    *keep = NULL;
    if (!(options->mixed > 0)) return PARE_OK;
    PARE_TRY(pare_quant_rank(ctx, model, ranges, options, asked, options->mixed, &ranking));
    const pare_status st =
        ranking ? pare_quant_keep(ranking, options->mixed, PARE_QUANT_LEAST_ERROR, keep) : PARE_OK;
    pare_quant_ranking_free(ranking);
    return st;
}
