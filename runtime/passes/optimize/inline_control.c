/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow that is decided before the run: an If (ONNX 1 to 25) whose condition is constant, a
   Loop (ONNX 1 to 25) of a constant number of turns, none or one. The nodes of the body move into
   the graph around it. Outputs of the body become the node's outputs; a tensor that cannot take
   such a name, as an outer one that the body returns, is copied by an Identity. */
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

#include <string.h>

typedef struct work {
    const char *const *keep;
    int keep_count;
    bool changed;
} work;

/* --- constants --- */

/* A constant of one bool. */
static bool bool_of(const pare_value *v, bool *out)
{
    if (!v || !v->data || v->data->dtype != PARE_bool || v->data->count != 1) return false;
    *out = *(const unsigned char *)v->data->data != 0;
    return true;
}

/* A constant of one s64. */
static bool whole_of(const pare_value *v, int64_t *out)
{
    if (!v || !v->data || v->data->dtype != PARE_s64 || v->data->count != 1) return false;
    memcpy(out, v->data->data, sizeof *out);
    return true;
}

static pare_status constant(pare_graph *g, const char *base, pare_dtype dtype, int rank,
                            const int64_t *dims, const void *data, pare_value **out)
{
    const char *name = pare_graph_fresh_name(g, base);
    return name ? pare_init_new(g, out, name, dtype, rank, dims, data) : PARE_MEMORY;
}

/* --- moving a body out --- */

typedef struct return_swap {
    const pare_graph *body; /* that moves */
    const pare_value *old;
    pare_value *fresh;
} return_swap;

/* What the body and those inside it return that was the old tensor is the fresh one. */
static pare_status returns_replace(pare_graph *graph, void *user)
{
    const return_swap *s = user;
    for (int i = 0; i < graph->out.count; i++)
        if (graph->out.item[i] == s->old) {
            graph->out.item[i] = s->fresh;
            if (graph != s->body) s->fresh->is_output = true;
        }
    return PARE_OK;
}

static pare_status value_move(pare_value *v, pare_graph *to)
{
    const char *name = pare_graph_fresh_name(to, v->name);
    return name ? pare_value_move(v, to, name) : PARE_MEMORY;
}

static pare_status inits_move(pare_graph *body, pare_graph *to)
{
    for (int i = 0; i < body->init.count; i++) {
        pare_value *v = body->init.item[i];
        PARE_TRY(value_move(v, to));
        PARE_TRY(pare_values_add(to, &to->init, v));
        v->is_output = false;
    }
    return PARE_OK;
}

static pare_status node_move(pare_node *node, pare_graph *to, int at)
{
    if (!pare_arena_grow(&to->model->arena, &to->node, &to->node_capacity, (size_t)to->node_count,
                         sizeof *to->node))
        return PARE_MEMORY;
    memmove(to->node + at + 1, to->node + at, (size_t)(to->node_count - at) * sizeof *to->node);
    to->node[at] = node;
    to->node_count++;
    node->graph = to;
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) attr->graph->parent = to;
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            attr->graphs[i]->parent = to;
    }
    for (int i = 0; i < node->out_count; i++) {
        if (!node->out[i]) continue;
        PARE_TRY(value_move(node->out[i], to));
        node->out[i]->is_output = false;
    }
    return PARE_OK;
}

/* Marks what bodies inside the moved nodes return. */
static pare_status returns_note(pare_graph *graph, void *user)
{
    (void)user;
    for (int i = 0; i < graph->out.count; i++) graph->out.item[i]->is_output = true;
    return PARE_OK;
}

static pare_status identity(pare_graph *g, int at, pare_value *x, pare_value *y)
{
    return pare_node_new(g, NULL, at, "Identity", "", y->name, &x, 1, &y, 1);
}

/* May the maker of what the body returns make the node's output instead? */
static bool may_take(const work *w, const pare_graph *body, const pare_value *x,
                     const pare_graph *g)
{
    int times = 0;
    for (int i = 0; i < body->out.count; i++) times += body->out.item[i] == x;
    if (!x->producer || x->graph != g || x->is_output || times > 1) return false;
    for (int i = 0; i < w->keep_count; i++)
        if (!strcmp(w->keep[i], x->name)) return false;
    return true;
}

/* y is made from output i of the body; at: after the body's nodes. */
static pare_status output_bind(const work *w, const pare_graph *body, int i, pare_value *y, int at)
{
    pare_value *x = body->out.item[i];
    if (!y) return PARE_OK;
    if (!y->dtype || y->shape.rank < 0) pare_value_set_type(y, x->dtype, &x->shape);
    if (!may_take(w, body, x, y->graph)) return identity(y->graph, at, x, y);
    pare_node *maker = x->producer;
    int k = 0;
    while (maker->out[k] != x) k++;
    PARE_TRY(pare_value_replace(x, y, false));
    pare_node_set_out(maker, k, y);
    x->producer = NULL;
    return PARE_OK;
}

static void bodies_drop(pare_node *node, const pare_graph *but);

static void body_drop(pare_graph *graph)
{
    while (graph->node_count > 0) {
        bodies_drop(graph->node[graph->node_count - 1], NULL);
        pare_node_remove(graph->node[graph->node_count - 1]);
    }
}

/* Uses inside the node's bodies count no more. */
static void bodies_drop(pare_node *node, const pare_graph *but)
{
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH && attr->graph != but) body_drop(attr->graph);
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            if (attr->graphs[i] != but) body_drop(attr->graphs[i]);
    }
}

/* The body's nodes and constants into the graph of its node, whose place is `at`, in order; input i
   is arg[i], and the node is gone. *end: after the last. */
static pare_status body_splice(pare_graph *body, pare_graph *to, int at, pare_value *const *arg,
                               int *end)
{
    for (int i = 0; i < body->in.count; i++) {
        return_swap swap = {body, body->in.item[i], arg[i]};
        PARE_TRY(pare_value_replace(body->in.item[i], arg[i], false));
        PARE_TRY(pare_graph_each(body, returns_replace, &swap));
    }
    PARE_TRY(inits_move(body, to));
    *end = at;
    for (int n = 0; n < body->node_count; n++) PARE_TRY(node_move(body->node[n], to, (*end)++));
    for (int n = at; n < *end; n++)
        for (int a = 0; a < to->node[n]->attr_count; a++) {
            const pare_attr *attr = &to->node[n]->attr[a];
            if (attr->kind == PARE_ATTR_GRAPH && !attr->ref)
                PARE_TRY(pare_graph_each(attr->graph, returns_note, NULL));
        }
    return PARE_OK;
}

/* --- If --- */

static pare_status inline_if(work *w, pare_node *node, bool *done)
{
    bool then;
    *done = false;
    if (!bool_of(pare_node_in(node, 0), &then)) return PARE_OK;
    const pare_attr *attr = pare_node_attr(node, then ? "then_branch" : "else_branch");
    if (!attr || attr->kind != PARE_ATTR_GRAPH || attr->ref ||
        attr->graph->out.count != node->out_count || attr->graph->in.count)
        return PARE_OK;
    pare_graph *g = node->graph, *body = attr->graph;
    pare_value **y = node->out;
    const int count = node->out_count, at = pare_node_index(node);
    int end;
    bodies_drop(node, body);
    pare_node_remove(node);
    PARE_TRY(body_splice(body, g, at, NULL, &end));
    for (int i = 0; i < count; i++) PARE_TRY(output_bind(w, body, i, y[i], end));
    *done = true;
    return PARE_OK;
}

/* --- Loop --- */

static bool is_read(const pare_value *v) { return v && (v->user_count || v->is_output); }

/* How often it turns, where that is known to be 0 or 1; else -1. */
static int turns_of(const pare_node *node)
{
    const pare_value *most = pare_node_in(node, 0), *go = pare_node_in(node, 1);
    int64_t count = 1;
    bool on = true, known = !go || bool_of(go, &on);
    if (most && whole_of(most, &count) && count <= 0) return 0;
    if (known && !on) return 0;
    return most && whole_of(most, &count) && count == 1 && known ? 1 : -1;
}

static pare_status inline_none(work *w, pare_node *node, bool *done)
{
    pare_graph *g = node->graph;
    const int states = node->in_count - 2, at = pare_node_index(node);
    for (int i = states; i < node->out_count; i++)
        if (is_read(node->out[i])) return PARE_OK; /* of no turn: its shape is not known */
    for (int i = 0; i < states; i++)
        if (!node->in[2 + i]) return PARE_OK;
    pare_value **x = node->in + 2, **y = node->out;
    (void)w;
    bodies_drop(node, NULL);
    pare_node_remove(node);
    for (int i = 0; i < states; i++)
        if (y[i]) PARE_TRY(identity(g, at, x[i], y[i]));
    *done = true;
    return PARE_OK;
}

/* Scan output: one element on a new axis. */
static pare_status unsqueeze(pare_graph *g, int at, pare_value *x, pare_value *y)
{
    pare_value *in[2] = {x, NULL};
    PARE_TRY(constant(g, "loop_axis", PARE_s64, 1, &(int64_t){1}, &(int64_t){0}, &in[1]));
    return pare_node_new(g, NULL, at, "Unsqueeze", "", y->name, in, 2, &y, 1);
}

static pare_status inline_once(work *w, pare_node *node, pare_graph *body, bool *done)
{
    enum { MOST = 64 };
    pare_graph *g = node->graph;
    pare_value *arg[MOST], **y = node->out;
    const int states = node->in_count - 2, outputs = node->out_count;
    if (body->in.count > MOST || body->in.count != states + 2 || body->out.count != outputs + 1)
        return PARE_OK;
    for (int i = 0; i < states; i++)
        if (!(arg[2 + i] = node->in[2 + i])) return PARE_OK;
    PARE_TRY(constant(g, "loop_turn", PARE_s64, 0, NULL, &(int64_t){0}, &arg[0]));
    PARE_TRY(constant(g, "loop_condition", PARE_bool, 0, NULL, &(bool){true}, &arg[1]));
    const int at = pare_node_index(node);
    int end;
    pare_node_remove(node);
    PARE_TRY(body_splice(body, g, at, arg, &end));
    for (int i = 0; i < outputs; i++) {
        if (i < states)
            PARE_TRY(output_bind(w, body, 1 + i, y[i], end));
        else if (y[i])
            PARE_TRY(unsqueeze(g, end, body->out.item[1 + i], y[i]));
    }
    *done = true;
    return PARE_OK;
}

static pare_status inline_loop(work *w, pare_node *node, bool *done)
{
    const pare_attr *attr = pare_node_attr(node, "body");
    *done = false;
    if (!attr || attr->kind != PARE_ATTR_GRAPH || attr->ref || node->in_count < 2) return PARE_OK;
    switch (turns_of(node)) {
    case 0: return inline_none(w, node, done);
    case 1: return inline_once(w, node, attr->graph, done);
    default: return PARE_OK;
    }
}

/* --- the pass --- */

static pare_status inline_graph(pare_graph *graph, void *user)
{
    work *w = user;
    for (int n = 0; n < graph->node_count;) {
        pare_node *node = graph->node[n];
        bool done = false;
        if (pare_node_is(node, "If")) PARE_TRY(inline_if(w, node, &done));
        if (pare_node_is(node, "Loop")) PARE_TRY(inline_loop(w, node, &done));
        w->changed = w->changed || done;
        n += !done;
    }
    return PARE_OK;
}

pare_status pare_pass_inline_control(pare_model *model, const pare_infer_options *infer,
                                     const char *const *keep, int keep_count)
{
    for (work w = {.keep = keep, .keep_count = keep_count, .changed = true}; w.changed;) {
        w.changed = false;
        PARE_TRY(pare_graph_each(model->graph, inline_graph, &w));
        if (w.changed) PARE_TRY(pare_pass_infer(model, infer));
    }
    return PARE_OK;
}
