/* SPDX-License-Identifier: Apache-2.0 */
/* The prune column of operators that compute along some axes: these are blocked, the others pass.
 */
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/reduce.h"

static const char along[] = "computes along this axis";

/* Axes of input 0 pass to every output of the same rank but the worked one, which is blocked. */
static pare_status pass_beside(const pare_node *node, const pare_prune_units *units, int64_t axis)
{
    const pare_value *x = node->in[0];
    int worked;
    PARE_TRY(pare_infer_axis(node, axis, x->shape.rank, &worked));
    PARE_TRY(pare_block_axis(units, node, x, worked, along));
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *y = node->out[i];
        if (!y) continue;
        PARE_TRY(pare_block_axis(units, node, y, worked, along));
        for (int d = 0; d < x->shape.rank; d++)
            if (d != worked) PARE_TRY(pare_bind_axes(units, node, x, d, y, d));
    }
    return PARE_OK;
}

/* Softmax, LogSoftmax (13), TopK (11), LpNormalization: an attribute that counts from the end. */
pare_status pare_prune_bind_along(const pare_node *node, const pare_prune_units *units)
{
    return pass_beside(node, units, pare_node_int(node, "axis", -1));
}

/* LRN (1 .. 13) sums over neighbouring channels. */
pare_status pare_prune_bind_lrn(const pare_node *node, const pare_prune_units *units)
{
    return pass_beside(node, units, 1);
}

/* CumSum (11, 14): the axis is an input. */
pare_status pare_prune_bind_cum_sum(const pare_node *node, const pare_prune_units *units)
{
    const int64_t *axis;
    int count;
    PARE_TRY(pare_infer_ints(node, 1, &axis, &count));
    if (count != 1) return pare_block_all(units, node, "its axis is known only while it runs");
    return pass_beside(node, units, axis[0]);
}

/* Trilu (14) cuts by row and column. */
pare_status pare_prune_bind_trilu(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    PARE_TRY(pare_block_from(units, node, x, x->shape.rank - 2, along));
    PARE_TRY(pare_block_from(units, node, y, x->shape.rank - 2, along));
    return pare_bind_range(units, node, x, 0, x->shape.rank - 2, y, 0);
}

static pare_status bind_reduced(const pare_node *node, const pare_prune_units *units,
                                const pare_reduce *r)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    for (int i = 0, to = 0; i < x->shape.rank; i++) {
        if (r->axis[i] && !r->noop) {
            PARE_TRY(pare_block_axis(units, node, x, i, along));
            to += r->keepdims;
        } else {
            PARE_TRY(pare_bind_axes(units, node, x, i, y, to++));
        }
    }
    return PARE_OK;
}

/* ReduceSum, ReduceMean ... (1 .. 18). */
pare_status pare_prune_bind_reduce(const pare_node *node, const pare_prune_units *units)
{
    pare_reduce r;
    PARE_TRY(pare_reduce_read(node, node->in[0]->shape.rank, &r));
    if (!r.known) return pare_block_all(units, node, "its axes are known only while it runs");
    return bind_reduced(node, units, &r);
}

/* ArgMax, ArgMin (1 .. 13). */
pare_status pare_prune_bind_arg_extreme(const pare_node *node, const pare_prune_units *units)
{
    pare_reduce r = {.known = true, .keepdims = pare_node_int(node, "keepdims", 1) != 0};
    int axis, rank = node->in[0]->shape.rank;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), rank, &axis));
    r.axis[axis] = true;
    return bind_reduced(node, units, &r);
}

/* Pools: samples and channels pass. Indices of MaxPool count through the whole tensor. */
pare_status pare_prune_bind_pool(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    if (node->out_count > 1 && node->out[1])
        return pare_block_all(units, node, "makes indices into the whole tensor");
    PARE_TRY(pare_bind_range(units, node, x, 0, 2, y, 0));
    PARE_TRY(pare_block_from(units, node, x, 2, "slides its window over it"));
    return pare_block_from(units, node, y, 2, "slides its window over it");
}

/* --- normalizations --- */

/* LayerNormalization (17): axes from `axis` on are worked along. */
pare_status pare_prune_bind_layer_norm(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0];
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank, &axis));
    PARE_TRY(pare_block_from(units, node, x, axis, along));
    for (int i = 0; i < node->out_count; i++) {
        if (!node->out[i]) continue;
        PARE_TRY(pare_bind_range(units, node, x, 0, axis, node->out[i], 0));
        PARE_TRY(pare_block_from(units, node, node->out[i], axis, along));
    }
    for (int i = 1; i < node->in_count; i++)
        PARE_TRY(pare_block_from(units, node, node->in[i], 0, along));
    return PARE_OK;
}

/* BatchNormalization (15, inference): four numbers a channel, everything else element by element.
 */
pare_status pare_prune_bind_batch_norm(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    if (x->shape.rank < 2 || pare_node_int(node, "training_mode", 0))
        return pare_block_all(units, node, "normalizes over what it is given");
    PARE_TRY(pare_bind_range(units, node, x, 0, x->shape.rank, y, 0));
    for (int i = 1; i < 5; i++) PARE_TRY(pare_bind_axes(units, node, node->in[i], 0, y, 1));
    return PARE_OK;
}

/* Samples pass, channels in blocks of `block` with their scale and bias, the rest is worked along.
 */
static pare_status bind_norm(const pare_node *node, const pare_prune_units *units, int64_t block)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_axis_span to = pare_axis_all(y, 1);
    to.inner = block;
    to.count /= block;
    const pare_value *with[] = {x, node->in[1], node->in[2]};
    PARE_TRY(pare_bind_axes(units, node, x, 0, y, 0));
    for (int i = 0; i < 3; i++) {
        pare_axis_span from = pare_axis_all(with[i], i == 0);
        from.inner = from.count / to.count; /* 1: one number a group (GroupNormalization 18) */
        from.count = to.count;
        PARE_TRY(units->bind(units->user, node, &from, &to));
    }
    PARE_TRY(pare_block_from(units, node, x, 2, along));
    return pare_block_from(units, node, y, 2, along);
}

/* InstanceNormalization (6) normalizes each channel by itself. */
pare_status pare_prune_bind_instance_norm(const pare_node *node, const pare_prune_units *units)
{
    return bind_norm(node, units, 1);
}

/* GroupNormalization (18, 21): a whole group of channels leaves or none of it. */
pare_status pare_prune_bind_group_norm(const pare_node *node, const pare_prune_units *units)
{
    int64_t groups = pare_node_int(node, "num_groups", 1), c = node->in[0]->shape.dim[1];
    if (groups < 1 || c % groups) return pare_block_all(units, node, along);
    if (groups == 1) {
        PARE_TRY(pare_block_from(units, node, node->in[0], 1, along));
        PARE_TRY(pare_block_from(units, node, node->out[0], 1, along));
        for (int i = 1; i < 3; i++) PARE_TRY(pare_block_from(units, node, node->in[i], 0, along));
        return pare_bind_axes(units, node, node->in[0], 0, node->out[0], 0);
    }
    return bind_norm(node, units, c / groups);
}

pare_status pare_prune_cut_group_norm(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0];
    int64_t groups = pare_node_int(node, "num_groups", 1), c = x->shape.dim[1];
    if (!pare_cut_changed(cut, x, 1)) return PARE_OK;
    return pare_node_set_int(node, "num_groups", pare_cut_kept(cut, x, 1) / (c / groups));
}
