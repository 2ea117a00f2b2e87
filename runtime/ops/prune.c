/* SPDX-License-Identifier: Apache-2.0 */
/* The prune column of element-by-element operators, and what all its functions share. */
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/reduce.h"

pare_axis_span pare_axis_all(const pare_value *value, int axis)
{
    int64_t n = value->shape.dim[axis];
    return (pare_axis_span){value, axis, 1, 0, n, 1, n};
}

pare_status pare_bind_axes(const pare_prune_binder *binder, const pare_node *node,
                           const pare_value *a, int axis_a, const pare_value *b, int axis_b)
{
    pare_axis_span x = pare_axis_all(a, axis_a), y = pare_axis_all(b, axis_b);
    return binder->bind(binder->user, node, &x, &y);
}

pare_status pare_bind_range(const pare_prune_binder *binder, const pare_node *node,
                            const pare_value *a, int first, int count, const pare_value *b,
                            int first_b)
{
    for (int i = 0; i < count; i++)
        if (a->shape.dim[first + i] == b->shape.dim[first_b + i])
            PARE_TRY(pare_bind_axes(binder, node, a, first + i, b, first_b + i));
    return PARE_OK;
}

pare_status pare_bind_broadcast(const pare_prune_binder *binder, const pare_node *node,
                                const pare_value *a, const pare_value *b)
{
    int offset = b->shape.rank - a->shape.rank;
    return offset < 0 ? pare_block_all(binder, node, "its inputs have more axes than its output")
                      : pare_bind_range(binder, node, a, 0, a->shape.rank, b, offset);
}

pare_status pare_block_axis(const pare_prune_binder *binder, const pare_node *node,
                            const pare_value *value, int axis, const char *why)
{
    if (!value || axis < 0 || axis >= value->shape.rank) return PARE_OK;
    pare_axis_span span = pare_axis_all(value, axis);
    return binder->block(binder->user, node, &span, why);
}

pare_status pare_block_from(const pare_prune_binder *binder, const pare_node *node,
                            const pare_value *value, int first, const char *why)
{
    for (int i = first; value && i < value->shape.rank; i++)
        PARE_TRY(pare_block_axis(binder, node, value, i, why));
    return PARE_OK;
}

pare_status pare_block_all(const pare_prune_binder *binder, const pare_node *node, const char *why)
{
    for (int i = 0; i < node->in_count; i++)
        PARE_TRY(pare_block_from(binder, node, node->in[i], 0, why));
    for (int i = 0; i < node->out_count; i++)
        PARE_TRY(pare_block_from(binder, node, node->out[i], 0, why));
    return PARE_OK;
}

pare_status pare_bind_summed(const pare_prune_binder *binder, const pare_node *node,
                             const pare_value *a, int axis_a, const pare_value *b, int axis_b)
{
    bool constant_a = binder->constant(binder->user, a),
         constant_b = binder->constant(binder->user, b);
    if (!constant_a && !constant_b) {
        const char *why = "sums over it between two activations, so that no weight reads it";
        PARE_TRY(pare_block_axis(binder, node, a, axis_a, why));
        return pare_block_axis(binder, node, b, axis_b, why);
    }
    if (constant_a) PARE_TRY(binder->reads(binder->user, node, a, axis_a, 1));
    if (constant_b) PARE_TRY(binder->reads(binder->user, node, b, axis_b, 1));
    return pare_bind_axes(binder, node, a, axis_a, b, axis_b);
}

int64_t pare_cut_kept(const pare_prune_cut *cut, const pare_value *value, int axis)
{
    return cut->kept(cut->user, value, axis, 0, value->shape.dim[axis]);
}

bool pare_cut_changed(const pare_prune_cut *cut, const pare_value *value, int axis)
{
    return pare_cut_kept(cut, value, axis) != value->shape.dim[axis];
}

pare_status pare_cut_ints(const pare_prune_cut *cut, int i, const int64_t **out, int *count)
{
    PARE_TRY(pare_infer_ints(cut->before, i, out, count));
    if (*out || !pare_node_in(cut->before, i)) return PARE_OK;
    return PARE_FAIL_NODE(cut->before, INPUT, "input %d is not known before the model runs", i);
}

/* --- element by element --- */

/* Every input broadcasts to the outputs. */
pare_status pare_prune_bind_ties(const pare_node *node, const pare_prune_binder *binder)
{
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i]) PARE_TRY(pare_bind_broadcast(binder, node, node->in[i], node->out[0]));
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i]) PARE_TRY(pare_bind_broadcast(binder, node, node->out[i], node->out[0]));
    return PARE_OK;
}

/* Outputs have the first input's shape; further inputs are options. */
pare_status pare_prune_bind_same(const pare_node *node, const pare_prune_binder *binder)
{
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]) PARE_TRY(pare_bind_broadcast(binder, node, node->in[0], node->out[i]));
    return PARE_OK;
}

pare_status pare_prune_bind_stops(const pare_node *node, const pare_prune_binder *binder)
{
    return pare_block_all(binder, node, "does not work channel by channel");
}

pare_status pare_prune_cut_none(const pare_prune_cut *cut, pare_node *node)
{
    (void)cut, (void)node;
    return PARE_OK;
}

const char pare_along[] = "computes along this axis";

pare_status pare_pass_beside(const pare_node *node, const pare_prune_binder *binder, int64_t axis)
{
    const pare_value *x = node->in[0];
    int worked;
    PARE_TRY(pare_infer_axis(node, axis, x->shape.rank, &worked));
    PARE_TRY(pare_block_axis(binder, node, x, worked, pare_along));
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *y = node->out[i];
        if (!y) continue;
        PARE_TRY(pare_block_axis(binder, node, y, worked, pare_along));
        for (int d = 0; d < x->shape.rank; d++)
            if (d != worked) PARE_TRY(pare_bind_axes(binder, node, x, d, y, d));
    }
    return PARE_OK;
}

/* Softmax, LogSoftmax (13), TopK (11), LpNormalization: an attribute that counts from the end. */
pare_status pare_prune_bind_along(const pare_node *node, const pare_prune_binder *binder)
{
    return pare_pass_beside(node, binder, pare_node_int(node, "axis", -1));
}
