/* SPDX-License-Identifier: Apache-2.0 */
/* FP16, and BF16 typed throughout (opset 22). Every node either computes in the short type or stays
   f32; each tensor has its maker's type; a Cast stands where a reader wants the other one, once per
   tensor. Bodies of If, Loop and Scan are graphs of their own whose inputs and outputs stay f32. */
#include "quant/halves.h"

#include <math.h>
#include <string.h>

enum { LONG_SUM = 2048 }; /* results of more addends stay f32 */

static const pare_quant_role *role_of(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    return op ? &op->quant : NULL;
}

static bool has_f32(pare_value *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i] && list[i]->dtype == PARE_f32) return true;
    return false;
}

static bool has_body(const pare_node *node)
{
    for (int a = 0; a < node->attr_count; a++)
        if (node->attr[a].kind == PARE_ATTR_GRAPH || node->attr[a].kind == PARE_ATTR_GRAPHS) return true;
    return false;
}

/* Addends of one result: elements in over elements out. Unknown sizes of both cancel only where the
   names agree, so an unknown count is taken as long. */
static bool sums_many(const pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0), *y = node->out[0];
    if (!x || !y || x->shape.rank < 0) return true;
    double in = 1, out = 1;
    bool known = true;
    for (int i = 0; i < x->shape.rank; i++) {
        if (x->shape.dim[i] < 0 && i > 0) known = false;
        if (x->shape.dim[i] > 0) in *= (double)x->shape.dim[i];
    }
    for (int i = 0; i < y->shape.rank; i++)
        if (y->shape.dim[i] > 0) out *= (double)y->shape.dim[i];
    return !known || in > out * LONG_SUM;
}

/* Will the tensor leave the short type's range? Only ranges can tell. */
static pare_status overflows(const pare_halves *h, const pare_value *v, bool *out)
{
    *out = false;
    const pare_stats *stats = h->ranges && v ? pare_ranges_find(h->ranges, v->name) : NULL;
    if (!stats || h->type != PARE_f16) return PARE_OK;
    pare_range_rule rule = {.method = PARE_METHOD_MINMAX};
    pare_range range;
    PARE_TRY(pare_range_choose(h->ctx, stats->histogram, &rule, &range));
    *out = range.high > h->largest || range.low < -h->largest;
    return PARE_OK;
}

static pare_status any_overflow(const pare_halves *h, const pare_node *node, bool *out)
{
    *out = false;
    for (int i = 0; i < node->in_count && !*out; i++)
        if (node->in[i] && !node->in[i]->data) PARE_TRY(overflows(h, node->in[i], out));
    for (int i = 0; i < node->out_count && !*out; i++) PARE_TRY(overflows(h, node->out[i], out));
    return PARE_OK;
}

/* Why a node stays f32; NULL where it computes in the short type; "" where there is nothing to say. */
static pare_status judge(const pare_halves *h, const pare_node *node, bool chosen, const char **why)
{
    const pare_quant_role *role = role_of(node);
    bool over;
    *why = "";
    if (!has_f32(node->out, node->out_count) && !has_f32(node->in, node->in_count)) return PARE_OK;
    if (role && role->half == PARE_HALF_CAST) return PARE_OK;
    *why = "it makes f32 from no f32 tensor";
    if (!has_f32(node->in, node->in_count)) return PARE_OK;
    *why = "the type of an input is unknown";
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && node->in[i]->dtype == PARE_NOTYPE) return PARE_OK;
    *why = "skipped by a pattern";
    if (!chosen) return PARE_OK;
    *why = has_body(node) ? "its bodies take f32" : "the operator is unknown";
    if (!role || has_body(node)) return PARE_OK;
    *why = "the operator stays f32";
    if (role->half == PARE_HALF_NEVER) return PARE_OK;
    *why = "it sums more than 2,048 values";
    if (role->half == PARE_HALF_REDUCES && sums_many(node)) return PARE_OK;
    *why = "calibration forecasts an overflow";
    PARE_TRY(any_overflow(h, node, &over));
    if (!over) *why = NULL;
    return PARE_OK;
}

static pare_status decide(pare_halves *h, pare_graph *graph, const bool *chosen)
{
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        const char *why;
        PARE_TRY(judge(h, node, chosen ? chosen[n] : true, &why));
        PARE_TRY(pare_quant_map_put(&h->is_half, node, !why));
        if (!why) h->facts->quantized_nodes++;
        if (!why || !why[0]) continue;
        h->facts->float_nodes++;
        PARE_TRY(pare_quant_note(h->model, h->facts, "%s (%s) stays f32: %s",
                                 pare_quant_node_name(node), node->op_type, why));
    }
    return PARE_OK;
}

static bool is_half_node(const pare_halves *h, const pare_node *node)
{
    return pare_quant_map_find(&h->is_half, node) == 1;
}

/* --- types of tensors --- */

static pare_status shorten(pare_halves *h, pare_value *v)
{
    pare_value_set_type(v, h->type, &v->shape);
    return pare_quant_map_put(&h->made, v, 1);
}

/* A graph output keeps its name and f32: the node makes another tensor, cast at the end. */
static pare_status split_output(pare_halves *h, pare_node *node, int i)
{
    pare_value *y = node->out[i], *shorter;
    pare_graph *graph = node->graph;
    PARE_TRY(pare_quant_value(graph, &shorter, y->name, pare_type(h->type)->name));
    pare_value_set_type(shorter, h->type, &y->shape);
    pare_node_set_out(node, i, shorter);
    PARE_TRY(pare_halves_cast(h, pare_node_index(node) + 1, shorter, y, PARE_f32));
    PARE_TRY(pare_quant_map_put(&h->made, shorter, 1));
    return pare_halves_twins(h, shorter, y);
}

static pare_status type_outputs(pare_halves *h, pare_node *node)
{
    if (!is_half_node(h, node)) return PARE_OK;
    bool main_graph = node->graph == h->model->graph;
    for (int i = 0; i < node->out_count; i++) {
        pare_value *y = node->out[i];
        if (!y || y->dtype != PARE_f32) continue;
        if (y->is_output && !(main_graph && h->options->io_same))
            PARE_TRY(split_output(h, node, i));
        else
            PARE_TRY(shorten(h, y));
    }
    return PARE_OK;
}

static pare_status type_io(pare_halves *h)
{
    pare_graph *g = h->model->graph;
    for (int i = 0; h->options->io_same && i < g->in.count; i++)
        if (g->in.item[i]->dtype == PARE_f32 && !g->in.item[i]->is_init)
            PARE_TRY(shorten(h, g->in.item[i]));
    return PARE_OK;
}

/* Outputs of f32 nodes that the caller wants short: the f32 tensor gets another name. */
static pare_status short_outputs(pare_halves *h)
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
        PARE_TRY(pare_halves_twins(h, longer, y));
        PARE_TRY(pare_halves_cast(h, pare_node_index(maker) + 1, longer, y, h->type));
    }
    return PARE_OK;
}

/* --- what each reader sees --- */

static pare_status fix_inputs(pare_halves *h, pare_node *node)
{
    const pare_quant_role *role = role_of(node);
    bool half = is_half_node(h, node);
    if (role && role->half == PARE_HALF_CAST) return PARE_OK; /* reads anything */
    for (int i = 0; i < node->in_count; i++) {
        pare_value *v = node->in[i], *seen;
        if (!v || (v->dtype != PARE_f32 && v->dtype != h->type)) continue;
        bool keeps = role && i < 32 && (role->f32_inputs >> i & 1);
        pare_dtype wanted = half && !keeps ? h->type : PARE_f32;
        if (!half && v->dtype == h->type && pare_quant_map_find(&h->made, v) < 0) continue;
        PARE_TRY(pare_halves_as(h, v, wanted, &seen));
        if (seen != v) PARE_TRY(pare_node_set_in(node, i, seen));
    }
    return PARE_OK;
}

static pare_status convert_graph(pare_graph *graph, void *user)
{
    pare_halves *h = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(h->arena, (size_t)count + 1, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int n = 0; n < count; n++) PARE_TRY(fix_inputs(h, node[n]));
    return PARE_OK;
}

static pare_status decide_graph(pare_graph *graph, void *user)
{
    pare_halves *h = user;
    bool *chosen = NULL;
    if (graph == h->model->graph) {
        chosen = pare_arena_alloc(h->arena, (size_t)graph->node_count + 1, sizeof *chosen);
        if (!chosen) return PARE_MEMORY;
        PARE_TRY(pare_quant_select(graph, h->options, chosen));
    }
    return decide(h, graph, chosen);
}

static pare_status type_graph(pare_graph *graph, void *user)
{
    pare_halves *h = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(h->arena, (size_t)count + 1, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int n = 0; n < count; n++) PARE_TRY(type_outputs(h, node[n]));
    return PARE_OK;
}

pare_status pare_halves_compute(pare_halves *h)
{
    pare_graph *graph = h->model->graph;
    PARE_TRY(pare_graph_each(graph, decide_graph, h));
    if (h->facts->quantized_nodes == 0)
        return PARE_FAIL(h->ctx, INPUT, "%s: no node can compute in %s; expected a float model",
                         h->model->path, pare_type(h->type)->name);
    PARE_TRY(type_io(h));
    PARE_TRY(pare_graph_each(graph, type_graph, h));
    PARE_TRY(short_outputs(h));
    return pare_graph_each(graph, convert_graph, h);
}
