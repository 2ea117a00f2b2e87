/* SPDX-License-Identifier: Apache-2.0 */
/* Equal constants become one, then equal nodes: same operator, inputs and attributes, none that
   draws random numbers or holds graphs. Nodes are met in order, so that what reads merged results
   is equal, too. Each graph by itself. */
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* Places of items by their hash, open addressing. */
typedef struct table {
    int *at; /* (size) place + 1, or 0 */
    uint64_t *hash;
    size_t size; /* a power of 2, above twice the items */
} table;

static pare_status table_new(pare_ctx *ctx, table *t, int items)
{
    for (t->size = 4; t->size < 2 * (size_t)items + 2;) t->size *= 2;
    t->at = pare_alloc(ctx, t->size, sizeof *t->at);
    t->hash = pare_alloc(ctx, t->size, sizeof *t->hash);
    return t->at && t->hash ? PARE_OK : PARE_MEMORY;
}

static void table_free(table *t)
{
    pare_free(t->at);
    pare_free(t->hash);
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo). */
static uint64_t mixed(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *c = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ c[i]) * UINT64_C(0x100000001b3);
    return h;
}

#define START UINT64_C(0xcbf29ce484222325)

/* The place of an equal item that was met before, else -1, and item's place is kept. */
static int table_meet(table *t, uint64_t hash, int item, bool (*equal)(void *list, int a, int b),
                      void *list)
{
    size_t i = hash & (t->size - 1);
    for (; t->at[i]; i = (i + 1) & (t->size - 1))
        if (t->hash[i] == hash && equal(list, t->at[i] - 1, item)) return t->at[i] - 1;
    t->at[i] = item + 1;
    t->hash[i] = hash;
    return -1;
}

/* --- constants --- */

static bool is_kept(const pare_fuse *f, const pare_value *v)
{
    for (int i = 0; i < f->keep_count; i++)
        if (!strcmp(f->keep[i], v->name)) return true;
    return v->is_input || v->is_output;
}

/* Of type, shape and the first bytes: most constants differ in one of them. */
static uint64_t constant_hash(const pare_tensor *t)
{
    const size_t first = t->bytes < 64 ? t->bytes : 64;
    uint64_t h = mixed(START, &t->dtype, sizeof t->dtype);
    h = mixed(h, &t->rank, sizeof t->rank);
    if (t->rank) h = mixed(h, t->dims, (size_t)t->rank * sizeof *t->dims);
    return first ? mixed(h, t->data, first) : h;
}

static bool constants_equal(void *list, int i, int k)
{
    pare_value *const *v = list;
    const pare_tensor *a = v[i]->data, *b = v[k]->data;
    return a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes &&
           (!a->rank || !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims)) &&
           (!a->bytes || a->data == b->data || !memcmp(a->data, b->data, a->bytes));
}

static pare_status merge_constants(pare_graph *graph, const pare_fuse *f, table *t, bool *changed)
{
    const int count = graph->init.count;
    pare_value **list = pare_alloc(graph->model->ctx, (size_t)count + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    if (count) memcpy(list, graph->init.item, (size_t)count * sizeof(pare_value *));
    pare_status st = PARE_OK;
    for (int i = 0; i < count && st == PARE_OK; i++) {
        const pare_tensor *c = list[i]->data;
        if (!c || !pare_type(c->dtype)->bits || is_kept(f, list[i])) continue;
        const int same = table_meet(t, constant_hash(c), i, constants_equal, list);
        if (same < 0) continue;
        *changed = true;
        st = pare_value_replace(list[i], list[same], false);
        if (st == PARE_OK) pare_init_remove(list[i]);
    }
    pare_free(list);
    return st;
}

/* --- nodes --- */

static bool can_merge(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    return op && op->cpu[0] && !(op->cpu[0]->flags & PARE_KERNEL_DRAWS) &&
           !pare_node_has_graphs(node) && !pare_node_drops(node);
}

static uint64_t node_hash(const pare_node *n)
{
    uint64_t h = mixed(START, n->op_type, strlen(n->op_type));
    h = mixed(h, &n->attr_count, sizeof n->attr_count);
    return n->in_count ? mixed(h, n->in, (size_t)n->in_count * sizeof(pare_value *)) : h;
}

static bool nodes_equal(void *list, int i, int k)
{
    const pare_node *a = ((pare_node **)list)[i], *b = ((pare_node **)list)[k];
    bool same = !strcmp(a->op_type, b->op_type) && !strcmp(a->domain, b->domain) &&
                a->in_count == b->in_count && a->attr_count == b->attr_count &&
                a->out_count >= b->out_count &&
                (!a->in_count || !memcmp(a->in, b->in, (size_t)a->in_count * sizeof *a->in));
    for (int o = 0; same && o < b->out_count; o++) same = !b->out[o] || a->out[o];
    for (int x = 0; same && x < a->attr_count; x++) {
        const pare_attr *other = pare_node_attr(b, a->attr[x].name);
        same = other && pare_attr_equal(&a->attr[x], other);
    }
    return same;
}

/* Do all results of the node give way? */
static bool may_go(const pare_fuse *f, const pare_node *node)
{
    for (int o = 0; o < node->out_count; o++)
        if (node->out[o] && !pare_fuse_may_vanish(f, node->out[o])) return false;
    return true;
}

static pare_status merge_nodes(pare_graph *graph, const pare_fuse *f, table *t, bool *changed)
{
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        if (!can_merge(node)) continue;
        const int same = table_meet(t, node_hash(node), n, nodes_equal, graph->node);
        if (same < 0 || !may_go(f, node)) continue;
        for (int o = 0; o < node->out_count; o++) {
            if (!node->out[o] || !node->out[o]->user_count) continue;
            *changed = true;
            PARE_TRY(pare_value_replace(node->out[o], graph->node[same]->out[o], false));
        }
    }
    return PARE_OK;
}

typedef struct work {
    pare_fuse fuse;
    bool changed;
} work;

static pare_status merge(pare_graph *graph, void *user)
{
    work *w = user;
    pare_fuse f = w->fuse;
    table t = {0}, u = {0};
    f.graph = graph;
    pare_ctx *ctx = graph->model->ctx;
    pare_status st = table_new(ctx, &t, graph->init.count);
    if (st == PARE_OK) st = table_new(ctx, &u, graph->node_count);
    if (st == PARE_OK) st = merge_constants(graph, &f, &t, &w->changed);
    if (st == PARE_OK) st = merge_nodes(graph, &f, &u, &w->changed);
    table_free(&t);
    table_free(&u);
    if (st == PARE_OK) pare_graph_sweep(graph);
    return st;
}

pare_status pare_pass_deduplicate(pare_model *model, const char *const *keep, int keep_count,
                                  bool *changed)
{
    work w = {.fuse = {.keep = keep, .keep_count = keep_count}};
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_graph_each(model->graph, merge, &w));
    *changed = w.changed;
    return PARE_OK;
}
