/* SPDX-License-Identifier: Apache-2.0 */
/* Q/DQ folding: float operators between DequantizeLinear and QuantizeLinear become integer nodes.

   Order: pairs of f16 and bf16 become pairs of f32 (halves.c); quantize constants, so that every
   weight is an int8 constant; divide products whose parts are quantized apart; move pairs through
   operators that keep the scale, so that Q is right after what computes; weighted operators, then
   the small ones from front to back (a table may continue a table); what float operators still read
   is dequantized. A Q or DQ that found no partner stays: it is an ordinary operator.

   QLinearConv (ONNX 10) and QLinearMatMul (10) are spelled out in Q/DQ form first: one way leads to
   the integer kernels. */
#include "runtime/passes/int8/fold_qdq.h"
#include "runtime/base/f8.h"
#include "runtime/passes/passes.h"

#include <stdio.h>
#include <string.h>

/* --- QLinear operators --- */

static pare_status add(pare_node *before, const char *op, pare_value *const *in, int count,
                       pare_value *out, int axis)
{
    pare_node *made;
    PARE_TRY(pare_node_new(before->graph, &made, pare_node_index(before), op, "", out->name, in,
                           count, &out, 1));
    return axis >= 0 ? pare_node_set_int(made, "axis", axis) : PARE_OK;
}

/* What a DequantizeLinear makes of inputs i, i + 1, i + 2. */
static pare_status dequantized(pare_node *node, int i, int axis, pare_value **out)
{
    bool whole = node->in[i + 1]->data->count == 1;
    PARE_TRY(pare_qdq_value(node->graph, out, node->in[i], "dequantized", PARE_f32));
    return add(node, "DequantizeLinear", node->in + i, 3, *out, whole ? -1 : axis);
}

/* The s32 bias of a QLinearConv has the scale s_x * s_w[c]. */
static pare_status bias_of(pare_node *node, pare_value **out)
{
    pare_graph *graph = node->graph;
    const pare_tensor *w = node->in[4]->data;
    float x = *(const float *)node->in[1]->data->data;
    float *scale = pare_alloc(graph->model->ctx, (size_t)w->count, sizeof *scale);
    if (!scale) return PARE_MEMORY;
    for (int64_t c = 0; c < w->count; c++) scale[c] = x * ((const float *)w->data)[c];
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_bias_scale", node->out[0]->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    pare_value *in[2] = {node->in[8], NULL};
    bool whole = w->count == 1;
    pare_status st =
        name ? pare_init_new(graph, &in[1], name, PARE_f32, !whole, &w->count, scale) : PARE_MEMORY;
    pare_free(scale);
    PARE_TRY(st);
    PARE_TRY(pare_qdq_value(graph, out, node->in[8], "dequantized", PARE_f32));
    return add(node, "DequantizeLinear", in, 2, *out, whole ? -1 : 0);
}

static bool has_constants(const pare_node *node)
{
    static const int params[] = {1, 2, 4, 5, 6, 7};
    if (node->in_count < 8 || !node->in[0] || !node->in[3] || !node->out[0]) return false;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (!node->in[params[i]] || !node->in[params[i]]->data) return false;
    const pare_tensor *x = node->in[1]->data;
    return x->count == 1 && x->dtype == PARE_f32 && node->in[4]->data->dtype == PARE_f32;
}

static pare_status expand(pare_node *node, bool conv)
{
    pare_value *in[3] = {NULL}, *y = node->out[0], *product;
    int axis = conv ? 0 : node->in[3]->shape.rank - 1;
    PARE_TRY(dequantized(node, 0, -1, &in[0]));
    PARE_TRY(dequantized(node, 3, axis, &in[1]));
    bool bias = conv && pare_node_in(node, 8);
    if (bias) PARE_TRY(bias_of(node, &in[2]));
    PARE_TRY(pare_qdq_value(node->graph, &product, y, "real", PARE_f32));
    pare_node *made;
    PARE_TRY(pare_node_new(node->graph, &made, pare_node_index(node), conv ? "Conv" : "MatMul", "",
                           node->name, in, bias ? 3 : 2, &product, 1));
    for (int i = 0; i < node->attr_count; i++) PARE_TRY(pare_node_set_attr(made, &node->attr[i]));
    pare_value *quantize[] = {product, node->in[6], node->in[7]};
    int at = pare_node_index(node);
    pare_node_remove(node);
    return pare_node_new(product->graph, NULL, at, "QuantizeLinear", "", y->name, quantize, 3, &y,
                         1);
}

static pare_status expand_qlinear(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) {
        pare_node *node = graph->node[n];
        bool conv = pare_node_is(node, "QLinearConv");
        if ((conv || pare_node_is(node, "QLinearMatMul")) && has_constants(node))
            PARE_TRY(expand(node, conv));
    }
    return PARE_OK;
}

pare_status pare_pass_expand_qlinear(pare_model *model) { return expand_qlinear(model->graph); }

/* --- reading --- */

bool pare_qdq_all_zero(const pare_tensor *zeros)
{
    const uint8_t size = zeros && pare_type_is_f8(zeros->dtype) ? 0x7f : 0xff;
    for (int64_t i = 0; zeros && i < zeros->count; i++)
        if (((const uint8_t *)zeros->data)[i] & size) return false;
    return true;
}

static bool scalar(const pare_value *v)
{
    return v && v->data && v->data->count == 1 && v->data->data;
}

static bool zero_of(const pare_value *v, int32_t *out)
{
    if (!scalar(v)) return false;
    if (v->data->dtype == PARE_s8)
        *out = *(const int8_t *)v->data->data;
    else if (v->data->dtype == PARE_u8)
        *out = *(const uint8_t *)v->data->data;
    else
        return pare_type_is_f8(v->data->dtype) && pare_qdq_all_zero(v->data);
    return true;
}

static bool param_of(const pare_node *node, pare_dtype missing, pare_qparam *out)
{
    const pare_value *scale = pare_node_in(node, 1), *zero = pare_node_in(node, 2);
    if (!scalar(scale) || scale->data->dtype != PARE_f32) return false;
    *out = (pare_qparam){.dtype = missing, .scale = *(const float *)scale->data->data};
    if (zero && !zero_of(zero, &out->zero)) return false;
    if (zero) out->dtype = zero->data->dtype;
    return (pare_qparam_is_int8(out) || pare_type_is_f8(out->dtype)) && out->scale > 0;
}

bool pare_qdq_is_q(const pare_node *node, pare_qparam *out)
{
    if (!node || !pare_node_is(node, "QuantizeLinear") || !node->in[0] || !node->out[0])
        return false;
    const int64_t type = pare_node_int(node, "output_dtype", 0); /* ONNX 21 */
    if (node->in[0]->dtype != PARE_f32 || !param_of(node, type ? (pare_dtype)type : PARE_u8, out))
        return false;
    return pare_qparam_is_int8(out) || pare_node_int(node, "saturate", 1); /* ONNX 19 */
}

static bool is_dq(const pare_node *node, pare_qparam *out)
{
    if (!node || !pare_node_is(node, "DequantizeLinear") || !node->in[0]) return false;
    return param_of(node, node->in[0]->dtype, out) && node->in[0]->dtype == out->dtype;
}

bool pare_qdq_equal(const pare_qparam *a, const pare_qparam *b)
{
    return a->dtype == b->dtype && a->scale == b->scale && a->zero == b->zero;
}

pare_value *pare_qdq_after(const pare_value *value, pare_qparam *out)
{
    return value && is_dq(value->producer, out) ? value->producer->in[0] : NULL;
}

bool pare_qdq_weight(const pare_value *value, pare_qweight *out)
{
    const pare_node *dq = value ? value->producer : NULL;
    if (!dq || !pare_node_is(dq, "DequantizeLinear") || !dq->in[0] || !dq->in[0]->data)
        return false;
    const pare_value *scale = pare_node_in(dq, 1);
    const pare_tensor *q = dq->in[0]->data;
    if (!scale || !scale->data || scale->data->dtype != PARE_f32 || scale->data->rank > 1)
        return false;
    if ((!pare_type_is_int8(q->dtype) && !pare_type_is_f8(q->dtype)) ||
        pare_node_int(dq, "block_size", 0))
        return false;
    *out = (pare_qweight){.q = dq->in[0], .scale = scale->data->data, .count = scale->data->count};
    int64_t axis = pare_node_int(dq, "axis", 1);
    out->axis = (int)(axis < 0 ? axis + q->rank : axis);
    if (out->count > 1 &&
        (out->axis < 0 || out->axis >= q->rank || q->dims[out->axis] != out->count))
        return false;
    const pare_value *zero = pare_node_in(dq, 2);
    if (zero && (!zero->data || zero->data->dtype != q->dtype)) return false;
    out->zeros = zero ? zero->data : NULL;
    if (zero && zero->data->count != 1 && zero->data->count != out->count) return false;
    out->centred = pare_qdq_all_zero(out->zeros);
    return true;
}

pare_node *pare_qdq_only_q(const pare_value *value, pare_qparam *out)
{
    pare_node *user = pare_value_only_user(value);
    bool here = user && user->graph == value->graph; /* not in a body */
    return here && pare_qdq_is_q(user, out) && user->in[0] == value ? user : NULL;
}

/* --- making --- */

pare_status pare_qdq_value(pare_graph *graph, pare_value **out, const pare_value *like,
                           const char *suffix, pare_dtype dtype)
{
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_%s", like->name, suffix);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(graph, out, name));
    pare_value_set_type(*out, dtype, &like->shape);
    return PARE_OK;
}

static pare_status constant(pare_graph *graph, pare_value **out, const char *base,
                            const char *suffix, pare_dtype dtype, const void *data)
{
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_%s", base, suffix);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    return name ? pare_init_new(graph, out, name, dtype, 0, NULL, data) : PARE_MEMORY;
}

pare_status pare_qdq_node(pare_graph *graph, int at, bool quantize, pare_value *in, pare_value *out,
                          const pare_qparam *param)
{
    pare_value *scale, *zero;
    uint8_t byte = (uint8_t)param->zero;
    const char *type = quantize ? "QuantizeLinear" : "DequantizeLinear";
    PARE_TRY(constant(graph, &scale, out->name, "scale", PARE_f32, &param->scale));
    PARE_TRY(constant(graph, &zero, out->name, "zero_point", param->dtype, &byte));
    pare_value *inputs[] = {in, scale, zero};
    return pare_node_new(graph, NULL, at, type, "", out->name, inputs, 3, &out, 1);
}

/* --- the pass --- */

static bool has_pairs(const pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++)
        if (pare_node_is(graph->node[n], "DequantizeLinear")) return true;
    return false;
}

static pare_status fold(pare_graph *graph, void *user)
{
    pare_kept_weights kept = *(const pare_kept_weights *)user;
    if (kept == PARE_KEEP_ALL && graph != graph->model->graph) kept = PARE_KEEP_INTEGERS;
    PARE_TRY(expand_qlinear(graph));
    if (!has_pairs(graph)) return PARE_OK;
    PARE_TRY(pare_qdq_widen_halves(graph));
    PARE_TRY(pare_qdq_constants(graph));
    PARE_TRY(pare_qdq_split_outputs(graph));
    PARE_TRY(pare_qdq_propagate(graph));
    PARE_TRY(pare_qdq_fold_weighted(graph));
    PARE_TRY(pare_qdq_elementwise(graph));
    PARE_TRY(pare_qdq_rows(graph));
    PARE_TRY(pare_qdq_cancel(graph));
    PARE_TRY(pare_qdq_weight_only(graph, kept));
    pare_graph_sweep(graph);
    PARE_TRY(pare_qdq_float_constants(graph));
    return pare_qdq_narrow_halves(graph); /* and sweeps */
}

pare_status pare_pass_fold_qdq(pare_model *model, pare_kept_weights kept)
{
    PARE_TRY(pare_graph_each(model->graph, fold, &kept));
    return pare_graph_sort(model->graph);
}
