/* SPDX-License-Identifier: Apache-2.0 */
/* FP16, and BF16 typed throughout (opset 22). Every node either computes in the short type or stays
   f32; each tensor has its maker's type; a Cast is where a reader wants the other one, once per
   tensor. Bodies of If, Loop and Scan are graphs of their own whose inputs and outputs stay f32. */
#include "quant/lowp.h"

#include <string.h>

static bool is_lowp_node(const pare_lowp *h, const pare_node *node)
{
    return pare_ptr_map_find(&h->is_lowp, node) == 1;
}

/* --- types of tensors --- */

static pare_status shorten(pare_lowp *h, pare_value *v)
{
    pare_value_set_type(v, h->type, &v->shape);
    return pare_ptr_map_put(&h->made, v, 1);
}

/* A graph output keeps its name and f32: the node makes another tensor, cast at the end. */
static pare_status split_output(pare_lowp *h, pare_node *node, int i)
{
    pare_value *y = node->out[i], *shorter;
    pare_graph *graph = node->graph;
    PARE_TRY(pare_quant_value(graph, &shorter, y->name, pare_type(h->type)->name));
    pare_value_set_type(shorter, h->type, &y->shape);
    pare_node_set_out(node, i, shorter);
    PARE_TRY(pare_lowp_cast(h, pare_node_index(node) + 1, shorter, y, PARE_f32));
    PARE_TRY(pare_ptr_map_put(&h->made, shorter, 1));
    return pare_lowp_pair(h, shorter, y);
}

/* The content of a node that makes a constant, in the short type. */
static pare_status type_content(pare_lowp *h, pare_node *node)
{
    const pare_attr *old = pare_lowp_content(node);
    if (!old) return PARE_OK;
    const pare_tensor *t = old->tensor;
    pare_attr attr = *old;
    void *data;
    PARE_TRY(pare_lowp_convert(h, t, &data));
    pare_status st = pare_tensor_new(h->model, &attr.tensor, t->name ? t->name : "", h->type,
                                     t->rank, t->dims, data);
    pare_free(data);
    return st == PARE_OK ? pare_node_set_attr(node, &attr) : st;
}

/* Does the caller want it short? Outputs of bodies, a tensor of the main graph among them, stay
 * f32. */
static bool ends_short(const pare_lowp *h, const pare_value *y)
{
    const pare_values *out = &h->model->graph->out;
    for (int i = 0; h->options->io_same && i < out->count; i++)
        if (out->item[i] == y) return true;
    return false;
}

static pare_status type_outputs(pare_lowp *h, pare_node *node)
{
    if (!is_lowp_node(h, node)) return PARE_OK;
    PARE_TRY(type_content(h, node));
    for (int i = 0; i < node->out_count; i++) {
        pare_value *y = node->out[i];
        if (!y || y->dtype != PARE_f32) continue;
        if (y->is_output && !ends_short(h, y))
            PARE_TRY(split_output(h, node, i));
        else
            PARE_TRY(shorten(h, y));
    }
    return PARE_OK;
}

static pare_status type_io(pare_lowp *h)
{
    pare_graph *g = h->model->graph;
    for (int i = 0; h->options->io_same && i < g->in.count; i++)
        if (g->in.item[i]->dtype == PARE_f32 && !g->in.item[i]->is_init)
            PARE_TRY(shorten(h, g->in.item[i]));
    return PARE_OK;
}

/* Outputs of f32 nodes that the caller wants short: the f32 tensor gets another name. */
static pare_status short_outputs(pare_lowp *h)
{
    pare_graph *g = h->model->graph;
    for (int i = 0; h->options->io_same && i < g->out.count; i++) {
        pare_value *y = g->out.item[i], *longer;
        pare_node *maker = y->producer;
        if (y->dtype != PARE_f32 || !maker) continue;
        PARE_TRY(pare_quant_value(g, &longer, y->name, "f32"));
        pare_value_set_type(longer, PARE_f32, &y->shape);
        for (int k = 0; k < maker->out_count; k++)
            if (maker->out[k] == y) pare_node_set_out(maker, k, longer);
        PARE_TRY(pare_value_replace(y, longer, false));
        PARE_TRY(shorten(h, y));
        PARE_TRY(pare_lowp_pair(h, longer, y));
        PARE_TRY(pare_lowp_cast(h, pare_node_index(maker) + 1, longer, y, h->type));
    }
    return PARE_OK;
}

/* --- what each reader sees --- */

static pare_status fix_inputs(pare_lowp *h, pare_node *node)
{
    const pare_quant_role *role = pare_quant_role_of(node);
    bool half = is_lowp_node(h, node);
    if (role && role->half == PARE_LOWP_CAST) return PARE_OK; /* reads anything */
    for (int i = 0; i < node->in_count; i++) {
        pare_value *v = node->in[i], *seen;
        if (!v || (v->dtype != PARE_f32 && v->dtype != h->type)) continue;
        bool keeps = role && i < 32 && (role->f32_inputs >> i & 1);
        pare_dtype wanted = half && !keeps ? h->type : PARE_f32;
        if (!half && v->dtype == h->type && pare_ptr_map_find(&h->made, v) < 0) continue;
        PARE_TRY(pare_lowp_as(h, v, wanted, &seen));
        if (seen != v) PARE_TRY(pare_node_set_in(node, i, seen));
    }
    return PARE_OK;
}

static pare_status convert_graph(pare_graph *graph, void *user)
{
    pare_lowp *h = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(h->arena, (size_t)count + 1, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int n = 0; n < count; n++) PARE_TRY(fix_inputs(h, node[n]));
    return PARE_OK;
}

static pare_status type_graph(pare_graph *graph, void *user)
{
    pare_lowp *h = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(h->arena, (size_t)count + 1, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int n = 0; n < count; n++) PARE_TRY(type_outputs(h, node[n]));
    return PARE_OK;
}

pare_status pare_lowp_compute(pare_lowp *h)
{
    pare_graph *graph = h->model->graph;
    PARE_TRY(pare_lowp_select(h));
    PARE_TRY(type_io(h));
    PARE_TRY(pare_graph_each(graph, type_graph, h));
    PARE_TRY(short_outputs(h));
    return pare_graph_each(graph, convert_graph, h);
}
