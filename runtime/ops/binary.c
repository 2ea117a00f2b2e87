/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that work element by element: shapes, version conversion, gradients. */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

pare_status pare_infer_same(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_broadcast_to(pare_node *node, pare_dtype dtype, bool same)
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
    return pare_infer_broadcast_to(node, pare_infer_dtype(node, 0), true);
}

pare_status pare_infer_pow(pare_node *node)
{
    return pare_infer_broadcast_to(node, pare_infer_dtype(node, 0), false);
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
    PARE_TRY(pare_infer_broadcast_to(node, x->dtype, true));
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

/* A constant with other dims: under its own name where the node alone reads it. */
static pare_status constant_reshape(pare_node *node, const pare_tensor *t, int rank,
                                    const int64_t *dims)
{
    pare_value *v = node->in[1];
    pare_tensor *made;
    if (!v->is_init || v->user_count > 1 || v->is_output || v->graph != node->graph)
        return pare_upgrade_constant(node, 1, "b", t->dtype, rank, dims, t->data);
    PARE_TRY(pare_tensor_new(v->graph->model, &made, v->name, t->dtype, rank, dims, t->data));
    return pare_value_set_init(v, made);
}

/* Gives input 1 `after` more axes of one element at its end. */
static pare_status axes_append(pare_node *node, int after)
{
    const pare_value *v = node->in[1];
    const pare_tensor *t = pare_infer_constant(node, 1);
    int rank = v->shape.rank;
    int64_t dims[PARE_MAX_RANK];
    if (rank + after > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %d is above %d", rank + after,
                              PARE_MAX_RANK);
    for (int i = 0; i < rank + after; i++) dims[i] = i < rank ? v->shape.dim[i] : 1;
    if (t) return constant_reshape(node, t, rank + after, dims);
    pare_node *made;
    pare_value *axes;
    const char *name = pare_upgrade_name(node, "axes");
    if (!name) return PARE_MEMORY;
    for (int i = 0; i < after; i++) dims[i] = rank + i;
    PARE_TRY(pare_init_new(node->graph, &axes, name, PARE_s64, 1, &(int64_t){after}, dims));
    PARE_TRY(pare_upgrade_opset(node, 13));
    return pare_upgrade_before(node, 1, "Unsqueeze", &axes, 1, &made);
}

/* Add, Sub, Mul, Div, And, Or, Xor, Equal, Less, Greater, Pow (1, 6): with `broadcast`, input 1 is
   one number or has the axes of input 0 from `axis` on (missing: its last ones); (7): the last
   ones, so axes of one element are appended. */
pare_status pare_upgrade_broadcast(pare_node *node, int64_t version)
{
    pare_value *a, *b;
    if (version >= 7) return PARE_OK;
    const pare_attr *axis = pare_node_attr(node, "axis");
    int64_t from = pare_node_int(node, "axis", 0);
    bool placed = axis && pare_node_int(node, "broadcast", 0);
    PARE_TRY(pare_infer_need(node, 0, &a));
    PARE_TRY(pare_infer_need(node, 1, &b));
    pare_node_remove_attr(node, "broadcast");
    pare_node_remove_attr(node, "axis");
    PARE_TRY(pare_upgrade_opset(node, 7));
    if (!placed || b->shape.rank == 0 || pare_shape_count(&b->shape) == 1) return PARE_OK;
    if (a->shape.rank < 0 || b->shape.rank < 0)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "its attribute axis needs inputs of known rank: export the model at "
                              "opset 7 or newer");
    if (from < 0) from += a->shape.rank;
    int64_t after = from < 0 ? -1 : a->shape.rank - b->shape.rank - from;
    if (after < 0)
        return PARE_FAIL_NODE(node, INPUT,
                              "axis %" PRId64 " leaves no room in rank %d for '%s' of rank %d",
                              from, a->shape.rank, b->name, b->shape.rank);
    return after ? axes_append(node, (int)after) : PARE_OK;
}

/* PRelu (1, 6): one slope, or one a channel (axis 1); (7): a tensor that is broadcast to the last
   axes. */
pare_status pare_upgrade_prelu(pare_node *node, int64_t version)
{
    pare_value *x, *slope;
    if (version >= 7) return PARE_OK;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &slope));
    PARE_TRY(pare_upgrade_opset(node, 7));
    if (slope->shape.rank != 1 || slope->shape.dim[0] == 1) return PARE_OK;
    if (x->shape.rank < 0)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "its slopes need an input of known rank: export the model at opset 7 "
                              "or newer");
    return x->shape.rank > 2 ? axes_append(node, x->shape.rank - 2) : PARE_OK;
}

/* Clip (6): attributes min and max; (11): inputs 1 and 2. */
pare_status pare_upgrade_clip(pare_node *node, int64_t version)
{
    if (version >= 11) return PARE_OK;
    pare_dtype dtype = pare_infer_dtype(node, 0);
    PARE_TRY(pare_upgrade_float(node, "min", 1, dtype));
    PARE_TRY(pare_upgrade_float(node, "max", 2, dtype));
    return pare_upgrade_opset(node, 11);
}

/* BitShift (11): its direction has no default. */
pare_status pare_infer_bit_shift(pare_node *node)
{
    const char *direction = pare_node_string(node, "direction", "");
    if (strcmp(direction, "LEFT") != 0 && strcmp(direction, "RIGHT") != 0)
        return PARE_FAIL_NODE(node, INPUT, "direction is '%s', expected LEFT or RIGHT", direction);
    return pare_infer_broadcasting(node);
}

bool pare_node_drops(const pare_node *node)
{
    if (!pare_node_is(node, "Dropout") || !pare_node_in(node, 2)) return false;
    const pare_tensor *training = pare_infer_constant(node, 2);
    const pare_tensor *ratio = pare_infer_constant(node, 1);
    if (training && training->count == 1 && !pare_tensor_int(training, 0)) return false;
    return !(ratio && ratio->count == 1 && pare_tensor_number(ratio, 0) == 0);
}

/* Dropout outside training hands its input on; the optional mask is all true. */
pare_status pare_infer_dropout(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->dtype && !pare_type_is_float(x->dtype) && pare_node_drops(node) &&
        pare_infer_constant(node, 2))
        return PARE_FAIL_NODE(node, INPUT, "'%s' has type %s, expected floats in training mode",
                              x->name, pare_type(x->dtype)->name);
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, PARE_bool, &x->shape);
    return PARE_OK;
}

/* Dropout (1, 6): attribute is_test; (7, 10): ratio alone; (12): inputs ratio and training_mode.
   Older forms are run as outside training. */
pare_status pare_upgrade_dropout(pare_node *node, int64_t version)
{
    if (version >= 12) return PARE_OK;
    if (version < 7) pare_node_remove_attr(node, "is_test");
    PARE_TRY(pare_upgrade_float(node, "ratio", 1, PARE_f32));
    return pare_upgrade_opset(node, 12);
}

/* y = x under the same shape: Identity, Dropout (outside training). */
pare_status pare_grad_identity(pare_grad *g, const pare_node *node)
{
    pare_grad_give(g, node->in[0], pare_grad_of(g, node->out[0]));
    return g->status;
}

pare_status pare_grad_dropout(pare_grad *g, const pare_node *node)
{
    if (pare_node_drops(node))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule in training mode");
    return pare_grad_identity(g, node);
}

pare_status pare_grad_add(pare_grad *g, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        pare_grad_give_sum(g, node->in[i], pare_grad_of(g, node->out[0]));
    return g->status;
}

pare_status pare_grad_mean(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_scaled(g, pare_grad_of(g, node->out[0]), 1.0 / node->in_count);
    for (int i = 0; i < node->in_count; i++) pare_grad_give_sum(g, node->in[i], dy);
    return g->status;
}

pare_status pare_grad_sub(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]);
    pare_grad_give_sum(g, node->in[0], dy);
    if (pare_grad_wants(g, node->in[1]))
        pare_grad_give_sum(g, node->in[1], PARE_EMIT(g, "Neg", dy));
    return g->status;
}

pare_status pare_grad_mul(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]);
    for (int i = 0; i < 2; i++)
        if (pare_grad_wants(g, node->in[i]))
            pare_grad_give_sum(g, node->in[i], PARE_EMIT(g, "Mul", dy, node->in[1 - i]));
    return g->status;
}

/* y = a / b: da = dy / b, db = -dy y / b */
pare_status pare_grad_div(pare_grad *g, const pare_node *node)
{
    pare_value *q = PARE_EMIT(g, "Div", pare_grad_of(g, node->out[0]), node->in[1]);
    pare_grad_give_sum(g, node->in[0], q);
    if (pare_grad_wants(g, node->in[1]))
        pare_grad_give_sum(g, node->in[1],
                           PARE_EMIT(g, "Neg", PARE_EMIT(g, "Mul", q, node->out[0])));
    return g->status;
}

/* y = x^p: dx = dy p x^(p - 1), dp = dy y ln x */
pare_status pare_grad_pow(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *p = node->in[1];
    double exponent = p->data && p->data->count == 1 ? pare_tensor_number(p->data, 0) : 0;
    if (p->dtype != x->dtype && !p->data)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has no gradient rule for an exponent of another type");
    if (pare_grad_wants(g, x) && exponent == 2) {
        pare_grad_give_sum(g, x, PARE_EMIT(g, "Mul", pare_grad_scaled(g, dy, 2), x));
    } else if (pare_grad_wants(g, x)) {
        if (p->dtype != x->dtype) p = pare_grad_number(g, x->dtype, exponent);
        pare_value *less = PARE_EMIT(g, "Sub", p, pare_grad_number(g, x->dtype, 1));
        pare_value *slope = PARE_EMIT(g, "Mul", p, PARE_EMIT(g, "Pow", x, less));
        pare_grad_give_sum(g, x, PARE_EMIT(g, "Mul", dy, slope));
    }
    if (pare_grad_wants(g, node->in[1])) {
        pare_value *t = PARE_EMIT(g, "Mul", node->out[0], PARE_EMIT(g, "Log", x));
        pare_grad_give_sum(g, node->in[1], PARE_EMIT(g, "Mul", dy, t));
    }
    return g->status;
}

/* Min, Max: inputs that are equal share the gradient. */
pare_status pare_grad_extreme(pare_grad *g, const pare_node *node)
{
    pare_value *y = node->out[0], *mask[16], *share = pare_grad_of(g, y);
    if (node->in_count > 16)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule for more than 16 inputs");
    for (int i = 0; i < node->in_count; i++) {
        pare_node *cast = pare_grad_begin(
            g, "Cast", (pare_value *[]){PARE_EMIT(g, "Equal", node->in[i], y)}, 1, 1);
        pare_grad_int(g, cast, "to", (int64_t)y->dtype);
        mask[i] = pare_grad_end(g, cast);
    }
    share = PARE_EMIT(g, "Div", share, pare_grad_emit(g, "Sum", mask, node->in_count));
    for (int i = 0; i < node->in_count; i++)
        if (pare_grad_wants(g, node->in[i]))
            pare_grad_give_sum(g, node->in[i], PARE_EMIT(g, "Mul", share, mask[i]));
    return g->status;
}

pare_status pare_grad_where(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *c = node->in[0];
    pare_value *none = pare_grad_number(g, node->out[0]->dtype, 0);
    if (pare_grad_wants(g, node->in[1]))
        pare_grad_give_sum(g, node->in[1], PARE_EMIT(g, "Where", c, dy, none));
    if (pare_grad_wants(g, node->in[2]))
        pare_grad_give_sum(g, node->in[2], PARE_EMIT(g, "Where", c, none, dy));
    return g->status;
}

/* y = x above 0, else slope x */
pare_status pare_grad_prelu(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *slope = node->in[1];
    pare_value *none = pare_grad_number(g, x->dtype, 0);
    pare_value *above = PARE_EMIT(g, "Greater", x, none);
    if (pare_grad_wants(g, x))
        pare_grad_give(g, x, PARE_EMIT(g, "Where", above, dy, PARE_EMIT(g, "Mul", dy, slope)));
    if (pare_grad_wants(g, slope))
        pare_grad_give_sum(g, slope,
                           PARE_EMIT(g, "Where", above, none, PARE_EMIT(g, "Mul", dy, x)));
    return g->status;
}
