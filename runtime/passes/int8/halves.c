/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 around integers. A Q/DQ pair whose scale has such a type becomes a pair of f32
   between Casts, and so does what computes between int8 tensors: from there on the graph is folded
   as one of f32. The sum of an integer product is then rounded once, to its 8 bits or to the short
   type, where the operators of the file round in between: within one step. A matrix product that
   adds the sum of another product reads it rounded, as the file's operator does: where products
   make the short type themselves (pare_pass_narrow_products) the numbers are the same. At the end a
   Cast beside a Q or DQ that found no partner goes into it (both take any float type: ONNX 23). */
#include "runtime/passes/int8/fold_qdq.h"

#include "runtime/base/f8.h"
#include "runtime/base/ptr_map.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/infer.h"

enum { RESIDUAL = 3 }; /* FusedMatMul's input */

/* The f32 tensor of a short one. */
typedef struct twin {
    pare_value *wide;
    bool is_int8; /* a DequantizeLinear makes it; perhaps it is moved after that */
} twin;

typedef struct widening {
    pare_graph *graph;
    pare_arena arena;
    pare_ptr_map at;   /* short tensor -> place in item */
    pare_ptr_map ends; /* short tensors of which int8 ones are made, and nothing else -> 1 */
    twin *item;
    int count;
    size_t capacity;
} widening;

static bool is_short(const pare_value *v)
{
    return v && (v->dtype == PARE_f16 || v->dtype == PARE_bf16);
}

static bool is_fused_product(const pare_node *node)
{
    return !strcmp(node->domain, PARE_DOMAIN) && !strcmp(node->op_type, "FusedMatMul");
}

static const twin *twin_of(const widening *w, const pare_value *v)
{
    const int at = is_short(v) ? pare_ptr_map_find(&w->at, v) : -1;
    return at < 0 ? NULL : &w->item[at];
}

static bool is_int8(const widening *w, const pare_value *v)
{
    const twin *t = twin_of(w, v);
    return t && t->is_int8;
}

static pare_status remember(widening *w, const pare_value *v, pare_value *wide, bool is_int8)
{
    if (!pare_arena_grow(&w->arena, &w->item, &w->capacity, (size_t)w->count, sizeof *w->item))
        return PARE_MEMORY;
    w->item[w->count] = (twin){wide, is_int8};
    return pare_ptr_map_put(&w->at, v, w->count++);
}

static pare_status insert_cast(pare_graph *graph, int at, pare_value *from, pare_value *to)
{
    pare_node *cast;
    PARE_TRY(pare_node_new(graph, &cast, at, "Cast", "", to->name, &from, 1, &to, 1));
    return pare_node_set_int(cast, "to", to->dtype);
}

/* --- inputs --- */

static pare_status wide_constant(widening *w, const pare_value *v, pare_value **out)
{
    const pare_tensor *t = v->data;
    char *wanted = pare_arena_printf(&w->graph->model->arena, "%s_f32", v->name);
    const char *name = wanted ? pare_graph_fresh_name(w->graph, wanted) : NULL;
    float *data = pare_alloc(w->graph->model->ctx, (size_t)t->count + 1, sizeof *data);
    pare_status st = name && data ? PARE_OK : PARE_MEMORY;
    for (int64_t i = 0; st == PARE_OK && i < t->count; i++)
        data[i] = (float)pare_tensor_number(t, i);
    if (st == PARE_OK) st = pare_init_new(w->graph, out, name, PARE_f32, t->rank, t->dims, data);
    pare_free(data);
    return st;
}

/* The f32 tensor that a Cast before the reader makes of a short one. */
static pare_status widen_by_cast(const widening *w, const pare_node *reader, pare_value *v,
                                 pare_value **out)
{
    PARE_TRY(pare_qdq_value(w->graph, out, v, "dequantized", PARE_f32));
    return insert_cast(w->graph, pare_node_index(reader), v, *out);
}

/* What a node sees of a short tensor in f32: its twin, or what a Cast makes of it. */
static pare_status widen(widening *w, const pare_node *reader, pare_value *v, pare_value **out)
{
    const twin *known = twin_of(w, v);
    if (known) {
        *out = known->wide;
        return PARE_OK;
    }
    if (v->data)
        PARE_TRY(wide_constant(w, v, out));
    else
        PARE_TRY(widen_by_cast(w, reader, v, out));
    return remember(w, v, *out, false);
}

/* Is the input what a product adds, and the sum of another one? */
static bool is_sum_added(const widening *w, const pare_node *node, int input)
{
    const pare_value *v = node->in[input];
    return input == RESIDUAL && is_fused_product(node) && twin_of(w, v) && !is_int8(w, v);
}

static pare_status widen_inputs(widening *w, pare_node *node)
{
    for (int i = 0; i < node->in_count; i++) {
        pare_value *wide;
        if (!is_short(node->in[i])) continue;
        if (is_sum_added(w, node, i))
            PARE_TRY(widen_by_cast(w, node, node->in[i], &wide));
        else
            PARE_TRY(widen(w, node, node->in[i], &wide));
        PARE_TRY(pare_node_set_in(node, i, wide));
    }
    return PARE_OK;
}

/* --- outputs --- */

/* The node makes f32, which a Cast then shortens. */
static pare_status widen_outputs(widening *w, pare_node *node, bool is_int8)
{
    for (int i = 0; i < node->out_count; i++) {
        pare_value *y = node->out[i], *wide;
        if (!is_short(y)) continue;
        PARE_TRY(pare_qdq_value(w->graph, &wide, y, "dequantized", PARE_f32));
        pare_node_set_out(node, i, wide);
        PARE_TRY(insert_cast(w->graph, pare_node_index(node) + 1, wide, y));
        PARE_TRY(remember(w, y, wide, is_int8));
    }
    return PARE_OK;
}

static pare_status widen_node(widening *w, pare_node *node, bool is_int8)
{
    PARE_TRY(widen_inputs(w, node));
    return widen_outputs(w, node, is_int8);
}

/* --- which nodes --- */

/* Folds into an integer node, or a table, where all around it is int8. */
static bool may_be_integer(const pare_node *node)
{
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_PASS:
    case PARE_QUANT_JOIN: return pare_qdq_data_inputs(node) > 0;
    case PARE_QUANT_CLAMP:
    case PARE_QUANT_SUM:
    case PARE_QUANT_PRODUCT:
    case PARE_QUANT_MEAN: return true;
    default: return pare_qdq_in_table(node);
    }
}

/* Are all short outputs made int8 tensors of, and of nothing else? */
static bool outputs_end(const widening *w, const pare_node *node)
{
    for (int i = 0; i < node->out_count; i++)
        if (is_short(node->out[i]) && pare_ptr_map_find(&w->ends, node->out[i]) < 0) return false;
    return true;
}

/* Do all readers of the tensor quantize it, at once or after nodes that may be integer ones? */
static bool only_ends(const widening *w, const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++) {
        const pare_node *user = v->user[i];
        if (user->graph != w->graph) return false;
        if (pare_node_is(user, "QuantizeLinear") && user->in[0] == v) continue;
        if (!may_be_integer(user) || !outputs_end(w, user)) return false;
    }
    return v->user_count > 0 && !v->is_output;
}

static pare_status find_ends(widening *w)
{
    for (int n = w->graph->node_count - 1; n >= 0; n--) {
        const pare_node *node = w->graph->node[n];
        for (int i = 0; i < node->out_count; i++)
            if (is_short(node->out[i]) && only_ends(w, node->out[i]))
                PARE_TRY(pare_ptr_map_put(&w->ends, node->out[i], 1));
    }
    return PARE_OK;
}

/* Are the first inputs int8 tensors? */
static bool reads_int8(const widening *w, const pare_node *node, int count)
{
    for (int i = 0; i < count; i++)
        if (!is_int8(w, pare_node_in(node, i))) return false;
    return count > 0;
}

/* Is every short tensor that it reads made of int8 tensors, but for constants? */
static bool follows_int8(const widening *w, const pare_node *node)
{
    int twins = 0;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (!is_short(v) || v->data) continue;
        if (!twin_of(w, v)) return false;
        twins++;
    }
    return twins > 0;
}

static pare_status widen_between(widening *w, pare_node *node)
{
    if (pare_qdq_is_product(node))
        return reads_int8(w, node, 2) ? widen_node(w, node, false) : PARE_OK;
    if (!may_be_integer(node)) return PARE_OK;
    if (reads_int8(w, node, pare_qdq_data_inputs(node))) return widen_node(w, node, true);
    return outputs_end(w, node) && follows_int8(w, node) ? widen_node(w, node, false) : PARE_OK;
}

/* One scale, or one for each index of an axis, constant. */
static bool has_short_scale(const pare_node *node)
{
    const pare_value *scale = pare_node_in(node, 1);
    return is_short(scale) && scale->data && !pare_node_int(node, "block_size", 0);
}

/* A Cast of a tensor with a twin to f32. */
static pare_status bypass_cast(widening *w, pare_node *cast)
{
    const twin *t = twin_of(w, pare_node_in(cast, 0));
    pare_value *y = cast->out[0];
    if (!t || y->dtype != PARE_f32 || y->is_output) return PARE_OK;
    return pare_value_replace(y, t->wide, false);
}

static pare_status visit(widening *w, pare_node *node)
{
    if (pare_node_is(node, "Cast")) return bypass_cast(w, node);
    if (pare_node_is(node, "QuantizeLinear"))
        return is_short(node->in[0]) && has_short_scale(node) ? widen_inputs(w, node) : PARE_OK;
    if (pare_node_is(node, "DequantizeLinear"))
        return has_short_scale(node) && !pare_node_attr(node, "output_dtype")
                   ? widen_node(w, node, true)
                   : PARE_OK;
    return widen_between(w, node);
}

static bool has_short_pairs(const pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++)
        if (pare_node_is(graph->node[n], "DequantizeLinear") && has_short_scale(graph->node[n]))
            return true;
    return false;
}

pare_status pare_qdq_widen_halves(pare_graph *graph)
{
    widening w = {.graph = graph};
    const int count = graph->node_count;
    if (!has_short_pairs(graph)) return PARE_OK;
    pare_arena_init(&w.arena, graph->model->ctx);
    pare_ptr_map_init(&w.at, &w.arena);
    pare_ptr_map_init(&w.ends, &w.arena);
    pare_node **node = pare_arena_alloc(&w.arena, (size_t)count + 1, sizeof(pare_node *));
    pare_status st = node ? find_ends(&w) : PARE_MEMORY;
    if (st == PARE_OK) memcpy(node, graph->node, (size_t)count * sizeof(pare_node *));
    for (int n = 0; st == PARE_OK && n < count; n++) st = visit(&w, node[n]);
    pare_arena_free(&w.arena);
    if (st == PARE_OK) pare_graph_sweep(graph);
    return st;
}

/* --- Casts that are left --- */

/* DQ -> Cast: the DQ makes the short tensor. */
static pare_status narrow_output(pare_node *cast)
{
    pare_value *x = cast->in[0], *y = cast->out[0];
    pare_node *dq = x->producer;
    if (!dq || dq->graph != cast->graph || !pare_node_is(dq, "DequantizeLinear") || !is_short(y) ||
        x->dtype != PARE_f32 || pare_value_only_user(x) != cast)
        return PARE_OK;
    pare_node_remove(cast);
    pare_node_set_out(dq, 0, y);
    return pare_node_set_int(dq, "output_dtype", y->dtype);
}

/* Cast -> Q: the Q reads the short tensor. */
static pare_status narrow_input(pare_node *q)
{
    const pare_node *cast = q->in[0] ? q->in[0]->producer : NULL;
    if (!cast || !pare_node_is(cast, "Cast") || q->in[0]->dtype != PARE_f32 ||
        !is_short(cast->in[0]))
        return PARE_OK;
    return pare_node_set_in(q, 0, cast->in[0]);
}

static bool is_byte_product(const pare_node *node)
{
    return is_fused_product(node) &&
           (pare_type_is_int8(node->in[0]->dtype) || pare_type_is_f8(node->in[0]->dtype));
}

/* A product of 8-bit factors whose f32 result only becomes short makes the short tensor itself, and
   reads a residual of that type before the Cast that widens it. */
static pare_status narrow_product(pare_node *cast)
{
    pare_value *x = cast->in[0], *y = cast->out[0];
    pare_node *product = x->producer;
    if (!product || product->graph != cast->graph || !is_byte_product(product) || !is_short(y) ||
        x->dtype != PARE_f32 || pare_value_only_user(x) != cast)
        return PARE_OK;
    const pare_value *z = pare_node_in(product, RESIDUAL);
    const pare_node *widens = z ? z->producer : NULL;
    if (widens && pare_node_is(widens, "Cast") && widens->in[0]->dtype == y->dtype)
        PARE_TRY(pare_node_set_in(product, RESIDUAL, widens->in[0]));
    pare_node_remove(cast);
    pare_node_set_out(product, 0, y);
    return pare_node_set_int(product, "output_dtype", y->dtype);
}

pare_status pare_pass_narrow_products(pare_model *model)
{
    pare_graph *graph = model->graph;
    for (int n = graph->node_count - 1; n >= 0; n--)
        if (pare_node_is(graph->node[n], "Cast")) PARE_TRY(narrow_product(graph->node[n]));
    pare_graph_sweep(graph);
    return pare_graph_sort(graph);
}

pare_status pare_qdq_narrow_halves(pare_graph *graph)
{
    for (int n = graph->node_count - 1; n >= 0; n--) {
        pare_node *node = graph->node[n];
        if (pare_node_is(node, "Cast")) PARE_TRY(narrow_output(node));
        if (pare_node_is(node, "QuantizeLinear")) PARE_TRY(narrow_input(node));
    }
    pare_graph_sweep(graph);
    return PARE_OK;
}
