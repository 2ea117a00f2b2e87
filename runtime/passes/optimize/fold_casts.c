/* SPDX-License-Identifier: Apache-2.0 */
/* An operator between Casts from and to f16 or bf16 computes in the short type itself: its kernels
   widen what they read, sum in f32 and round what they write once, as the Casts did. Only the order
   of sums in a product or a convolution may become another one. Operators whose inputs, but for
   those of `shorts`, and whose outputs may be f32 beside a short type have a rule; Add, Sub, Mul
   and Div of a short tensor and an f32 one are MixedBinary; any other operator has all tensors
   short, or is left alone. */
#include "runtime/ops/fused.h"
#include "runtime/ops/infer.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* What becomes of f32 outputs. */
typedef enum ends {
    ENDS_ROUNDED, /* a Cast alone reads each, and goes */
    ENDS_EITHER,  /* or it stays f32 */
    ENDS_FIRST,   /* one reads the first; others are of other inputs' types, and stay */
    ENDS_OWN      /* they are of other inputs' types, or f64, and stay */
} ends;

typedef struct rule {
    const char *op;
    unsigned shorts; /* bit i: input i must be short; other f32 inputs stay what they are */
    ends ends;
} rule;

static const rule rules[] = {
    {"Conv", 3, ENDS_ROUNDED},
    {"ConvGradInput", 3, ENDS_ROUNDED},
    {"ConvGradWeight", 3, ENDS_EITHER},
    {"MatMul", 3, ENDS_EITHER},
    {"Gemm", 3, ENDS_EITHER},
    {"FusedMatMul", 3, ENDS_EITHER},
    {"BatchNormalization", 1, ENDS_ROUNDED},
    {"BatchNormStats", 1, ENDS_OWN},
    {"BatchNormTrain", 1, ENDS_ROUNDED},
    {"BatchNormGradStats", 3, ENDS_OWN},
    {"BatchNormGradInput", 3, ENDS_ROUNDED},
    {"LayerNormalization", 1, ENDS_FIRST},
    {"LayerNormGrad", 3, ENDS_FIRST},
    {"ReduceSum", 1, ENDS_EITHER},
    {"ReduceMean", 1, ENDS_EITHER},
    {"GlobalAveragePool", 1, ENDS_EITHER},
};

static bool is_short(pare_dtype type) { return type == PARE_f16 || type == PARE_bf16; }

static bool is_f32(const pare_value *v) { return v && v->dtype == PARE_f32; }

/* The short tensor that a Cast makes v of; NULL: none. */
static pare_value *short_of(const pare_node *reader, const pare_value *v)
{
    const pare_node *cast = is_f32(v) ? v->producer : NULL;
    if (!cast || cast->graph != reader->graph || !pare_node_is(cast, "Cast")) return NULL;
    return is_short(cast->in[0]->dtype) ? cast->in[0] : NULL;
}

/* The Cast that alone reads v, to this type. */
static pare_node *rounding_of(const pare_value *v, pare_dtype type)
{
    pare_node *cast = pare_value_only_user(v);
    bool rounds = cast && cast->graph == v->graph && pare_node_is(cast, "Cast") &&
                  cast->out[0]->dtype == type;
    return rounds ? cast : NULL;
}

/* --- what fits --- */

/* Does the type hold each number of the f32 constant? */
static bool holds(const pare_value *v, pare_dtype type)
{
    uint16_t bits;
    if (!v->data) return false;
    for (int64_t i = 0; i < v->data->count; i++) {
        const float x = (float)pare_tensor_number(v->data, i);
        pare_type(type)->from_f32_ref(&bits, x);
        if (pare_type(type)->to_f32(&bits) != x) return false;
    }
    return true;
}

/* Is input i one that the mask names? Its last bit stands for all that follow. */
static bool is_named(const pare_node *node, unsigned mask, int i)
{
    return (mask >> (i < 31 ? i : 31) & 1) && is_f32(node->in[i]);
}

/* The type of the first short tensor among the inputs of the mask. */
static pare_dtype first_type(const pare_node *node, unsigned mask)
{
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *x = is_named(node, mask, i) ? short_of(node, node->in[i]) : NULL;
        if (x) return x->dtype;
    }
    return PARE_NOTYPE;
}

/* The same, where all the others are short tensors or constants of this type. */
static pare_dtype type_of(const pare_node *node, unsigned mask)
{
    const pare_dtype type = first_type(node, mask);
    for (int i = 0; type && i < node->in_count; i++) {
        if (!is_named(node, mask, i)) continue;
        const pare_value *x = short_of(node, node->in[i]);
        if (x ? x->dtype != type : !holds(node->in[i], type)) return PARE_NOTYPE;
    }
    return type;
}

static bool is_read(const pare_value *v) { return v && (v->user_count || v->is_output); }

/* Do Casts round all f32 outputs, of the first `count`, that are read? */
static bool outputs_round(const pare_node *node, int count, pare_dtype type)
{
    int rounded = 0;
    for (int i = 0; i < count; i++) {
        if (!is_read(node->out[i]) || !is_f32(node->out[i])) continue;
        if (!rounding_of(node->out[i], type)) return false;
        rounded++;
    }
    return rounded > 0;
}

/* --- products with f32 beside short factors --- */

/* Has it one row, or is there none? */
static bool bias_is_row(const pare_value *bias)
{
    for (int i = 0; bias && i < bias->shape.rank - 1; i++)
        if (bias->shape.dim[i] != 1) return false;
    return true;
}

static void make_own(pare_node *node, const char *op)
{
    node->op_type = op;
    node->domain = PARE_DOMAIN;
}

/* ONNX gives all tensors of a product one type; operators of domain pare take an f32 bias. */
static bool widens(const pare_node *node, bool rounded)
{
    return !rounded || is_f32(pare_node_in(node, 2));
}

static bool is_product(const pare_node *node)
{
    static const char *const ops[] = {"Conv", "MatMul", "Gemm", "FusedMatMul"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(node->op_type, ops[i])) return true;
    return false;
}

static bool fits_form(const pare_node *node, bool rounded)
{
    if (pare_node_int(node, "noop_with_empty_axes", 0)) return false;
    if (pare_node_int(node, "training_mode", 0))
        return false; /* other outputs are of other types */
    const pare_value *w = pare_node_in(node, 1);
    if (is_product(node) && w && w->data) return !widens(node, rounded); /* packed by one type */
    if (!pare_node_is(node, "MatMul") && !pare_node_is(node, "Gemm")) return true;
    return !widens(node, rounded) || (node->in[0]->shape.rank > 1 && node->in[1]->shape.rank > 1 &&
                                      bias_is_row(pare_node_in(node, 2)));
}

static pare_status set_form(pare_node *node, bool rounded)
{
    const bool product = pare_node_is(node, "MatMul") || pare_node_is(node, "Gemm");
    if (product && widens(node, rounded)) make_own(node, "FusedMatMul");
    if (pare_node_is(node, "Conv") && widens(node, rounded)) make_own(node, "FusedConv");
    return rounded ? PARE_OK : pare_node_set_int(node, "output_dtype", PARE_f32);
}

/* --- folding --- */

static pare_status short_constant(pare_node *node, int i, pare_dtype type)
{
    const pare_tensor *t = node->in[i]->data;
    pare_graph *graph = node->graph;
    pare_value *made;
    const char *name = pare_graph_fresh_name(graph, node->in[i]->name);
    uint16_t *data = pare_alloc(graph->model->ctx, (size_t)t->count + 1, sizeof *data);
    pare_status st = name && data ? PARE_OK : PARE_MEMORY;
    for (int64_t k = 0; st == PARE_OK && k < t->count; k++)
        pare_type(type)->from_f32_ref(data + k, (float)pare_tensor_number(t, k));
    if (st == PARE_OK) st = pare_init_new(graph, &made, name, type, t->rank, t->dims, data);
    pare_free(data);
    return st == PARE_OK ? pare_node_set_in(node, i, made) : st;
}

static pare_status inputs_fold(pare_node *node, unsigned mask, pare_dtype type)
{
    for (int i = 0; i < node->in_count; i++) {
        if (!is_named(node, mask, i)) continue;
        pare_value *x = short_of(node, node->in[i]);
        if (x)
            PARE_TRY(pare_node_set_in(node, i, x));
        else
            PARE_TRY(short_constant(node, i, type));
    }
    return PARE_OK;
}

static void outputs_fold(pare_node *node, int count, pare_dtype type)
{
    for (int i = 0; i < count; i++) {
        if (!is_f32(node->out[i])) continue;
        pare_node *cast = rounding_of(node->out[i], type);
        if (!cast) { /* nothing reads it */
            pare_value_set_type(node->out[i], type, &node->out[i]->shape);
            continue;
        }
        pare_value *y = cast->out[0];
        pare_node_remove(cast);
        pare_node_set_out(node, i, y);
    }
}

/* Are all inputs there that must be short, as f32? */
static bool reads_f32(const pare_node *node, unsigned shorts)
{
    for (int i = 0; shorts >> i; i++)
        if ((shorts >> i & 1) && !is_f32(pare_node_in(node, i))) return false;
    return true;
}

static pare_status fold_by_rule(pare_node *node, const rule *r)
{
    const pare_dtype type = reads_f32(node, r->shorts) ? type_of(node, r->shorts) : PARE_NOTYPE;
    const int count = r->ends == ENDS_OWN ? 0 : r->ends == ENDS_FIRST ? 1 : node->out_count;
    const bool rounded = type && outputs_round(node, count, type),
               must = r->ends == ENDS_ROUNDED || r->ends == ENDS_FIRST;
    if (!type || (must && !rounded) || !fits_form(node, rounded)) return PARE_OK;
    PARE_TRY(inputs_fold(node, r->shorts, type));
    if (rounded) outputs_fold(node, count, type);
    return r->ends == ENDS_OWN ? PARE_OK : set_form(node, rounded);
}

/* Others that round once where all of their tensors are short. */
static const char *const rounds_once[] = {"UnaryGrad",     "SoftmaxGrad", "MaxPoolGrad",
                                          "SliceGrad",     "MaxPool",     "AveragePoolGrad",
                                          "GlobalMaxPool", "Softmax",     "LogSoftmax"};

/* Does it move its tensors' elements, or compute each output of an element of each input? */
static bool is_elementwise(const pare_op *op)
{
    return op->prune.kind == PARE_PRUNE_PASS || op->prune.kind == PARE_PRUNE_TIES ||
           op->quant.kind == PARE_QUANT_PASS || op->quant.kind == PARE_QUANT_JOIN;
}

static bool is_plain(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    if (!op || op->quant.half != PARE_LOWP_YES) return false;
    for (size_t i = 0; i < sizeof rounds_once / sizeof *rounds_once; i++)
        if (!strcmp(node->op_type, rounds_once[i])) return true;
    return is_elementwise(op);
}

/* A function of a short tensor and of f32, which stays. */
static pare_status fold_mixed(pare_node *node)
{
    const int at = short_of(node, pare_node_in(node, 0)) ? 0 : 1;
    pare_value *x = short_of(node, pare_node_in(node, at));
    if (pare_mixed_kind_of(node->op_type) == PARE_MIXED_COUNT || node->in_count != 2 || !x ||
        !is_f32(node->in[!at]) || !outputs_round(node, 1, x->dtype))
        return PARE_OK;
    const char *of = node->op_type;
    PARE_TRY(pare_node_set_in(node, at, x));
    outputs_fold(node, 1, x->dtype);
    make_own(node, "MixedBinary");
    return pare_node_set_string(node, "of", of);
}

static pare_status fold(pare_node *node)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(node->op_type, rules[i].op)) return fold_by_rule(node, &rules[i]);
    if (!is_plain(node)) return PARE_OK;
    const unsigned mask = ~pare_op_of(node)->quant.f32_inputs;
    const pare_dtype type = type_of(node, mask);
    if (!type) return fold_mixed(node);
    if (!outputs_round(node, node->out_count, type)) return PARE_OK;
    PARE_TRY(inputs_fold(node, mask, type));
    outputs_fold(node, node->out_count, type);
    return PARE_OK;
}

pare_status pare_pass_fold_casts(pare_model *model)
{
    pare_graph *graph = model->graph;
    for (int n = 0; n < graph->node_count; n++) PARE_TRY(fold(graph->node[n]));
    pare_graph_sweep(graph);
    return pare_graph_sort(graph);
}
