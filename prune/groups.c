/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of units become components, components with the same slots become groups. */
#include "prune/groups.h"

#include <string.h>

pare_value *pare_groups_own_value(const pare_groups *groups, const pare_value *sized)
{
    return pare_graph_find_own(groups->model->graph, sized->name);
}

pare_node *pare_groups_own_node(const pare_groups *groups, const pare_node *sized)
{
    for (int i = 0; sized && i < sized->out_count; i++) {
        const pare_value *own = sized->out[i] ? pare_groups_own_value(groups, sized->out[i]) : NULL;
        if (own && own->producer) return own->producer;
    }
    return NULL;
}

/* --- building --- */

typedef struct build {
    pare_groups *g;
    pare_units *u;
    pare_even_parts parts;
    pare_slot *slot;
    pare_component *component;
    pare_group *group;
    pare_block *block;
    int32_t *number; /* (units): of roots, the component's */
} build;

/* A product may read what is made of a constant by moves alone: the constant's own axis is read. */
static void mark_sources(build *b, const pare_value *value, int32_t root)
{
    if (value->is_init) {
        for (int axis = 0; axis < value->shape.rank; axis++) {
            int s = pare_units_slot(b->u, value, axis);
            pare_unit_slot *slot = s < 0 ? NULL : &b->u->slot[s];
            for (int64_t i = 0; slot && i < slot->extent; i++)
                if (pare_units_find(b->u, slot->first + (int32_t)i) == root) slot->reads = true;
        }
        return;
    }
    for (int i = 0; value->producer && i < value->producer->in_count; i++)
        if (value->producer->in[i]) mark_sources(b, value->producer->in[i], root);
}

static pare_status make_slots(build *b)
{
    pare_units *u = b->u;
    b->slot = pare_arena_alloc(u->arena, (size_t)u->slot_count + 1, sizeof *b->slot);
    if (!b->slot) return PARE_MEMORY;
    for (int i = 0; i < u->slot_count; i++)
        if (u->slot[i].reads && !u->slot[i].value->is_init)
            mark_sources(b, u->slot[i].value, pare_units_find(u, u->slot[i].first));
    for (int i = 0; i < u->slot_count; i++) {
        const pare_unit_slot *s = &u->slot[i];
        pare_slot_role role = !s->constant ? PARE_SLOT_FLOWS
                              : s->reads   ? PARE_SLOT_READS
                                           : PARE_SLOT_MAKES;
        b->slot[i] = (pare_slot){.value = pare_groups_own_value(b->g, s->value),
                                 .axis = s->axis,
                                 .parts = s->parts,
                                 .extent = s->extent,
                                 .role = role,
                                 .node = pare_groups_own_node(b->g, s->node)};
    }
    b->g->slot = b->slot;
    b->g->slot_count = u->slot_count;
    return PARE_OK;
}

static pare_status make_blocks(build *b)
{
    pare_units *u = b->u;
    b->block = pare_arena_alloc(u->arena, u->block_count + 1, sizeof *b->block);
    if (!b->block) return PARE_MEMORY;
    for (size_t i = 0; i < u->block_count; i++) {
        b->block[i] = u->block[i];
        b->block[i].node = pare_groups_own_node(b->g, u->block[i].node);
        b->block[i].value = pare_groups_own_value(b->g, u->block[i].value);
    }
    b->g->block = b->block;
    b->g->block_count = (int)u->block_count;
    return PARE_OK;
}

/* Components in order of their group, then of their first unit; groups in order of theirs. */
static pare_status number_components(build *b)
{
    pare_units *u = b->u;
    const pare_even_parts *p = &b->parts;
    size_t groups = (size_t)p->signatures;
    b->group = pare_arena_alloc(u->arena, groups + 1, sizeof *b->group);
    b->number = pare_arena_alloc(u->arena, (size_t)u->unit_count + 1, sizeof *b->number);
    if (!b->group || !b->number) return PARE_MEMORY;
    for (int32_t i = 0; i < u->unit_count; i++)
        if (p->signature[i] >= 0) b->group[p->signature[i]].count++;
    int count = 0;
    for (size_t i = 0; i < groups; i++) {
        b->group[i].first = count;
        b->group[i].parts = p->parts[i];
        count += b->group[i].count;
        b->group[i].count = 0;
    }
    b->component = pare_arena_alloc(u->arena, (size_t)count + 1, sizeof *b->component);
    if (!b->component) return PARE_MEMORY;
    for (int32_t i = 0; i < u->unit_count; i++) {
        int group = p->signature[i];
        b->number[i] = -1;
        if (group < 0) continue;
        b->number[i] = b->group[group].first + b->group[group].count++;
        b->component[b->number[i]].group = group;
        b->component[b->number[i]].part = p->part[i];
    }
    b->g->component = b->component;
    b->g->component_count = count;
    b->g->group = b->group;
    b->g->group_count = (int)groups;
    return PARE_OK;
}

/* Each component's units, ascending because slots and indices are walked in order. */
static pare_status list_units(build *b)
{
    pare_units *u = b->u;
    pare_groups_inner *inner = b->g->inner;
    int32_t *component = pare_arena_alloc(u->arena, (size_t)u->unit_count + 1, sizeof *component);
    if (!component) return PARE_MEMORY;
    inner->component = component;
    int64_t used = 0;
    for (int32_t i = 0; i < u->unit_count; i++) {
        component[i] = b->number[pare_units_find(u, i)];
        if (component[i] < 0) continue;
        b->component[component[i]].unit_count++;
        used++;
    }
    pare_unit *all = pare_arena_alloc(u->arena, (size_t)used + 1, sizeof *all);
    if (!all) return PARE_MEMORY;
    for (int c = 0; c < b->g->component_count; c++) {
        b->component[c].unit = all;
        all += b->component[c].unit_count;
        b->component[c].unit_count = 0;
    }
    for (int s = 0; s < u->slot_count; s++)
        for (int32_t i = 0; i < u->slot[s].extent; i++) {
            int32_t c = component[u->slot[s].first + i];
            if (c < 0) continue;
            pare_component *to = &b->component[c];
            ((pare_unit *)to->unit)[to->unit_count++] = (pare_unit){s, i};
        }
    return PARE_OK;
}

/* The slots of a group are those of any of its components; it is called after the first weight's
 * node. */
static pare_status name_group(build *b, pare_group *group)
{
    const pare_component *c = &b->component[group->first];
    int32_t *slot = pare_arena_alloc(b->u->arena, (size_t)c->unit_count + 1, sizeof *slot);
    const pare_node *node = NULL;
    if (!slot) return PARE_MEMORY;
    group->slot = slot;
    for (int i = 0; i < c->unit_count; i++) {
        int s = c->unit[i].slot;
        if (i && c->unit[i - 1].slot == s) continue;
        slot[group->slot_count++] = s;
        if (!node && b->slot[s].role == PARE_SLOT_MAKES) node = b->slot[s].node;
    }
    for (int i = 0; !node && i < group->slot_count; i++) node = b->slot[slot[i]].node;
    group->name = !node || !node->out_count ? "" : *node->name ? node->name : node->out[0]->name;
    return PARE_OK;
}

static pare_status build_groups(pare_groups *groups)
{
    pare_units *u = &groups->inner->units;
    build b = {.g = groups, .u = u};
    PARE_TRY(pare_units_init(u));
    PARE_TRY(pare_units_choose(u));
    PARE_TRY(pare_even_find(u, &b.parts));
    PARE_TRY(make_slots(&b));
    PARE_TRY(make_blocks(&b));
    PARE_TRY(number_components(&b));
    PARE_TRY(list_units(&b));
    for (int i = 0; i < groups->group_count; i++) PARE_TRY(name_group(&b, &b.group[i]));
    return pare_costs_init(groups);
}

static pare_status copy_options(pare_groups_inner *inner, const pare_groups_options *options)
{
    pare_groups_options *o = pare_arena_alloc(&inner->arena, 1, sizeof *o);
    if (!o) return PARE_MEMORY;
    inner->options = o;
    if (!options) return PARE_OK;
    *o = *options;
    pare_input_shape *shape =
        pare_arena_alloc(&inner->arena, (size_t)o->shape_count + 1, sizeof *shape);
    if (!shape) return PARE_MEMORY;
    for (int i = 0; i < o->shape_count; i++) {
        shape[i] = options->shape[i];
        shape[i].name = pare_arena_strdup(&inner->arena, options->shape[i].name);
        if (!shape[i].name) return PARE_MEMORY;
    }
    o->shape = shape;
    return PARE_OK;
}

static pare_status size_models(pare_ctx *ctx, pare_groups *groups)
{
    pare_groups_inner *inner = groups->inner;
    bool open;
    PARE_TRY(pare_sized_new(ctx, &inner->sized, groups->model, inner->options, false, &open));
    if (!open) return PARE_OK;
    return pare_sized_new(ctx, &inner->larger, groups->model, inner->options, true, &open);
}

pare_status pare_groups_new(pare_ctx *ctx, pare_groups **out, const pare_model *model,
                            const pare_groups_options *options)
{
    pare_groups *groups = pare_alloc(ctx, 1, sizeof *groups);
    if (!groups) return PARE_MEMORY;
    groups->model = model;
    groups->inner = pare_alloc(ctx, 1, sizeof *groups->inner);
    pare_status st = groups->inner ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        pare_arena_init(&groups->inner->arena, ctx);
        st = copy_options(groups->inner, options);
    }
    if (st == PARE_OK) st = size_models(ctx, groups);
    if (st == PARE_OK) {
        pare_groups_inner *inner = groups->inner;
        inner->units = (pare_units){.ctx = ctx, .arena = &inner->arena, .model = model};
        inner->units.sized = inner->sized;
        inner->units.options = inner->options;
        st = build_groups(groups);
    }
    if (st == PARE_OK)
        *out = groups;
    else
        pare_groups_free(groups);
    return st;
}

void pare_groups_free(pare_groups *groups)
{
    if (!groups) return;
    if (groups->inner) {
        pare_arena_free(&groups->inner->arena);
        pare_model_free(groups->inner->sized);
        pare_model_free(groups->inner->larger);
    }
    pare_free(groups->inner);
    pare_free(groups);
}

/* --- looking --- */

int pare_groups_slot(const pare_groups *groups, const pare_value *value, int axis, int64_t parts)
{
    const pare_groups_inner *inner = groups->inner;
    const pare_value *sized = pare_graph_find_own(inner->sized->graph, value->name);
    int slot = sized ? pare_units_slot(&inner->units, sized, axis) : -1;
    return slot >= 0 && groups->slot[slot].parts == parts ? slot : -1;
}

int pare_groups_component(const pare_groups *groups, int slot, int64_t unit)
{
    const pare_groups_inner *inner = groups->inner;
    return inner->component[inner->units.slot[slot].first + (int32_t)unit];
}

const pare_block *pare_groups_why(const pare_groups *groups, int slot, int64_t unit)
{
    pare_units *u = &groups->inner->units;
    int32_t why = u->blocked[pare_units_find(u, u->slot[slot].first + (int32_t)unit)];
    return why < 0 ? NULL : &groups->block[why];
}

pare_status pare_groups_shape(const pare_groups *groups, const pare_value *value, pare_shape *out)
{
    const pare_value *sized = pare_graph_find_own(groups->inner->sized->graph, value->name);
    if (!sized)
        return PARE_FAIL(groups->inner->units.ctx, INPUT,
                         "%s: tensor '%s' is not known to the analysis of groups",
                         groups->model->path, value->name);
    *out = sized->shape;
    return PARE_OK;
}
