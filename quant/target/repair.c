/* SPDX-License-Identifier: Apache-2.0 */
/* What a target does not take, written in another form of the same numbers: (q - 128) * s in u8 is
   (q - 128) * s in s8 with the zero point 0; s32 levels times their scale are a float constant; a
   Relu is Max(x, 0). */
#include "quant/internal.h"
#include "runtime/passes/passes.h"

typedef struct repair {
    pare_model *model;
    const pare_target_row *row;
    pare_quant_target target;
    int changed;
} repair;

pare_status pare_quant_target_open(pare_model *model)
{
    enum { OPSET = 13 };
    const pare_infer_options infer = {.fold = true, .lenient = true, .keep_dequantize = true};
    const int64_t before = pare_model_opset(model, "");
    PARE_TRY(pare_graph_sort(model->graph));
    if (before < OPSET) PARE_TRY(pare_pass_version_convert(model, OPSET));
    pare_graph_clear_inputs(model->graph);
    return pare_pass_infer(model, &infer);
}

static bool lacks_u8(pare_formats set) { return !(set & (pare_formats)1 << PARE_u8); }

/* --- u8 with the zero point 128 --- */

static bool is_centered(const pare_node *node)
{
    const pare_value *zero = pare_node_in(node, 2);
    return zero && zero->data && zero->dtype == PARE_u8 && pare_quant_all_bytes(zero->data, 128);
}

static pare_status zero_point_0(pare_node *node)
{
    const pare_tensor *was = node->in[2]->data;
    pare_value *zero;
    int8_t *zeros = pare_arena_alloc(&node->graph->model->arena, (size_t)was->count + 1, 1);
    if (!zeros) return PARE_MEMORY;
    PARE_TRY(pare_quant_constant(node->graph, &zero, node->in[0]->name, "zero_point", PARE_s8,
                                 was->rank, was->dims, zeros));
    return pare_node_set_in(node, 2, zero);
}

/* Does a DQ with this zero point read the integers, and nothing else? */
static bool only_dequantized(const pare_value *q)
{
    for (int i = 0; i < q->user_count; i++)
        if (!pare_quant_is_dq(q->user[i]) || q->user[i]->in[0] != q || !is_centered(q->user[i]))
            return false;
    return q->user_count > 0 && !q->is_output;
}

static pare_status center_readers(pare_value *q)
{
    for (int i = 0; i < q->user_count; i++) PARE_TRY(zero_point_0(q->user[i]));
    return PARE_OK;
}

static pare_status repair_pair(repair *r, pare_node *q)
{
    pare_value *y = q->out[0];
    if (!lacks_u8(r->row->activations) || !is_centered(q) || !only_dequantized(y)) return PARE_OK;
    PARE_TRY(center_readers(y));
    PARE_TRY(zero_point_0(q));
    if (pare_node_attr(q, "output_dtype")) PARE_TRY(pare_node_set_int(q, "output_dtype", PARE_s8));
    pare_value_set_type(y, PARE_s8, &y->shape);
    r->changed++;
    return PARE_OK;
}

static pare_status repair_weight(repair *r, pare_node *dq)
{
    pare_value *w = dq->in[0];
    const pare_tensor *was = w->data;
    pare_tensor *now;
    const bool slow = !lacks_u8(r->row->slow_kernels) && was->rank >= 3;
    if (was->dtype != PARE_u8 || !(lacks_u8(r->row->weights) || slow) || w->is_output ||
        !only_dequantized(w))
        return PARE_OK;
    uint8_t *level = pare_alloc(r->model->ctx, (size_t)was->count + 1, 1);
    if (!level) return PARE_MEMORY;
    for (int64_t i = 0; i < was->count; i++) level[i] = ((const uint8_t *)was->data)[i] ^ 0x80;
    pare_status st = pare_tensor_new(r->model, &now, w->name, PARE_s8, was->rank, was->dims, level);
    pare_free(level);
    PARE_TRY(st);
    PARE_TRY(center_readers(w));
    PARE_TRY(pare_value_set_init(w, now));
    pare_value_set_type(w, PARE_s8, &w->shape);
    r->changed++;
    return PARE_OK;
}

/* --- s32 biases --- */

static bool is_float_scale(const pare_node *dq, int64_t count)
{
    const pare_value *scale = pare_node_in(dq, 1), *zero = pare_node_in(dq, 2);
    return scale && scale->data && scale->data->dtype == PARE_f32 &&
           (scale->data->count == 1 || scale->data->count == count) &&
           (!zero || (zero->data && pare_quant_all_bytes(zero->data, 0)));
}

/* One number, or a row of them, as DequantizeLinear multiplies: in f32. */
static pare_status repair_bias(repair *r, pare_node *dq)
{
    const pare_tensor *was = dq->in[0]->data;
    pare_value *y = dq->out[0], *fresh;
    if (was->rank > 1 || y->is_output || !is_float_scale(dq, was->count)) return PARE_OK;
    const pare_tensor *scale = dq->in[1]->data;
    float *bias = pare_alloc(r->model->ctx, (size_t)was->count + 1, sizeof *bias);
    if (!bias) return PARE_MEMORY;
    for (int64_t i = 0; i < was->count; i++) {
        int32_t level;
        memcpy(&level, (const char *)was->data + (size_t)i * sizeof level, sizeof level);
        bias[i] = (float)level * pare_quant_number(scale->data, scale->count == 1 ? 0 : i);
    }
    pare_status st = pare_quant_constant(dq->graph, &fresh, dq->in[0]->name, "float", PARE_f32,
                                         was->rank, was->dims, bias);
    pare_free(bias);
    PARE_TRY(st);
    r->changed++;
    return pare_value_replace(y, fresh, false);
}

/* --- Relu --- */

static pare_status relu_to_max(pare_node *relu)
{
    static const float zero = 0; /* all bytes 0: of each float type */
    pare_graph *graph = relu->graph;
    pare_value *y = relu->out[0], *in[2] = {relu->in[0], NULL};
    const char *name = relu->name;
    const int at = pare_node_index(relu);
    PARE_TRY(pare_quant_constant(graph, &in[1], y->name, "zero", y->dtype, 0, NULL, &zero));
    pare_node_remove(relu);
    return pare_node_new(graph, NULL, at, "Max", "", name, in, 2, &y, 1);
}

static pare_status repair_relu(repair *r, const pare_node *q)
{
    pare_node *relu = pare_quant_lost_relu(q);
    if (!relu || pare_target_says(r->target, PARE_RULE_RELU) == PARE_TAKEN) return PARE_OK;
    r->changed++;
    return relu_to_max(relu);
}

/* --- all --- */

static bool takes_s32(const repair *r)
{
    return pare_target_says(r->target, PARE_RULE_S32_BIAS) == PARE_TAKEN;
}

static pare_status repair_node(repair *r, pare_node *node)
{
    if (pare_quant_is_q(node)) {
        PARE_TRY(repair_relu(r, node));
        return repair_pair(r, node);
    }
    if (pare_quant_is_dq(node) && node->in[0] && node->in[0]->data)
        return node->in[0]->dtype != PARE_s32 ? repair_weight(r, node)
               : takes_s32(r)                 ? PARE_OK
                                              : repair_bias(r, node);
    if (pare_target_says(r->target, PARE_RULE_BIAS_SCALE) == PARE_TAKEN) return PARE_OK;
    const pare_node *bias = pare_quant_odd_bias(node);
    return bias ? repair_bias(r, (pare_node *)bias) : PARE_OK;
}

pare_status pare_target_repair(pare_model *model, pare_quant_target target, int *changed)
{
    repair r = {.model = model, .row = pare_target_of(target), .target = target};
    pare_node **node;
    int count;
    *changed = 0;
    PARE_TRY(pare_quant_target_open(model));
    PARE_TRY(pare_graph_all_nodes(model->graph, &model->arena, &node, &count));
    for (int i = 0; i < count; i++) PARE_TRY(repair_node(&r, node[i]));
    *changed = r.changed;
    return pare_graph_sweep_all(model->graph);
}
