/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs inside nodes (bodies of If, Loop, Scan): whose they are, what they hold, and names that
   tell their tensors apart. */
#include "runtime/base/ptr_map.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/pattern.h"

#include <stdlib.h>
#include <string.h>

/* --- what a graph and its bodies hold --- */

typedef struct search {
    const char *name;
    pare_value *found;
} search;

static pare_status find_here(pare_graph *graph, void *user)
{
    search *s = user;
    if (!s->found) s->found = pare_graph_find_own(graph, s->name);
    return PARE_OK;
}

pare_value *pare_graph_find_any(pare_graph *graph, const char *name)
{
    search s = {.name = name};
    return pare_graph_each(graph, find_here, &s) == PARE_OK ? s.found : NULL;
}

typedef struct node_list {
    pare_arena *arena;
    pare_node **item;
    int count;
    size_t capacity;
} node_list;

static pare_status nodes_add(pare_graph *graph, void *user)
{
    node_list *list = user;
    for (int n = 0; n < graph->node_count; n++) {
        if (!pare_arena_grow(list->arena, &list->item, &list->capacity, (size_t)list->count,
                             sizeof *list->item))
            return PARE_MEMORY;
        list->item[list->count++] = graph->node[n];
    }
    return PARE_OK;
}

pare_status pare_graph_all_nodes(pare_graph *graph, pare_arena *arena, pare_node ***out, int *count)
{
    node_list list = {.arena = arena};
    PARE_TRY(pare_graph_each(graph, nodes_add, &list));
    *out = list.item;
    *count = list.count;
    return PARE_OK;
}

typedef struct graph_list {
    pare_arena *arena;
    pare_graph **item;
    int count;
    size_t capacity;
} graph_list;

static pare_status graph_add(pare_graph *graph, void *user)
{
    graph_list *list = user;
    if (!pare_arena_grow(list->arena, &list->item, &list->capacity, (size_t)list->count,
                         sizeof *list->item))
        return PARE_MEMORY;
    list->item[list->count++] = graph;
    return PARE_OK;
}

pare_status pare_graph_sweep_all(pare_graph *graph)
{
    pare_arena arena;
    pare_arena_init(&arena, graph->model->ctx);
    graph_list list = {.arena = &arena};
    const pare_status st = pare_graph_each(graph, graph_add, &list);
    for (int i = list.count - 1; st == PARE_OK && i >= 0; i--) pare_graph_sweep(list.item[i]);
    pare_arena_free(&arena);
    return st;
}

/* --- paths --- */

/* The node whose attribute the graph is; NULL for the main graph. */
static const pare_node *owner_of(const pare_graph *graph, const char **attr)
{
    for (int n = 0; graph->parent && n < graph->parent->node_count; n++) {
        const pare_node *node = graph->parent->node[n];
        for (int a = 0; a < node->attr_count; a++) {
            const pare_attr *at = &node->attr[a];
            if (at->ref) continue;
            bool owns = at->kind == PARE_ATTR_GRAPH && at->graph == graph;
            for (int i = 0; at->kind == PARE_ATTR_GRAPHS && i < at->count; i++)
                owns = owns || at->graphs[i] == graph;
            if (owns) {
                *attr = at->name;
                return node;
            }
        }
    }
    return NULL;
}

/* "loop_1/body/" of a body, "" of the main graph. */
static const char *prefix_of(const pare_graph *graph)
{
    const char *attr = NULL;
    const pare_node *owner = owner_of(graph, &attr);
    if (!owner) return "";
    const char *outer = prefix_of(owner->graph);
    return outer ? pare_arena_printf(&graph->model->arena, "%s%s/%s/", outer,
                                     pare_pattern_name(owner), attr)
                 : NULL;
}

const char *pare_node_path(const pare_node *node)
{
    const char *name = pare_pattern_name(node);
    if (!node->graph->parent) return name;
    const char *prefix = prefix_of(node->graph);
    if (prefix && !strncmp(name, prefix, strlen(prefix)))
        return name; /* an output that is renamed */
    return prefix ? pare_arena_printf(&node->graph->model->arena, "%s%s", prefix, name) : NULL;
}

/* --- names --- */

/* Calls fn for what the graph defines: inputs, initializers, outputs of nodes. */
static pare_status values_each(const graph_list *list, int at, const char *prefix,
                               pare_status (*fn)(const graph_list *list, pare_value *v,
                                                 const char *prefix))
{
    const pare_graph *g = list->item[at];
    for (int i = 0; i < g->in.count; i++) PARE_TRY(fn(list, g->in.item[i], prefix));
    for (int i = 0; i < g->init.count; i++) PARE_TRY(fn(list, g->init.item[i], prefix));
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n]->out_count; i++)
            if (g->node[n]->out[i]) PARE_TRY(fn(list, g->node[n]->out[i], prefix));
    return PARE_OK;
}

static pare_status shared_mark(const graph_list *list, pare_value *v, const char *prefix)
{
    (void)prefix;
    v->mark = 0;
    for (int i = 0; i < list->count && !v->mark; i++)
        v->mark = list->item[i] != v->graph && pare_graph_find_own(list->item[i], v->name);
    return PARE_OK;
}

static pare_status shared_rename(const graph_list *list, pare_value *v, const char *prefix)
{
    (void)list;
    if (!v->mark || v->dtype == PARE_NOTYPE) return PARE_OK;
    v->mark = 0;
    const char *wanted = pare_arena_printf(&v->graph->model->arena, "%s%s", prefix, v->name);
    const char *name = wanted ? pare_graph_fresh_name(v->graph, wanted) : NULL;
    return name ? pare_value_rename(v, name) : PARE_MEMORY;
}

static pare_status name_apart(const graph_list *list)
{
    for (int i = 1; i < list->count; i++) PARE_TRY(values_each(list, i, NULL, shared_mark));
    for (int i = 1; i < list->count; i++) {
        const char *prefix = prefix_of(list->item[i]);
        if (!prefix) return PARE_MEMORY;
        PARE_TRY(values_each(list, i, prefix, shared_rename));
    }
    return PARE_OK;
}

pare_status pare_graph_name_apart(pare_graph *graph)
{
    pare_arena arena;
    pare_arena_init(&arena, graph->model->ctx);
    graph_list list = {.arena = &arena};
    pare_status st = pare_graph_each(graph, graph_add, &list);
    if (st == PARE_OK && list.count > 1) st = name_apart(&list);
    pare_arena_free(&arena);
    return st;
}

/* --- names of nodes --- */

typedef struct named {
    const char *name;
    pare_node *node;
    int at; /* in the graph's order */
} named;

static int named_order(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static int named_compare(const void *key, const void *b)
{
    return strcmp(key, ((const named *)b)->name);
}

/* The next name of base_1, base_2, ... that no node had. */
static const char *numbered(const named *list, size_t count, pare_node *node, int *number)
{
    const char *name;
    do {
        name = pare_arena_printf(&node->graph->model->arena, "%s_%d", node->name, ++*number);
    } while (name && bsearch(name, list, count, sizeof *list, named_compare));
    return name;
}

static pare_status nodes_apart(pare_graph *graph, void *user)
{
    size_t count = 0;
    named *list = pare_arena_alloc(user, (size_t)graph->node_count + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (int n = 0; n < graph->node_count; n++) {
        const char *name = graph->node[n]->name;
        if (name && name[0]) list[count++] = (named){name, graph->node[n], n};
    }
    qsort(list, count, sizeof *list, named_order);
    int number = 0;
    for (size_t i = 1; i < count; i++) {
        if (strcmp(list[i].name, list[i - 1].name)) {
            number = 0;
            continue;
        }
        const char *name = numbered(list, count, list[i].node, &number);
        if (!name) return PARE_MEMORY;
        list[i].node->name = name;
    }
    return PARE_OK;
}

pare_status pare_graph_name_nodes_apart(pare_graph *graph)
{
    pare_arena arena;
    pare_arena_init(&arena, graph->model->ctx);
    const pare_status st = pare_graph_each(graph, nodes_apart, &arena);
    pare_arena_free(&arena);
    return st;
}
