/* SPDX-License-Identifier: Apache-2.0 */
/* QLinearConv (ONNX 10) and QLinearMatMul (10) spelled out in Q/DQ form, which the rest of the pass
   folds: one way leads to the integer kernels. */
#include "runtime/passes/int8/fold_qdq.h"

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

pare_status pare_qdq_lower_qlinear(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) {
        pare_node *node = graph->node[n];
        bool conv = pare_node_is(node, "QLinearConv");
        if ((conv || pare_node_is(node, "QLinearMatMul")) && has_constants(node))
            PARE_TRY(expand(node, conv));
    }
    return PARE_OK;
}
