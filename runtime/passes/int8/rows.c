/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax along the last axis and LayerNormalization whose result is only quantized make the codes
   themselves: QSoftmax, QLayerNormalization. A Cast to f32 between them rounds nothing. */
#include "runtime/passes/int8/fold_qdq.h"

/* The one Q that reads a node's result, through a Cast that widens it or not; NULL: there is none.
 */
static pare_node *q_of(const pare_node *node, pare_node **cast, pare_qparam *y)
{
    const pare_value *value = node->out[0];
    pare_node *q = pare_qdq_only_q(value, y), *user = pare_value_only_user(value);
    *cast = NULL;
    if (q || !user || user->graph != node->graph || !pare_node_is(user, "Cast") ||
        pare_node_int(user, "to", PARE_NOTYPE) != PARE_f32)
        return q;
    *cast = user;
    return pare_qdq_only_q(user->out[0], y);
}

static bool is_short(pare_dtype type) { return type == PARE_f16 || type == PARE_bf16; }

/* Are its means and deviations read? */
static bool has_more(const pare_node *node)
{
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i]) return true;
    return false;
}

static bool is_last_axis(const pare_node *node)
{
    const int64_t axis = pare_node_int(node, "axis", -1);
    return axis == -1 || (node->out[0]->shape.rank > 0 && axis == node->out[0]->shape.rank - 1);
}

static pare_status fold_one(pare_node *node)
{
    const bool softmax = pare_node_is(node, "Softmax");
    pare_graph *graph = node->graph;
    pare_qparam p;
    pare_node *cast, *q, *made;
    if (!softmax && !pare_node_is(node, "LayerNormalization")) return PARE_OK;
    if ((softmax && !is_last_axis(node)) || has_more(node)) return PARE_OK;
    q = q_of(node, &cast, &p);
    const pare_dtype type = node->out[0]->dtype;
    if (!q || !pare_qparam_is_int8(&p) || (cast ? !is_short(type) : type != PARE_f32))
        return PARE_OK;
    pare_value *y = q->out[0];
    pare_attr *attr = node->attr;
    const int count = node->attr_count;
    pare_node_remove(q);
    if (cast) pare_node_remove(cast);
    PARE_TRY(pare_node_new(graph, &made, pare_node_index(node),
                           softmax ? "QSoftmax" : "QLayerNormalization", PARE_DOMAIN, node->name,
                           node->in, node->in_count, &y, 1));
    pare_node_remove(node);
    for (int i = 0; i < count; i++) PARE_TRY(pare_node_set_attr(made, &attr[i]));
    PARE_TRY(pare_node_set_float(made, "y_scale", p.scale));
    PARE_TRY(pare_node_set_int(made, "y_zero_point", p.zero));
    return pare_node_set_int(made, "to", p.dtype);
}

pare_status pare_qdq_rows(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) PARE_TRY(fold_one(graph->node[n]));
    return PARE_OK;
}
