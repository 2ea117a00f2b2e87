/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, FakeQuantize: shapes, levels, gradient.
 */
#include "runtime/ops/fake_quantize.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>

/* Scale and zero point: one number; one an index of the axis; or, with block_size, like x with the
   axis divided into blocks. */
static pare_status check_scale(const pare_node *node)
{
    const pare_value *x = node->in[0], *s = node->in[1], *z = pare_node_in(node, 2);
    int64_t block = pare_node_int(node, "block_size", 0);
    int axis;
    if (z && z->shape.rank >= 0 && s->shape.rank >= 0 && !pare_shape_equal(&z->shape, &s->shape) &&
        pare_shape_known(&z->shape) && pare_shape_known(&s->shape) &&
        pare_shape_count(&z->shape) * pare_shape_count(&s->shape) != 1)
        return PARE_FAIL_NODE(node, INPUT, "scale '%s' and zero point '%s' have different shapes",
                              s->name, z->name);
    if (s->shape.rank < 1 || x->shape.rank < 0 || pare_shape_count(&s->shape) == 1) return PARE_OK;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 1), x->shape.rank, &axis));
    int64_t have = x->shape.dim[axis];
    if (!block) {
        if (s->shape.rank != 1 || (have >= 0 && s->shape.dim[0] >= 0 && s->shape.dim[0] != have))
            return PARE_FAIL_NODE(node, INPUT,
                                  "scale '%s' must have one number, or one for each of the %" PRId64
                                  " indices of axis %d",
                                  s->name, have, axis);
        return PARE_OK;
    }
    if (block < 0 || s->shape.rank != x->shape.rank)
        return PARE_FAIL_NODE(node, INPUT, "blocks of %" PRId64 " do not fit scale '%s'", block,
                              s->name);
    for (int i = 0; i < x->shape.rank; i++) {
        int64_t want = x->shape.dim[i];
        if (want >= 0 && i == axis) want = want / block + (want % block != 0);
        if (want >= 0 && s->shape.dim[i] >= 0 && s->shape.dim[i] != want)
            return PARE_FAIL_NODE(node, INPUT,
                                  "scale '%s' has %" PRId64 " entries on axis %d, not %" PRId64,
                                  s->name, s->shape.dim[i], i, want);
    }
    return PARE_OK;
}

/* Types that QuantizeLinear (25) makes. */
static bool is_level(int64_t dtype)
{
    switch (dtype) {
    case PARE_s8:
    case PARE_u8:
    case PARE_s16:
    case PARE_u16:
    case PARE_f8e4m3:
    case PARE_f8e4m3fnuz:
    case PARE_f8e5m2:
    case PARE_f8e5m2fnuz:
    case PARE_f4e2m1:
    case PARE_s4:
    case PARE_u4:
    case PARE_s2:
    case PARE_u2: return true;
    default: return false;
    }
}

/* output_dtype (21): one of those, and the zero point's. precision (23): of the division, which is
   in f32 here. */
static pare_status check_quantize(const pare_node *node)
{
    const int64_t to = pare_node_int(node, "output_dtype", 0),
                  precision = pare_node_int(node, "precision", 0);
    const pare_dtype zero = pare_infer_dtype(node, 2);
    if (to && !is_level(to))
        return PARE_FAIL_NODE(node, INPUT, "output_dtype %" PRId64 " is no type to quantize to",
                              to);
    if (to && zero && to != (int64_t)zero)
        return PARE_FAIL_NODE(node, INPUT, "output_dtype is %s, zero point '%s' is %s",
                              pare_type((pare_dtype)to)->name, node->in[2]->name,
                              pare_type(zero)->name);
    if (precision && precision != PARE_f32)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "precision %" PRId64 " is not supported: it must be 1 (float)",
                              precision);
    return PARE_OK;
}

pare_status pare_infer_quantize(pare_node *node)
{
    pare_value *x, *s;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &s));
    PARE_TRY(check_scale(node));
    PARE_TRY(check_quantize(node));
    pare_dtype to = (pare_dtype)pare_node_int(node, "output_dtype", 0);
    if (pare_node_in(node, 2))
        to = pare_infer_dtype(node, 2);
    else if (!to)
        to = PARE_u8;
    pare_infer_out(node, 0, to, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_dequantize(pare_node *node)
{
    pare_value *x, *s;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &s));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    PARE_TRY(check_scale(node));
    const int64_t to = pare_node_int(node, "output_dtype", 0);
    if (to && to != PARE_f32 && to != PARE_f16 && to != PARE_bf16)
        return PARE_FAIL_NODE(node, INPUT,
                              "output_dtype %" PRId64 " must be 1 (float), 10 (float16) or 16 "
                              "(bfloat16)",
                              to);
    pare_infer_out(node, 0, to ? (pare_dtype)to : s->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_fake_quantize(pare_node *node)
{
    pare_value *x, *s;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &s));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(check_scale(node));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_dynamic_quantize(pare_node *node)
{
    pare_value *x;
    const pare_shape scalar = {0};
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, PARE_u8, &x->shape);
    pare_infer_out(node, 1, PARE_f32, &scalar);
    pare_infer_out(node, 2, PARE_u8, &scalar);
    return PARE_OK;
}

bool pare_fake_levels(const pare_node *node, pare_dtype zero, pare_levels *out)
{
    pare_levels l;
    switch (zero ? zero : (pare_dtype)pare_node_int(node, "to", PARE_u8)) {
    case PARE_s8: l = (pare_levels){-128, 127}; break;
    case PARE_u8: l = (pare_levels){0, 255}; break;
    case PARE_s16: l = (pare_levels){-32768, 32767}; break;
    case PARE_u16: l = (pare_levels){0, 65535}; break;
    default: return false;
    }
    out->low = (int)pare_node_int(node, "low", l.low);
    out->high = (int)pare_node_int(node, "high", l.high);
    return true;
}

pare_status pare_grad_fake_quantize(pare_grad *g, const pare_node *node)
{
    pare_value *x = node->in[0], *scale = node->in[1];
    pare_value *in[] = {pare_grad_of(g, node->out[0]), x, scale, pare_node_in(node, 2)};
    const int outputs = pare_grad_wants(g, scale) ? 2 : 1;
    pare_node *made = pare_grad_begin(g, "FakeQuantizeGrad", in, in[3] ? 4 : 3, outputs);
    pare_grad_attrs(g, made, node);
    pare_grad_end(g, made);
    if (g->status != PARE_OK) return g->status;
    pare_grad_give(g, x, made->out[0]);
    if (outputs == 2) pare_grad_give(g, scale, made->out[1]);
    return g->status;
}

pare_status pare_infer_fake_quantize_grad(pare_node *node)
{
    pare_value *x, *scale;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &x));
    PARE_TRY(pare_infer_need(node, 2, &scale));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(pare_infer_same_type(node, 1, 2));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, x->dtype, &scale->shape);
    return PARE_OK;
}
