/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of QuantizeLinear, DequantizeLinear (21), DynamicQuantizeLinear (11) and of the pair
   in one, pare.FakeQuantize. */
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
        if (want >= 0 && i == axis) want = (want + block - 1) / block;
        if (want >= 0 && s->shape.dim[i] >= 0 && s->shape.dim[i] != want)
            return PARE_FAIL_NODE(node, INPUT,
                                  "scale '%s' has %" PRId64 " entries on axis %d, not %" PRId64,
                                  s->name, s->shape.dim[i], i, want);
    }
    return PARE_OK;
}

pare_status pare_infer_quantize(pare_node *node)
{
    pare_value *x, *s;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &s));
    PARE_TRY(check_scale(node));
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
    pare_infer_out(node, 0, s->dtype, &x->shape);
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
