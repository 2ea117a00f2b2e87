/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of single-weight pruning (unstructured_refit.c) with masks that a removal gives: a
   weight is 0 where it reads a removed channel, and whole rows are where it makes one. Layers that
   see what the dense model sees stay as they are. */
#include "prune/score.h"
#include "prune/unstructured.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* --- before --- */

/* A bias of its own: zeros, or a copy of the one that others read, too. */
static pare_status own_bias(pare_prunables *all, const pare_prunable *s)
{
    pare_unstructured_end end;
    pare_graph *g = all->model->graph;
    pare_unstructured_end_find(s, &end);
    if (!end.bias_node) return PARE_OK;
    pare_value *old = pare_node_in(end.bias_node, end.bias_at), *fresh;
    if (old && old->user_count == 1 && !old->is_output) return PARE_OK;
    const int64_t n = s->columns.groups * s->columns.outputs;
    float *data = pare_arena_alloc(all->arena, (size_t)n, sizeof *data);
    char *base = pare_arena_printf(all->arena, "%s_bias", s->value->name);
    const char *name = base ? pare_graph_fresh_name(g, base) : NULL;
    if (!data || !name) return PARE_MEMORY;
    if (old) memcpy(data, old->data->data, (size_t)n * sizeof *data);
    PARE_TRY(pare_init_new(g, &fresh, name, PARE_f32, old ? old->data->rank : 1,
                           old ? old->data->dims : &n, data));
    return pare_node_set_in(end.bias_node, end.bias_at, fresh);
}

/* The list of a model's layers, for functions that need no options. */
typedef struct layers {
    pare_arena arena;
    pare_unstructured_options options;
    pare_unstructured_facts facts;
    pare_prunables all;
} layers;

static pare_status open_layers(layers *l, pare_ctx *ctx, pare_model *model)
{
    *l = (layers){0};
    pare_arena_init(&l->arena, ctx);
    l->all = (pare_prunables){
        .ctx = ctx, .model = model, .arena = &l->arena, .options = &l->options, .facts = &l->facts};
    return pare_prunables_find(&l->all);
}

pare_status pare_refit_prepare(pare_ctx *ctx, pare_model *model)
{
    layers l;
    PARE_TRY(pare_pass_fold_batchnorm(model));
    pare_status st = open_layers(&l, ctx, model);
    for (int i = 0; i < l.all.count && st == PARE_OK; i++)
        if (l.all.item[i].matrix) st = own_bias(&l.all, &l.all.item[i]);
    pare_arena_free(&l.arena);
    return st;
}

/* --- masks --- */

static bool is_gone(const pare_prune_plan *r, int slot, int64_t channel)
{
    int c = slot < 0 ? -1 : pare_groups_coupled(r->groups, slot, channel);
    return c >= 0 && r->removed[c];
}

/* *any: something the layer reads is removed. */
static void mask(const pare_prune_plan *r, pare_prunable *s, bool *any)
{
    const pare_tensor *t = s->value->data;
    const int64_t parts = s->matrix ? s->columns.groups : pare_node_int(s->node, "group", 1);
    const int made = pare_groups_axis(r->groups, s->value, s->part.axis, 1),
              read = pare_groups_axis(r->groups, s->value, 1 - s->part.axis, parts);
    int64_t inner = 1;
    for (int i = 2; i < t->rank; i++) inner *= t->dims[i];
    for (int64_t at = 0; at < t->count; at++) {
        const int64_t i1 = at / inner % t->dims[1], i0 = at / inner / t->dims[1];
        const int64_t o = s->part.axis == 0 ? i0 : i1, i = s->part.axis == 0 ? i1 : i0;
        const int64_t part = i0 * parts / t->dims[0];
        bool reads = is_gone(r, read, part * t->dims[1 - s->part.axis] + i);
        s->zero[at] = reads || is_gone(r, made, o);
        *any = *any || reads;
    }
}

/* Marks the nodes after a layer: what they compute changes. */
static void mark_after(pare_node *node)
{
    if (node->mark) return;
    node->mark = 1;
    for (int o = 0; o < node->out_count; o++)
        for (int u = 0; node->out[o] && u < node->out[o]->user_count; u++)
            mark_after(node->out[o]->user[u]);
}

/* Masks; layers that nothing changes for stay. */
static void mask_all(pare_prunables *all, const pare_prune_plan *removal)
{
    pare_graph *g = all->model->graph;
    for (int n = 0; n < g->node_count; n++) g->node[n]->mark = 0;
    for (int i = 0; i < all->count; i++) {
        pare_prunable *s = &all->item[i];
        bool any = false;
        if (s->value->data->rank >= 2) mask(removal, s, &any);
        if (any) mark_after(s->node);
        s->dense = !s->node->mark;
    }
}

static pare_status run(pare_prunables *all, const pare_prune_plan *removal)
{
    PARE_TRY(pare_prunables_find(all));
    mask_all(all, removal);
    int64_t *want = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *want);
    if (!want) return PARE_MEMORY;
    return pare_prunables_refit(all, want);
}

pare_status pare_refit_run(pare_ctx *ctx, const pare_prune_plan *removal,
                           const pare_model *reference, const pare_score_data *data,
                           pare_unstructured_facts *facts)
{
    pare_arena arena;
    pare_unstructured_options options = {.score = PARE_SCORE_L2,
                                         .data = data->data,
                                         .samples = data->samples,
                                         .sample_count = data->sample_count,
                                         .threads = data->threads,
                                         .device = data->device,
                                         .comm = data->comm,
                                         .refit = true,
                                         .progress = data->progress,
                                         .progress_user = data->progress_user};
    if (options.threads < 1) options.threads = pare_cpu_cores();
    *facts = (pare_unstructured_facts){0};
    pare_arena_init(&arena, ctx);
    pare_prunables all = {.ctx = ctx,
                          .model = (pare_model *)removal->groups->model,
                          .arena = &arena,
                          .options = &options,
                          .facts = facts,
                          .reference = reference};
    pare_status st = run(&all, removal);
    pare_arena_free(&arena);
    return st;
}
