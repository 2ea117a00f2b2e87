/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes after a removal: the table's cut functions rewrite attributes and integer inputs; tensors
   of the graph get their new extents. */
#include "prune/groups.h"
#include "runtime/ops/infer.h"

#include <stdio.h>
#include <string.h>

typedef struct rewriter {
    const pare_prune_plan *removal;
    const pare_node *before, *again;
    bool freed; /* nodes that computed extents may be of no use any more */
} rewriter;

static int64_t on_kept(void *user, const pare_value *value, int axis, int64_t start, int64_t length)
{
    const rewriter *r = user;
    int slot = pare_channel_sets_find_axis(&r->removal->groups->inner->sets, value, axis);
    int64_t kept = 0;
    if (slot < 0) return length;
    for (int64_t i = start; i < start + length; i++)
        kept += pare_prune_plan_keeps(r->removal, slot, i);
    return kept;
}

/* What element j of an integer input was, and whether it is that for all sizes of the inputs. */
static bool old_element(const rewriter *r, const pare_node *node, int i, int j, int64_t *out)
{
    const pare_value *own = node->in[i], *before = pare_node_in(r->before, i);
    const pare_value *again = r->again ? pare_node_in(r->again, i) : before;
    if (own && own->data && j < own->data->count) {
        *out = pare_tensor_int(own->data, j);
        return true;
    }
    bool known = before && before->data && j < before->data->count;
    *out = known ? pare_tensor_int(before->data, j) : 0;
    return known && again && again->data && j < again->data->count &&
           pare_tensor_int(again->data, j) == *out;
}

static pare_status new_ints(pare_node *node, int i, const int64_t *ints, int count,
                            pare_dtype dtype, bool scalar, pare_value **out)
{
    pare_graph *g = node->graph;
    const int64_t dims[] = {count};
    pare_value *old = pare_node_in(node, i);
    pare_tensor *t;
    PARE_TRY(pare_tensor_new(g->model, &t, "", dtype, scalar ? 0 : 1, dims, NULL));
    for (int j = 0; j < count; j++) {
        if (dtype == PARE_s32)
            ((int32_t *)t->data)[j] = (int32_t)ints[j];
        else
            ((int64_t *)t->data)[j] = ints[j];
    }
    if (old && old->is_init && old->user_count == 1 && !old->is_output && old->graph == g) {
        t->name = old->name;
        *out = old;
        return pare_value_set_init(old, t);
    }
    char base[300];
    snprintf(base, sizeof base, "%s_extents", old ? old->name : node->out[0]->name);
    t->name = pare_graph_fresh_name(g, base);
    if (!t->name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(g, out, t->name));
    return pare_value_set_init(*out, t);
}

/* Elements that are computed while the model runs are picked from there. */
static pare_status pick_ints(pare_node *node, int i, const int64_t *ints, const bool *fixed,
                             int count, pare_dtype dtype)
{
    pare_graph *g = node->graph;
    pare_value *old = node->in[i], *mask, *fresh, *out;
    const int64_t dims[] = {count};
    pare_node *where;
    char base[300];
    snprintf(base, sizeof base, "%s_fixed", old->name);
    const char *name = pare_graph_fresh_name(g, base);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(g, &mask, name, PARE_bool, 1, dims, fixed));
    PARE_TRY(new_ints(node, i, ints, count, dtype, false, &fresh));
    snprintf(base, sizeof base, "%s_picked", old->name);
    name = pare_graph_fresh_name(g, base);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(g, &out, name));
    pare_value_set_type(out, dtype, &old->shape);
    pare_value *in[] = {mask, fresh, old};
    PARE_TRY(pare_node_new(g, &where, pare_node_index(node), "Where", "", name, in, 3, &out, 1));
    return pare_node_set_in(node, i, out);
}

static pare_status on_set_ints(void *user, pare_node *node, int i, const int64_t *ints,
                               const bool *changed, int count)
{
    rewriter *r = user;
    pare_value *old = pare_node_in(node, i), *fresh;
    pare_arena *arena = &node->graph->model->arena;
    int64_t *all = pare_arena_alloc(arena, (size_t)count + 1, sizeof *all);
    bool *fixed = pare_arena_alloc(arena, (size_t)count + 1, sizeof *fixed), open = false;
    if (!all || !fixed) return PARE_MEMORY;
    for (int j = 0; j < count; j++) {
        fixed[j] = !changed || changed[j] || old_element(r, node, i, j, &all[j]);
        if (!changed || changed[j]) all[j] = ints[j];
        open = open || !fixed[j];
    }
    const pare_value *before = pare_node_in(r->before, i);
    pare_dtype dtype = before && before->dtype == PARE_s32 ? PARE_s32 : PARE_s64;
    r->freed = r->freed || (old && !old->is_init);
    if (open) return pick_ints(node, i, all, fixed, count, dtype);
    bool scalar = before && before->shape.rank == 0;
    PARE_TRY(new_ints(node, i, all, count, dtype, scalar, &fresh));
    if (fresh == old) return PARE_OK;
    PARE_TRY(pare_node_set_in(node, i, fresh));
    if (old && old->is_init && !old->user_count && !old->is_output) pare_init_remove(old);
    return PARE_OK;
}

/* The nodes of the two sized models for a node of the result, by the name of an output. */
static const pare_node *node_in(const pare_model *model, const pare_node *node)
{
    for (int i = 0; model && i < node->out_count; i++) {
        const pare_value *v =
            node->out[i] ? pare_graph_find_own(model->graph, node->out[i]->name) : NULL;
        if (v && v->producer) return v->producer;
    }
    return NULL;
}

static bool lost_channels(const pare_prune_plan *r, const pare_value *value)
{
    for (int axis = 0; value && axis < value->shape.rank; axis++) {
        int slot = pare_channel_sets_find_axis(&r->groups->inner->sets, value, axis);
        if (slot >= 0 && r->kept[slot] != r->groups->slot[slot].extent) return true;
    }
    return false;
}

static bool is_touched(const pare_prune_plan *r, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (lost_channels(r, node->in[i])) return true;
    for (int i = 0; i < node->out_count; i++)
        if (lost_channels(r, node->out[i])) return true;
    return false;
}

static pare_status rewrite_nodes(pare_model *model, rewriter *r)
{
    const pare_groups_inner *inner = r->removal->groups->inner;
    const pare_graph *sized = inner->sized->graph;
    for (int n = 0; n < sized->node_count; n++) {
        const pare_op *op = pare_op_of(sized->node[n]);
        pare_node *node = (pare_node *)node_in(model, sized->node[n]);
        if (!op || !node || !is_touched(r->removal, sized->node[n])) continue;
        r->before = sized->node[n];
        r->again = node_in(inner->larger, r->before);
        pare_prune_cut cut = {r, r->before, r->again, on_kept, on_set_ints};
        PARE_TRY(op->prune.cut(&cut, node));
    }
    return PARE_OK;
}

static void resize_values(pare_model *model, const pare_prune_plan *removal)
{
    const pare_groups *g = removal->groups;
    for (int s = 0; s < g->slot_count; s++) {
        const pare_channel_axis *slot = &g->slot[s];
        if (removal->kept[s] == slot->extent || slot->role != PARE_AXIS_FLOWS) continue;
        pare_value *v = pare_graph_find_own(model->graph, slot->value->name);
        if (!v || v->shape.rank <= slot->axis || v->shape.dim[slot->axis] < 0) continue;
        pare_shape shape = v->shape;
        shape.dim[slot->axis] = removal->kept[s];
        pare_value_set_type(v, v->dtype, &shape);
    }
}

static bool is_of_input(const pare_graph *graph, const char *symbol)
{
    for (int i = 0; i < graph->in.count; i++) {
        const pare_shape *shape = &graph->in.item[i]->shape;
        for (int d = 0; d < shape->rank; d++)
            if (shape->name[d] && !strcmp(shape->name[d], symbol)) return true;
    }
    return false;
}

/* Symbols that say how an extent was computed ("12*batch", where 12 heads were) no longer hold
   everywhere, and one symbol means one number: only those of the inputs stay. The file's own words
   may have one where the shape has none. */
static void forget_symbols(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0; i < graph->node[n]->out_count; i++) {
            pare_value *v = graph->node[n]->out[i];
            if (!v || v->is_output || v->shape.rank < 1) continue;
            pare_shape shape = v->shape;
            bool forgets = false;
            for (int d = 0; d < shape.rank; d++) {
                if (shape.dim[d] >= 0 || (shape.name[d] && is_of_input(graph, shape.name[d])))
                    continue;
                shape.name[d] = NULL;
                forgets = true;
            }
            if (forgets) pare_value_set_type(v, v->dtype, &shape);
        }
}

pare_status pare_cut_rewrite(pare_model *model, const pare_prune_plan *removal)
{
    rewriter r = {.removal = removal};
    PARE_TRY(rewrite_nodes(model, &r));
    resize_values(model, removal);
    forget_symbols(model->graph);
    if (r.freed) pare_graph_sweep(model->graph);
    return PARE_OK;
}
