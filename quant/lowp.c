/* SPDX-License-Identifier: Apache-2.0 */
/* FP16, and BF16 typed throughout (opset 22). Every node either computes in the short type or stays
   f32; each tensor has its maker's type; a Cast is where a reader wants the other one, once per
   tensor. Bodies of If, Loop and Scan are graphs of their own whose inputs and outputs stay f32.

   BF16 as storage only: weights are bf16 constants with a Cast to f32 after them. Every runtime
   loads that file; it has half the size and the arithmetic of f32. */
#include "quant/lowp.h"

#include <math.h>
#include <string.h>

/* --- casts and constants of the short type --- */

static pare_status keep(pare_lowp *h, pare_value *v)
{
    if (!pare_arena_grow(h->arena, &h->kept, &h->kept_capacity, (size_t)h->kept_count,
                         sizeof *h->kept))
        return PARE_MEMORY;
    h->kept[h->kept_count++] = v;
    return PARE_OK;
}

/* Remembers that a and b are the same tensor in both types. */
static pare_status add_twin(pare_lowp *h, pare_value *a, pare_value *b)
{
    PARE_TRY(keep(h, b));
    PARE_TRY(keep(h, a));
    PARE_TRY(pare_ptr_map_put(&h->twin, a, h->kept_count - 2));
    return pare_ptr_map_put(&h->twin, b, h->kept_count - 1);
}

static pare_status insert_cast(pare_lowp *h, int at, pare_value *from, pare_value *to,
                               pare_dtype type)
{
    pare_node *cast;
    (void)h;
    PARE_TRY(pare_quant_insert(to->graph, at, &cast, "Cast", to->name, &from, 1, to));
    return pare_node_set_int(cast, "to", type);
}

/* The same content as numbers in memory, to be freed with pare_free. */
static pare_status convert_content(pare_lowp *h, const pare_tensor *t, void **out)
{
    const char *from = t->data; /* at any address */
    uint16_t *data = pare_alloc(h->ctx, (size_t)t->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    for (int64_t i = 0; i < t->count; i++) {
        float x;
        memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);
        if (isfinite(x) && fabsf(x) > h->largest) x = copysignf(h->clamp, x);
        data[i] = h->type == PARE_f16 ? pare_f32_to_f16(x) : pare_f32_to_bf16(x);
    }
    *out = data;
    return PARE_OK;
}

/* A constant of the short type with this content; finite numbers beyond the type's range are
   clamped, so that a mask of -3.4e38 does not become -Inf, and 0 times it not NaN. In f16 they
   become +-61,440 and not 65,504: a score that is added to such a mask is lost in it (its steps are
   of 32) and does not carry it over the end, where a row that is masked throughout would be NaN. */
static pare_status new_constant(pare_lowp *h, const pare_value *v, pare_value **out)
{
    const pare_tensor *t = v->data;
    void *data;
    PARE_TRY(convert_content(h, t, &data));
    pare_status st = pare_quant_constant(v->graph, out, v->name, pare_type(h->type)->name, h->type,
                                         t->rank, t->dims, data);
    pare_free(data);
    return st;
}

/* The integer or other tensor a conversion node made v from, where v may be made from it again: two
   Casts in a row say less than one. */
static pare_value *origin_of(const pare_lowp *h, const pare_value *v)
{
    const pare_node *node = v->producer;
    const pare_op *op = node ? pare_op_of(node) : NULL;
    if (!op || op->quant.half != PARE_LOWP_CAST || node->graph != v->graph) return NULL;
    pare_value *from = node->in[0];
    bool number = from && from->dtype != PARE_NOTYPE && from->dtype != PARE_f32 &&
                  from->dtype != h->type && from->dtype != PARE_f64;
    return number ? from : NULL;
}

/* The value in the wanted type (f32 or h->type): itself, a converted constant, or
   what a Cast makes of it, one per tensor. */
static pare_status value_as(pare_lowp *h, pare_value *v, pare_dtype wanted, pare_value **out)
{
    *out = v;
    if (v->dtype == wanted) return PARE_OK;
    int known = pare_ptr_map_find(&h->twin, v);
    if (known >= 0) {
        *out = h->kept[known];
        return PARE_OK;
    }
    if (v->data && v->data->dtype == PARE_f32)
        PARE_TRY(new_constant(h, v, out));
    else {
        pare_value *from = origin_of(h, v);
        PARE_TRY(pare_quant_value(v->graph, out, v->name, pare_type(wanted)->name));
        pare_value_set_type(*out, wanted, &v->shape);
        int at = v->producer ? pare_node_index(v->producer) + 1 : 0;
        PARE_TRY(insert_cast(h, at, from ? from : v, *out, wanted));
    }
    return add_twin(h, v, *out);
}

static bool is_lowp_node(const pare_lowp *h, const pare_node *node)
{
    return pare_ptr_map_find(&h->is_lowp, node) == 1;
}

/* --- types of tensors --- */

static pare_status shorten(pare_lowp *h, pare_value *v)
{
    pare_value_set_type(v, h->type, &v->shape);
    return pare_ptr_map_put(&h->made, v, 1);
}

/* A graph output keeps its name and f32: the node makes another tensor, cast at the end. */
static pare_status split_output(pare_lowp *h, pare_node *node, int i)
{
    pare_value *y = node->out[i], *shorter;
    pare_graph *graph = node->graph;
    PARE_TRY(pare_quant_value(graph, &shorter, y->name, pare_type(h->type)->name));
    pare_value_set_type(shorter, h->type, &y->shape);
    pare_node_set_out(node, i, shorter);
    PARE_TRY(insert_cast(h, pare_node_index(node) + 1, shorter, y, PARE_f32));
    PARE_TRY(pare_ptr_map_put(&h->made, shorter, 1));
    return add_twin(h, shorter, y);
}

/* The content of a node that makes a constant, in the short type. */
static pare_status type_content(pare_lowp *h, pare_node *node)
{
    const pare_attr *old = pare_lowp_content(node);
    if (!old) return PARE_OK;
    const pare_tensor *t = old->tensor;
    pare_attr attr = *old;
    void *data;
    PARE_TRY(convert_content(h, t, &data));
    pare_status st = pare_tensor_new(h->model, &attr.tensor, t->name ? t->name : "", h->type,
                                     t->rank, t->dims, data);
    pare_free(data);
    return st == PARE_OK ? pare_node_set_attr(node, &attr) : st;
}

/* Does the caller want it short? Outputs of bodies, a tensor of the main graph among them, stay
 * f32. */
static bool ends_short(const pare_lowp *h, const pare_value *y)
{
    const pare_values *out = &h->model->graph->out;
    for (int i = 0; h->options->io_same && i < out->count; i++)
        if (out->item[i] == y) return true;
    return false;
}

static pare_status type_outputs(pare_lowp *h, pare_node *node)
{
    if (!is_lowp_node(h, node)) return PARE_OK;
    PARE_TRY(type_content(h, node));
    for (int i = 0; i < node->out_count; i++) {
        pare_value *y = node->out[i];
        if (!y || y->dtype != PARE_f32) continue;
        if (y->is_output && !ends_short(h, y))
            PARE_TRY(split_output(h, node, i));
        else
            PARE_TRY(shorten(h, y));
    }
    return PARE_OK;
}

static pare_status type_io(pare_lowp *h)
{
    pare_graph *g = h->model->graph;
    for (int i = 0; h->options->io_same && i < g->in.count; i++)
        if (g->in.item[i]->dtype == PARE_f32 && !g->in.item[i]->is_init)
            PARE_TRY(shorten(h, g->in.item[i]));
    return PARE_OK;
}

/* Outputs of f32 nodes that the caller wants short: the f32 tensor gets another name. */
static pare_status short_outputs(pare_lowp *h)
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
        PARE_TRY(add_twin(h, longer, y));
        PARE_TRY(insert_cast(h, pare_node_index(maker) + 1, longer, y, h->type));
    }
    return PARE_OK;
}

/* --- what each reader sees --- */

static pare_status fix_inputs(pare_lowp *h, pare_node *node)
{
    const pare_quant_role *role = pare_quant_role_of(node);
    bool half = is_lowp_node(h, node);
    if (role && role->half == PARE_LOWP_CAST) return PARE_OK; /* reads anything */
    for (int i = 0; i < node->in_count; i++) {
        pare_value *v = node->in[i], *seen;
        if (!v || (v->dtype != PARE_f32 && v->dtype != h->type)) continue;
        bool keeps = role && i < 32 && (role->f32_inputs >> i & 1);
        pare_dtype wanted = half && !keeps ? h->type : PARE_f32;
        if (!half && v->dtype == h->type && pare_ptr_map_find(&h->made, v) < 0) continue;
        PARE_TRY(value_as(h, v, wanted, &seen));
        if (seen != v) PARE_TRY(pare_node_set_in(node, i, seen));
    }
    return PARE_OK;
}

static pare_status convert_graph(pare_graph *graph, void *user)
{
    pare_lowp *h = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(h->arena, (size_t)count + 1, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int n = 0; n < count; n++) PARE_TRY(fix_inputs(h, node[n]));
    return PARE_OK;
}

static pare_status type_graph(pare_graph *graph, void *user)
{
    pare_lowp *h = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(h->arena, (size_t)count + 1, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int n = 0; n < count; n++) PARE_TRY(type_outputs(h, node[n]));
    return PARE_OK;
}

/* Typed f16 or bf16 throughout; weights only, after a Cast to f32. */
static pare_status compute_in_type(pare_lowp *h)
{
    pare_graph *graph = h->model->graph;
    PARE_TRY(pare_lowp_select(h));
    PARE_TRY(type_io(h));
    PARE_TRY(pare_graph_each(graph, type_graph, h));
    PARE_TRY(short_outputs(h));
    return pare_graph_each(graph, convert_graph, h);
}

/* --- storage only --- */

/* Vectors (biases, normalization) weigh nothing and are worth their bits. */
static bool is_worth_it(const pare_value *v)
{
    return v->data && v->data->dtype == PARE_f32 && v->data->rank >= 2 && v->data->count >= 64 &&
           !v->is_output && v->user_count > 0;
}

static bool all_chosen(const pare_quant_nodes *nodes, const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++)
        if (!pare_quant_chosen(nodes, v->user[i])) return false;
    return true;
}

static pare_status store_one(pare_lowp *h, pare_value *v)
{
    pare_value *shorter;
    pare_shape shape = v->shape;
    PARE_TRY(new_constant(h, v, &shorter));
    pare_init_remove(v);
    pare_value_set_type(v, PARE_f32, &shape);
    return insert_cast(h, 0, shorter, v, PARE_f32);
}

static pare_status store_graph(pare_graph *g, void *user)
{
    pare_lowp *h = user;
    for (int i = g->init.count - 1; i >= 0; i--) {
        pare_value *v = g->init.item[i];
        if (!is_worth_it(v) || !all_chosen(&h->nodes, v)) continue;
        PARE_TRY(store_one(h, v));
        h->facts->quantized_nodes++;
    }
    return PARE_OK;
}

static pare_status store_weights(pare_lowp *h)
{
    PARE_TRY(pare_quant_select(h->model, h->arena, h->options, &h->nodes));
    for (int n = 0; n < h->nodes.count; n++)
        if (h->nodes.chosen[n]) PARE_TRY(pare_quant_check_weights(h->nodes.item[n]));
    return pare_graph_each(h->model->graph, store_graph, h);
}

static void open_lowp(pare_lowp *h, pare_arena *arena)
{
    const bool f16 = h->options->precision == PARE_PRECISION_FP16;
    pare_arena_init(arena, h->ctx);
    h->arena = arena;
    h->type = f16 ? PARE_f16 : PARE_bf16;
    h->largest = f16 ? 65504.0f : 0x1.fep127f;
    h->clamp = f16 ? 61440.0f : 0x1.fep127f;
    pare_ptr_map_init(&h->is_lowp, arena);
    pare_ptr_map_init(&h->beyond, arena);
    pare_ptr_map_init(&h->beside, arena);
    pare_ptr_map_init(&h->made, arena);
    pare_ptr_map_init(&h->twin, arena);
}

pare_status pare_quant_to_lowp(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                               const pare_quant_options *options, pare_quant_facts *facts)
{
    pare_arena arena;
    pare_lowp h = {
        .ctx = ctx, .model = model, .ranges = ranges, .options = options, .facts = facts};
    open_lowp(&h, &arena);
    pare_status st =
        h.type == PARE_f16 || options->bf16_compute ? compute_in_type(&h) : store_weights(&h);
    pare_arena_free(&arena);
    PARE_TRY(st);
    PARE_TRY(pare_graph_sweep_all(model->graph));
    return pare_quant_manifest(model, options, NULL);
}

/* --- what is not int8 --- */

pare_status pare_quant_rest_to_fp16(pare_quant_scheme *s)
{
    enum { OPSET = 19 }; /* the first with f16 scales */
    const pare_quant_options *o = s->options, all = {.precision = PARE_PRECISION_FP16};
    pare_quant_facts *facts = s->facts;
    const int quantized = facts->quantized_nodes, in_float = facts->float_nodes;
    pare_arena arena;
    pare_lowp h = {.ctx = s->ctx,
                   .model = s->model,
                   .ranges = o->float_ranges ? o->float_ranges : s->ranges,
                   .options = &all,
                   .facts = facts,
                   .before = &s->nodes,
                   .f32 = o->f32_for_latency,
                   .pairs = true,
                   .f16_scales =
                       pare_quant_f16_scales(o) && pare_model_opset(s->model, "") >= OPSET};
    open_lowp(&h, &arena);
    facts->quantized_nodes = 0;
    const pare_status st = compute_in_type(&h);
    facts->fp16_nodes = facts->quantized_nodes;
    facts->quantized_nodes = quantized;
    facts->float_nodes = in_float;
    pare_arena_free(&arena);
    return st == PARE_OK ? pare_graph_sweep_all(s->model->graph) : st;
}
