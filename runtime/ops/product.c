/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/product.h"

static int present(const pare_prep *p, int i)
{
    return pare_operand(p->in, p->in_count, i) ? i : -1;
}

/* m of each output channel, in the plan's arena. A missing w_scale is 1. */
static pare_status scales_make(const pare_prep *p, const pare_epilogue *e, float x_scale, int at,
                               int64_t channels, const float **out)
{
    const pare_view *w = pare_operand(p->in, p->in_count, at);
    int64_t count = w ? pare_view_count(w) : 1;
    if (w && (w->dtype != PARE_f32 || !w->data))
        return PARE_FAIL_NODE(p->node, UNSUPPORTED, "w_scale must be a constant of floats");
    if (count != 1 && count != channels)
        return PARE_FAIL_NODE(p->node, INPUT, "w_scale has %lld entries, expected 1 or %lld",
                              (long long)count, (long long)channels);
    float *scale = pare_arena_alloc(p->arena, (size_t)channels + 1, sizeof *scale);
    if (!scale) return PARE_MEMORY;
    const float *ws = w ? w->data : NULL;
    for (int64_t i = 0; i < channels; i++)
        scale[i] = pare_epilogue_scale(e, x_scale, ws ? ws[count == 1 ? 0 : i] : 1);
    *out = scale;
    return PARE_OK;
}

/* The bias of each output channel as a float, in the plan's arena: it is added to float sums. */
static pare_status bias_make(const pare_prep *p, int at, int64_t channels, const float **out)
{
    const pare_view *b = pare_operand(p->in, p->in_count, at);
    if (!b) return PARE_OK;
    int64_t count = pare_view_count(b);
    if (!b->data || (b->dtype != PARE_s32 && b->dtype != PARE_f32))
        return PARE_FAIL_NODE(p->node, UNSUPPORTED,
                              "the bias of an 8-bit node must be a constant of s32 or f32");
    if (count != 1 && count != channels)
        return PARE_FAIL_NODE(p->node, INPUT, "the bias has %lld entries, expected 1 or %lld",
                              (long long)count, (long long)channels);
    float *bias = pare_arena_alloc(p->arena, (size_t)channels + 1, sizeof *bias);
    if (!bias) return PARE_MEMORY;
    for (int64_t i = 0; i < channels; i++) {
        int64_t from = count == 1 ? 0 : i;
        bias[i] = b->dtype == PARE_f32 ? ((const float *)b->data)[from]
                                       : (float)((const int32_t *)b->data)[from];
    }
    *out = bias;
    return PARE_OK;
}

static pare_dtype residual_type(const pare_prep *p, int at)
{
    return at < 0 ? PARE_NOTYPE : p->in[at].dtype;
}

/* Factors of FP8 are of one type. */
static pare_status factors_check(const pare_prep *p)
{
    const pare_dtype x = p->in[0].dtype, w = p->in[1].dtype;
    if (!pare_type_is_f8(x) || w == x) return PARE_OK;
    return PARE_FAIL_NODE(p->node, UNSUPPORTED, "factors of %s and %s, expected one type",
                          pare_type(x)->name, pare_type(w)->name);
}

static void shape_of(const pare_view *view, pare_shape *out)
{
    *out = (pare_shape){.rank = view->rank};
    for (int i = 0; i < view->rank; i++) out->dim[i] = view->dim[i];
}

pare_status pare_conv_args_read(const pare_prep *p, pare_conv_args *out)
{
    *out = (pare_conv_args){.at = {present(p, 2), present(p, 3), present(p, 4), -1}};
    const pare_view *x = &p->in[0], *w = &p->in[1];
    pare_shape xs;
    shape_of(x, &xs);
    PARE_TRY(pare_window_read(p->node, &xs, p->in[1].dim + 2, &out->win));
    PARE_TRY(pare_act_read(p->node, &out->act));
    out->n = x->dim[0], out->c = x->dim[1], out->m = w->dim[0], out->cg = w->dim[1];
    out->mg = out->m / out->win.group;
    out->int8 = pare_type_is_int8(x->dtype), out->f8 = pare_type_is_f8(x->dtype);
    if (!out->int8 && !out->f8) return PARE_OK;
    PARE_TRY(factors_check(p));
    PARE_TRY(pare_quant_read(p->node, &out->q));
    pare_epilogue_init(&out->epilogue, &out->q, &out->act, residual_type(p, out->at.residual));
    PARE_TRY(bias_make(p, out->at.bias, out->m, &out->bias));
    return scales_make(p, &out->epilogue, out->q.x_scale, out->at.w_scale, out->m, &out->scale);
}

/* Scales are (blocks, columns), or as B is transposed; (columns) where one block is all; or one. */
static pare_status weight_only_read(const pare_prep *p, pare_matmul_args *out)
{
    const pare_view *b = &p->in[1], *scale = pare_operand(p->in, p->in_count, out->at.w_scale);
    const pare_view *zero = pare_operand(p->in, p->in_count, out->at.w_zero);
    pare_weight_only *w = &out->weight;
    const int64_t block = pare_node_int(p->node, "block_size", 0);
    if (!scale || scale->dtype != PARE_f32 || !scale->data || !b->data || b->rank != 2 ||
        (zero && (zero->dtype != b->dtype || !zero->data)))
        return PARE_FAIL_NODE(p->node, UNSUPPORTED,
                              "quantized weights, their scales (f32) and zero points must be "
                              "constants");
    if (zero && pare_type_is_weight_float(b->dtype))
        return PARE_FAIL_NODE(p->node, UNSUPPORTED, "weights of %s have no zero points",
                              pare_type(b->dtype)->name);
    *w = (pare_weight_only){.block = block > 0        ? block
                                     : out->depth > 0 ? out->depth
                                                      : 1,
                            .scale = scale->data,
                            .zero = zero ? zero->data : NULL,
                            .type = b->dtype};
    const int64_t blocks = out->depth / w->block + (out->depth % w->block != 0),
                  count = pare_view_count(scale);
    if (count != 1) {
        w->row_step = out->trans_b ? 1 : out->columns;
        w->column_step = out->trans_b ? blocks : 1;
    }
    if (count != 1 && count != blocks * out->columns)
        return PARE_FAIL_NODE(p->node, INPUT, "w_scale has %lld entries, expected 1 or %lld x %lld",
                              (long long)count, (long long)blocks, (long long)out->columns);
    if (zero && pare_view_count(zero) != count)
        return PARE_FAIL_NODE(p->node, INPUT, "there are %lld zero points and %lld scales",
                              (long long)pare_view_count(zero), (long long)count);
    return PARE_OK;
}

pare_status pare_matmul_args_read(const pare_prep *p, pare_matmul_args *out)
{
    *out = (pare_matmul_args){.at = {present(p, 2), present(p, 3), present(p, 4), present(p, 5)}};
    const pare_view *a = &p->in[0], *b = &p->in[1], *y = &p->out[0];
    out->trans_a = pare_node_int(p->node, "transA", 0) != 0;
    out->trans_b = pare_node_int(p->node, "transB", 0) != 0;
    PARE_TRY(pare_act_read(p->node, &out->act));
    /* `alpha` belongs to an activation that has one; the product's factor is then called `gain`. */
    bool taken = out->act.kind == PARE_ACT_CLIP || out->act.kind == PARE_ACT_LEAKY_RELU ||
                 out->act.kind == PARE_ACT_HARDSIGMOID;
    out->alpha = taken ? 1 : pare_node_float(p->node, "alpha", 1);
    out->alpha = pare_node_float(p->node, "gain", out->alpha);
    out->beta = taken ? 1 : pare_node_float(p->node, "beta", 1);
    out->batch = 1;
    for (int i = 0; i < y->rank - 2; i++) out->batch *= y->dim[i];
    out->rows = a->dim[a->rank - (out->trans_a ? 1 : 2)];
    out->depth = a->dim[a->rank - (out->trans_a ? 2 : 1)];
    out->columns = b->dim[b->rank - (out->trans_b ? 2 : 1)];
    out->int8 = pare_type_is_int8(a->dtype), out->f8 = pare_type_is_f8(a->dtype);
    if (!out->int8 && !out->f8 &&
        (pare_type_is_weight_level(b->dtype) || pare_type_is_weight_float(b->dtype)))
        return weight_only_read(p, out);
    if (!out->int8 && !out->f8) return PARE_OK;
    PARE_TRY(factors_check(p));
    PARE_TRY(pare_quant_read(p->node, &out->q));
    pare_epilogue_init(&out->epilogue, &out->q, &out->act, residual_type(p, out->at.residual));
    PARE_TRY(bias_make(p, out->at.bias, out->columns, &out->bias));
    return scales_make(p, &out->epilogue, out->q.x_scale, out->at.w_scale, out->columns,
                       &out->scale);
}

int64_t pare_matmul_batch_offset(const pare_view *v, const pare_view *y, int64_t n)
{
    int64_t offset = 0;
    for (int i = y->rank - 3; i >= 0; i--) {
        if (!y->dim[i]) return 0; /* there is no element */
        int64_t index = n % y->dim[i];
        n /= y->dim[i];
        int axis = i - (y->rank - v->rank);
        if (axis >= 0 && v->dim[axis] != 1) offset += index * v->stride[axis];
    }
    return offset;
}
