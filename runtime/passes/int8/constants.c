/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of a Q/DQ graph. Tools that train with fake quantization write a float weight through Q
   and DQ; others write u8 weights. Both become s8 constants after a DequantizeLinear. Of FP8 they
   become constants of FP8. */
#include "runtime/base/f8.h"
#include "runtime/passes/int8/fold_qdq.h"

#include <math.h>
#include <string.h>

/* Where one scale serves: the tensor is (outer, count, inner), scale c for all of the middle's c.
 */
typedef struct grid {
    int64_t outer, count, inner;
} grid;

static bool grid_of(const pare_node *node, const pare_tensor *t, const pare_tensor *scale,
                    grid *out)
{
    *out = (grid){1, 1, t->count};
    if (pare_node_int(node, "block_size", 0)) return false;
    if (scale->count == 1) return true;
    int64_t axis = pare_node_int(node, "axis", 1);
    if (axis < 0) axis += t->rank;
    if (axis < 0 || axis >= t->rank || t->dims[axis] != scale->count || scale->rank != 1)
        return false;
    *out = (grid){1, scale->count, 1};
    for (int i = 0; i < t->rank; i++) {
        if (i < axis) out->outer *= t->dims[i];
        if (i > axis) out->inner *= t->dims[i];
    }
    return true;
}

static int32_t zero_at(const pare_tensor *zero, int64_t c)
{
    if (!zero || pare_type_is_f8(zero->dtype)) return 0;
    int64_t i = zero->count == 1 ? 0 : c;
    return zero->dtype == PARE_s8 ? ((const int8_t *)zero->data)[i]
                                  : ((const uint8_t *)zero->data)[i];
}

static const pare_tensor *data_of(const pare_value *v) { return v ? v->data : NULL; }

/* clamp(rintf(x / s) + z); FP8: the code of x / s + 0, which has no -0: ONNX QuantizeLinear 13. */
static void quantize(const pare_tensor *t, const grid *g, const float *scale,
                     const pare_tensor *zero, pare_dtype type, uint8_t *out)
{
    float low = type == PARE_s8 ? -128 : 0, high = type == PARE_s8 ? 127 : 255;
    const float *x = t->data;
    for (int64_t o = 0; o < g->outer; o++)
        for (int64_t c = 0; c < g->count; c++) {
            float z = (float)zero_at(zero, c), s = scale[c];
            for (int64_t i = 0; i < g->inner; i++, x++) {
                const float v = *x / s, q = fminf(fmaxf(rintf(v) + z, low), high);
                *out++ = pare_type_is_f8(type) ? pare_f8_code(type, v + 0.0f) : (uint8_t)(int)q;
            }
        }
}

/* QuantizeLinear of a constant becomes the constant. */
static pare_status quantize_constant(pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0), *scale = pare_node_in(node, 1);
    const pare_value *zero = pare_node_in(node, 2);
    pare_value *y = node->out[0];
    if (!x || !x->data || x->data->dtype != PARE_f32 || !scale || !scale->data) return PARE_OK;
    if (scale->data->dtype != PARE_f32 || (zero && !zero->data) || y->is_output) return PARE_OK;
    pare_dtype type =
        zero ? zero->data->dtype : (pare_dtype)pare_node_int(node, "output_dtype", PARE_u8);
    grid g;
    if (pare_type_is_f8(type) &&
        (!pare_qdq_all_zero(data_of(zero)) || !pare_node_int(node, "saturate", 1)))
        return PARE_OK;
    if ((!pare_type_is_int8(type) && !pare_type_is_f8(type)) ||
        !grid_of(node, x->data, scale->data, &g))
        return PARE_OK;
    pare_model *model = node->graph->model;
    uint8_t *q = pare_alloc(model->ctx, (size_t)x->data->count, 1);
    pare_tensor *made;
    if (!q) return PARE_MEMORY;
    quantize(x->data, &g, scale->data->data, data_of(zero), type, q);
    pare_status st = pare_tensor_new(model, &made, y->name, type, x->data->rank, x->data->dims, q);
    pare_free(q);
    PARE_TRY(st);
    pare_node_remove(node);
    return pare_value_set_init(y, made);
}

/* --- u8 weights to s8: q - 128 and z - 128 say the same numbers --- */

static pare_status shifted(pare_graph *graph, pare_value **out, const pare_value *u8)
{
    const pare_tensor *t = u8->data;
    pare_value *fresh;
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_s8", u8->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(graph, &fresh, name, PARE_u8, t->rank, t->dims, t->data));
    pare_tensor *copy;
    PARE_TRY(pare_tensor_new(graph->model, &copy, name, PARE_s8, t->rank, t->dims, t->data));
    uint8_t *bytes = (uint8_t *)(uintptr_t)copy->data; /* the arena's own copy */
    for (int64_t i = 0; i < t->count; i++) bytes[i] = (uint8_t)(bytes[i] ^ 0x80);
    PARE_TRY(pare_value_set_init(fresh, copy));
    *out = fresh;
    return PARE_OK;
}

static pare_status shift_weight(pare_node *dq)
{
    pare_value *q = pare_node_in(dq, 0), *zero = pare_node_in(dq, 2), *fresh;
    if (!q || !q->data || q->data->dtype != PARE_u8) return PARE_OK;
    if (zero && (!zero->data || zero->data->dtype != PARE_u8)) return PARE_OK;
    pare_graph *graph = dq->graph;
    if (!zero) { /* absent: 0, which is -128 after the shift */
        const pare_value *scale = pare_node_in(dq, 1);
        if (!scale || !scale->data) return PARE_OK;
        uint8_t *zeros = pare_alloc(graph->model->ctx, (size_t)scale->data->count, 1);
        if (!zeros) return PARE_MEMORY;
        const char *name = pare_graph_fresh_name(graph, "zero_point");
        pare_status st = name ? pare_init_new(graph, &zero, name, PARE_u8, scale->data->rank,
                                              scale->data->dims, zeros)
                              : PARE_MEMORY;
        pare_free(zeros);
        PARE_TRY(st);
    }
    PARE_TRY(shifted(graph, &fresh, q));
    PARE_TRY(pare_node_set_in(dq, 0, fresh));
    PARE_TRY(shifted(graph, &fresh, zero));
    return pare_node_set_in(dq, 2, fresh);
}

pare_status pare_qdq_constants(pare_graph *graph)
{
    for (int n = graph->node_count - 1; n >= 0; n--)
        if (pare_node_is(graph->node[n], "QuantizeLinear"))
            PARE_TRY(quantize_constant(graph->node[n]));
    for (int n = 0; n < graph->node_count; n++)
        if (pare_node_is(graph->node[n], "DequantizeLinear"))
            PARE_TRY(shift_weight(graph->node[n]));
    return PARE_OK;
}

/* --- what stayed float --- */

static float number_at(const pare_tensor *q, int64_t i)
{
    switch (q->dtype) {
    case PARE_s8: return ((const int8_t *)q->data)[i];
    case PARE_u8: return ((const uint8_t *)q->data)[i];
    case PARE_f8e4m3:
    case PARE_f8e5m2: return pare_f8_value(q->dtype, ((const uint8_t *)q->data)[i]);
    default: return (float)((const int32_t *)q->data)[i];
    }
}

static int32_t any_zero_at(const pare_tensor *zero, int64_t c)
{
    return zero && zero->dtype != PARE_s32 ? zero_at(zero, c) : 0;
}

/* (q - z) * s of a constant: ONNX DequantizeLinear 13. */
static pare_status dequantize_constant(pare_node *node)
{
    const pare_value *q = pare_node_in(node, 0), *scale = pare_node_in(node, 1);
    const pare_value *zero = pare_node_in(node, 2);
    pare_value *y = node->out[0];
    grid g;
    if (!q || !q->data || !scale || !scale->data || (zero && !zero->data) || y->is_output)
        return PARE_OK;
    pare_dtype type = q->data->dtype;
    if (pare_type_is_f8(type) && !pare_qdq_all_zero(data_of(zero))) return PARE_OK;
    if ((!pare_type_is_int8(type) && !pare_type_is_f8(type) && type != PARE_s32) ||
        scale->data->dtype != PARE_f32 || !grid_of(node, q->data, scale->data, &g))
        return PARE_OK;
    pare_model *model = node->graph->model;
    float *f = pare_alloc(model->ctx, (size_t)q->data->count, sizeof *f);
    pare_tensor *made;
    if (!f) return PARE_MEMORY;
    int64_t at = 0;
    for (int64_t o = 0; o < g.outer; o++)
        for (int64_t c = 0; c < g.count; c++)
            for (int64_t i = 0; i < g.inner; i++, at++)
                f[at] = (number_at(q->data, at) - (float)any_zero_at(data_of(zero), c)) *
                        ((const float *)scale->data->data)[c];
    pare_status st =
        pare_tensor_new(model, &made, y->name, PARE_f32, q->data->rank, q->data->dims, f);
    pare_free(f);
    PARE_TRY(st);
    pare_node_remove(node);
    return pare_value_set_init(y, made);
}

pare_status pare_qdq_float_constants(pare_graph *graph)
{
    for (int n = graph->node_count - 1; n >= 0; n--)
        if (pare_node_is(graph->node[n], "DequantizeLinear"))
            PARE_TRY(dequantize_constant(graph->node[n]));
    return PARE_OK;
}
