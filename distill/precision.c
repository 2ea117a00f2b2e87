/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and fp16 in a training graph. */
#include "distill/graph.h"
#include "runtime/ops/ops.h"

/* --- what is stored short --- */

/* mark 1: of the loss */
static bool is_short(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    return op && op->quant.half == PARE_LOWP_YES && node->mark != 1;
}

/* Does the node only move numbers, or add them? */
static bool is_sum(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    if (!op) return false;
    return op->quant.kind == PARE_QUANT_PASS || op->quant.kind == PARE_QUANT_SUM ||
           op->quant.half == PARE_LOWP_REDUCES || op->grad == pare_grad_add;
}

/* Is it on its way to an output, with nothing but sums between? */
static bool makes_output(const pare_value *v)
{
    while (!v->is_output) {
        if (v->user_count != 1 || !is_sum(v->user[0]) || v->user[0]->out_count != 1) return false;
        v = v->user[0]->out[0];
    }
    return true;
}

static bool is_stored(const pare_graph *g, const pare_value *v)
{
    bool read = false;
    if (v->dtype != PARE_f32 || v->data || v->shape.rank < 2 || v->is_output) return false;
    if (v->producer && (!is_short(v->producer) || makes_output(v))) return false;
    for (int u = 0; u < v->user_count; u++) {
        if (v->user[u]->graph != g) return false;
        read = read || is_short(v->user[u]);
    }
    return read;
}

/* --- storing it --- */

static pare_status cast(pare_graph *g, int at, pare_value *from, pare_dtype type, pare_value **out)
{
    pare_node *node;
    const char *name = pare_graph_fresh_name(g, from->name);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(g, out, name));
    pare_value_set_type(*out, type, &from->shape);
    PARE_TRY(pare_node_new(g, &node, at, "Cast", "", name, &from, 1, out, 1));
    return pare_node_set_int(node, "to", type);
}

static pare_status read_stored(pare_graph *g, pare_node *reader, const pare_value *v,
                               pare_value *stored)
{
    pare_value *wide;
    PARE_TRY(cast(g, pare_node_index(reader), stored, PARE_f32, &wide));
    for (int i = 0; i < reader->in_count; i++)
        if (reader->in[i] == v) PARE_TRY(pare_node_set_in(reader, i, wide));
    return PARE_OK;
}

/* The f32 of an input is there in any case: what does not compute short reads that. */
static pare_node *next_reader(const pare_value *v, const pare_node *store)
{
    for (int u = 0; u < v->user_count; u++)
        if (v->user[u] != store && (v->producer || is_short(v->user[u]))) return v->user[u];
    return NULL;
}

static pare_status store(pare_graph *g, pare_value *v, pare_dtype type)
{
    pare_value *stored;
    pare_node *reader;
    PARE_TRY(cast(g, v->producer ? pare_node_index(v->producer) + 1 : 0, v, type, &stored));
    while ((reader = next_reader(v, stored->producer))) PARE_TRY(read_stored(g, reader, v, stored));
    return PARE_OK;
}

/* All are found before any is stored: Casts are nodes, too. */
static pare_status find(pare_model *model, pare_value ***list, int *count)
{
    pare_graph *g = model->graph;
    size_t capacity = 0;
    *list = NULL;
    *count = 0;
    for (int n = -1; n < g->node_count; n++) {
        pare_value **from = n < 0 ? g->in.item : g->node[n]->out;
        const int all = n < 0 ? g->in.count : g->node[n]->out_count;
        for (int i = 0; i < all; i++) {
            if (!from[i] || !is_stored(g, from[i])) continue;
            if (!pare_arena_grow(&model->arena, list, &capacity, (size_t)*count, sizeof **list))
                return PARE_MEMORY;
            (*list)[(*count)++] = from[i];
        }
    }
    return PARE_OK;
}

pare_status pare_precision_store(pare_model *model, pare_dtype type, pare_node *const *loss,
                                 int loss_count)
{
    pare_value **list;
    int count;
    for (int n = 0; n < model->graph->node_count; n++) model->graph->node[n]->mark = 0;
    for (int i = 0; i < loss_count; i++) loss[i]->mark = 1;
    PARE_TRY(find(model, &list, &count));
    for (int i = 0; i < count; i++) PARE_TRY(store(model->graph, list[i], type));
    return pare_graph_sort(model->graph);
}
