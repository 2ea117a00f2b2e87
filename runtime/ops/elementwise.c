/* SPDX-License-Identifier: Apache-2.0 */
/* Shape and upgrade rules of operators that work element by element, with or without broadcasting.
 */
#include "runtime/ops/infer.h"

pare_status pare_infer_same(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

/* All inputs broadcast together and share their type. */
static pare_status broadcast_to(pare_node *node, pare_dtype dtype, bool same)
{
    pare_shape out;
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    for (int i = 1; same && i < node->in_count; i++) PARE_TRY(pare_infer_same_type(node, 0, i));
    PARE_TRY(pare_infer_broadcast_all(node, 0, node->in_count - 1, &out));
    for (int i = 1; !dtype && i < node->in_count; i++) dtype = pare_infer_dtype(node, i);
    pare_infer_out(node, 0, dtype, &out);
    return PARE_OK;
}

pare_status pare_infer_broadcasting(pare_node *node)
{
    return broadcast_to(node, pare_infer_dtype(node, 0), true);
}

pare_status pare_infer_pow(pare_node *node)
{
    return broadcast_to(node, pare_infer_dtype(node, 0), false);
}

pare_status pare_infer_compare(pare_node *node) { return broadcast_to(node, PARE_bool, true); }

pare_status pare_infer_test(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, PARE_bool, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_where(pare_node *node)
{
    pare_shape out;
    PARE_TRY(pare_infer_same_type(node, 1, 2));
    PARE_TRY(pare_infer_broadcast_all(node, 0, 2, &out));
    pare_dtype dtype = pare_infer_dtype(node, 1);
    pare_infer_out(node, 0, dtype ? dtype : pare_infer_dtype(node, 2), &out);
    return PARE_OK;
}

/* PRelu (16): the slope broadcasts to X, never the other way. */
pare_status pare_infer_prelu(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(broadcast_to(node, x->dtype, true));
    if (node->out[0] && x->shape.rank >= 0) node->out[0]->shape = x->shape;
    return PARE_OK;
}

pare_status pare_infer_clip(pare_node *node)
{
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    for (int i = 1; i < 3; i++) {
        const pare_value *v = pare_node_in(node, i);
        if (v && v->shape.rank >= 0 && pare_shape_count(&v->shape) != 1)
            return PARE_FAIL_NODE(node, INPUT, "limit '%s' must be a single number", v->name);
    }
    return pare_infer_same(node);
}

/* Clip (6): attributes min and max; (11): inputs 1 and 2. */
pare_status pare_up_clip(pare_node *node, int64_t version)
{
    if (version >= 11) return PARE_OK;
    pare_dtype dtype = pare_infer_dtype(node, 0);
    PARE_TRY(pare_up_float(node, "min", 1, dtype));
    PARE_TRY(pare_up_float(node, "max", 2, dtype));
    return pare_up_opset(node, 11);
}

pare_status pare_infer_cast(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    int64_t to = pare_node_int(node, "to", 0);
    if (to <= 0 || to >= PARE_DTYPE_COUNT)
        return PARE_FAIL_NODE(node, INPUT, "attribute 'to' must name a type");
    pare_infer_out(node, 0, (pare_dtype)to, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_cast_like(pare_node *node)
{
    pare_value *x, *like;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &like));
    pare_infer_out(node, 0, like->dtype, &x->shape);
    return PARE_OK;
}

/* Dropout outside training hands its input on; the optional mask is all true. */
pare_status pare_infer_dropout(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, PARE_bool, &x->shape);
    return PARE_OK;
}

/* Dropout (7, 10): attribute ratio; (12): inputs ratio and training_mode. Only the inference form
   is run, so the ratio is dropped. */
pare_status pare_up_dropout(pare_node *node, int64_t version)
{
    if (version >= 12) return PARE_OK;
    PARE_TRY(pare_up_float(node, "ratio", 1, PARE_f32));
    return pare_up_opset(node, 12);
}
