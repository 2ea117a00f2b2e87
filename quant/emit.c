/* SPDX-License-Identifier: Apache-2.0 */
/* The scheme into the graph: QuantizeLinear and DequantizeLinear (ONNX 13) after every point. */
#include "quant/internal.h"

pare_status pare_quant_value(pare_graph *graph, pare_value **out, const char *base,
                             const char *suffix)
{
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_%s", base, suffix);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    return name ? pare_value_new(graph, out, name) : PARE_MEMORY;
}

pare_status pare_quant_constant(pare_graph *graph, pare_value **out, const char *base,
                                const char *suffix, pare_dtype dtype, int rank, const int64_t *dims,
                                const void *data)
{
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_%s", base, suffix);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    return name ? pare_init_new(graph, out, name, dtype, rank, dims, data) : PARE_MEMORY;
}

pare_status pare_quant_insert(pare_graph *graph, int at, pare_node **node, const char *op_type,
                              const char *base, pare_value *const *in, int in_count,
                              pare_value *out)
{
    char *name = pare_arena_printf(&graph->model->arena, "%s_%s", base, op_type);
    if (!name) return PARE_MEMORY;
    return pare_node_new(graph, node, at, op_type, "", name, in, in_count, &out, 1);
}

static pare_status constants(pare_quant_scheme *s, const pare_quant_point *p, pare_value **scale,
                             pare_value **zero)
{
    const char *name = p->value->name;
    uint8_t u8 = (uint8_t)p->zero;
    int8_t s8 = (int8_t)p->zero;
    bool is_u8 = s->options->unsigned_activations;
    PARE_TRY(pare_quant_constant(s->graph, scale, name, "scale", PARE_f32, 0, NULL, &p->scale));
    return pare_quant_constant(s->graph, zero, name, "zero_point", is_u8 ? PARE_u8 : PARE_s8, 0,
                               NULL, is_u8 ? (void *)&u8 : (void *)&s8);
}

/* Position right after the node that makes a value; the front for inputs. */
static int behind(const pare_value *value)
{
    return value->producer ? pare_node_index(value->producer) + 1 : 0;
}

static pare_status pair(pare_quant_scheme *s, const pare_quant_point *p, pare_value **out)
{
    pare_value *scale, *zero, *q, *v = p->value;
    PARE_TRY(constants(s, p, &scale, &zero));
    PARE_TRY(pare_quant_value(s->graph, &q, v->name, "quantized"));
    PARE_TRY(pare_quant_value(s->graph, out, v->name, "dequantized"));
    pare_value_set_type(q, zero->dtype, &v->shape);
    pare_value_set_type(*out, PARE_f32, &v->shape);
    int at = behind(v);
    pare_value *quantize[] = {v, scale, zero}, *dequantize[] = {q, scale, zero};
    PARE_TRY(pare_quant_insert(s->graph, at, NULL, "QuantizeLinear", v->name, quantize, 3, q));
    PARE_TRY(pare_quant_insert(s->graph, at + 1, NULL, "DequantizeLinear", v->name, dequantize, 3,
                               *out));
    s->facts->q_nodes++;
    s->facts->dq_nodes++;
    return PARE_OK;
}

/* Readers that are to see the pair are noted before it is there, as its own reader. */
static pare_status emit_point(pare_quant_scheme *s, pare_quant_point *p)
{
    pare_value *v = p->value, *dequantized;
    int count = v->user_count;
    pare_node **user = pare_arena_alloc(s->arena, (size_t)count + 1, sizeof *user);
    if (!user) return PARE_MEMORY;
    for (int i = 0; i < count; i++) user[i] = v->user[i];
    PARE_TRY(pair(s, p, &dequantized));
    for (int i = 0; p->everyone && i < count; i++)
        for (int k = 0; k < user[i]->in_count; k++)
            if (user[i]->in[k] == v) PARE_TRY(pare_node_set_in(user[i], k, dequantized));
    for (int i = 0; i < s->use_count; i++) {
        const pare_quant_use *use = &s->use[i];
        if (&s->point[use->point] == p && use->node->in[use->input] == v)
            PARE_TRY(pare_node_set_in(use->node, use->input, dequantized));
    }
    return PARE_OK;
}

pare_status pare_quant_emit(pare_quant_scheme *s)
{
    PARE_TRY(pare_quant_emit_weights(s));
    for (int i = 0; i < s->point_count; i++) PARE_TRY(emit_point(s, &s->point[i]));
    return PARE_OK;
}
