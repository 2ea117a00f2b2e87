/* SPDX-License-Identifier: Apache-2.0 */
/* The scheme into the graph: QuantizeLinear and DequantizeLinear (ONNX 13) after every point. */
#include "quant/internal.h"
#include "runtime/passes/passes.h"

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

void pare_quant_pack_levels(const int8_t *level, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i += 2) {
        const int high = i + 1 < count ? level[i + 1] : 0;
        to[i / 2] = (uint8_t)((level[i] & 15) | (high & 15) << 4);
    }
}

pare_status pare_quant_insert(pare_graph *graph, int at, pare_node **node, const char *op_type,
                              const char *base, pare_value *const *in, int in_count,
                              pare_value *out)
{
    char *name = pare_arena_printf(&graph->model->arena, "%s_%s", base, op_type);
    if (!name) return PARE_MEMORY;
    return pare_node_new(graph, node, at, op_type, "", name, in, in_count, &out, 1);
}

pare_value *pare_quant_view_in(const pare_quant_views *views, const pare_graph *graph)
{
    for (int i = 0; i < views->count; i++)
        if (views->item[i]->graph == graph) return views->item[i];
    return NULL;
}

pare_status pare_quant_view_add(pare_quant_scheme *s, pare_quant_views *views, pare_value *value)
{
    if (!pare_arena_grow(s->arena, &views->item, &views->capacity, (size_t)views->count,
                         sizeof *views->item))
        return PARE_MEMORY;
    views->item[views->count++] = value;
    return PARE_OK;
}

static pare_status constants(pare_quant_scheme *s, const pare_quant_point *p, pare_graph *graph,
                             pare_value **scale, pare_value **zero)
{
    const char *name = p->value->name;
    const uint8_t code = (uint8_t)p->zero; /* of s8, too; of FP8 0 */
    const pare_dtype type = s->options->fp8                    ? PARE_f8e4m3
                            : s->options->unsigned_activations ? PARE_u8
                                                               : PARE_s8;
    PARE_TRY(pare_quant_constant(graph, scale, name, "scale", PARE_f32, 0, NULL, &p->scale));
    return pare_quant_constant(graph, zero, name, "zero_point", type, 0, NULL, &code);
}

/* Position right after the node that makes a value; the front for inputs. */
static int behind(const pare_value *value)
{
    return value->producer ? pare_node_index(value->producer) + 1 : 0;
}

/* A point as it is written: quantized once, dequantized in each graph that reads it, for runtimes
   fuse pairs with what is in the same graph. */
typedef struct written {
    pare_quant_point *point;
    pare_value *q, *scale, *zero; /* in the graph of the value */
    pare_quant_views views;
} written;

static pare_status quantize(pare_quant_scheme *s, written *w)
{
    pare_value *v = w->point->value;
    PARE_TRY(constants(s, w->point, v->graph, &w->scale, &w->zero));
    PARE_TRY(pare_quant_value(v->graph, &w->q, v->name, "quantized"));
    pare_value_set_type(w->q, w->zero->dtype, &v->shape);
    pare_value *in[] = {v, w->scale, w->zero};
    s->facts->q_nodes++;
    return pare_quant_insert(v->graph, behind(v), NULL, "QuantizeLinear", v->name, in, 3, w->q);
}

/* What a reader in this graph sees. */
static pare_status view_of(pare_quant_scheme *s, written *w, pare_graph *graph, pare_value **out)
{
    const pare_value *v = w->point->value;
    pare_value *in[] = {w->q, w->scale, w->zero};
    *out = pare_quant_view_in(&w->views, graph);
    if (*out) return PARE_OK;
    if (graph != v->graph) PARE_TRY(constants(s, w->point, graph, &in[1], &in[2]));
    PARE_TRY(pare_quant_value(graph, out, v->name, "dequantized"));
    pare_value_set_type(*out, PARE_f32, &v->shape);
    const int at = graph == v->graph ? behind(w->q) : 0;
    PARE_TRY(pare_quant_insert(graph, at, NULL, "DequantizeLinear", v->name, in, 3, *out));
    s->facts->dq_nodes++;
    return pare_quant_view_add(s, &w->views, *out);
}

/* Readers that are to see the pair are noted before it is there, as its own reader. */
static pare_status emit_point(pare_quant_scheme *s, pare_quant_point *p)
{
    pare_value *v = p->value, *seen;
    written w = {.point = p};
    int count = v->user_count;
    pare_node **user = pare_arena_alloc(s->arena, (size_t)count + 1, sizeof *user);
    if (!user) return PARE_MEMORY;
    for (int i = 0; i < count; i++) user[i] = v->user[i];
    PARE_TRY(quantize(s, &w));
    for (int i = 0; p->everyone && i < count; i++)
        for (int k = 0; k < user[i]->in_count; k++) {
            if (user[i]->in[k] != v) continue;
            PARE_TRY(view_of(s, &w, user[i]->graph, &seen));
            PARE_TRY(pare_node_set_in(user[i], k, seen));
        }
    for (int i = 0; i < s->use_count; i++) {
        const pare_quant_use *use = &s->use[i];
        if (&s->point[use->point] != p || use->node->in[use->input] != v) continue;
        PARE_TRY(view_of(s, &w, use->node->graph, &seen));
        PARE_TRY(pare_node_set_in(use->node, use->input, seen));
    }
    return w.views.count ? PARE_OK : view_of(s, &w, v->graph, &seen);
}

/* Is the tensor on its grid already, for it was only moved? */
static bool is_moved(const pare_quant_scheme *s, int at)
{
    const pare_node *node = s->point[at].value->producer;
    if (pare_quant_kind_of(node) != PARE_QUANT_PASS || !pare_node_commutes_with_q(node))
        return false;
    const int from = pare_quant_point_find(s, node->in[0]);
    return from >= 0 && s->point[from].everyone && s->point[from].group == s->point[at].group;
}

pare_status pare_quant_emit(pare_quant_scheme *s)
{
    const bool once = pare_target_of(s->options->target)->once;
    PARE_TRY(pare_quant_emit_weights(s));
    bool *skip = pare_arena_alloc(s->arena, (size_t)s->point_count + 1, sizeof *skip);
    if (!skip) return PARE_MEMORY;
    for (int i = 0; i < s->point_count; i++) skip[i] = once && is_moved(s, i);
    for (int i = 0; i < s->point_count; i++)
        if (!skip[i]) PARE_TRY(emit_point(s, &s->point[i]));
    return PARE_OK;
}
