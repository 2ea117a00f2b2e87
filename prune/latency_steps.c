/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled step's tensors are found by name in the analysed model: passes keep the names of what
   they keep. A copy into another memory order has its source's extents; a vector that a pass made
   (the bias of a folded BatchNormalization) goes with the channels that the step makes. */
#include "prune/latency_steps.h"

#include <stdlib.h>
#include <string.h>

typedef struct mapper {
    const pare_groups *groups;
    pare_latency_step *step;
    size_t capacity;
    pare_arena *arena;
} mapper;

static bool equal_dims(const pare_shape *a, const pare_shape *b)
{
    return a->rank >= 0 && pare_shape_equal(a, b);
}

static const pare_value *sized_of(const pare_groups *g, const pare_value *v)
{
    const pare_value *sized = pare_graph_find_own(g->inner->sized->graph, v->name);
    if (sized && equal_dims(&sized->shape, &v->shape)) return sized;
    const pare_node *n = v->producer;
    const pare_value *source = NULL;
    for (int i = 0; n && i < n->in_count; i++) {
        if (!n->in[i] || n->in[i]->data) continue;
        if (source) return NULL;
        source = n->in[i];
    }
    return source && equal_dims(&source->shape, &v->shape) ? sized_of(g, source) : NULL;
}

static int32_t component(const pare_groups *g, int slot, int64_t unit)
{
    return g->inner->component[g->inner->units.slot[slot].first + unit];
}

static bool shrinks(const pare_groups *g, int slot)
{
    for (int64_t u = 0; u < g->slot[slot].extent; u++)
        if (component(g, slot, u) >= 0) return true;
    return false;
}

static pare_status add_axis(mapper *m, int tensor, int axis, int slot)
{
    pare_latency_step *s = m->step;
    if (slot < 0 || !shrinks(m->groups, slot)) return PARE_OK;
    if (!pare_arena_grow(m->arena, &s->axis, &m->capacity, (size_t)s->axis_count, sizeof *s->axis))
        return PARE_MEMORY;
    s->axis[s->axis_count++] = (pare_latency_axis){.tensor = tensor,
                                                   .axis = axis,
                                                   .slot = slot,
                                                   .parts = m->groups->slot[slot].parts,
                                                   .variable = -1,
                                                   .times = 1};
    return PARE_OK;
}

static pare_status add_tensor(mapper *m, int tensor, const pare_value *v, bool *found)
{
    const pare_value *sized = sized_of(m->groups, v);
    *found = sized != NULL;
    for (int axis = 0; sized && axis < sized->shape.rank; axis++)
        PARE_TRY(add_axis(m, tensor, axis, pare_units_slot(&m->groups->inner->units, sized, axis)));
    return PARE_OK;
}

/* The one axis of a constant that is longer than 1; -1: none, -2: several. */
static int long_axis(const pare_value *v)
{
    int found = -1;
    for (int axis = 0; axis < v->shape.rank; axis++)
        if (v->shape.dim[axis] > 1) found = found == -1 ? axis : -2;
    return found;
}

/* A vector goes with the channels that a weight makes, else with those of the output. */
static pare_status add_vector(mapper *m, int tensor, const pare_value *v, bool *found)
{
    const pare_latency_step *s = m->step;
    int axis = long_axis(v), best = -1;
    *found = axis != -2;
    if (axis < 0) return PARE_OK;
    for (int i = 0; i < s->axis_count; i++) {
        const pare_slot *slot = &m->groups->slot[s->axis[i].slot];
        if (slot->extent != v->shape.dim[axis] || slot->parts != 1) continue;
        if (slot->role == PARE_SLOT_MAKES || (best < 0 && s->axis[i].tensor >= s->node->in_count))
            best = s->axis[i].slot;
    }
    return add_axis(m, tensor, axis, best);
}

static pare_status map_tensors(mapper *m)
{
    const pare_node *n = m->step->node;
    bool found;
    for (int i = 0; i < n->out_count; i++)
        if (n->out[i]) PARE_TRY(add_tensor(m, n->in_count + i, n->out[i], &found));
    for (int i = 0; i < n->in_count; i++) {
        if (!n->in[i]) continue;
        PARE_TRY(add_tensor(m, i, n->in[i], &found));
        m->step->known = m->step->known && (found || n->in[i]->data);
    }
    for (int i = 0; i < n->in_count; i++) {
        if (!n->in[i] || !n->in[i]->data || sized_of(m->groups, n->in[i])) continue;
        PARE_TRY(add_vector(m, i, n->in[i], &found));
        m->step->known = m->step->known && found;
    }
    return PARE_OK;
}

/* --- variables --- */

/* How many units of slot a fall with one of b, in rows or side by side; 0: they do not. */
static int64_t times_of(const pare_groups *g, int a, int b)
{
    int64_t ea = g->slot[a].extent, eb = g->slot[b].extent;
    if (ea % eb) return 0;
    int64_t times = ea / eb;
    bool rows = true, sides = true;
    for (int64_t u = 0; u < ea && (rows || sides); u++) {
        int32_t c = component(g, a, u);
        rows = rows && c == component(g, b, u / times);
        sides = sides && c == component(g, b, u % eb);
    }
    return rows || sides ? times : 0;
}

/* The axis without a variable that has the fewest units. */
static pare_latency_axis *smallest(const pare_groups *g, const pare_latency_step *s, int tensors)
{
    pare_latency_axis *best = NULL;
    for (int i = 0; i < s->axis_count; i++) {
        pare_latency_axis *a = &s->axis[i];
        if (a->variable >= 0 || a->tensor >= tensors) continue;
        if (!best || g->slot[a->slot].extent < g->slot[best->slot].extent) best = a;
    }
    return best;
}

/* Extents that always shrink together are one variable. */
static void find_variables(const pare_groups *g, pare_latency_step *s)
{
    for (pare_latency_axis *a; (a = smallest(g, s, s->node->in_count));) {
        for (int v = 0; v < s->variables && a->variable < 0; v++) {
            a->times = times_of(g, a->slot, s->slot[v]);
            if (a->times) a->variable = v;
        }
        if (a->variable < 0 && s->variables == PARE_LATENCY_VARIABLES) {
            s->known = false;
            return;
        }
        if (a->variable < 0) {
            a->variable = s->variables++;
            a->times = 1;
            s->slot[a->variable] = a->slot;
            s->dense[a->variable] = g->slot[a->slot].extent;
            s->unit[a->variable] = 1;
        }
        if (a->parts > s->unit[a->variable]) s->unit[a->variable] = a->parts;
    }
}

/* The node whose weight the step has; else the one whose result is the step's. */
static const pare_node *model_node(const pare_groups *g, const pare_node *compiled)
{
    const pare_value *own;
    for (int i = 0; i < compiled->in_count; i++) {
        if (!compiled->in[i] || !compiled->in[i]->data || compiled->in[i]->shape.rank < 2) continue;
        own = pare_graph_find_own(g->model->graph, compiled->in[i]->name);
        if (own && own->data && own->user_count) return own->user[0];
    }
    own = compiled->out_count && compiled->out[0]
              ? pare_graph_find_own(g->model->graph, compiled->out[0]->name)
              : NULL;
    return own ? own->producer : NULL;
}

pare_status pare_latency_map(const pare_groups *groups, const pare_node *compiled,
                             pare_arena *arena, pare_latency_step *out)
{
    *out =
        (pare_latency_step){.node = compiled, .model = model_node(groups, compiled), .known = true};
    mapper m = {groups, out, 0, arena};
    PARE_TRY(map_tensors(&m));
    find_variables(groups, out);
    return PARE_OK;
}
