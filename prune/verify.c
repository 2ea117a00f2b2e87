/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a surgery, sized as the analysis sized the model: do its shapes say what the
   removal says? */
#include "prune/cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool same_content(const pare_tensor *a, const pare_tensor *b)
{
    return a->dtype == b->dtype && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
}

/* A number that the model computes from extents (the count a sum is divided by) is used by a node
   that still runs with it: the node gets what it was. */
static pare_status settle_input(pare_model *model, const pare_prune_plan *removal, pare_node *node,
                                int i, bool *settled)
{
    const pare_groups_inner *inner = removal->groups->inner;
    pare_value *value = node->in[i], *fresh;
    const pare_value *old = pare_graph_find_own(inner->sized->graph, value->name), *larger = old;
    if (inner->larger) larger = pare_graph_find_own(inner->larger->graph, value->name);
    if (!larger || !larger->data || !same_content(old->data, larger->data))
        return PARE_FAIL_NODE(
            node, UNSUPPORTED,
            "'%s' is computed from the inputs' sizes and from what is pruned: fix "
            "the sizes of the model's inputs",
            value->name);
    char base[300];
    snprintf(base, sizeof base, "%s_before", value->name);
    const char *name = pare_graph_fresh_name(model->graph, base);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(model->graph, &fresh, name, old->data->dtype, old->data->rank,
                           old->data->dims, old->data->data));
    *settled = true;
    return pare_node_set_in(node, i, fresh);
}

static pare_status settle_node(pare_model *model, const pare_prune_plan *removal,
                               const pare_node *sized, bool *settled)
{
    const pare_graph *before = removal->groups->inner->sized->graph;
    for (int i = 0; i < sized->in_count; i++) {
        const pare_value *now = sized->in[i];
        const pare_value *was = now ? pare_graph_find_own(before, now->name) : NULL;
        const pare_value *own = now ? pare_graph_find_own(model->graph, now->name) : NULL;
        if (!was || !own || own->is_init || !own->producer) continue;
        if (!was->data || !now->data || same_content(was->data, now->data)) continue;
        const pare_value *out =
            sized->out[0] ? pare_graph_find_own(model->graph, sized->out[0]->name) : NULL;
        if (out && out->producer && pare_node_in(out->producer, i) == own)
            PARE_TRY(settle_input(model, removal, out->producer, i, settled));
    }
    return PARE_OK;
}

static pare_status check_shapes(const pare_model *result, const pare_prune_plan *removal)
{
    const pare_groups *g = removal->groups;
    for (int s = 0; s < g->slot_count; s++) {
        const pare_slot *slot = &g->slot[s];
        const pare_value *v =
            slot->value ? pare_graph_find_own(result->graph, slot->value->name) : NULL;
        int64_t want = removal->kept[s] / slot->parts;
        if (!v || v->shape.rank <= slot->axis) continue;
        if (v->shape.dim[slot->axis] == want) continue;
        return PARE_FAIL(result->ctx, UNSUPPORTED,
                         "%s: tensor '%s' has %" PRId64 " along axis %d after pruning, expected "
                         "%" PRId64 ": keep the node that makes it",
                         result->path, v->name, v->shape.dim[slot->axis], slot->axis, want);
    }
    return PARE_OK;
}

static pare_status verify_once(pare_model *model, const pare_prune_plan *removal, bool larger,
                               bool *settled)
{
    const pare_groups *g = removal->groups;
    pare_model *result;
    bool open;
    PARE_TRY(pare_sized_new(model->ctx, &result, model, g->inner->options, larger, &open));
    if (!result)
        return PARE_FAIL(
            model->ctx, UNSUPPORTED,
            "%s: the pruned model no longer takes inputs of other sizes: fix the sizes "
            "of the model's inputs",
            model->path);
    pare_status st = larger ? PARE_OK : check_shapes(result, removal);
    for (int n = 0; !larger && st == PARE_OK && n < result->graph->node_count; n++)
        st = settle_node(model, removal, result->graph->node[n], settled);
    pare_model_free(result);
    return st;
}

pare_status pare_cut_verify(pare_model *model, const pare_prune_plan *removal)
{
    bool settled = false;
    PARE_TRY(verify_once(model, removal, false, &settled));
    if (removal->groups->inner->larger) PARE_TRY(verify_once(model, removal, true, &settled));
    if (settled) pare_graph_sweep(model->graph);
    return PARE_OK;
}
