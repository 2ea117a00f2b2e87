/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-graph helpers: topological order, sweeping, walking into subgraphs. */
#include "runtime/base/ptr_map.h"
#include "runtime/graph/graph.h"

#include <string.h>

pare_status pare_graph_each(pare_graph *graph, pare_status (*fn)(pare_graph *graph, void *user),
                            void *user)
{
    PARE_TRY(fn(graph, user));
    for (int n = 0; n < graph->node_count; n++)
        for (int a = 0; a < graph->node[n]->attr_count; a++) {
            const pare_attr *attr = &graph->node[n]->attr[a];
            if (attr->ref) continue;
            if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(pare_graph_each(attr->graph, fn, user));
            for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
                PARE_TRY(pare_graph_each(attr->graphs[i], fn, user));
        }
    return PARE_OK;
}

/* --- order --- */

/* Depth-first, with its own stack: a file may chain more nodes than the C stack is deep. */
typedef struct sorter {
    pare_graph *graph;
    pare_node **order; /* (node_count) finished nodes */
    int count;
    unsigned char *state; /* (node_count) 0 new, 1 open, 2 finished */
    struct frame {
        int node, next; /* position in the file, next dependency to look at */
    } * stack;
    pare_ptr_map position; /* node -> position in the file */
} sorter;

/* The node at place k among those this node must follow: producers of its inputs and of everything
   its subgraphs capture. Returns false after the last; *out is NULL where place k needs nothing.
 */
static bool dependency(const sorter *s, const pare_node *node, int k, const pare_node **out)
{
    *out = NULL;
    if (k < node->in_count) {
        const pare_value *v = node->in[k];
        if (v && v->graph == s->graph) *out = v->producer;
        return true;
    }
    return false;
}

static bool has_subgraph(const pare_node *node)
{
    for (int a = 0; a < node->attr_count; a++)
        if (!node->attr[a].ref &&
            (node->attr[a].kind == PARE_ATTR_GRAPH || node->attr[a].kind == PARE_ATTR_GRAPHS))
            return true;
    return false;
}

/* Adds what a subgraph reads from s->graph to list. */
typedef struct captures {
    const pare_graph *around;
    pare_node **list;
    int count;
    size_t capacity;
} captures;

static pare_status collect(pare_graph *sub, void *user)
{
    captures *c = user;
    if (sub == c->around) return PARE_OK;
    for (int n = 0; n < sub->node_count; n++)
        for (int i = 0; i < sub->node[n]->in_count; i++) {
            pare_value *v = sub->node[n]->in[i];
            if (!v || v->graph != c->around || !v->producer) continue;
            if (!pare_arena_grow(&sub->model->arena, &c->list, &c->capacity, (size_t)c->count,
                                 sizeof *c->list))
                return PARE_MEMORY;
            c->list[c->count++] = v->producer;
        }
    for (int i = 0; i < sub->out.count; i++) {
        pare_value *v = sub->out.item[i];
        if (v->graph != c->around || !v->producer) continue;
        if (!pare_arena_grow(&sub->model->arena, &c->list, &c->capacity, (size_t)c->count,
                             sizeof *c->list))
            return PARE_MEMORY;
        c->list[c->count++] = v->producer;
    }
    return PARE_OK;
}

static pare_status captured(sorter *s, const pare_node *node, captures *c)
{
    *c = (captures){.around = s->graph};
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(pare_graph_each(attr->graph, collect, c));
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            PARE_TRY(pare_graph_each(attr->graphs[i], collect, c));
    }
    return PARE_OK;
}

static pare_status visit(sorter *s, int root)
{
    int depth = 0;
    s->stack[depth] = (struct frame){root, 0};
    s->state[root] = 1;
    while (depth >= 0) {
        struct frame *f = &s->stack[depth];
        pare_node *node = s->graph->node[f->node];
        const pare_node *needs;
        bool more = dependency(s, node, f->next, &needs);
        if (!more && has_subgraph(node)) {
            captures c;
            PARE_TRY(captured(s, node, &c));
            int k = f->next - node->in_count;
            more = k < c.count;
            needs = more ? c.list[k] : NULL;
        }
        if (!more) {
            s->state[f->node] = 2;
            s->order[s->count++] = node;
            depth--;
            continue;
        }
        f->next++;
        if (!needs) continue;
        int at = pare_ptr_map_find(&s->position, needs);
        if (s->state[at] == 2) continue;
        if (s->state[at] == 1)
            return PARE_FAIL_NODE(needs, INPUT,
                                  "it is on a cycle: its output leads back to its input");
        s->state[at] = 1;
        s->stack[++depth] = (struct frame){at, 0};
    }
    return PARE_OK;
}

static pare_status defined(const pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0; i < graph->node[n]->in_count; i++) {
            const pare_value *v = graph->node[n]->in[i];
            if (v && !v->producer && !v->is_input && !v->is_init && !v->data)
                return PARE_FAIL_NODE(graph->node[n], INPUT,
                                      "it reads tensor '%s', which nothing defines", v->name);
        }
    for (int i = 0; i < graph->out.count; i++) {
        const pare_value *v = graph->out.item[i];
        if (!v->producer && !v->is_input && !v->is_init && !v->data)
            return PARE_FAIL(graph->model->ctx, INPUT, "%s: output '%s' is computed by no node",
                             graph->model->path, v->name);
    }
    return PARE_OK;
}

static pare_status sort_in(pare_graph *graph, pare_arena *arena)
{
    size_t n = (size_t)graph->node_count;
    sorter s = {.graph = graph};
    s.order = pare_arena_alloc(arena, n, sizeof *s.order);
    s.state = pare_arena_alloc(arena, n, 1);
    s.stack = pare_arena_alloc(arena, n + 1, sizeof *s.stack);
    if (!s.order || !s.state || !s.stack) return PARE_MEMORY;
    pare_ptr_map_init(&s.position, arena);
    PARE_TRY(pare_ptr_map_reserve(&s.position, n));
    for (int i = 0; i < graph->node_count; i++)
        PARE_TRY(pare_ptr_map_put(&s.position, graph->node[i], i));
    for (int i = 0; i < graph->node_count; i++)
        if (!s.state[i]) PARE_TRY(visit(&s, i));
    if (n) memcpy(graph->node, s.order, n * sizeof *graph->node);
    return PARE_OK;
}

static pare_status sort_one(pare_graph *graph, void *user)
{
    (void)user;
    PARE_TRY(defined(graph));
    pare_arena arena;
    pare_arena_init(&arena, graph->model->ctx);
    pare_status st = sort_in(graph, &arena);
    pare_arena_free(&arena);
    return st;
}

pare_status pare_graph_sort(pare_graph *graph) { return pare_graph_each(graph, sort_one, NULL); }

/* --- sweeping --- */

static bool is_read(const pare_value *v) { return v && (v->user_count > 0 || v->is_output); }

/* Uses inside a removed node's subgraphs count no more. */
static void drop_subgraphs(pare_node *node);

static void drop_graph(pare_graph *graph)
{
    while (graph->node_count > 0) {
        drop_subgraphs(graph->node[graph->node_count - 1]);
        pare_node_remove(graph->node[graph->node_count - 1]);
    }
}

static void drop_subgraphs(pare_node *node)
{
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) drop_graph(attr->graph);
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            drop_graph(attr->graphs[i]);
    }
}

int pare_graph_sweep(pare_graph *graph)
{
    int gone = 0;
    for (bool again = true; again;) {
        again = false;
        for (int n = graph->node_count - 1; n >= 0; n--) {
            pare_node *node = graph->node[n];
            bool alive = false;
            for (int i = 0; i < node->out_count; i++) alive = alive || is_read(node->out[i]);
            if (alive) continue;
            drop_subgraphs(node);
            for (int i = 0; i < node->out_count; i++)
                if (node->out[i]) pare_values_remove(&graph->info, node->out[i]);
            pare_node_remove(node);
            gone++;
            again = true;
        }
    }
    for (int i = graph->init.count - 1; i >= 0; i--) {
        pare_value *v = graph->init.item[i];
        if (!is_read(v)) pare_init_remove(v);
    }
    return gone;
}
