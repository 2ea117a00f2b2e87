/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning in steps with training between them: how far each step goes, and what was trained back
   into the model that is pruned further. */
#include "prune/cut.h"
#include "prune/unstructured.h"

#include <math.h>
#include <string.h>

double pare_prune_sparsity_at(double before, double goal, int64_t step, int64_t steps)
{
    const double left = 1 - (double)step / (double)steps;
    if (step >= steps) return goal;
    return before < goal ? goal + (before - goal) * left * left * left : goal;
}

double pare_prune_cost_at(double before, double goal, int64_t step, int64_t steps)
{
    if (step >= steps || !(before > 0)) return goal;
    return before * pow(goal / before, (double)step / (double)steps);
}

static int64_t zeros_of(const pare_prunable *s)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < s->count; i++) zeros += pare_unstructured_weight(s, i) == 0;
    return zeros;
}

pare_status pare_prune_sparsity(pare_ctx *ctx, pare_model *model, double *out)
{
    pare_arena arena;
    pare_unstructured_options options = {0};
    pare_unstructured_facts facts = {0};
    pare_arena_init(&arena, ctx);
    pare_prunables all = {
        .ctx = ctx, .model = model, .arena = &arena, .options = &options, .facts = &facts};
    pare_status st = pare_prunables_find(&all);
    int64_t count = 0, zeros = 0;
    for (int i = 0; i < all.count; i++) {
        count += all.item[i].count;
        zeros += zeros_of(&all.item[i]);
    }
    *out = count ? (double)zeros / (double)count : 0;
    pare_arena_free(&arena);
    return st;
}

pare_status pare_prune_put_back(const pare_prune_plan *removal, const pare_model *smaller)
{
    pare_graph *g = ((pare_model *)removal->groups->model)->graph;
    for (int i = 0; i < g->init.count; i++) {
        const pare_value *v = pare_graph_find_own(smaller->graph, g->init.item[i]->name);
        if (v && v->data && pare_type_is_float(v->data->dtype))
            PARE_TRY(pare_cut_put_back(g->init.item[i], v->data, removal));
    }
    return PARE_OK;
}
