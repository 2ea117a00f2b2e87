/* SPDX-License-Identifier: Apache-2.0 */
/* Removals, and costs as functions of the kept counts: a sum of terms, each a factor times the
   channels that stay of a few slots. A coupled set changes only the terms of its slots. */
#include "prune/groups.h"
#include "prune/score.h"
#include "prune/unstructured.h"

#include <math.h>
#include <string.h>

/* --- terms --- */

static pare_status term_add(pare_groups *g, size_t *capacity, const pare_cost_term *term)
{
    pare_groups_inner *inner = g->inner;
    if (!pare_arena_grow(&inner->arena, &inner->term, capacity, (size_t)inner->term_count,
                         sizeof *inner->term))
        return PARE_MEMORY;
    inner->term[inner->term_count++] = *term;
    return PARE_OK;
}

/* A constant: its elements, as a product of its slots. Those of nested graphs never change. */
static pare_status tensor_term(pare_groups *g, size_t *capacity, const pare_value *value)
{
    const pare_tensor *t = value->data;
    double elements = 1, size = t->count ? (double)t->bytes / (double)t->count : 0;
    pare_cost_term term = {0};
    for (int axis = 0; axis < t->rank; axis++) {
        int slot = value->graph == g->model->graph && axis < PARE_MAX_RANK
                       ? pare_channel_sets_find_axis(
                             &g->inner->sets,
                             pare_graph_find_own(g->inner->sized->graph, value->name), axis)
                       : -1;
        if (slot < 0) {
            elements *= (double)t->dims[axis];
            continue;
        }
        elements /= (double)g->slot[slot].parts;
        term.slot[term.count++] = slot;
    }
    term.params = pare_type_is_float(t->dtype) ? elements : 0;
    term.bytes = elements * size;
    return term_add(g, capacity, &term);
}

typedef struct term_walk {
    pare_groups *groups;
    size_t *capacity;
} term_walk;

static pare_status tensor_terms(pare_graph *graph, void *user)
{
    term_walk *w = user;
    for (int i = 0; i < graph->init.count; i++)
        if (graph->init.item[i]->data)
            PARE_TRY(tensor_term(w->groups, w->capacity, graph->init.item[i]));
    return PARE_OK;
}

static pare_status index_terms(pare_groups *g)
{
    pare_groups_inner *inner = g->inner;
    size_t uses = 0, slots = (size_t)g->slot_count;
    for (int t = 0; t < inner->term_count; t++) uses += (size_t)inner->term[t].count;
    inner->first_term = pare_arena_alloc(&inner->arena, slots + 2, sizeof *inner->first_term);
    inner->term_of = pare_arena_alloc(&inner->arena, uses + 1, sizeof *inner->term_of);
    if (!inner->first_term || !inner->term_of) return PARE_MEMORY;
    int32_t *next = inner->first_term + 1;
    for (int t = 0; t < inner->term_count; t++)
        for (int i = 0; i < inner->term[t].count; i++) next[inner->term[t].slot[i]]++;
    for (size_t s = 1; s <= slots; s++) inner->first_term[s] += inner->first_term[s - 1];
    for (int t = inner->term_count - 1; t >= 0; t--)
        for (int i = 0; i < inner->term[t].count; i++)
            inner->term_of[--next[inner->term[t].slot[i]]] = t;
    /* next[s] is first_term[s + 1] and was counted down to the start of s */
    memmove(inner->first_term, next, slots * sizeof *next);
    inner->first_term[slots] = (int32_t)uses;
    return PARE_OK;
}

pare_status pare_costs_init(pare_groups *groups)
{
    pare_groups_inner *inner = groups->inner;
    size_t capacity = 0;
    for (size_t i = 0; i < inner->sets.work_count; i++) {
        const pare_channel_work *w = &inner->sets.work[i];
        pare_cost_term term = {.macs = w->factor, .count = w->count};
        term.node = pare_groups_own_node(groups, w->node);
        memcpy(term.slot, w->slot, sizeof term.slot);
        PARE_TRY(term_add(groups, &capacity, &term));
    }
    term_walk walk = {groups, &capacity};
    PARE_TRY(pare_graph_each(groups->model->graph, tensor_terms, &walk));
    return index_terms(groups);
}

/* --- removals --- */

struct pare_prune_plan_inner {
    int64_t *part_removed; /* of group g's part p: at part_first[g] + p */
    int *part_first, *group_removed;
    int *stamp, now; /* (terms): seen while one coupled set changes */
};

static double product(const pare_prune_plan *r, const pare_cost_term *term)
{
    double n = 1;
    for (int i = 0; i < term->count; i++) n *= (double)r->kept[term->slot[i]];
    return n;
}

static void add_term(pare_prune_plan *r, const pare_cost_term *term, double sign)
{
    double n = sign * product(r, term);
    r->cost.macs += n * term->macs;
    r->cost.params += n * term->params;
    r->cost.bytes += n * term->bytes;
}

static pare_status removal_alloc(pare_ctx *ctx, pare_prune_plan *r)
{
    const pare_groups *g = r->groups;
    size_t parts = 0;
    r->inner = pare_alloc(ctx, 1, sizeof *r->inner);
    if (!r->inner) return PARE_MEMORY;
    for (int i = 0; i < g->group_count; i++) parts += (size_t)g->group[i].parts;
    r->removed = pare_alloc(ctx, (size_t)g->coupled_count, sizeof *r->removed);
    r->kept = pare_alloc(ctx, (size_t)g->slot_count, sizeof *r->kept);
    r->inner->part_removed = pare_alloc(ctx, parts, sizeof *r->inner->part_removed);
    r->inner->part_first = pare_alloc(ctx, (size_t)g->group_count, sizeof *r->inner->part_first);
    r->inner->group_removed =
        pare_alloc(ctx, (size_t)g->group_count, sizeof *r->inner->group_removed);
    r->inner->stamp = pare_alloc(ctx, (size_t)g->inner->term_count, sizeof *r->inner->stamp);
    bool all = r->removed && r->kept && r->inner->part_removed && r->inner->part_first &&
               r->inner->group_removed && r->inner->stamp;
    return all ? PARE_OK : PARE_MEMORY;
}

pare_status pare_prune_plan_new(pare_ctx *ctx, pare_prune_plan **out, const pare_groups *groups)
{
    pare_prune_plan *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->groups = groups;
    pare_status st = removal_alloc(ctx, r);
    if (st != PARE_OK) {
        pare_prune_plan_free(r);
        return st;
    }
    for (int i = 0; i < groups->slot_count; i++) r->kept[i] = groups->slot[i].extent;
    for (int i = 1; i < groups->group_count; i++)
        r->inner->part_first[i] = r->inner->part_first[i - 1] + groups->group[i - 1].parts;
    for (int i = 0; i < groups->inner->term_count; i++) add_term(r, &groups->inner->term[i], 1);
    *out = r;
    return PARE_OK;
}

void pare_prune_plan_free(pare_prune_plan *removal)
{
    if (!removal) return;
    if (removal->inner) {
        pare_free(removal->inner->part_removed);
        pare_free(removal->inner->part_first);
        pare_free(removal->inner->group_removed);
        pare_free(removal->inner->stamp);
    }
    pare_free(removal->inner);
    pare_free(removal->removed);
    pare_free(removal->kept);
    pare_free(removal);
}

/* Counts the terms of the coupled set's slots in (sign 1) or out (-1), each once. */
static void add_terms(pare_prune_plan *r, const pare_coupled_channels *c, double sign)
{
    const pare_groups_inner *inner = r->groups->inner;
    int now = ++r->inner->now;
    for (int i = 0; i < c->channel_count; i++) {
        int s = c->channel[i].slot;
        if (i && c->channel[i - 1].slot == s) continue;
        for (int k = inner->first_term[s]; k < inner->first_term[s + 1]; k++) {
            int t = inner->term_of[k];
            if (r->inner->stamp[t] == now) continue;
            r->inner->stamp[t] = now;
            add_term(r, &inner->term[t], sign);
        }
    }
}

static void change(pare_prune_plan *r, int coupled, int by)
{
    const pare_coupled_channels *c = &r->groups->coupled[coupled];
    add_terms(r, c, -1);
    for (int i = 0; i < c->channel_count; i++) r->kept[c->channel[i].slot] -= by;
    add_terms(r, c, 1);
    r->removed[coupled] = by > 0;
    r->count += by;
    r->inner->group_removed[c->group] += by;
    r->inner->part_removed[r->inner->part_first[c->group] + c->part] += by;
}

bool pare_prune_plan_add(pare_prune_plan *removal, int coupled, int64_t floor)
{
    const pare_groups *g = removal->groups;
    const pare_coupled_channels *c = &g->coupled[coupled];
    const pare_dependency_group *group = &g->group[c->group];
    if (removal->removed[coupled]) return false;
    if (group->count - removal->inner->group_removed[c->group] <= floor) return false;
    int64_t of_part = pare_prune_plan_of_part(removal, c->group, c->part) + 1;
    if (group->parts > 1 && of_part >= group->count / group->parts) return false;
    for (int i = 0; i < c->channel_count;) {
        int s = c->channel[i].slot, n = 0;
        for (; i < c->channel_count && c->channel[i].slot == s; i++) n++;
        if (removal->kept[s] <= n) return false;
    }
    change(removal, coupled, 1);
    return true;
}

void pare_prune_plan_drop(pare_prune_plan *removal, int coupled)
{
    if (removal->removed[coupled]) change(removal, coupled, -1);
}

int64_t pare_prune_plan_of_part(const pare_prune_plan *removal, int group, int part)
{
    return removal->inner->part_removed[removal->inner->part_first[group] + part];
}

pare_status pare_prune_plan_check(pare_ctx *ctx, const pare_prune_plan *removal)
{
    const pare_groups *g = removal->groups;
    for (int i = 0; i < g->group_count; i++)
        for (int p = 1; p < g->group[i].parts; p++) {
            int64_t a = pare_prune_plan_of_part(removal, i, 0),
                    b = pare_prune_plan_of_part(removal, i, p);
            if (a == b) continue;
            return PARE_FAIL(ctx, INPUT,
                             "%s: group '%s' loses %d channels in its part 0 and %d in part %d, "
                             "expected equally many in each of its %d parts",
                             g->model->path, g->group[i].name, (int)a, (int)b, p,
                             g->group[i].parts);
        }
    return PARE_OK;
}

double pare_prune_plan_macs(const pare_prune_plan *removal, const pare_node *node)
{
    const pare_groups_inner *inner = removal->groups->inner;
    double macs = 0;
    for (int i = 0; i < inner->term_count; i++)
        if (inner->term[i].node == node && node)
            macs += inner->term[i].macs * product(removal, &inner->term[i]);
    return macs;
}

pare_status pare_prune_plan_shape(const pare_prune_plan *removal, const pare_value *value,
                                  pare_shape *out)
{
    const pare_groups *g = removal->groups;
    PARE_TRY(pare_groups_shape(g, value, out));
    const pare_value *sized = pare_graph_find_own(g->inner->sized->graph, value->name);
    for (int axis = 0; axis < out->rank; axis++) {
        int slot = pare_channel_sets_find_axis(&g->inner->sets, sized, axis);
        if (slot >= 0) out->dim[axis] = removal->kept[slot] / g->slot[slot].parts;
    }
    return PARE_OK;
}

/* What pruning with data will touch, from the shapes alone. Sizes follow what score_data.c,
   score_trial.c, eliminate.c, unstructured_refit.c and unstructured_layer.c allocate; what one of
   them frees before the next begins counts once. */

enum { PLANNED = 4 }; /* tensors as large as the largest in the activations of a run */

/* Of a weighted layer, bytes. */
typedef struct layer_bytes {
    double square, both; /* of (columns, columns), (columns, outputs) of one group */
    double moments;      /* of an observer without targets: two sets, all groups, once summed */
    double summing;      /* the same in the blocks that are summed */
    double panels;       /* rows on their way into moments */
} layer_bytes;

static layer_bytes layer_of(const pare_prunable *s, int ranks)
{
    const pare_columns *c = &s->columns;
    const double d = (double)c->columns, n = (double)c->outputs, sets = 2 * (double)c->groups;
    layer_bytes l = {.square = 8 * d * d, .both = 8 * d * n};
    l.moments = sets * l.square;
    l.summing = pare_block_sum_arrays(ranks) * l.moments;
    l.panels = sets * (double)pare_observer_panel_bytes(c, true);
    return l;
}

static double weights_of(const pare_prunables *all)
{
    double sum = 0;
    for (int i = 0; i < all->count; i++) sum += 4 * (double)all->item[i].count;
    return sum;
}

/* Scoring: the moments of a pass with all tensors that are shown, of one layer what eliminating its
   inputs takes, tensors that trials begin at, and each weight as three trials put it. */
static double of_scores(const pare_prunables *all, const pare_capture_sizes *flow, double samples)
{
    const int ranks = pare_comm_size(all->options->comm);
    enum { TRIALS = 3, BORDER = 2, HELD = 5 };
    double sum = 0, most = 0, work = 0;
    for (int i = 0; i < all->count; i++) {
        if (!all->item[i].matrix) continue;
        const layer_bytes l = layer_of(&all->item[i], ranks);
        sum += (l.summing + l.panels) / 2; /* one set */
        most = fmax(most, (l.summing + l.panels) / 2);
        work = fmax(work, 2 * l.square + 3 * l.both);
    }
    const double kept = fmin(PARE_KEEP_ROOM, BORDER * flow->largest * samples / HELD);
    return fmin(sum, fmax(PARE_SCORE_ROOM, most)) + work + flow->all * flow->runs + kept +
           TRIALS * weights_of(all);
}

/* Finding each layer's part of the zeros: moments of one set of a pass, and all it shows. */
static double of_budget(const pare_prunables *all, const pare_capture_sizes *flow)
{
    const int ranks = pare_comm_size(all->options->comm);
    double sum = 0, most = 0;
    for (int i = 0; i < all->count; i++) {
        if (!all->item[i].matrix) continue;
        const layer_bytes l = layer_of(&all->item[i], ranks);
        sum += (l.summing + l.panels) / 2;
        most = fmax(most, (l.summing + l.panels) / 2 + 3 * l.square);
    }
    return fmin(sum, PARE_BUDGET_ROOM) + most + flow->all * flow->runs;
}

/* Fitting one layer: its moments with targets, the normal equations, weights, and what products
   pack. Where single weights go, one factor a thread, too. */
static double of_fit(const pare_prunables *all, const pare_capture_sizes *flow, double samples)
{
    const int ranks = pare_comm_size(all->options->comm);
    enum { BORDER = 4 }; /* tensors kept or shown at a time, of two flows */
    const double threads = all->options->refit ? 0 : (double)all->options->threads;
    double most = 0;
    for (int i = 0; i < all->count; i++) {
        if (!all->item[i].matrix) continue;
        const layer_bytes l = layer_of(&all->item[i], ranks);
        const double targets = 2 * (double)all->item[i].columns.groups * l.both;
        const double sums = l.summing + pare_block_sum_arrays(ranks) * targets;
        most = fmax(most, sums + l.panels);
        most = fmax(most, l.moments + l.panels + targets + (4 + threads) * l.square +
                              (10 + threads) * l.both);
    }
    return most + fmin(2.0 * PARE_KEEP_ROOM, BORDER * flow->largest * samples) +
           BORDER * flow->largest * flow->runs + weights_of(all);
}

pare_status pare_prune_memory(pare_ctx *ctx, const pare_model *model, const pare_score_data *data,
                              bool scores, bool channels, size_t *out)
{
    pare_arena arena;
    pare_unstructured_options options = {
        .threads = data->threads, .comm = data->comm, .refit = channels};
    pare_unstructured_facts facts = {0};
    if (options.threads < 1) options.threads = pare_cpu_cores();
    pare_arena_init(&arena, ctx);
    pare_prunables all = {.ctx = ctx,
                          .model = (pare_model *)model,
                          .arena = &arena,
                          .options = &options,
                          .facts = &facts};
    pare_status st = pare_prunables_find(&all);
    if (st == PARE_OK) {
        const pare_capture_sizes flow = pare_capture_sizes_of(model, options.threads);
        const double samples = (double)data->sample_count;
        /* kernels pack the weights, and each thread has activations */
        const double plan = weights_of(&all) + PLANNED * flow.largest * options.threads;
        double most = data->refits ? of_fit(&all, &flow, samples) : 0;
        if (scores) most = fmax(most, of_scores(&all, &flow, samples));
        if (data->refits && !channels) most = fmax(most, of_budget(&all, &flow));
        *out = (size_t)(plan + most);
    }
    pare_arena_free(&arena);
    return st;
}
