/* SPDX-License-Identifier: Apache-2.0 */
/* Finds all problems of a model that was read: undefined tensors, cycles, imports, operators
   outside the table; where there are none, what type and shape inference says. The model stays as
   it is. */
#include "runtime/ops/ops.h"
#include "runtime/passes/import/contrib.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEWEST_OPSET = 21 }; /* shape rules read the forms of this opset */

typedef struct checker {
    pare_model *model;
    pare_check_report report;
    void *user;
    int count;
} checker;

static void say(checker *c, const pare_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One problem; with a node, "node 'name' (Op): " is before it. */
static void say(checker *c, const pare_node *node, const char *format, ...)
{
    char text[1024], title[512] = "", line[sizeof text + sizeof title + 4];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (node) pare_node_title(node, title, sizeof title);
    size_t path = strlen(c->model->path) + 2; /* the title begins with "path: " */
    const char *name = strlen(title) > path ? title + path : title;
    snprintf(line, sizeof line, "%s%s%s", name, *name ? ": " : "", text);
    c->count++;
    c->report(c->user, line);
}

/* --- names --- */

static bool is_defined(const pare_value *v)
{
    return v->producer || v->is_input || v->is_init || v->data;
}

static pare_status check_names(pare_graph *graph, void *user)
{
    checker *c = user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && !is_defined(node->in[i]))
                say(c, node, "it reads tensor '%s', which nothing defines", node->in[i]->name);
    }
    for (int i = 0; i < graph->out.count; i++)
        if (!is_defined(graph->out.item[i]))
            say(c, NULL, "%soutput '%s' is computed by no node",
                graph->parent ? "a subgraph's " : "", graph->out.item[i]->name);
    return PARE_OK;
}

/* --- cycles: nodes are taken away while all they read is there; what remains is on a cycle or
   after one, and taking away what no one waits for leaves those between --- */

typedef struct peeler {
    pare_graph *graph;
    struct ranked {
        const pare_node *node;
        int index;
    } * by_address; /* (node_count) sorted */
    int (*edge)[2]; /* from, to: the first must run before the second */
    size_t edge_count, edge_capacity;
    int *waits, *stack;
    bool *gone;
} peeler;

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct ranked *)a)->node;
    uintptr_t y = (uintptr_t)((const struct ranked *)b)->node;
    return (x > y) - (x < y);
}

static pare_status add_read(peeler *p, const pare_value *v, int reader)
{
    if (!v || v->graph != p->graph || !v->producer) return PARE_OK;
    struct ranked key = {v->producer, 0};
    const struct ranked *found = bsearch(&key, p->by_address, (size_t)p->graph->node_count,
                                         sizeof *p->by_address, by_address);
    if (!found) return PARE_OK;
    if (!pare_grow(p->graph->model->ctx, &p->edge, &p->edge_capacity, p->edge_count,
                   sizeof *p->edge))
        return PARE_MEMORY;
    p->edge[p->edge_count][0] = found->index;
    p->edge[p->edge_count++][1] = reader;
    return PARE_OK;
}

static pare_status add_graph_reads(peeler *p, const pare_graph *graph, int reader);

/* Everything a node reads, its subgraphs' captures among it. */
static pare_status add_reads(peeler *p, const pare_node *node, int reader)
{
    for (int i = 0; i < node->in_count; i++) PARE_TRY(add_read(p, node->in[i], reader));
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(add_graph_reads(p, attr->graph, reader));
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            PARE_TRY(add_graph_reads(p, attr->graphs[i], reader));
    }
    return PARE_OK;
}

static pare_status add_graph_reads(peeler *p, const pare_graph *graph, int reader)
{
    for (int n = 0; n < graph->node_count; n++) PARE_TRY(add_reads(p, graph->node[n], reader));
    for (int i = 0; i < graph->out.count; i++) PARE_TRY(add_read(p, graph->out.item[i], reader));
    return PARE_OK;
}

static int by_end(const void *a, const void *b, int end)
{
    const int *x = a, *y = b;
    return (x[end] > y[end]) - (x[end] < y[end]);
}
static int by_from(const void *a, const void *b) { return by_end(a, b, 0); }
static int by_to(const void *a, const void *b) { return by_end(a, b, 1); }

/* Takes away, along the edges in one direction, every node that no remaining one is before. */
static void peel(peeler *p, int start, int end)
{
    int n = p->graph->node_count, depth = 0;
    if (p->edge_count) qsort(p->edge, p->edge_count, sizeof *p->edge, start ? by_to : by_from);
    memset(p->waits, 0, (size_t)n * sizeof *p->waits);
    for (size_t e = 0; e < p->edge_count; e++)
        if (!p->gone[p->edge[e][start]]) p->waits[p->edge[e][end]]++;
    for (int i = 0; i < n; i++)
        if (!p->gone[i] && !p->waits[i]) p->stack[depth++] = i;
    while (depth > 0) {
        int i = p->stack[--depth];
        p->gone[i] = true;
        size_t low = 0, high = p->edge_count; /* the first edge that starts at i */
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (p->edge[middle][start] < i)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < p->edge_count && p->edge[low][start] == i; low++) {
            int next = p->edge[low][end];
            if (!--p->waits[next] && !p->gone[next]) p->stack[depth++] = next;
        }
    }
}

static pare_status find_cycles(checker *c, peeler *p)
{
    pare_graph *g = p->graph;
    for (int i = 0; i < g->node_count; i++) p->by_address[i] = (struct ranked){g->node[i], i};
    if (g->node_count)
        qsort(p->by_address, (size_t)g->node_count, sizeof *p->by_address, by_address);
    for (int i = 0; i < g->node_count; i++) PARE_TRY(add_reads(p, g->node[i], i));
    peel(p, 0, 1);
    peel(p, 1, 0);
    for (int i = 0; i < g->node_count; i++)
        if (!p->gone[i]) say(c, g->node[i], "it is on a cycle: its output leads back to its input");
    return PARE_OK;
}

static pare_status check_cycles(pare_graph *graph, void *user)
{
    pare_ctx *ctx = graph->model->ctx;
    size_t n = (size_t)graph->node_count;
    peeler p = {.graph = graph};
    p.by_address = pare_alloc(ctx, n, sizeof *p.by_address);
    p.waits = pare_alloc(ctx, n, sizeof *p.waits);
    p.stack = pare_alloc(ctx, n, sizeof *p.stack);
    p.gone = pare_alloc(ctx, n, sizeof *p.gone);
    pare_status st = PARE_MEMORY;
    if (p.by_address && p.waits && p.stack && p.gone) st = find_cycles(user, &p);
    pare_free(p.by_address);
    pare_free(p.waits);
    pare_free(p.stack);
    pare_free(p.gone);
    pare_free(p.edge);
    return st;
}

/* --- operators --- */

static void check_operator(checker *c, const pare_node *node, int64_t opset)
{
    const pare_op *op = pare_op_of(node);
    if (node->opset) opset = node->opset;
    if (!strcmp(node->domain, PARE_DOMAIN)) op = NULL; /* not a name files may use */
    if (!pare_model_opset(c->model, node->domain) && (node->domain[0] || opset > 0))
        say(c, node, "the model imports no opset of its domain '%s'", node->domain);
    if (!op && pare_contrib_op_of(node)) return; /* rewritten; what has no form is found below */
    if (!op && c->model->function_count)
        say(c, node,
            "the operator is unknown; the model has functions of its own, which are not "
            "expanded: export it without them");
    else if (!op)
        say(c, node, "the operator%s%s is unknown; `pare ops` lists those that are known",
            node->domain[0] ? " of domain " : "", node->domain);
    else if (!node->domain[0] && opset > 0 && !pare_op_covers(op, opset))
        say(c, node,
            "its form of opset %" PRId64 " is not known, expected %d to %d; export the model for "
            "one of these",
            opset, op->first, op->last);
}

static pare_status check_operators(pare_graph *graph, void *user)
{
    checker *c = user;
    int64_t opset = pare_model_opset(c->model, "");
    for (int n = 0; n < graph->node_count; n++) check_operator(c, graph->node[n], opset);
    return PARE_OK;
}

/* --- types and shapes --- */

static bool may_be(const pare_shape *a, const pare_shape *b)
{
    bool same = a->rank < 0 || b->rank < 0 || a->rank == b->rank;
    for (int i = 0; same && i < a->rank && b->rank >= 0; i++)
        same = a->dim[i] < 0 || b->dim[i] < 0 || a->dim[i] == b->dim[i];
    return same;
}

/* What the file says of its outputs, beside what follows from its nodes. */
static void check_outputs(checker *c, const pare_graph *inferred)
{
    char said[256], found[256];
    for (int i = 0; i < c->model->graph->out.count; i++) {
        const pare_value *a = c->model->graph->out.item[i], *b = inferred->out.item[i];
        if (a->dtype && b->dtype && a->dtype != b->dtype)
            say(c, NULL, "output '%s' is declared as %s, but %s is computed", a->name,
                pare_type(a->dtype)->onnx_name, pare_type(b->dtype)->onnx_name);
        else if (!may_be(&a->shape, &b->shape))
            say(c, NULL, "output '%s' is declared with shape %s, but has %s", a->name,
                pare_shape_text(&a->shape, said, sizeof said),
                pare_shape_text(&b->shape, found, sizeof found));
    }
}

/* Inference stops at its first problem. It runs on a copy, and its words go into a context apart.
 */
static pare_status check_shapes(checker *c)
{
    pare_ctx *child = pare_alloc(c->model->ctx, 1, sizeof *child);
    pare_infer_options options = {.lenient = true};
    pare_model *copy;
    if (!child) return PARE_MEMORY;
    pare_ctx_child(child, c->model->ctx);
    pare_status st = pare_model_clone(child, &copy, c->model);
    if (st == PARE_OK) {
        st = pare_pass_version_convert(copy, NEWEST_OPSET);
        if (st == PARE_OK) st = pare_pass_infer(copy, &options);
        if (st == PARE_OK) check_outputs(c, copy->graph);
        pare_model_free(copy);
    }
    size_t path = strlen(c->model->path);
    const char *words = child->message;
    if (!strncmp(words, c->model->path, path) && !strncmp(words + path, ": ", 2)) words += path + 2;
    if (st == PARE_INPUT || st == PARE_UNSUPPORTED)
        say(c, NULL, "%s", words);
    else if (st != PARE_OK)
        st = pare_fail(c->model->ctx, st, "%s", child->message);
    pare_free(child);
    return st == PARE_INPUT || st == PARE_UNSUPPORTED ? PARE_OK : st;
}

pare_status pare_pass_check(pare_model *model, pare_check_report report, void *user, int *count)
{
    checker c = {model, report, user, 0};
    bool imports = model->ir_version < 1 || model->ir_version >= 3; /* they began with IR 3 */
    if (pare_model_opset(model, "") <= 0 && model->graph->node_count && imports)
        say(&c, NULL, "the model imports no version of ONNX's operators");
    PARE_TRY(pare_graph_each(model->graph, check_names, &c));
    PARE_TRY(pare_graph_each(model->graph, check_cycles, &c));
    PARE_TRY(pare_graph_each(model->graph, check_operators, &c));
    if (!c.count) PARE_TRY(check_shapes(&c));
    *count = c.count;
    return PARE_OK;
}
