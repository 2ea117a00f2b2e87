/* SPDX-License-Identifier: Apache-2.0 */
/* A chain: each part's hash is hashed together with that of all before it. */
#include "distill/model_hash.h"

#include <string.h>

static void add(pare_hash *sum, const void *data, size_t bytes)
{
    const pare_hash pair[2] = {*sum, pare_hash_bytes(bytes ? data : "", bytes)};
    *sum = pare_hash_bytes(pair, sizeof pair);
}

static void add_number(pare_hash *sum, int64_t number) { add(sum, &number, sizeof number); }

static void add_text(pare_hash *sum, const char *text) { add(sum, text, text ? strlen(text) : 0); }

static void add_list(pare_hash *sum, const pare_bytes *list, int64_t count)
{
    add_number(sum, count);
    for (int64_t i = 0; i < count; i++) add(sum, list[i].data, list[i].size);
}

static void add_tensor(pare_hash *sum, const pare_tensor *t)
{
    add_number(sum, (int64_t)t->dtype);
    add(sum, t->dims, (size_t)t->rank * sizeof *t->dims);
    if (t->dtype == PARE_string)
        add_list(sum, t->data, t->count);
    else
        add(sum, t->data, t->bytes);
}

static void add_graph(pare_hash *sum, const pare_graph *graph);

static void add_attr(pare_hash *sum, const pare_attr *a)
{
    const int lists = a->kind >= PARE_ATTR_FLOATS && a->kind != PARE_ATTR_SPARSE_TENSOR &&
                      a->kind != PARE_ATTR_TYPE_PROTO;
    const int count = lists ? a->count : 1;
    add_text(sum, a->name);
    add_text(sum, a->ref);
    add_number(sum, (int64_t)a->kind);
    add_number(sum, count);
    switch (a->kind) {
    case PARE_ATTR_FLOAT: add(sum, &a->f, sizeof a->f); break;
    case PARE_ATTR_INT: add_number(sum, a->i); break;
    case PARE_ATTR_STRING: add(sum, a->s.data, a->s.size); break;
    case PARE_ATTR_TENSOR: add_tensor(sum, a->tensor); break;
    case PARE_ATTR_GRAPH: add_graph(sum, a->graph); break;
    case PARE_ATTR_FLOATS: add(sum, a->floats, (size_t)count * sizeof *a->floats); break;
    case PARE_ATTR_INTS: add(sum, a->ints, (size_t)count * sizeof *a->ints); break;
    case PARE_ATTR_STRINGS: add_list(sum, a->strings, count); break;
    case PARE_ATTR_TENSORS:
        for (int i = 0; i < count; i++) add_tensor(sum, a->tensors[i]);
        break;
    case PARE_ATTR_GRAPHS:
        for (int i = 0; i < count; i++) add_graph(sum, a->graphs[i]);
        break;
    default: add_list(sum, a->raw, count); break;
    }
}

static void add_names(pare_hash *sum, pare_value *const *value, int count)
{
    add_number(sum, count);
    for (int i = 0; i < count; i++) add_text(sum, value[i] ? value[i]->name : NULL);
}

static void add_node(pare_hash *sum, const pare_node *node)
{
    add_text(sum, node->op_type);
    add_text(sum, node->domain);
    add_text(sum, node->overload);
    add_text(sum, node->name);
    add_names(sum, node->in, node->in_count);
    add_names(sum, node->out, node->out_count);
    add_number(sum, node->attr_count);
    for (int i = 0; i < node->attr_count; i++) add_attr(sum, &node->attr[i]);
}

static void add_graph(pare_hash *sum, const pare_graph *g)
{
    add_names(sum, g->in.item, g->in.count);
    add_names(sum, g->out.item, g->out.count);
    add_names(sum, g->init.item, g->init.count);
    for (int i = 0; i < g->in.count; i++) {
        const pare_value *v = g->in.item[i];
        add_number(sum, (int64_t)v->dtype);
        add(sum, v->shape.dim, sizeof *v->shape.dim * (v->shape.rank > 0 ? v->shape.rank : 0));
    }
    for (int i = 0; i < g->init.count; i++)
        if (g->init.item[i]->data) add_tensor(sum, g->init.item[i]->data);
    add_number(sum, g->node_count);
    for (int i = 0; i < g->node_count; i++) add_node(sum, g->node[i]);
    add_list(sum, g->sparse_init, g->sparse_init_count);
}

pare_hash pare_model_hash(const pare_model *model)
{
    pare_hash sum = {0};
    add_number(&sum, model->opset_count);
    for (int i = 0; i < model->opset_count; i++) {
        add_text(&sum, model->opset[i].domain);
        add_number(&sum, model->opset[i].version);
    }
    add_list(&sum, model->function, model->function_count);
    add_graph(&sum, model->graph);
    return sum;
}
