/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the attributes of nodes of domain pare (fused.h). */
#include "runtime/ops/fused.h"
#include "runtime/base/f8.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/infer.h"

#include <math.h>
#include <string.h>

pare_status pare_act_read(const pare_node *node, pare_act *out)
{
    static const char *const words[PARE_ACT_COUNT] = {
        "none", "relu",      "clip",        "leaky_relu", "sigmoid",  "tanh",
        "silu", "hardswish", "hardsigmoid", "gelu",       "gelu_tanh"};
    const char *word = pare_node_string(node, "activation", "none");
    for (int i = 0; i < PARE_ACT_COUNT; i++) {
        if (strcmp(word, words[i])) continue;
        out->kind = (pare_act_kind)i;
        bool hard = i == PARE_ACT_HARDSIGMOID, clip = i == PARE_ACT_CLIP;
        out->alpha = out->beta = 0;
        if (hard || clip || i == PARE_ACT_LEAKY_RELU)
            out->alpha = pare_node_float(node, "alpha", hard ? 0.2f : clip ? -INFINITY : 0.01f);
        if (hard || clip) out->beta = pare_node_float(node, "beta", hard ? 0.5f : INFINITY);
        return PARE_OK;
    }
    return PARE_FAIL_NODE(node, UNSUPPORTED, "activation '%s' is not known", word);
}

bool pare_act_is_curved(const pare_act *act) { return act->kind > PARE_ACT_LEAKY_RELU; }

static pare_status scale_read(const pare_node *node, const char *name, float *out)
{
    *out = pare_node_float(node, name, 1);
    if (*out > 0 && isfinite(*out)) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s is %g, expected a positive number", name, (double)*out);
}

static pare_status zero_read(const pare_node *node, const char *name, int32_t *out)
{
    int64_t zero = pare_node_int(node, name, 0);
    if (zero < -128 || zero > 255)
        return PARE_FAIL_NODE(node, INPUT, "%s is %lld, expected an 8-bit value", name,
                              (long long)zero);
    *out = (int32_t)zero;
    return PARE_OK;
}

pare_status pare_quant_read(const pare_node *node, pare_quant_args *out)
{
    bool pair = pare_node_attr(node, "a_scale") || pare_node_attr(node, "b_scale");
    PARE_TRY(scale_read(node, pair ? "a_scale" : "x_scale", &out->x_scale));
    PARE_TRY(zero_read(node, pair ? "a_zero_point" : "x_zero_point", &out->x_zero));
    PARE_TRY(scale_read(node, pair ? "b_scale" : "z_scale", &out->z_scale));
    PARE_TRY(zero_read(node, pair ? "b_zero_point" : "z_zero_point", &out->z_zero));
    PARE_TRY(scale_read(node, "y_scale", &out->y_scale));
    PARE_TRY(zero_read(node, "y_zero_point", &out->y_zero));
    PARE_TRY(zero_read(node, "w_zero_point", &out->w_zero));
    const pare_value *x = pare_node_in(node, 0);
    out->to = (pare_dtype)pare_node_int(node, "to", x ? (int64_t)x->dtype : PARE_NOTYPE);
    if (out->to == PARE_f32) return PARE_OK;
    if (x && pare_type_is_f8(x->dtype) ? out->to == x->dtype : pare_type_is_int8(out->to))
        return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "output type %s, expected %s or f32",
                          pare_type(out->to)->name,
                          x && pare_type_is_f8(x->dtype) ? pare_type(x->dtype)->name : "s8, u8");
}

pare_status pare_quant_codes_read(const pare_node *node, pare_dtype *out)
{
    pare_quant_args q;
    PARE_TRY(pare_quant_read(node, &q));
    *out = q.to;
    if (pare_type_is_int8(q.to)) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "output type %s, expected s8 or u8", pare_type(q.to)->name);
}

/* Shape rules of the operators that passes make (domain pare). They read no value: every operand is
   described by attributes, so unknown dims stay unknown. */

/* The output's type: `to` where the input is 8 bits wide, else the input's. */
static pare_status output_type(pare_node *node, const pare_value *x, pare_dtype *out)
{
    *out = x->dtype;
    if (!pare_type_is_int8(x->dtype) && !pare_type_is_f8(x->dtype)) return PARE_OK;
    pare_quant_args q;
    PARE_TRY(pare_quant_read(node, &q));
    *out = q.to;
    return PARE_OK;
}

/* One dim of two that must agree; -1 joins anything. */
static bool join(int64_t *out, int64_t a, int64_t b)
{
    *out = a < 0 ? b : a;
    return a < 0 || b < 0 || a == b;
}

/* ONNX broadcasting of one dim. An unknown dim against one above 1 is that one. */
static bool broadcast(int64_t *out, int64_t a, int64_t b)
{
    *out = a == 1 ? b : b == 1 ? a : a < 0 ? b : a;
    return a == 1 || b == 1 || a < 0 || b < 0 || a == b;
}

/* Broadcasts all but the last `keep` axes of a and b into out, whose rank it sets. */
static pare_status broadcast_leading(pare_node *node, const pare_shape *a, const pare_shape *b,
                                     int keep, pare_shape *out)
{
    *out = (pare_shape){.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 0; i < out->rank - keep; i++) {
        int ia = i - (out->rank - a->rank), ib = i - (out->rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (!broadcast(&out->dim[i], da, db))
            return PARE_FAIL_NODE(node, INPUT, "dims %lld and %lld do not broadcast", (long long)da,
                                  (long long)db);
        if (ia >= 0 && out->dim[i] == da) out->name[i] = a->name[ia];
        if (ib >= 0 && !out->name[i] && out->dim[i] == db) out->name[i] = b->name[ib];
    }
    return PARE_OK;
}

static pare_status unknown_output(pare_node *node, pare_dtype dtype)
{
    pare_shape shape = {.rank = -1};
    pare_infer_out(node, 0, dtype, &shape);
    return PARE_OK;
}

/* What FusedConv and FusedMatMul have in common: two factors, a type and a known activation. */
static pare_status weighted_read(pare_node *node, pare_value **a, pare_value **b, pare_dtype *type)
{
    pare_act act;
    PARE_TRY(pare_infer_need(node, 0, a));
    PARE_TRY(pare_infer_need(node, 1, b));
    PARE_TRY(output_type(node, *a, type));
    return pare_act_read(node, &act);
}

pare_status pare_infer_fused_conv(pare_node *node)
{
    pare_value *x, *w;
    pare_dtype type;
    PARE_TRY(weighted_read(node, &x, &w, &type));
    if (x->shape.rank < 0 || w->shape.rank < 0) return unknown_output(node, type);
    if (w->shape.rank != x->shape.rank)
        return PARE_FAIL_NODE(node, INPUT, "the weight has rank %d, expected %d", w->shape.rank,
                              x->shape.rank);
    pare_window win;
    PARE_TRY(pare_window_read(node, &x->shape, w->shape.dim + 2, &win));
    int64_t channels = x->shape.dim[1], filters = w->shape.dim[0], joined;
    int64_t expected = w->shape.dim[1] < 0 ? -1 : w->shape.dim[1] * win.group;
    if (!join(&joined, channels, expected))
        return PARE_FAIL_NODE(node, INPUT, "the input has %lld channels, the weight reads %lld",
                              (long long)channels, (long long)expected);
    if (filters >= 0 && filters % win.group)
        return PARE_FAIL_NODE(node, INPUT, "%lld filters do not divide into %lld groups",
                              (long long)filters, (long long)win.group);
    pare_shape y = {.rank = x->shape.rank, .dim = {x->shape.dim[0], filters}};
    y.name[0] = x->shape.name[0];
    for (int i = 0; i < win.nd; i++) y.dim[2 + i] = win.out[3 - win.nd + i];
    pare_infer_out(node, 0, type, &y);
    return PARE_OK;
}

static bool is_short(pare_dtype type) { return type == PARE_f16 || type == PARE_bf16; }

/* f32 of 8-bit factors may be rounded to a short type at once; sums of short floats may stay f32.
 */
static pare_status output_dtype_read(const pare_node *node, const pare_value *x, pare_dtype *type)
{
    const pare_dtype to = (pare_dtype)pare_node_int(node, "output_dtype", *type);
    const bool bytes = pare_type_is_int8(x->dtype) || pare_type_is_f8(x->dtype),
               rounded = bytes && *type == PARE_f32 && is_short(to),
               stays = is_short(x->dtype) && to == PARE_f32;
    if (to != *type && !rounded && !stays)
        return PARE_FAIL_NODE(node, INPUT, "output_dtype %lld beside a result of %s", (long long)to,
                              pare_type(*type)->name);
    *type = to;
    return PARE_OK;
}

pare_status pare_infer_fused_matmul(pare_node *node)
{
    pare_value *a, *b;
    pare_dtype type;
    PARE_TRY(weighted_read(node, &a, &b, &type));
    PARE_TRY(output_dtype_read(node, a, &type));
    int ra = a->shape.rank, rb = b->shape.rank;
    if (ra < 0 || rb < 0) return unknown_output(node, type);
    if (ra < 2 || rb < 2)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "ranks %d and %d, expected 2 or more", ra, rb);
    bool ta = pare_node_int(node, "transA", 0) != 0, tb = pare_node_int(node, "transB", 0) != 0;
    pare_shape y;
    PARE_TRY(broadcast_leading(node, &a->shape, &b->shape, 2, &y));
    int row = ta ? ra - 1 : ra - 2, column = tb ? rb - 2 : rb - 1;
    int64_t depth, da = a->shape.dim[ta ? ra - 2 : ra - 1], db = b->shape.dim[tb ? rb - 1 : rb - 2];
    if (!join(&depth, da, db))
        return PARE_FAIL_NODE(node, INPUT, "inner dims %lld and %lld differ", (long long)da,
                              (long long)db);
    y.dim[y.rank - 2] = a->shape.dim[row], y.name[y.rank - 2] = a->shape.name[row];
    y.dim[y.rank - 1] = b->shape.dim[column], y.name[y.rank - 1] = b->shape.name[column];
    pare_infer_out(node, 0, type, &y);
    return PARE_OK;
}

pare_mixed_kind pare_mixed_kind_of(const char *op_type)
{
    static const char *const names[] = {"Add", "Sub", "Mul", "Div"};
    int k = 0;
    while (k < PARE_MIXED_COUNT && strcmp(op_type, names[k])) k++;
    return (pare_mixed_kind)k;
}

pare_status pare_mixed_read(const pare_node *node, pare_mixed_kind *out)
{
    const char *of = pare_node_string(node, "of", "");
    *out = pare_mixed_kind_of(of);
    if (*out < PARE_MIXED_COUNT) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "of is '%s', expected Add, Sub, Mul or Div", of);
}

pare_status pare_infer_mixed_binary(pare_node *node)
{
    pare_value *a, *b;
    pare_mixed_kind kind;
    PARE_TRY(pare_infer_need(node, 0, &a));
    PARE_TRY(pare_infer_need(node, 1, &b));
    PARE_TRY(pare_mixed_read(node, &kind));
    if (!(is_short(a->dtype) && b->dtype == PARE_f32) &&
        !(is_short(b->dtype) && a->dtype == PARE_f32))
        return PARE_FAIL_NODE(node, INPUT,
                              "'%s' is %s and '%s' %s, expected f32 beside f16 or bf16", a->name,
                              pare_type(a->dtype)->name, b->name, pare_type(b->dtype)->name);
    return pare_infer_broadcast_to(node, is_short(a->dtype) ? a->dtype : b->dtype, false);
}

pare_status pare_infer_q_binary(pare_node *node)
{
    pare_value *a, *b;
    PARE_TRY(pare_infer_need(node, 0, &a));
    PARE_TRY(pare_infer_need(node, 1, &b));
    pare_quant_args q;
    PARE_TRY(pare_quant_read(node, &q));
    if (a->shape.rank < 0 || b->shape.rank < 0) return unknown_output(node, q.to);
    pare_shape y;
    PARE_TRY(broadcast_leading(node, &a->shape, &b->shape, 0, &y));
    pare_infer_out(node, 0, q.to, &y);
    return PARE_OK;
}

pare_status pare_infer_table(pare_node *node)
{
    pare_value *x, *table;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &table));
    if (table->shape.rank != 1 || table->shape.dim[0] != 256)
        return PARE_FAIL_NODE(node, INPUT, "the table must have 256 entries");
    pare_infer_out(node, 0, table->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_q_concat(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_dtype type = (pare_dtype)pare_node_int(node, "to", x->dtype);
    int scales = 0, zeros = 0;
    const pare_attr *list = pare_node_attr(node, "scales");
    if (list) scales = list->count;
    pare_node_ints(node, "zero_points", &zeros);
    if (scales != node->in_count + 1 || zeros != node->in_count + 1)
        return PARE_FAIL_NODE(node, INPUT, "%d scales and %d zero points, expected %d of each",
                              scales, zeros, node->in_count + 1);
    pare_shape y = x->shape;
    int64_t axis = pare_node_int(node, "axis", 0);
    if (axis < 0) axis += y.rank;
    if (y.rank >= 0 && (axis < 0 || axis >= y.rank))
        return PARE_FAIL_NODE(node, INPUT, "axis %lld, rank %d", (long long)axis, y.rank);
    for (int n = 1; n < node->in_count && y.rank >= 0; n++) {
        PARE_TRY(pare_infer_need(node, n, &x));
        if (x->shape.rank < 0) y.rank = -1;
        if (x->shape.rank >= 0 && x->shape.rank != y.rank)
            return PARE_FAIL_NODE(node, INPUT, "inputs of rank %d and %d", y.rank, x->shape.rank);
        for (int i = 0; i < y.rank; i++) {
            int64_t d = x->shape.dim[i];
            if (i == axis)
                y.dim[i] = y.dim[i] < 0 || d < 0 ? -1 : y.dim[i] + d, y.name[i] = NULL;
            else if (!join(&y.dim[i], y.dim[i], d))
                return PARE_FAIL_NODE(node, INPUT, "dims %lld and %lld differ on axis %d",
                                      (long long)y.dim[i], (long long)d, i);
        }
    }
    pare_infer_out(node, 0, type, &y);
    return PARE_OK;
}

pare_status pare_infer_q_pool(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_quant_args q;
    PARE_TRY(pare_quant_read(node, &q));
    if (x->shape.rank < 0) return unknown_output(node, q.to);
    pare_window win;
    PARE_TRY(pare_window_read(node, &x->shape, NULL, &win));
    pare_shape y = x->shape;
    for (int i = 0; i < win.nd; i++) {
        y.dim[2 + i] = win.out[3 - win.nd + i];
        y.name[2 + i] = NULL;
    }
    pare_infer_out(node, 0, q.to, &y);
    return PARE_OK;
}

pare_status pare_infer_q_global_pool(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_quant_args q;
    PARE_TRY(pare_quant_read(node, &q));
    pare_shape y = x->shape;
    for (int i = 2; i < y.rank; i++) y.dim[i] = 1, y.name[i] = NULL;
    pare_infer_out(node, 0, q.to, &y);
    return PARE_OK;
}

pare_status pare_infer_requantize(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_quant_args q;
    PARE_TRY(pare_quant_read(node, &q));
    pare_infer_out(node, 0, q.to, &x->shape);
    return PARE_OK;
}

/* head_axes: four of 1 or 2, of operands of rank 4. */
static pare_status head_axes_check(const pare_node *node, int rank)
{
    int count;
    const int64_t *axes = pare_node_ints(node, "head_axes", &count);
    if (!axes) return PARE_OK;
    bool fits = count == 4 && rank == 4;
    for (int i = 0; fits && i < count; i++) fits = axes[i] == 1 || axes[i] == 2;
    if (fits) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT,
                          "head_axes has %d numbers with Q of rank %d, expected 4, of 1 or 2, "
                          "with rank 4",
                          count, rank);
}

/* parts: three, each -1 or one that the product has. */
static pare_status parts_check(const pare_node *node)
{
    int count;
    const int64_t *parts = pare_node_ints(node, "parts", &count);
    if (!parts) return PARE_OK;
    if (count != 3) return PARE_FAIL_NODE(node, INPUT, "parts has %d numbers, expected 3", count);
    for (int i = 0; i < 3; i++) {
        const pare_shape *x = &node->in[i]->shape;
        if (parts[i] == -1) continue;
        if (parts[i] < 0 || x->rank != 5 || (x->dim[2] >= 0 && parts[i] >= x->dim[2]))
            return PARE_FAIL_NODE(node, INPUT, "'%s' of rank %d has no part %lld on axis 2",
                                  node->in[i]->name, x->rank, (long long)parts[i]);
    }
    return PARE_OK;
}

static pare_status attention_output(pare_node *node, pare_dtype type)
{
    pare_value *in[3];
    for (int i = 0; i < 3; i++) PARE_TRY(pare_infer_need(node, i, &in[i]));
    if (in[0]->shape.rank < 0 || in[1]->shape.rank < 0 || in[2]->shape.rank < 0)
        return unknown_output(node, type);
    PARE_TRY(parts_check(node));
    const pare_shape q = pare_attention_shape(node, PARE_ATTENTION_Q, &in[0]->shape),
                     k = pare_attention_shape(node, PARE_ATTENTION_K, &in[1]->shape),
                     v = pare_attention_shape(node, PARE_ATTENTION_V, &in[2]->shape);
    const int rank = q.rank;
    if (rank < 2 || k.rank != rank || v.rank != rank)
        return PARE_FAIL_NODE(node, INPUT,
                              "Q, K and V have ranks %d, %d and %d, expected equal ones", rank,
                              k.rank, v.rank);
    PARE_TRY(head_axes_check(node, rank));
    int64_t joined;
    if (!join(&joined, q.dim[rank - 1], k.dim[rank - 1]) ||
        !join(&joined, k.dim[rank - 2], v.dim[rank - 2]))
        return PARE_FAIL_NODE(node, INPUT, "the last two dims of Q, K and V do not fit together");
    pare_shape y = q;
    for (int i = 0; i < rank - 2; i++)
        if (!join(&y.dim[i], q.dim[i], k.dim[i]) || !join(&joined, y.dim[i], v.dim[i]))
            return PARE_FAIL_NODE(node, INPUT, "leading dims of Q, K and V differ on axis %d", i);
    y.dim[rank - 1] = v.dim[rank - 1];
    y.name[rank - 1] = v.name[rank - 1];
    y = pare_attention_shape(node, PARE_ATTENTION_Y, &y);
    pare_infer_out(node, 0, type, &y);
    return PARE_OK;
}

pare_status pare_infer_attention(pare_node *node)
{
    pare_value *q;
    PARE_TRY(pare_infer_need(node, 0, &q));
    return attention_output(node, q->dtype);
}

pare_status pare_infer_q_attention(pare_node *node)
{
    pare_q_attention a;
    PARE_TRY(pare_q_attention_read(node, &a));
    pare_dtype type = a.epilogue.to;
    PARE_TRY(output_dtype_read(node, node->in[0], &type));
    return attention_output(node, type);
}
