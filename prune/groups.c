/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of channels become coupled sets, coupled sets with the same slots become groups. */
#include "prune/groups.h"

#include <string.h>

void pare_groups_options_init(pare_groups_options *out) { *out = (pare_groups_options){0}; }

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
    pare_channel_sets *u;
    pare_even_parts parts;
    pare_channel_axis *slot;
    pare_coupled_channels *coupled;
    pare_dependency_group *group;
    pare_block *block;
    int32_t *number; /* (channels): of roots, the coupled set's */
} build;

/* A product may read what is made of a constant by moves alone: the constant's own axis is read. */
static void mark_sources(build *b, const pare_value *value, int32_t root)
{
    if (value->is_init) {
        for (int axis = 0; axis < value->shape.rank; axis++) {
            int s = pare_channel_sets_find_axis(b->u, value, axis);
            pare_channel_set_axis *slot = s < 0 ? NULL : &b->u->slot[s];
            for (int64_t i = 0; slot && i < slot->extent; i++)
                if (pare_channel_sets_find(b->u, slot->first + (int32_t)i) == root)
                    slot->reads = true;
        }
        return;
    }
    for (int i = 0; value->producer && i < value->producer->in_count; i++)
        if (value->producer->in[i]) mark_sources(b, value->producer->in[i], root);
}

static pare_status make_slots(build *b)
{
    pare_channel_sets *u = b->u;
    b->slot = pare_arena_alloc(u->arena, (size_t)u->slot_count + 1, sizeof *b->slot);
    if (!b->slot) return PARE_MEMORY;
    for (int i = 0; i < u->slot_count; i++)
        if (u->slot[i].reads && !u->slot[i].value->is_init)
            mark_sources(b, u->slot[i].value, pare_channel_sets_find(u, u->slot[i].first));
    for (int i = 0; i < u->slot_count; i++) {
        const pare_channel_set_axis *s = &u->slot[i];
        pare_channel_axis_role role = !s->constant ? PARE_AXIS_FLOWS
                                      : s->reads   ? PARE_AXIS_READS
                                                   : PARE_AXIS_MAKES;
        b->slot[i] = (pare_channel_axis){.value = pare_groups_own_value(b->g, s->value),
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
    pare_channel_sets *u = b->u;
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

/* Coupled sets in order of their group, then of their first channel; groups in order of theirs. */
static pare_status number_coupled_sets(build *b)
{
    pare_channel_sets *u = b->u;
    const pare_even_parts *p = &b->parts;
    size_t groups = (size_t)p->signatures;
    b->group = pare_arena_alloc(u->arena, groups + 1, sizeof *b->group);
    b->number = pare_arena_alloc(u->arena, (size_t)u->channel_count + 1, sizeof *b->number);
    if (!b->group || !b->number) return PARE_MEMORY;
    for (int32_t i = 0; i < u->channel_count; i++)
        if (p->signature[i] >= 0) b->group[p->signature[i]].count++;
    int count = 0;
    for (size_t i = 0; i < groups; i++) {
        b->group[i].first = count;
        b->group[i].parts = p->parts[i];
        count += b->group[i].count;
        b->group[i].count = 0;
    }
    b->coupled = pare_arena_alloc(u->arena, (size_t)count + 1, sizeof *b->coupled);
    if (!b->coupled) return PARE_MEMORY;
    for (int32_t i = 0; i < u->channel_count; i++) {
        int group = p->signature[i];
        b->number[i] = -1;
        if (group < 0) continue;
        b->number[i] = b->group[group].first + b->group[group].count++;
        b->coupled[b->number[i]].group = group;
        b->coupled[b->number[i]].part = p->part[i];
    }
    b->g->coupled = b->coupled;
    b->g->coupled_count = count;
    b->g->group = b->group;
    b->g->group_count = (int)groups;
    return PARE_OK;
}

/* Each coupled set's channels, ascending because slots and indices are walked in order. */
static pare_status list_channels(build *b)
{
    pare_channel_sets *u = b->u;
    pare_groups_inner *inner = b->g->inner;
    int32_t *coupled = pare_arena_alloc(u->arena, (size_t)u->channel_count + 1, sizeof *coupled);
    if (!coupled) return PARE_MEMORY;
    inner->coupled = coupled;
    int64_t used = 0;
    for (int32_t i = 0; i < u->channel_count; i++) {
        coupled[i] = b->number[pare_channel_sets_find(u, i)];
        if (coupled[i] < 0) continue;
        b->coupled[coupled[i]].channel_count++;
        used++;
    }
    pare_channel *all = pare_arena_alloc(u->arena, (size_t)used + 1, sizeof *all);
    if (!all) return PARE_MEMORY;
    for (int c = 0; c < b->g->coupled_count; c++) {
        b->coupled[c].channel = all;
        all += b->coupled[c].channel_count;
        b->coupled[c].channel_count = 0;
    }
    for (int s = 0; s < u->slot_count; s++)
        for (int32_t i = 0; i < u->slot[s].extent; i++) {
            int32_t c = coupled[u->slot[s].first + i];
            if (c < 0) continue;
            pare_coupled_channels *to = &b->coupled[c];
            ((pare_channel *)to->channel)[to->channel_count++] = (pare_channel){s, i};
        }
    return PARE_OK;
}

/* The slots of a group are those of any of its coupled sets; it is called after the first weight's
 * node. */
static pare_status name_group(build *b, pare_dependency_group *group)
{
    const pare_coupled_channels *c = &b->coupled[group->first];
    int32_t *slot = pare_arena_alloc(b->u->arena, (size_t)c->channel_count + 1, sizeof *slot);
    const pare_node *node = NULL;
    if (!slot) return PARE_MEMORY;
    group->slot = slot;
    for (int i = 0; i < c->channel_count; i++) {
        int s = c->channel[i].slot;
        if (i && c->channel[i - 1].slot == s) continue;
        slot[group->slot_count++] = s;
        if (!node && b->slot[s].role == PARE_AXIS_MAKES) node = b->slot[s].node;
    }
    for (int i = 0; !node && i < group->slot_count; i++) node = b->slot[slot[i]].node;
    group->name = !node || !node->out_count ? "" : *node->name ? node->name : node->out[0]->name;
    return PARE_OK;
}

static pare_status build_groups(pare_groups *groups)
{
    pare_channel_sets *u = &groups->inner->sets;
    build b = {.g = groups, .u = u};
    PARE_TRY(pare_channel_sets_init(u));
    PARE_TRY(pare_channel_sets_choose(u));
    PARE_TRY(pare_even_find(u, &b.parts));
    PARE_TRY(make_slots(&b));
    PARE_TRY(make_blocks(&b));
    PARE_TRY(number_coupled_sets(&b));
    PARE_TRY(list_channels(&b));
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
        inner->sets = (pare_channel_sets){.ctx = ctx, .arena = &inner->arena, .model = model};
        inner->sets.sized = inner->sized;
        inner->sets.options = inner->options;
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

int pare_groups_axis(const pare_groups *groups, const pare_value *value, int axis, int64_t parts)
{
    const pare_groups_inner *inner = groups->inner;
    const pare_value *sized = pare_graph_find_own(inner->sized->graph, value->name);
    int slot = sized ? pare_channel_sets_find_axis(&inner->sets, sized, axis) : -1;
    return slot >= 0 && groups->slot[slot].parts == parts ? slot : -1;
}

int pare_groups_coupled(const pare_groups *groups, int slot, int64_t channel)
{
    const pare_groups_inner *inner = groups->inner;
    return inner->coupled[inner->sets.slot[slot].first + (int32_t)channel];
}

const pare_block *pare_groups_why(const pare_groups *groups, int slot, int64_t channel)
{
    pare_channel_sets *u = &groups->inner->sets;
    int32_t why = u->blocked[pare_channel_sets_find(u, u->slot[slot].first + (int32_t)channel)];
    return why < 0 ? NULL : &groups->block[why];
}

pare_status pare_groups_shape(const pare_groups *groups, const pare_value *value, pare_shape *out)
{
    const pare_value *sized = pare_graph_find_own(groups->inner->sized->graph, value->name);
    if (!sized)
        return PARE_FAIL(groups->inner->sets.ctx, INPUT,
                         "%s: tensor '%s' is not known to the analysis of groups",
                         groups->model->path, value->name);
    *out = sized->shape;
    return PARE_OK;
}

/* Which sets of channels form a group, and into which parts groups with an evenness rule fall.

   Sets with the same slots have the same signature. A convolution with several groups of channels
   asks that equally many channels leave each of its groups. That can be said where all channels of
   the axis have one signature and each set is in one block; two such rules on one signature must
   be refinements of each other. Where it cannot be said, the convolution is turned to its other
   way, which ties its groups to each other, and all is bound again. */

/* Sets that hold a whole axis cannot go; sets without a weight are of no use. */
static pare_status drop_wholes(pare_channel_sets *u, bool *useful)
{
    for (int s = 0; s < u->slot_count; s++) {
        const pare_channel_set_axis *slot = &u->slot[s];
        bool weight =
            pare_channel_sets_constant(u, slot->value) && pare_type_is_float(slot->value->dtype);
        int32_t first = pare_channel_sets_find(u, slot->first);
        bool whole = true;
        for (int32_t i = 0; i < slot->extent; i++) {
            int32_t root = pare_channel_sets_find(u, slot->first + i);
            whole = whole && root == first;
            useful[root] = useful[root] || weight;
        }
        if (!whole || u->blocked[first] >= 0) continue;
        if (!pare_arena_grow(u->arena, &u->block, &u->block_capacity, u->block_count,
                             sizeof *u->block))
            return PARE_MEMORY;
        u->block[u->block_count] =
            (pare_block){slot->node, slot->value, slot->axis, "ties all of it together"};
        u->blocked[first] = (int32_t)u->block_count++;
    }
    return PARE_OK;
}

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 31)) * 0x7FB5D329728EA185ULL;
    h = (h ^ (h >> 27)) * 0x81DADEF4BC2DD44DULL;
    return h ^ (h >> 33);
}

typedef struct signature_slot {
    uint64_t key;
    int32_t number; /* -1: free */
} signature_slot;

/* Numbers the signatures in order of their first set. */
static pare_status number_signatures(pare_channel_sets *u, const uint64_t *key, const bool *useful,
                                     pare_even_parts *out)
{
    size_t count = 64, mask;
    int32_t sets = 0;
    for (int32_t i = 0; i < u->channel_count; i++)
        sets += u->parent[i] == i && u->blocked[i] < 0 && useful[i];
    while (count < 2 * (size_t)sets + 2) count *= 2;
    mask = count - 1;
    signature_slot *table = pare_alloc(u->ctx, count, sizeof *table);
    if (!table) return PARE_MEMORY;
    for (size_t i = 0; i < count; i++) table[i].number = -1;
    out->signatures = 0;
    for (int32_t i = 0; i < u->channel_count; i++) {
        out->signature[i] = -1;
        if (u->parent[i] != i || u->blocked[i] >= 0 || !useful[i]) continue;
        size_t at = key[i] & mask;
        while (table[at].number >= 0 && table[at].key != key[i]) at = (at + 1) & mask;
        if (table[at].number < 0) table[at] = (signature_slot){key[i], out->signatures++};
        out->signature[i] = table[at].number;
    }
    pare_free(table);
    return PARE_OK;
}

/* The sum of a set's slots' hashes, each slot once. */
static void hash_slots(pare_channel_sets *u, uint64_t *key, int32_t *seen)
{
    for (int s = 0; s < u->slot_count; s++)
        for (int32_t i = 0; i < u->slot[s].extent; i++) {
            int32_t root = pare_channel_sets_find(u, u->slot[s].first + i);
            if (seen[root] == s + 1) continue;
            seen[root] = s + 1;
            key[root] += mix((uint64_t)s + 1);
        }
}

/* --- evenness --- */

/* Notes each set's block of this axis in place; false where the rule cannot be said. */
static bool blocks_of(pare_channel_sets *u, const pare_channel_even *e, const pare_even_parts *p,
                      int32_t *place, int32_t *signature)
{
    const pare_channel_set_axis *slot = &u->slot[e->slot];
    int64_t length = slot->extent / e->blocks, in_first = 0, in_block = 0;
    *signature = -1;
    for (int64_t i = 0; i < slot->extent; i++)
        place[pare_channel_sets_find(u, slot->first + (int32_t)i)] = -1;
    for (int64_t i = 0; i < slot->extent; i++) {
        int32_t root = pare_channel_sets_find(u, slot->first + (int32_t)i),
                block = (int32_t)(i / length);
        if (i % length == 0) {
            if (i > length && in_block != in_first) return false;
            if (i == length) in_first = in_block;
            in_block = 0;
        }
        if (u->blocked[root] >= 0 || p->signature[root] < 0) continue;
        if (*signature >= 0 && p->signature[root] != *signature) return false;
        if (place[root] >= 0 && place[root] != block) return false;
        in_block += place[root] < 0;
        place[root] = block;
        *signature = p->signature[root];
    }
    return in_block == in_first;
}

/* Is each part of `fine` inside one part of `coarse`? Both are of sets with this signature. */
static bool refines(pare_channel_sets *u, const pare_even_parts *p, int32_t signature,
                    const int32_t *fine, int32_t fine_count, const int32_t *coarse,
                    int32_t *scratch)
{
    for (int32_t i = 0; i < fine_count; i++) scratch[i] = -1;
    for (int32_t i = 0; i < u->channel_count; i++) {
        if (p->signature[i] != signature) continue;
        int32_t *in = &scratch[fine[i]];
        if (*in >= 0 && *in != coarse[i]) return false;
        *in = coarse[i];
    }
    return true;
}

/* The finer of what is known of this signature and the new blocks becomes its parts. */
static bool adopt(pare_channel_sets *u, pare_even_parts *p, int32_t signature, const int32_t *place,
                  int32_t blocks, int32_t *scratch)
{
    int32_t known = p->parts[signature];
    if (known > 1 && refines(u, p, signature, p->part, known, place, scratch)) return true;
    if (known > 1 && !refines(u, p, signature, place, blocks, p->part, scratch)) return false;
    for (int32_t i = 0; i < u->channel_count; i++)
        if (p->signature[i] == signature) p->part[i] = place[i];
    p->parts[signature] = blocks;
    return true;
}

static pare_status find_parts(pare_channel_sets *u, pare_even_parts *p, int32_t *place,
                              bool *turned)
{
    int32_t *scratch = pare_alloc(u->ctx, (size_t)u->channel_count + 1, sizeof *scratch);
    if (!scratch) return PARE_MEMORY;
    for (int32_t i = 0; i < u->channel_count; i++) p->part[i] = 0;
    for (int32_t i = 0; i < p->signatures; i++) p->parts[i] = 1;
    for (size_t i = 0; i < u->even_count; i++) {
        const pare_channel_even *e = &u->even[i];
        pare_channel_question *q = &u->question[e->question];
        int32_t signature;
        if (q->way) continue; /* turned by its other side */
        bool fits = blocks_of(u, e, p, place, &signature);
        if (fits && signature >= 0)
            fits = adopt(u, p, signature, place, (int32_t)e->blocks, scratch);
        if (fits) continue;
        q->way = 1;
        *turned = true;
    }
    pare_free(scratch);
    return PARE_OK;
}

static pare_status find_once(pare_channel_sets *u, pare_even_parts *p, bool *turned)
{
    size_t n = (size_t)u->channel_count + 1;
    uint64_t *key = pare_alloc(u->ctx, n, sizeof *key);
    int32_t *seen = pare_alloc(u->ctx, n, sizeof *seen);
    bool *useful = pare_alloc(u->ctx, n, sizeof *useful);
    pare_status st = key && seen && useful ? PARE_OK : PARE_MEMORY;
    *turned = false;
    if (st == PARE_OK) st = drop_wholes(u, useful);
    if (st == PARE_OK) {
        hash_slots(u, key, seen);
        st = number_signatures(u, key, useful, p);
    }
    if (st == PARE_OK) {
        p->parts = pare_arena_alloc(u->arena, (size_t)p->signatures + 1, sizeof *p->parts);
        st = p->parts ? find_parts(u, p, seen, turned) : PARE_MEMORY;
    }
    pare_free(key);
    pare_free(seen);
    pare_free(useful);
    return st;
}

pare_status pare_even_find(pare_channel_sets *sets, pare_even_parts *out)
{
    size_t n = (size_t)sets->channel_count + 1;
    bool turned = true;
    out->signature = pare_arena_alloc(sets->arena, n, sizeof *out->signature);
    out->part = pare_arena_alloc(sets->arena, n, sizeof *out->part);
    if (!out->signature || !out->part) return PARE_MEMORY;
    while (turned) {
        PARE_TRY(find_once(sets, out, &turned));
        if (turned) PARE_TRY(pare_channel_sets_rebind(sets));
    }
    return PARE_OK;
}
