/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a model whose channels were pruned, as facts and as words. */
#include "formats/onnx.h"

#include "formats/json.h"
#include "runtime/graph/pattern.h"
#include "tools/prune/latency.h"
#include "tools/prune/report.h"
#include "tools/prune/structured.h"
#include "tools/table.h"
#include "tools/text.h"

#include <string.h>

const char *pare_structured_recipe(const pare_structured *s)
{
    const pare_prune_options *o = s->o;
    pare_arena *arena = &s->tool->arena;
    const pare_pruner_facts *f = s->facts;
    pare_score score = f->score;
    const char *text = pare_arena_printf(
        arena, "prune %s=%.10g scope=%s score=%s steps=%lld min-channels=%lld round=%lld", s->kind,
        o->size ? f->goal : f->goal / f->cost_before, o->scope == 1 ? "layer" : "global",
        pare_scores[score].name, (long long)o->steps, (long long)o->min_channels,
        (long long)o->round);
    if (text && score == PARE_SCORE_RANDOM)
        text = pare_arena_printf(arena, "%s seed=%lld", text, (long long)o->seed);
    if (text && s->options.data)
        text = pare_arena_printf(arena, "%s samples=%lld refit=%s", text,
                                 (long long)s->options.sample_count, f->refits ? "yes" : "no");
    if (text && o->outputs) text = pare_arena_printf(arena, "%s outputs=yes", text);
    for (int i = 0; i < o->keep.count && text; i++)
        text = pare_arena_printf(arena, "%s keep=%s", text, o->keep.item[i]);
    return pare_tuning_recipe(&s->tuning, text);
}

static json_t *groups_json(const pare_structured *s)
{
    json_t *list = json_array();
    for (int g = 0; g < s->facts->groups->group_count; g++) {
        const pare_dependency_group *group = &s->facts->groups->group[g];
        int left = 0;
        for (int c = group->first; c < group->first + group->count; c++)
            left += !s->facts->plan->removed[c];
        json_array_append_new(list,
                              json_pack("{s:o, s:i, s:i}", "name", pare_json_text(group->name),
                                        "before", group->count, "after", left));
    }
    return list;
}

static json_t *change_json(double before, double after)
{
    return json_pack("{s:I, s:I}", "before", (json_int_t)before, "after", (json_int_t)after);
}

/* What a refit says of the node's weight, or NULL. */
static const pare_unstructured_layer *fitted(const pare_structured *s, const char *node)
{
    for (int i = 0; i < s->facts->refitted.layer_count; i++)
        if (!strcmp(s->facts->refitted.layer[i].node, node)) return &s->facts->refitted.layer[i];
    return NULL;
}

/* The weight's shape before and after; NULL for products without one. */
static json_t *shape_json(const pare_prune_plan *none, const pare_prune_plan *now,
                          const pare_node *node)
{
    const pare_value *weight = NULL;
    for (int i = 0; i < node->in_count && !weight; i++)
        if (node->in[i] && node->in[i]->data && node->in[i]->data->rank >= 2) weight = node->in[i];
    json_t *json = json_object();
    for (int k = 0; weight && k < 2; k++) {
        pare_shape shape;
        json_t *dims = json_array();
        if (pare_prune_plan_shape(k ? now : none, weight, &shape) != PARE_OK) shape.rank = 0;
        for (int d = 0; d < shape.rank; d++)
            json_array_append_new(dims, json_integer(shape.dim[d]));
        json_object_set_new(json, k ? "after" : "before", dims);
    }
    if (weight) return json;
    json_decref(json);
    return NULL;
}

static json_t *layers_json(const pare_structured *s, const pare_prune_plan *none)
{
    json_t *list = json_array();
    const pare_graph *g = s->model->graph;
    for (int i = 0; i < g->node_count; i++) {
        const char *name = pare_pattern_name(g->node[i]);
        double before = pare_prune_plan_macs(none, g->node[i]);
        if (!(before > 0)) continue;
        json_t *row = change_json(before, pare_prune_plan_macs(s->facts->plan, g->node[i]));
        json_object_set_new(row, "node", pare_json_text(name));
        json_t *shape = shape_json(none, s->facts->plan, g->node[i]);
        if (shape) json_object_set_new(row, "shape", shape);
        const pare_unstructured_layer *l = fitted(s, name);
        if (l) pare_prune_put_held(row, l);
        if (l && l->error >= 0) json_object_set_new(row, "error", json_real(l->error));
        if (l && l->refitted) json_object_set_new(row, "ridge", json_real(l->ridge));
        pare_prune_latency_layer(s->pruner, g->node[i], row);
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *row_json(const pare_structured *s, const char *path, const char *hash,
                        uint64_t bytes, const pare_prune_plan *none)
{
    const pare_prune_cost *now = &s->facts->plan->cost;
    return json_pack("{s:o, s:s, s:I, s:{s:s, s:f, s:f, s:f}, s:o, s:o, s:o, s:o}", "file",
                     pare_json_text(path), "hash", hash, "bytes", (json_int_t)bytes, "target", "of",
                     s->kind, "before", s->facts->cost_before, "goal", s->facts->goal, "reached",
                     s->facts->reached, "macs", change_json(s->facts->before.macs, now->macs),
                     "parameters", change_json(s->facts->before.params, now->params), "groups",
                     groups_json(s), "layers", layers_json(s, none));
}

pare_status pare_structured_report(pare_structured *s, const char *path)
{
    pare_ctx *ctx = s->tool->ctx;
    char hash[33], size[32];
    uint64_t bytes;
    pare_prune_plan *none;
    PARE_TRY(pare_onnx_hash(ctx, path, hash, &bytes));
    PARE_TRY(pare_prune_plan_new(ctx, &none, s->facts->groups));
    const pare_prune_cost *now = &s->facts->plan->cost;
    pare_print(stdout, "%s\n", path);
    if (!s->o->common.quiet)
        pare_print(
            stderr,
            "%s (%.0f %% of before), %.1f %% of the multiply-adds, %.1f %% of the parameters, "
            "%d of %d channels removed\n",
            pare_bytes_text((double)bytes, size, sizeof size),
            s->bytes ? 100 * (double)bytes / (double)s->bytes : 0.0,
            s->facts->before.macs > 0 ? 100 * now->macs / s->facts->before.macs : 0.0,
            s->facts->before.params > 0 ? 100 * now->params / s->facts->before.params : 0.0,
            s->facts->plan->count, s->facts->groups->coupled_count);
    json_t *row = row_json(s, path, hash, bytes, none);
    if (s->o->latency) {
        json_object_set_new(row, "latency", pare_prune_latency_json(s));
        pare_prune_latency_log(s, row);
    }
    pare_tuning_put(&s->tuning, row);
    json_array_append_new(s->list, row);
    pare_prune_plan_free(none);
    return PARE_OK;
}
