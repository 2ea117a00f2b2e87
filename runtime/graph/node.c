/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/graph/graph.h"

#include <stdio.h>
#include <string.h>

const pare_attr *pare_node_attr(const pare_node *node, const char *name)
{
    for (int i = 0; i < node->attr_count; i++)
        if (!strcmp(node->attr[i].name, name)) return &node->attr[i];
    return NULL;
}

int64_t pare_node_int(const pare_node *node, const char *name, int64_t missing)
{
    const pare_attr *a = pare_node_attr(node, name);
    return a && a->kind == PARE_ATTR_INT ? a->i : missing;
}

int pare_node_axis(const pare_node *node, int64_t missing, int rank)
{
    int64_t axis = pare_node_int(node, "axis", missing);
    return (int)(axis < 0 ? axis + rank : axis);
}

float pare_node_float(const pare_node *node, const char *name, float missing)
{
    const pare_attr *a = pare_node_attr(node, name);
    return a && a->kind == PARE_ATTR_FLOAT ? a->f : missing;
}

const int64_t *pare_node_ints(const pare_node *node, const char *name, int *count)
{
    const pare_attr *a = pare_node_attr(node, name);
    bool found = a && a->kind == PARE_ATTR_INTS;
    *count = found ? a->count : 0;
    return found ? a->ints : NULL;
}

const char *pare_node_string(const pare_node *node, const char *name, const char *missing)
{
    const pare_attr *a = pare_node_attr(node, name);
    if (!a || a->kind != PARE_ATTR_STRING) return missing;
    const char *text = pare_arena_strndup(&node->graph->model->arena, a->s.data, a->s.size);
    return text ? text : missing;
}

bool pare_node_is(const pare_node *node, const char *op_type)
{
    return !node->domain[0] && !strcmp(node->op_type, op_type);
}

bool pare_node_has_graphs(const pare_node *node)
{
    for (int i = 0; i < node->attr_count; i++)
        if (node->attr[i].kind == PARE_ATTR_GRAPH || node->attr[i].kind == PARE_ATTR_GRAPHS)
            return true;
    return false;
}

pare_value *pare_node_in(const pare_node *node, int i)
{
    return i < node->in_count ? node->in[i] : NULL;
}

const char *pare_node_title(const pare_node *node, char *text, size_t size)
{
    const char *name = node->name;
    for (int i = 0; !name[0] && i < node->out_count; i++)
        if (node->out[i]) name = node->out[i]->name;
    snprintf(text, size, "%s: node '%s' (%s)", node->graph->model->path, name, node->op_type);
    return text;
}

static pare_status fail_node(pare_ctx *ctx, const pare_node *node, pare_status status,
                             const char *format, va_list args)
{
    char title[512], fact[1024];
    vsnprintf(fact, sizeof fact, format, args);
    return pare_fail(ctx, status, "%s: %s", pare_node_title(node, title, sizeof title), fact);
}

pare_status pare_fail_node(const pare_node *node, pare_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const pare_status st = fail_node(node->graph->model->ctx, node, status, format, args);
    va_end(args);
    return st;
}

pare_status pare_fail_node_in(pare_ctx *ctx, const pare_node *node, pare_status status,
                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const pare_status st = fail_node(ctx, node, status, format, args);
    va_end(args);
    return st;
}

/* --- inputs and outputs --- */

static bool user_add(pare_value *value, pare_node *node)
{
    if (!pare_arena_grow(&value->graph->model->arena, &value->user, &value->user_capacity,
                         (size_t)value->user_count, sizeof *value->user))
        return false;
    value->user[value->user_count++] = node;
    return true;
}

static void user_drop(pare_value *value, const pare_node *node)
{
    for (int i = 0; i < value->user_count; i++)
        if (value->user[i] == node) {
            memmove(value->user + i, value->user + i + 1,
                    (size_t)(value->user_count - i - 1) * sizeof *value->user);
            value->user_count--;
            return;
        }
}

pare_status pare_node_new(pare_graph *graph, pare_node **out, int at, const char *op_type,
                          const char *domain, const char *name, pare_value *const *in, int in_count,
                          pare_value *const *outputs, int out_count)
{
    pare_arena *arena = &graph->model->arena;
    pare_node *n = pare_arena_alloc(arena, 1, sizeof *n);
    if (!n) return PARE_MEMORY;
    n->graph = graph;
    n->op_type = pare_arena_strdup(arena, op_type);
    n->domain = pare_arena_strdup(arena, domain);
    n->name = pare_arena_strdup(arena, name);
    n->in = pare_arena_alloc(arena, (size_t)in_count + 1, sizeof *n->in);
    n->out = pare_arena_alloc(arena, (size_t)out_count + 1, sizeof *n->out);
    if (!n->op_type || !n->domain || !n->name || !n->in || !n->out) return PARE_MEMORY;
    if (!pare_arena_grow(&graph->model->arena, &graph->node, &graph->node_capacity,
                         (size_t)graph->node_count, sizeof *graph->node))
        return PARE_MEMORY;
    for (int i = 0; i < in_count; i++) {
        if (in[i] && !user_add(in[i], n)) return PARE_MEMORY;
        n->in[n->in_count++] = in[i];
    }
    n->out_count = out_count;
    for (int i = 0; i < out_count; i++) pare_node_set_out(n, i, outputs[i]);
    memmove(graph->node + at + 1, graph->node + at,
            (size_t)(graph->node_count - at) * sizeof *graph->node);
    graph->node[at] = n;
    graph->node_count++;
    if (out) *out = n;
    return PARE_OK;
}

int pare_node_index(const pare_node *node)
{
    for (int i = 0; i < node->graph->node_count; i++)
        if (node->graph->node[i] == node) return i;
    return -1;
}

void pare_node_remove(pare_node *node)
{
    pare_graph *g = node->graph;
    int at = pare_node_index(node);
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i]) user_drop(node->in[i], node);
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && node->out[i]->producer == node) node->out[i]->producer = NULL;
    node->in_count = node->out_count = 0;
    if (at < 0) return;
    memmove(g->node + at, g->node + at + 1, (size_t)(g->node_count - at - 1) * sizeof *g->node);
    g->node_count--;
}

pare_status pare_node_set_in(pare_node *node, int i, pare_value *value)
{
    if (i >= node->in_count) {
        pare_value **in = pare_arena_alloc(&node->graph->model->arena, (size_t)i + 2, sizeof *in);
        if (!in) return PARE_MEMORY;
        memcpy(in, node->in, (size_t)node->in_count * sizeof *in);
        node->in = in;
        node->in_count = i + 1;
    }
    if (value && !user_add(value, node)) return PARE_MEMORY;
    if (node->in[i]) user_drop(node->in[i], node);
    node->in[i] = value;
    return PARE_OK;
}

void pare_node_set_out(pare_node *node, int i, pare_value *value)
{
    pare_value *old = node->out[i];
    if (old && old->producer == node) old->producer = NULL;
    node->out[i] = value;
    if (value && !value->producer) value->producer = node;
}

/* --- attributes --- */

static pare_status strings_copy(pare_arena *arena, pare_attr *attr)
{
    const size_t n = (size_t)attr->count;
    pare_bytes *list = pare_arena_memdup(arena, attr->strings, n * sizeof *list);
    if (!list) return PARE_MEMORY;
    for (size_t i = 0; i < n; i++) {
        list[i].data = pare_arena_strndup(arena, list[i].data, list[i].size);
        if (!list[i].data) return PARE_MEMORY;
    }
    attr->strings = list;
    return PARE_OK;
}

pare_status pare_node_set_attr(pare_node *node, const pare_attr *attr)
{
    pare_arena *arena = &node->graph->model->arena;
    pare_attr copy = *attr;
    copy.name = pare_arena_strdup(arena, attr->name);
    if (!copy.name) return PARE_MEMORY;
    size_t n = (size_t)attr->count;
    if (attr->kind == PARE_ATTR_STRING) {
        copy.s.data = pare_arena_strndup(arena, attr->s.data, attr->s.size);
        if (!copy.s.data) return PARE_MEMORY;
    } else if (attr->kind == PARE_ATTR_INTS) {
        copy.ints = pare_arena_memdup(arena, attr->ints, n * sizeof *attr->ints);
        if (!copy.ints) return PARE_MEMORY;
    } else if (attr->kind == PARE_ATTR_FLOATS) {
        copy.floats = pare_arena_memdup(arena, attr->floats, n * sizeof *attr->floats);
        if (!copy.floats) return PARE_MEMORY;
    } else if (attr->kind == PARE_ATTR_STRINGS) {
        PARE_TRY(strings_copy(arena, &copy));
    }
    for (int i = 0; i < node->attr_count; i++)
        if (!strcmp(node->attr[i].name, attr->name)) {
            node->attr[i] = copy;
            return PARE_OK;
        }
    pare_attr *list = pare_arena_alloc(arena, (size_t)node->attr_count + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    if (node->attr_count) memcpy(list, node->attr, (size_t)node->attr_count * sizeof *list);
    list[node->attr_count++] = copy;
    node->attr = list;
    return PARE_OK;
}

pare_status pare_node_set_int(pare_node *node, const char *name, int64_t i)
{
    return pare_node_set_attr(node, &(pare_attr){.name = name, .kind = PARE_ATTR_INT, .i = i});
}

pare_status pare_node_set_float(pare_node *node, const char *name, float f)
{
    return pare_node_set_attr(node, &(pare_attr){.name = name, .kind = PARE_ATTR_FLOAT, .f = f});
}

pare_status pare_node_set_ints(pare_node *node, const char *name, const int64_t *ints, int count)
{
    return pare_node_set_attr(
        node, &(pare_attr){.name = name, .kind = PARE_ATTR_INTS, .ints = ints, .count = count});
}

pare_status pare_node_set_string(pare_node *node, const char *name, const char *text)
{
    return pare_node_set_attr(
        node, &(pare_attr){.name = name, .kind = PARE_ATTR_STRING, .s = {text, strlen(text)}});
}

void pare_node_remove_attr(pare_node *node, const char *name)
{
    for (int i = 0; i < node->attr_count; i++)
        if (!strcmp(node->attr[i].name, name)) {
            memmove(node->attr + i, node->attr + i + 1,
                    (size_t)(node->attr_count - i - 1) * sizeof *node->attr);
            node->attr_count--;
            return;
        }
}
