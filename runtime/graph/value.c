/* SPDX-License-Identifier: Apache-2.0 */
/* Values, their names (an open-addressing table per graph) and shapes. */
#include "runtime/graph/graph.h"
#include "runtime/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct pare_name_slot {
    pare_value *value;
};

static size_t slot_of(const pare_graph *g, const char *name)
{
    size_t mask = g->slot_count - 1, at = pare_hash_bytes(name, strlen(name)).low & mask;
    while (g->slot[at].value && strcmp(g->slot[at].value->name, name)) at = (at + 1) & mask;
    return at;
}

static pare_status names_reserve(pare_graph *g)
{
    if (g->slot_count && g->name_count * 2 < g->slot_count) return PARE_OK;
    size_t old_count = g->slot_count;
    struct pare_name_slot *old = g->slot;
    size_t count = old_count ? 2 * old_count : 64;
    struct pare_name_slot *slot = pare_arena_alloc(&g->model->arena, count, sizeof *slot);
    if (!slot) return PARE_MEMORY;
    g->slot = slot;
    g->slot_count = count;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].value) g->slot[slot_of(g, old[i].value->name)] = old[i];
    return PARE_OK;
}

pare_value *pare_graph_find_own(const pare_graph *graph, const char *name)
{
    return graph->slot_count ? graph->slot[slot_of(graph, name)].value : NULL;
}

pare_value *pare_graph_find(const pare_graph *graph, const char *name)
{
    for (; graph; graph = graph->parent) {
        pare_value *v = pare_graph_find_own(graph, name);
        if (v) return v;
    }
    return NULL;
}

pare_status pare_value_new(pare_graph *graph, pare_value **out, const char *name)
{
    PARE_TRY(names_reserve(graph));
    size_t at = slot_of(graph, name);
    if (graph->slot[at].value)
        return PARE_FAIL(graph->model->ctx, INPUT, "%s: tensor '%s' is defined twice",
                         graph->model->path, name);
    pare_value *v = pare_arena_alloc(&graph->model->arena, 1, sizeof *v);
    if (!v) return PARE_MEMORY;
    v->name = pare_arena_strdup(&graph->model->arena, name);
    if (!v->name) return PARE_MEMORY;
    v->shape.rank = -1;
    v->graph = graph;
    graph->slot[at].value = v;
    graph->name_count++;
    *out = v;
    return PARE_OK;
}

/* The old name's slot keeps the value: it matches no name there, and later names are found past it.
 */
pare_status pare_value_move(pare_value *value, pare_graph *to, const char *name)
{
    PARE_TRY(names_reserve(to));
    size_t at = slot_of(to, name);
    if (to->slot[at].value == value) return PARE_OK;
    if (to->slot[at].value)
        return PARE_FAIL(to->model->ctx, INPUT, "%s: tensor '%s' is defined twice", to->model->path,
                         name);
    pare_arena *arena = &to->model->arena;
    const char *copy = pare_arena_strdup(arena, name);
    if (!copy) return PARE_MEMORY;
    if (value->data) {
        pare_tensor *t = pare_arena_memdup(arena, value->data, sizeof *t);
        if (!t) return PARE_MEMORY;
        t->name = copy;
        value->data = t;
    }
    value->name = copy;
    value->graph = to;
    value->origin = (pare_bytes){0};
    to->slot[at].value = value;
    to->name_count++;
    return PARE_OK;
}

pare_status pare_value_rename(pare_value *value, const char *name)
{
    return pare_value_move(value, value->graph, name);
}

typedef struct name_query {
    const char *name;
    bool found;
} name_query;

static pare_status name_in_graph(pare_graph *graph, void *user)
{
    name_query *q = user;
    q->found = q->found || pare_graph_find_own(graph, q->name);
    return PARE_OK;
}

const char *pare_graph_fresh_name(pare_graph *graph, const char *base)
{
    pare_arena *arena = &graph->model->arena;
    const char *name = base;
    for (int i = 1;; i++) {
        name_query q = {name, false};
        if (pare_graph_each(graph->model->graph, name_in_graph, &q) != PARE_OK) return NULL;
        if (!q.found) return name;
        name = pare_arena_printf(arena, "%s_%d", base, i);
        if (!name) return NULL;
    }
}

pare_status pare_values_add(pare_graph *graph, pare_values *list, pare_value *value)
{
    if (!pare_arena_grow(&graph->model->arena, &list->item, &list->capacity, (size_t)list->count,
                         sizeof *list->item))
        return PARE_MEMORY;
    list->item[list->count++] = value;
    return PARE_OK;
}

void pare_values_remove(pare_values *list, const pare_value *value)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++)
        if (list->item[i] != value) list->item[kept++] = list->item[i];
    list->count = kept;
}

void pare_graph_clear_inputs(pare_graph *g)
{
    for (int i = g->in.count - 1; i >= 0; i--) {
        pare_value *v = g->in.item[i];
        if (!v->is_init) continue;
        v->is_input = false;
        pare_values_remove(&g->in, v);
    }
}

pare_status pare_value_replace(pare_value *old, pare_value *fresh, bool outputs)
{
    while (old->user_count > 0) {
        pare_node *user = old->user[0];
        for (int i = 0; i < user->in_count; i++)
            if (user->in[i] == old) PARE_TRY(pare_node_set_in(user, i, fresh));
    }
    pare_graph *g = old->graph;
    for (int i = 0; outputs && i < g->out.count; i++)
        if (g->out.item[i] == old) {
            g->out.item[i] = fresh;
            fresh->is_output = true;
            old->is_output = false;
        }
    return PARE_OK;
}

pare_status pare_value_set_init(pare_value *value, const pare_tensor *data)
{
    value->data = data;
    value->dtype = data->dtype;
    value->origin = (pare_bytes){0};
    value->shape = (pare_shape){.rank = data->rank > PARE_MAX_RANK ? -1 : data->rank};
    for (int i = 0; i < value->shape.rank; i++) value->shape.dim[i] = data->dims[i];
    if (value->is_init) return PARE_OK;
    value->is_init = true;
    return pare_values_add(value->graph, &value->graph->init, value);
}

pare_status pare_init_new(pare_graph *graph, pare_value **out, const char *name, pare_dtype dtype,
                          int rank, const int64_t *dims, const void *data)
{
    pare_tensor *t;
    PARE_TRY(pare_value_new(graph, out, name));
    PARE_TRY(pare_tensor_new(graph->model, &t, name, dtype, rank, dims, data));
    return pare_value_set_init(*out, t);
}

void pare_init_remove(pare_value *value)
{
    pare_graph *g = value->graph;
    pare_values_remove(&g->init, value);
    pare_values_remove(&g->info, value);
    if (value->is_input) pare_values_remove(&g->in, value);
    value->is_init = value->is_input = false;
    value->data = NULL;
}

void pare_init_to_input(pare_value *value)
{
    pare_values_remove(&value->graph->init, value);
    value->is_init = false;
    value->data = NULL;
}

void pare_value_set_type(pare_value *value, pare_dtype dtype, const pare_shape *shape)
{
    value->dtype = dtype;
    value->shape = shape ? *shape : (pare_shape){.rank = -1};
    value->origin = (pare_bytes){0};
}

pare_node *pare_value_only_user(const pare_value *value)
{
    return value->user_count == 1 && !value->is_output ? value->user[0] : NULL;
}

int64_t pare_shape_count(const pare_shape *shape)
{
    if (shape->rank < 0) return -1;
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0 || __builtin_mul_overflow(n, shape->dim[i], &n)) return -1;
    return n;
}

bool pare_shape_equal(const pare_shape *a, const pare_shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

bool pare_shape_known(const pare_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0) return false;
    return shape->rank >= 0;
}

const char *pare_shape_text(const pare_shape *shape, char *text, size_t size)
{
    if (shape->rank < 0) {
        snprintf(text, size, "?");
        return text;
    }
    size_t at = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < shape->rank && at < size; i++) {
        const char *comma = i ? "," : "";
        int n = shape->dim[i] >= 0
                    ? snprintf(text + at, size - at, "%s%" PRId64, comma, shape->dim[i])
                    : snprintf(text + at, size - at, "%s%s", comma,
                               shape->name[i] ? shape->name[i] : "?");
        at += n < 0 ? 0 : (size_t)n;
    }
    if (at < size) snprintf(text + at, size - at, "]");
    return text;
}
