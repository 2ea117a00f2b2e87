/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs move. An operator that only moves or selects elements (quant column PASS, JOIN) commutes
   with Q and with DQ of one scale: Q(op(x)) = op(Q(x)) and op(DQ(q)) = DQ(op(q)), exactly. */
#include "runtime/passes/int8/fold_qdq.h"

#include <string.h>

/* --- equal Qs of one tensor become one --- */

static pare_status join_equal(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) {
        pare_node *first = graph->node[n];
        pare_qparam a, b;
        if (!pare_qdq_is_q(first, &a)) continue;
        pare_value *v = first->in[0];
        for (int i = v->user_count - 1; i >= 0; i--) {
            pare_node *other = v->user[i];
            if (other == first || other->graph != graph || !pare_qdq_is_q(other, &b)) continue;
            if (!pare_qdq_equal(&a, &b) || other->out[0]->is_output) continue;
            if (pare_node_index(other) < n) continue;
            PARE_TRY(pare_value_replace(other->out[0], first->out[0], false));
            pare_node_remove(other);
            i = v->user_count;
        }
    }
    return PARE_OK;
}

/* --- does the operator commute? --- */

bool pare_node_commutes_with_q(const pare_node *node)
{
    if (pare_node_is(node, "Resize") || pare_node_is(node, "Upsample"))
        return !strcmp(pare_node_string(node, "mode", "nearest"), "nearest") &&
               strcmp(pare_node_string(node, "coordinate_transformation_mode", ""),
                      "tf_crop_and_resize");
    if (!pare_node_is(node, "Pad")) return true;
    const pare_value *filler = pare_node_in(node, 2);
    if (strcmp(pare_node_string(node, "mode", "constant"), "constant") || !filler) return true;
    return filler->data && filler->data->dtype == PARE_f32 && filler->data->count == 1 &&
           *(const float *)filler->data->data == 0;
}

static bool one_output(const pare_node *node)
{
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i]) return false;
    return node->out_count > 0 && node->out[0];
}

int pare_qdq_data_inputs(const pare_node *node)
{
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_PASS: return pare_node_commutes_with_q(node) && node->in_count > 0 ? 1 : 0;
    case PARE_QUANT_JOIN: return node->in_count;
    default: return 0;
    }
}

/* The same where the tensor has these codes: no kernel compares those of FP8. */
static int data_inputs(const pare_node *node, const pare_qparam *param)
{
    const bool compares = pare_node_is(node, "MaxPool") || pare_node_is(node, "GlobalMaxPool");
    return compares && !pare_qparam_is_int8(param) ? 0 : pare_qdq_data_inputs(node);
}

/* Would a Q right after the value's maker save work there? */
static bool absorbs(const pare_value *value)
{
    for (int depth = 0; depth < 64; depth++) {
        const pare_node *node = value->producer;
        if (!node) return false;
        if (!strcmp(node->domain, PARE_DOMAIN) || pare_node_is(node, "DequantizeLinear"))
            return true;
        pare_quant_kind kind = pare_quant_kind_of(node);
        if (kind == PARE_QUANT_JOIN) {
            for (int i = 1; i < node->in_count; i++)
                if (node->in[i] && node->in[i]->producer != node && absorbs(node->in[i]))
                    return true;
        } else if (kind != PARE_QUANT_PASS)
            return kind != PARE_QUANT_NONE && kind != PARE_QUANT_FIXED &&
                   kind != PARE_QUANT_INTEGER;
        if (!node->in[0]) return false;
        value = node->in[0];
    }
    return false;
}

/* --- up --- */

static pare_node *same_q(const pare_value *value, const pare_qparam *param)
{
    for (int i = 0; i < value->user_count; i++) {
        pare_qparam p;
        if (value->user[i]->graph == value->graph && pare_qdq_is_q(value->user[i], &p) &&
            pare_qdq_equal(&p, param))
            return value->user[i];
    }
    return NULL;
}

/* A pair in front of input i of the node. */
static pare_status insert_pair(pare_node *node, int i, const pare_qparam *param)
{
    pare_graph *graph = node->graph;
    pare_value *x = node->in[i], *q, *dq;
    const pare_node *there = same_q(x, param);
    if (there && pare_node_index(there) < pare_node_index(node))
        q = there->out[0];
    else {
        PARE_TRY(pare_qdq_value(graph, &q, x, "quantized", param->dtype));
        PARE_TRY(pare_qdq_node(graph, pare_node_index(node), true, x, q, param));
    }
    PARE_TRY(pare_qdq_value(graph, &dq, x, "dequantized", PARE_f32));
    PARE_TRY(pare_qdq_node(graph, pare_node_index(node), false, q, dq, param));
    return pare_node_set_in(node, i, dq);
}

/* Q(x * c) with the scale s is Q(x) with s / c: a positive factor, as attention scales its queries,
   does not keep Q from moving on. */
static pare_status pass_factor(pare_node *q, const pare_qparam *param, bool *changed)
{
    pare_node *mul = q->in[0]->producer;
    if (!mul || mul->graph != q->graph || !pare_node_is(mul, "Mul") ||
        pare_value_only_user(mul->out[0]) != q)
        return PARE_OK;
    int at = mul->in[0] && mul->in[0]->data ? 0 : 1;
    const pare_value *c = mul->in[at];
    pare_value *x = mul->in[1 - at], *scale;
    if (!c || !c->data || !x || x->data || c->data->count != 1 || c->data->dtype != PARE_f32 ||
        c->data->rank > x->shape.rank || !absorbs(x))
        return PARE_OK;
    float fresh = param->scale / *(const float *)c->data->data;
    if (!(fresh > 1e-30f && fresh < 1e30f)) return PARE_OK;
    char *wanted = pare_arena_printf(&q->graph->model->arena, "%s_moved_scale", q->out[0]->name);
    const char *name = wanted ? pare_graph_fresh_name(q->graph, wanted) : NULL;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(q->graph, &scale, name, PARE_f32, 0, NULL, &fresh));
    PARE_TRY(pare_node_set_in(q, 0, x));
    PARE_TRY(pare_node_set_in(q, 1, scale));
    pare_node_remove(mul);
    *changed = true;
    return PARE_OK;
}

static pare_status lift(pare_node *q, bool *changed)
{
    pare_qparam param, behind;
    if (!pare_qdq_is_q(q, &param)) return PARE_OK;
    PARE_TRY(pass_factor(q, &param, changed));
    if (!pare_qdq_is_q(q, &param)) return PARE_OK;
    pare_node *node = q->in[0]->producer;
    if (!node || node->graph != q->graph || !one_output(node)) return PARE_OK;
    if (pare_value_only_user(q->in[0]) != q || !absorbs(q->in[0])) return PARE_OK;
    int count = data_inputs(node, &param);
    for (int i = 0; i < count; i++)
        if (!node->in[i] || node->in[i]->dtype != PARE_f32) return PARE_OK;
    for (int i = 0; i < count; i++) {
        if (pare_qdq_after(node->in[i], &behind) && pare_qdq_equal(&behind, &param)) continue;
        if (pare_quant_kind_of(node) == PARE_QUANT_JOIN && pare_qdq_after(node->in[i], &behind))
            return PARE_OK; /* a join of other scales: elementwise.c */
    }
    for (int i = 0; i < count; i++) {
        if (pare_qdq_after(node->in[i], &behind)) continue;
        PARE_TRY(insert_pair(node, i, &param));
        *changed = true;
    }
    return PARE_OK;
}

/* --- down --- */

/* The parameters of all data inputs, where a DQ makes each of them and they are equal. */
static bool common_param(const pare_node *node, int count, pare_qparam *out)
{
    for (int i = 0; i < count; i++) {
        pare_qparam p;
        if (!pare_qdq_after(node->in[i], &p)) return false;
        if (i && !pare_qdq_equal(&p, out)) return false;
        *out = p;
    }
    return count > 0;
}

/* A Pad's filler becomes the zero point. */
static pare_status refill(pare_node *node, const pare_qparam *param)
{
    if (!pare_node_is(node, "Pad")) return PARE_OK;
    uint8_t zero = (uint8_t)param->zero;
    pare_value *filler;
    const char *name = pare_graph_fresh_name(node->graph, "pad_zero_point");
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(node->graph, &filler, name, param->dtype, 0, NULL, &zero));
    return pare_node_set_in(node, 2, filler);
}

static pare_status sink(pare_node *node)
{
    pare_qparam param, p;
    int count = pare_qdq_data_inputs(node);
    if (!common_param(node, count, &param) || !data_inputs(node, &param)) return PARE_OK;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && node->out[i]->dtype != PARE_f32) return PARE_OK;
    for (int i = 0; i < count; i++)
        PARE_TRY(pare_node_set_in(node, i, pare_qdq_after(node->in[i], &p)));
    PARE_TRY(refill(node, &param));
    for (int i = 0; i < node->out_count; i++) {
        pare_value *y = node->out[i], *q;
        if (!y) continue;
        PARE_TRY(pare_qdq_value(node->graph, &q, y, "quantized", param.dtype));
        pare_node_set_out(node, i, q);
        PARE_TRY(pare_qdq_node(node->graph, pare_node_index(node) + 1, false, q, y, &param));
    }
    return PARE_OK;
}

/* --- Q after DQ --- */

static pare_status requantize(pare_node *q, pare_value *x, const pare_qparam *from,
                              const pare_qparam *to)
{
    pare_node *node;
    pare_graph *graph = q->graph;
    int at = pare_node_index(q);
    pare_value *y = q->out[0];
    pare_node_remove(q);
    PARE_TRY(pare_node_new(graph, &node, at, "Requantize", PARE_DOMAIN, y->name, &x, 1, &y, 1));
    PARE_TRY(pare_node_set_float(node, "x_scale", from->scale));
    PARE_TRY(pare_node_set_float(node, "y_scale", to->scale));
    PARE_TRY(pare_node_set_int(node, "x_zero_point", from->zero));
    PARE_TRY(pare_node_set_int(node, "y_zero_point", to->zero));
    return pare_node_set_int(node, "to", to->dtype);
}

static pare_status cancel_equal(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) {
        pare_node *q = graph->node[n];
        pare_qparam to, from;
        if (!pare_qdq_is_q(q, &to) || q->out[0]->is_output) continue;
        pare_value *x = pare_qdq_after(q->in[0], &from);
        if (!x || !pare_qdq_equal(&to, &from)) continue;
        PARE_TRY(pare_value_replace(q->out[0], x, false));
        pare_node_remove(q);
        n--;
    }
    return PARE_OK;
}

pare_status pare_qdq_cancel(pare_graph *graph)
{
    PARE_TRY(cancel_equal(graph));
    for (int n = 0; n < graph->node_count; n++) {
        pare_node *q = graph->node[n];
        pare_qparam to, from;
        if (!pare_qdq_is_q(q, &to)) continue;
        pare_value *x = pare_qdq_after(q->in[0], &from);
        if (x && pare_qparam_is_int8(&from) && pare_qparam_is_int8(&to))
            PARE_TRY(requantize(q, x, &from, &to));
    }
    return PARE_OK;
}

pare_status pare_qdq_propagate(pare_graph *graph)
{
    PARE_TRY(join_equal(graph));
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = graph->node_count - 1; n >= 0; n--)
            if (n < graph->node_count) PARE_TRY(lift(graph->node[n], &changed));
    }
    PARE_TRY(pare_qdq_constants(graph)); /* of joins */
    for (int n = 0; n < graph->node_count; n++) PARE_TRY(sink(graph->node[n]));
    PARE_TRY(cancel_equal(graph));
    pare_graph_sweep(graph);
    return join_equal(graph);
}
