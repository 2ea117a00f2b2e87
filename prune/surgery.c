/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller model, and the masked one of the same size that it equals: constants sliced or
   masked, and the result checked. */
#include "prune/groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The smaller model, and the masked one of the same size that it equals. */

static pare_status cut_model(pare_model *model, const pare_prune_plan *removal)
{
    PARE_TRY(pare_cut_slice(model, removal));
    PARE_TRY(pare_cut_rewrite(model, removal));
    return pare_cut_verify(model, removal);
}

static pare_status clone_and(pare_ctx *ctx, pare_model **out, const pare_prune_plan *removal,
                             pare_status (*fn)(pare_model *model, const pare_prune_plan *removal))
{
    pare_model *model;
    PARE_TRY(pare_prune_plan_check(ctx, removal));
    PARE_TRY(pare_model_clone(ctx, &model, removal->groups->model));
    pare_status st = removal->count ? fn(model, removal) : PARE_OK;
    if (st == PARE_OK)
        *out = model;
    else
        pare_model_free(model);
    return st;
}

pare_status pare_prune_masked(pare_ctx *ctx, pare_model **out, const pare_prune_plan *removal)
{
    return clone_and(ctx, out, removal, pare_cut_mask);
}

pare_status pare_prune_remove(pare_ctx *ctx, pare_model **out, const pare_prune_plan *removal)
{
    return clone_and(ctx, out, removal, cut_model);
}

/* Constants after a removal: sliced along every axis that lost channels, or masked. */

/* A constant, its slots by axis (-1: none), and which channels of each stay. */
typedef struct sliced {
    const pare_prune_plan *removal;
    const pare_tensor *old;
    int slot[PARE_MAX_RANK];
    int64_t dim[PARE_MAX_RANK], parts[PARE_MAX_RANK];
    int64_t stride[PARE_MAX_RANK]; /* bytes */
    int last;                      /* the innermost axis that lost channels */
} sliced;

static bool sliced_init(sliced *s, const pare_prune_plan *removal, const pare_value *value)
{
    const pare_groups *g = removal->groups;
    const pare_value *sized = pare_graph_find_own(g->inner->sized->graph, value->name);
    const pare_tensor *t = value->data;
    size_t size = (size_t)pare_type(t->dtype)->bits / 8;
    *s = (sliced){.removal = removal, .old = t, .last = -1};
    if (!sized || !sized->is_init || t->rank > PARE_MAX_RANK || !size) return false;
    int64_t stride = (int64_t)size;
    for (int i = t->rank - 1; i >= 0; i--) {
        int slot = pare_channel_sets_find_axis(&g->inner->sets, sized, i);
        s->slot[i] = slot;
        s->parts[i] = slot < 0 ? 1 : g->slot[slot].parts;
        s->dim[i] = slot < 0 ? t->dims[i] : removal->kept[slot] / s->parts[i];
        s->stride[i] = stride;
        stride *= t->dims[i];
        if (s->dim[i] != t->dims[i] && s->last < 0) s->last = i;
    }
    return s->last >= 0;
}

/* With parts, index i of axis 1 is channel (block * dim + i), block that of the row. */
static bool index_stays(const sliced *s, int axis, int64_t i, int64_t row)
{
    if (s->slot[axis] < 0) return true;
    int64_t channel = i;
    if (s->parts[axis] > 1) {
        int64_t rows = s->old->dims[0] / s->parts[axis];
        channel += row / rows * s->old->dims[axis];
    }
    return pare_prune_plan_keeps(s->removal, s->slot[axis], channel);
}

/* From the dense tensor to the smaller one, or back. Returns the end of what the smaller has. */
static char *copy_kept(const sliced *s, int axis, char *dense, char *small, int64_t row, bool back)
{
    for (int64_t i = 0; i < s->old->dims[axis]; i++) {
        char *at = dense + i * s->stride[axis];
        if (axis == 0) row = i;
        if (!index_stays(s, axis, i, row)) continue;
        if (axis < s->last) {
            small = copy_kept(s, axis + 1, at, small, row, back);
        } else {
            memcpy(back ? at : small, back ? small : at, (size_t)s->stride[axis]);
            small += s->stride[axis];
        }
    }
    return small;
}

static void clear_removed(const sliced *s, int masked, int axis, char *at, int64_t row)
{
    for (int64_t i = 0; i < s->old->dims[axis]; i++) {
        char *here = at + i * s->stride[axis];
        if (axis == 0) row = i;
        if (axis < masked)
            clear_removed(s, masked, axis + 1, here, row);
        else if (!index_stays(s, axis, i, row))
            memset(here, 0, (size_t)s->stride[axis]);
    }
}

static pare_status slice_value(pare_value *value, const pare_prune_plan *removal)
{
    sliced s;
    pare_tensor *t;
    if (!value->data || !sliced_init(&s, removal, value)) return PARE_OK;
    PARE_TRY(pare_tensor_new(value->graph->model, &t, value->name, s.old->dtype, s.old->rank, s.dim,
                             NULL));
    t->doc = s.old->doc;
    const char *end = copy_kept(&s, 0, (char *)s.old->data, (char *)t->data, 0, false);
    if (end != (char *)t->data + t->bytes)
        return PARE_FAIL(value->graph->model->ctx, INPUT,
                         "%s: tensor '%s' would keep differently many channels in its groups",
                         value->graph->model->path, value->name);
    return pare_value_set_init(value, t);
}

static bool is_masked(const sliced *s, int axis)
{
    const pare_prune_plan *r = s->removal;
    int slot = s->slot[axis];
    return slot >= 0 && r->groups->slot[slot].role == PARE_AXIS_READS &&
           r->kept[slot] != r->groups->slot[slot].extent;
}

static void clear_read(const sliced *s, char *data)
{
    for (int i = 0; i < s->old->rank; i++)
        if (is_masked(s, i)) clear_removed(s, i, 0, data, 0);
}

static pare_status mask_value(pare_value *value, const pare_prune_plan *removal)
{
    sliced s;
    pare_tensor *t;
    bool any = false;
    if (!value->data || !sliced_init(&s, removal, value)) return PARE_OK;
    for (int i = 0; i < s.old->rank; i++) any = any || is_masked(&s, i);
    if (!any) return PARE_OK;
    PARE_TRY(pare_tensor_new(value->graph->model, &t, value->name, s.old->dtype, s.old->rank,
                             s.old->dims, s.old->data));
    clear_read(&s, (char *)t->data);
    t->doc = s.old->doc;
    return pare_value_set_init(value, t);
}

pare_status pare_cut_put_back(pare_value *value, const pare_tensor *small,
                              const pare_prune_plan *removal)
{
    sliced s;
    pare_tensor *t;
    bool lost = sliced_init(&s, removal, value), same = small->rank == value->data->rank;
    const pare_tensor *old = value->data;
    for (int i = 0; same && i < old->rank; i++)
        same = small->dims[i] == (lost ? s.dim[i] : old->dims[i]);
    if (!same || small->dtype != old->dtype)
        return PARE_FAIL(value->graph->model->ctx, INPUT,
                         "%s: tensor '%s' is not of the shape and type that the removal left",
                         value->graph->model->path, value->name);
    PARE_TRY(pare_tensor_new(value->graph->model, &t, value->name, old->dtype, old->rank, old->dims,
                             lost ? old->data : small->data));
    t->doc = old->doc;
    if (lost) {
        (void)copy_kept(&s, 0, (char *)t->data, (char *)small->data, 0, true);
        clear_read(&s, (char *)t->data);
    }
    return pare_value_set_init(value, t);
}

/* A weight that nodes make of constants is multiplied by ones and zeros where it is made. */
static pare_status mask_made(pare_model *model, const pare_prune_plan *removal, int slot_number)
{
    const pare_channel_axis *slot = &removal->groups->slot[slot_number];
    pare_value *v = pare_graph_find_own(model->graph, slot->value->name), *mask, *out;
    const pare_shape *shape = &removal->groups->inner->sets.slot[slot_number].value->shape;
    pare_shape dims = {.rank = shape->rank};
    pare_tensor *t;
    if (!v || !v->producer) return PARE_OK;
    for (int i = 0; i < shape->rank; i++) dims.dim[i] = i == slot->axis ? shape->dim[i] : 1;
    if (slot->parts > 1) dims.dim[0] = shape->dim[0];
    const char *name = pare_graph_fresh_name(model->graph, "mask");
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(model->graph, &mask, name, v->dtype, dims.rank, dims.dim, NULL));
    t = (pare_tensor *)mask->data;
    sliced s = {.removal = removal, .old = t, .last = slot->axis};
    int64_t stride = pare_type(v->dtype)->bits / 8;
    for (int i = dims.rank - 1; i >= 0; i--) {
        s.slot[i] = i == slot->axis ? slot_number : -1;
        s.parts[i] = i == slot->axis ? slot->parts : 1;
        s.stride[i] = stride;
        stride *= dims.dim[i];
    }
    for (int64_t i = 0; i < t->count; i++)
        pare_type(v->dtype)->from_f32_ref((char *)t->data + i * (pare_type(v->dtype)->bits / 8), 1);
    clear_removed(&s, slot->axis, 0, (char *)t->data, 0);
    name = pare_graph_fresh_name(model->graph, "masked");
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(model->graph, &out, name));
    pare_value_set_type(out, v->dtype, &v->shape);
    PARE_TRY(pare_value_replace(v, out, false));
    pare_node *node, *maker = v->producer;
    return pare_node_new(model->graph, &node, pare_node_index(maker) + 1, "Mul", "", name,
                         (pare_value *[]){v, mask}, 2, &out, 1);
}

pare_status pare_cut_slice(pare_model *model, const pare_prune_plan *removal)
{
    for (int i = 0; i < model->graph->init.count; i++)
        PARE_TRY(slice_value(model->graph->init.item[i], removal));
    return PARE_OK;
}

pare_status pare_cut_mask(pare_model *model, const pare_prune_plan *removal)
{
    for (int i = 0; i < model->graph->init.count; i++)
        PARE_TRY(mask_value(model->graph->init.item[i], removal));
    for (int i = 0; i < removal->groups->slot_count; i++) {
        const pare_channel_set_axis *s = &removal->groups->inner->sets.slot[i];
        if (s->reads && !s->constant && removal->kept[i] != s->extent)
            PARE_TRY(mask_made(model, removal, i));
    }
    return PARE_OK;
}

/* The result of a surgery, sized as the analysis sized the model: do its shapes say what the
   removal says? */

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
        const pare_channel_axis *slot = &g->slot[s];
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
