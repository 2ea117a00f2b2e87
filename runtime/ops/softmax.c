/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, LogSoftmax, QSoftmax: shapes, version conversion, gradient. The gradient rule emits
     SoftmaxGrad (dY, Y) -> dX                      attributes axis, log */
#include "runtime/ops/fused.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

#include <string.h>

pare_status pare_infer_softmax(pare_node *node)
{
    pare_value *x;
    int axis;
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank > 0)
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank, &axis));
    return pare_infer_same(node);
}

/* QSoftmax (X): QuantizeLinear (25) of Softmax (13) along the last axis, whose result is rounded to
   X's type between the two; attributes y_scale, y_zero_point, to. */
pare_status pare_infer_q_softmax(pare_node *node)
{
    pare_value *x;
    pare_dtype type;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_quant_codes_read(node, &type));
    pare_infer_out(node, 0, type, &x->shape);
    return PARE_OK;
}

/* The shape of value as a constant where it is known, else as computed by a Shape node. */
static pare_status shape_of(pare_node *node, pare_value *value, pare_value **out)
{
    const char *name = pare_upgrade_name(node, "shape");
    if (!name) return PARE_MEMORY;
    if (pare_shape_known(&value->shape))
        return pare_init_new(node->graph, out, name, PARE_s64, 1, &(int64_t){value->shape.rank},
                             value->shape.dim);
    PARE_TRY(pare_value_new(node->graph, out, name));
    return pare_node_new(node->graph, NULL, pare_node_index(node), "Shape", "", name, &value, 1,
                         out, 1);
}

/* Softmax, LogSoftmax (1, 11): the tensor is flattened to two axes before `axis` (1 by default) and
   the second is normalized; (13): one axis (the last by default). The same where the axes after
   `axis` have one element; else Flatten and Reshape are around the new form. */
pare_status pare_upgrade_softmax(pare_node *node, int64_t version)
{
    pare_value *x, *shape;
    pare_node *made;
    if (version >= 13) return PARE_OK;
    PARE_TRY(pare_infer_need(node, 0, &x));
    int64_t axis = pare_node_int(node, "axis", 1);
    int rank = x->shape.rank;
    if (axis < 0 && rank >= 0) axis += rank;
    PARE_TRY(pare_upgrade_opset(node, 13));
    if (axis == -1 || (rank >= 0 && axis < rank && axis >= 0 &&
                       pare_shape_product(&x->shape, (int)axis + 1, rank) == 1))
        return pare_node_set_int(node, "axis", axis);
    PARE_TRY(shape_of(node, x, &shape));
    PARE_TRY(pare_upgrade_before(node, 0, "Flatten", NULL, 0, &made));
    PARE_TRY(pare_node_set_int(made, "axis", axis));
    PARE_TRY(pare_node_set_int(node, "axis", -1));
    return pare_upgrade_after(node, 0, "Reshape", &shape, 1, &made);
}

pare_status pare_grad_softmax(pare_grad *g, const pare_node *node)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), node->out[0]};
    pare_node *made = pare_grad_begin(g, "SoftmaxGrad", in, 2, 1);
    pare_grad_int(g, made, "axis", pare_node_int(node, "axis", -1));
    pare_grad_int(g, made, "log", !strcmp(node->op_type, "LogSoftmax"));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}
