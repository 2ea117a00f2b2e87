/* SPDX-License-Identifier: Apache-2.0 */
/* What removing a coupled set changes its readers' results by, once their other weights make up for
   it.

   A reader is a convolution or matrix product whose weight reads the coupled set's channels. With C
   the covariance of its inputs in the dense model (a bias takes up the means), W its weight and S
   the columns that the coupled set holds, the least that removal can cost, the other columns
   refitted, is trace(W_S (C^-1_SS)^-1 W_S^T): the optimal brain surgeon for a set of weights
   (Hassibi, Stork 1992, "Second order derivatives for network pruning"; for sets Kurtic et al.
   2022, arXiv 2203.07259). The error is taken as a part of the variance of the tensor that the
   result ends in, after the addition of a residual, so that layers compare.

   Coupled sets of a group are eliminated one after the other, the cheapest first, C^-1 and W
   brought up to date each time; the score of a coupled set is what its elimination cost, and not
   less than what the one before it cost. On the way trials measure what the eliminations so far do
   to the model's outputs, and the scores between two trials are scaled to come to that: groups
   compare by what they do to the outputs. */
#include "prune/score_inner.h"

#include "calib/capture.h"

#include <stdlib.h>
#include <string.h>

/* One reader of a group's coupled sets. */
typedef struct reader {
    pare_prunable *single;
    pare_unstructured_end end;
    int slot;        /* of its weight's input channels */
    double variance; /* of the tensor its result ends in, all channels added up */
    pare_observer *observer;
} reader;

typedef struct scoring {
    pare_ctx *ctx;
    const pare_groups *groups;
    const pare_prune_plan *removal; /* what is gone already; or NULL */
    const pare_score_data *data;
    pare_prunables all;
    pare_unstructured_options options;
    pare_unstructured_facts facts;
    pare_run_share share; /* of the runs */
    pare_capture *flow;
    pare_trial *trial;
    reader *reader;
    int count;
    double *score;
} scoring;

/* Does the reader's result leave with what it reads (a depthwise convolution)? */
static bool leaves_too(const scoring *s, const pare_prunable *single, int slot)
{
    int made = pare_groups_axis(s->groups, single->value, single->part.axis, 1);
    if (single->columns.groups == 1 || made < 0) return false;
    return pare_groups_coupled(s->groups, made, 0) == pare_groups_coupled(s->groups, slot, 0);
}

static int group_read(const scoring *s, int slot)
{
    for (int64_t u = 0; u < s->groups->slot[slot].extent; u++) {
        int c = pare_groups_coupled(s->groups, slot, u);
        if (c >= 0) return s->groups->coupled[c].group;
    }
    return -1;
}

/* A weight whose inputs belong to several groups (after a Concat) is a reader of each of them. */
static pare_status find_readers(scoring *s)
{
    s->reader = pare_alloc(s->ctx, (size_t)s->all.count, sizeof *s->reader);
    if (!s->reader) return PARE_MEMORY;
    for (int i = 0; i < s->all.count; i++) {
        pare_prunable *single = &s->all.item[i];
        if (!single->matrix) continue;
        const int64_t parts = single->columns.groups;
        int slot = pare_groups_axis(s->groups, single->value, 1 - single->part.axis, parts);
        if (slot < 0 || group_read(s, slot) < 0 || leaves_too(s, single, slot)) continue;
        reader *r = &s->reader[s->count];
        *r = (reader){.single = single, .slot = slot};
        pare_unstructured_end_find(single, &r->end);
        if (r->end.target) s->count++;
    }
    return PARE_OK;
}

static bool reads(const scoring *s, const reader *r, const pare_dependency_group *g)
{
    for (int64_t u = 0; u < s->groups->slot[r->slot].extent; u++) {
        int c = pare_groups_coupled(s->groups, r->slot, u);
        if (c >= g->first && c < g->first + g->count) return true;
    }
    return false;
}

/* --- one pass over the samples for some readers --- */

/* Sums of t and t^2 per channel of a target, over the runs. */
typedef struct spread {
    pare_block_sum *sums;          /* (2, channels) */
    int64_t channels, inner, size; /* size: of a run */
} spread;

static pare_status add_spread(spread *s, int64_t run, const float *t)
{
    double *sum;
    const int64_t outer = s->size / (s->channels * s->inner);
    PARE_TRY(pare_block_sum_at(s->sums, run, &sum));
    double *square = sum + s->channels;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t i = 0; i < s->inner; i++, t++) {
                sum[c] += (double)*t;
                square[c] += (double)*t * (double)*t;
            }
    return PARE_OK;
}

static pare_status variance_of(const spread *s, int64_t runs, double *out)
{
    double *sum;
    const double rows = (double)(s->size / s->channels * runs);
    *out = 0;
    PARE_TRY(pare_block_sum_end(s->sums, &sum));
    const double *square = sum + s->channels;
    for (int64_t c = 0; c < s->channels && rows > 0; c++)
        *out += (square[c] - sum[c] * sum[c] / rows) / rows;
    return PARE_OK;
}

typedef struct pass {
    scoring *s;
    reader **reader;
    spread *spread;
    int count;
} pass;

static pare_status open_reader(pass *p, int i)
{
    scoring *s = p->s;
    reader *r = p->reader[i];
    pare_columns columns;
    bool ok;
    PARE_TRY(pare_columns_read(r->single->node, pare_capture_shape(s->flow, 2 * i), &columns, &ok));
    PARE_TRY(pare_observer_new(s->ctx, &r->observer, &columns, 1, false, &s->share, 1));
    spread *t = &p->spread[i];
    *t = (spread){.channels = columns.groups * columns.outputs};
    t->inner = columns.convolution ? columns.rows / columns.batch : 1;
    t->size = pare_shape_count(pare_capture_shape(s->flow, 2 * i + 1));
    return pare_block_sum_new(s->ctx, &t->sums, &s->share, 2 * (size_t)t->channels);
}

/* Readers side by side; each adds its runs in their order, but those that trials judge by. */
static pare_status add_batch(pass *p, const pare_capture_batch *x)
{
    pare_status status = PARE_OK;
    const int64_t first = p->s->share.first + x->first;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p->s->options.threads)
    for (int i = 0; i < p->count; i++) {
        pare_status st = PARE_OK;
        for (int r = 0; r < x->count && st == PARE_OK; r++) {
            if (!pare_is_held_out(first + r))
                st = pare_observer_add(p->reader[i]->observer, first + r,
                                       x->value[2 * i] + r * x->size[2 * i], NULL, NULL);
            if (st == PARE_OK)
                st = add_spread(&p->spread[i], first + r,
                                x->value[2 * i + 1] + r * x->size[2 * i + 1]);
        }
        if (st == PARE_OK) continue;
#pragma omp critical(pare_score_failure)
        status = st;
    }
    return status;
}

static pare_status observe_readers(pass *p)
{
    scoring *s = p->s;
    const char **names = pare_arena_alloc(s->all.arena, 2 * (size_t)p->count + 1, sizeof *names);
    if (!names) return PARE_MEMORY;
    for (int i = 0; i < p->count; i++) {
        const pare_prunable *single = p->reader[i]->single;
        names[2 * i] = pare_node_in(single->node, single->part.x)->name;
        names[2 * i + 1] = p->reader[i]->end.target->name;
    }
    PARE_TRY(pare_capture_begin(s->flow, names, NULL, 2 * p->count));
    for (int i = 0; i < p->count; i++) PARE_TRY(open_reader(p, i));
    for (pare_capture_batch x = {.count = 1}; x.count;) {
        PARE_TRY(pare_capture_next(s->flow, &x));
        PARE_TRY(add_batch(p, &x));
    }
    for (int i = 0; i < p->count; i++) {
        PARE_TRY(pare_observer_finish(p->reader[i]->observer));
        PARE_TRY(variance_of(&p->spread[i], s->share.runs, &p->reader[i]->variance));
    }
    return PARE_OK;
}

static pare_status observe(pass *p)
{
    p->spread = pare_alloc(p->s->ctx, (size_t)p->count, sizeof *p->spread);
    const pare_status st = p->spread ? observe_readers(p) : PARE_MEMORY;
    for (int i = 0; p->spread && i < p->count; i++) pare_block_sum_free(p->spread[i].sums);
    pare_free(p->spread);
    return st;
}

/* --- one group --- */

enum { STOPS = 3 };

/* A group under work. */
typedef struct elimination {
    scoring *s;
    reader **reader; /* its readers, in the order they were added */
    int count;
    double cost[STOPS + 1], damage[STOPS + 1], level[STOPS + 1]; /* [0]: nothing is gone */
} elimination;

static pare_status visit(void *user, int stop, const pare_elimination_state *state)
{
    elimination *e = user;
    int64_t block = 0;
    e->cost[stop + 1] = state->cost;
    e->level[stop + 1] = state->level;
    for (int i = 0; i < e->count; i++) {
        const reader *r = e->reader[i];
        PARE_TRY(pare_trial_put(e->s->trial, r->single, &r->end, state->w + block,
                                e->s->data->refits ? r->observer : NULL));
        block += r->single->columns.groups;
    }
    PARE_TRY(pare_trial_run(e->s->trial, &e->damage[stop + 1]));
    return pare_trial_reset(e->s->trial);
}

static int ascending(const void *a, const void *b)
{
    const double *const *x = a, *const *y = b;
    return (**x > **y) - (**x < **y);
}

/* Scores between two stops come to the damage between them; they still ascend in the order of
   elimination. */
static pare_status scale(const elimination *e, double *score, int count)
{
    double **order = pare_alloc(e->s->ctx, (size_t)count, sizeof *order);
    double least = 0;
    if (!order) return PARE_MEMORY;
    for (int c = 0; c < count; c++) order[c] = &score[c];
    qsort(order, (size_t)count, sizeof *order, ascending);
    for (int c = 0, stop = 1; c < count; c++) {
        while (stop<STOPS && * order[c]> e->level[stop]) stop++;
        double cost = e->cost[stop] - e->cost[stop - 1],
               damage = e->damage[stop] - e->damage[stop - 1];
        double own = cost > 0 && damage > 0 ? *order[c] * (damage / cost) : 0;
        least = own > least ? own : least;
        *order[c] = least;
        least *= 1 + 1e-12;
    }
    pare_free(order);
    return PARE_OK;
}

/* Trials of this group change its readers alone. */
static pare_status begin_trials(const elimination *e)
{
    const pare_prunable **layer =
        pare_arena_alloc(e->s->all.arena, (size_t)e->count, sizeof *layer);
    if (!layer) return PARE_MEMORY;
    for (int i = 0; i < e->count; i++) layer[i] = e->reader[i]->single;
    return pare_trial_begin(e->s->trial, layer, e->count);
}

static pare_status eliminate(elimination *e, pare_elimination *run, const pare_dependency_group *g)
{
    scoring *s = e->s;
    int left = g->count;
    for (int c = g->first; s->removal && c < g->first + g->count; c++)
        left -= s->removal->removed[c];
    const int stops[STOPS] = {left / 4, left / 2, left - left / 4};
    const bool tried =
        s->trial && e->count && stops[0] > 0 && stops[1] > stops[0] && stops[2] > stops[1];
    if (tried) PARE_TRY(begin_trials(e));
    for (int i = 0; i < e->count; i++) {
        const reader *r = e->reader[i];
        double weight = r->variance > 0 ? 1 / r->variance : 0;
        PARE_TRY(
            pare_elimination_add(run, r->single, r->slot, r->observer, r->end.bias_node, weight));
    }
    PARE_TRY(pare_elimination_run(run, s->score + g->first,
                                  s->removal ? s->removal->removed + g->first : NULL, stops,
                                  tried ? STOPS : 0, visit, e));
    return tried ? scale(e, s->score + g->first, g->count) : PARE_OK;
}

static pare_status score_group(scoring *s, const pare_dependency_group *g)
{
    elimination e = {.s = s};
    pare_elimination *run;
    e.reader = pare_arena_alloc(s->all.arena, (size_t)s->count + 1, sizeof(reader *));
    if (!e.reader) return PARE_MEMORY;
    for (int i = 0; i < s->count; i++)
        if (reads(s, &s->reader[i], g)) e.reader[e.count++] = &s->reader[i];
    PARE_TRY(pare_elimination_new(s->ctx, &run, s->groups, (int)(g - s->groups->group),
                                  s->data->refits, s->options.threads));
    pare_status st = eliminate(&e, run, g);
    pare_elimination_free(run);
    return st;
}

/* --- all groups --- */

/* The readers of groups first .. last - 1 that are not there yet; last: as many groups as have
 * room. */
static void gather(const scoring *s, pass *p, int first, int *last)
{
    const int ranks = pare_comm_size(s->data->comm);
    double bytes = 0;
    for (*last = first; *last < s->groups->group_count; ++*last) {
        double more = 0;
        int count = p->count;
        for (int i = 0; i < s->count; i++) {
            reader *r = &s->reader[i];
            bool have = !reads(s, r, &s->groups->group[*last]);
            for (int k = 0; k < count && !have; k++) have = p->reader[k] == r;
            if (have) continue;
            p->reader[count++] = r;
            more += pare_unstructured_moments_bytes(&r->single->columns, ranks);
        }
        if (*last > first && bytes + more > PARE_SCORE_ROOM) return;
        bytes += more;
        p->count = count;
    }
}

static void drop_observers(scoring *s)
{
    for (int i = 0; i < s->count; i++) {
        pare_observer_free(s->reader[i].observer);
        s->reader[i].observer = NULL;
    }
}

static pare_status run(scoring *s)
{
    const int groups = s->groups->group_count;
    PARE_TRY(pare_prunables_find(&s->all));
    PARE_TRY(find_readers(s));
    PARE_TRY(pare_trial_new(s->ctx, &s->trial, s->groups->model, s->data));
    reader **list = pare_arena_alloc(s->all.arena, (size_t)s->count + 1, sizeof(reader *));
    if (!list) return PARE_MEMORY;
    for (int first = 0, last; first < groups; first = last) {
        pass p = {.s = s, .reader = list};
        gather(s, &p, first, &last);
        PARE_TRY(observe(&p));
        for (int g = first; g < last; g++) {
            PARE_TRY(score_group(s, &s->groups->group[g]));
            if (s->data->progress) s->data->progress(s->data->progress_user, g + 1, groups);
        }
        drop_observers(s);
    }
    return PARE_OK;
}

pare_status pare_score_from_data(pare_ctx *ctx, double *score, const pare_groups *groups,
                                 const pare_prune_plan *removal, const pare_score_data *data)
{
    pare_arena arena;
    scoring s = {.ctx = ctx, .groups = groups, .removal = removal, .data = data, .score = score};
    s.options.threads = data->threads > 0 ? data->threads : pare_cpu_cores();
    pare_arena_init(&arena, ctx);
    s.all = (pare_prunables){.ctx = ctx,
                             .model = (pare_model *)groups->model,
                             .arena = &arena,
                             .options = &s.options,
                             .facts = &s.facts};
    s.options.data = data->data;
    s.options.samples = data->samples;
    s.options.sample_count = data->sample_count;
    s.options.device = data->device;
    s.options.comm = data->comm;
    pare_capture_options flow;
    pare_status st = pare_unstructured_share(&s.all, &s.share, &flow);
    if (st == PARE_OK) st = pare_capture_new(ctx, &s.flow, groups->model, data->data, &flow);
    if (st == PARE_OK) st = run(&s);
    pare_capture_free(s.flow);
    pare_trial_free(s.trial);
    drop_observers(&s);
    pare_free(s.reader);
    pare_arena_free(&arena);
    return st;
}
