/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizations: shapes, version conversion, gradients, prune rules. The gradient rules emit
     LayerNormGrad (dY, X, scale) -> dX, dScale, dBias    attributes axis, epsilon
   Pruning: axes that a rule computes along are blocked, the others pass. */
#include "runtime/ops/fused.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/reduce.h"

#include <inttypes.h>

/* LayerNormalization (17): Y like X; Mean and InvStdDev with the normalized axes as 1, in the type
   stash_type names. */
static pare_status layer_norm_shapes(pare_node *node, pare_shape *stats)
{
    pare_value *x, *scale;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &scale));
    *stats = x->shape;
    if (stats->rank >= 0) {
        int axis;
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), stats->rank, &axis));
        for (int i = axis; i < stats->rank; i++) {
            stats->dim[i] = 1;
            stats->name[i] = NULL;
        }
        for (int i = 1; i < 3; i++) {
            const pare_value *v = pare_node_in(node, i);
            pare_shape both = x->shape;
            if (!v || v->shape.rank < 0) continue;
            PARE_TRY(pare_infer_broadcast(node, &both, &v->shape));
            if (both.rank != x->shape.rank)
                return PARE_FAIL_NODE(node, INPUT, "'%s' does not broadcast to the input", v->name);
        }
    }
    return PARE_OK;
}

pare_status pare_infer_layer_norm(pare_node *node)
{
    pare_shape stats;
    PARE_TRY(layer_norm_shapes(node, &stats));
    const pare_value *x = node->in[0];
    pare_dtype stash = (pare_dtype)pare_node_int(node, "stash_type", PARE_f32);
    if (stash != PARE_f32 && stash != PARE_bf16)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "stash_type %d is not f32 or bf16", (int)stash);
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, stash, &stats);
    pare_infer_out(node, 2, stash, &stats);
    return PARE_OK;
}

/* QLayerNormalization (X, Scale, B): QuantizeLinear (25) of LayerNormalization (17), whose result
   is rounded to X's type between the two; attributes y_scale, y_zero_point, to beside its own. */
pare_status pare_infer_q_layer_norm(pare_node *node)
{
    pare_shape stats;
    pare_dtype type;
    PARE_TRY(layer_norm_shapes(node, &stats));
    PARE_TRY(pare_quant_codes_read(node, &type));
    pare_infer_out(node, 0, type, &node->in[0]->shape);
    return PARE_OK;
}

/* Inputs first..last are vectors of n elements, where both are known. */
static pare_status vectors(const pare_node *node, int first, int last, int64_t n)
{
    for (int i = first; i <= last; i++) {
        pare_value *v;
        PARE_TRY(pare_infer_need(node, i, &v));
        if (v->shape.rank < 0 || n < 0) continue;
        if (v->shape.rank != 1 || (v->shape.dim[0] >= 0 && v->shape.dim[0] != n))
            return PARE_FAIL_NODE(node, INPUT, "'%s' must have one number per channel, %" PRId64,
                                  v->name, n);
    }
    return PARE_OK;
}

static int64_t channels(const pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0);
    return x && x->shape.rank >= 2 ? x->shape.dim[1] : -1;
}

/* InstanceNormalization (6): X [N, C, ...], scale and B [C]. */
pare_status pare_infer_instance_norm(pare_node *node)
{
    PARE_TRY(vectors(node, 1, 2, channels(node)));
    return pare_infer_same(node);
}

/* GroupNormalization (21): scale and bias [C]; the form of 18 has [num_groups], which the number of
   elements tells apart (with as many groups as channels both mean the same). */
pare_status pare_infer_group_norm(pare_node *node)
{
    int64_t groups = pare_node_int(node, "num_groups", 0), c = channels(node);
    if (groups <= 0 || (c >= 0 && c % groups))
        return PARE_FAIL_NODE(node, INPUT, "num_groups %" PRId64 " does not divide the channels",
                              groups);
    const pare_value *scale = pare_node_in(node, 1);
    bool old = scale && scale->shape.rank == 1 && scale->shape.dim[0] == groups;
    PARE_TRY(vectors(node, 1, 2, old ? groups : c));
    return pare_infer_same(node);
}

/* GroupNormalization (18): one scale and bias a group; (21): one a channel. Constants are spread
   out here; the number of channels must be known for it. */
pare_status pare_upgrade_group_norm(pare_node *node, int64_t version)
{
    if (version >= 21) return PARE_OK;
    int64_t groups = pare_node_int(node, "num_groups", 0), c = channels(node);
    for (int i = 1; i < 3; i++) {
        const pare_tensor *old = pare_infer_constant(node, i);
        if (!old || c <= 0 || groups <= 0 || old->count != groups || c % groups ||
            !pare_type_is_float(old->dtype))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "its form of opset 18 is only understood with constant scale and "
                                  "bias and a known number of channels: export at opset 21");
        size_t size = (size_t)pare_type(old->dtype)->bits / 8;
        char *wide = pare_arena_alloc(&node->graph->model->arena, (size_t)c, size);
        if (!wide) return PARE_MEMORY;
        for (int64_t k = 0; k < c * (int64_t)size; k++) {
            int64_t from = k / (int64_t)size / (c / groups);
            wide[k] = ((const char *)old->data)[from * (int64_t)size + k % (int64_t)size];
        }
        PARE_TRY(
            pare_upgrade_constant(node, i, i == 1 ? "scale" : "bias", old->dtype, 1, &c, wide));
    }
    return pare_upgrade_opset(node, 21);
}

/* BatchNormalization (15): X [N, C, ...], scale, B, mean, var [C]; in training mode the means and
   variances that follow are outputs, too. */
pare_status pare_infer_batch_norm(pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0);
    int64_t c = x && x->shape.rank == 1 ? x->shape.dim[0] : channels(node);
    PARE_TRY(vectors(node, 1, 4, x && x->shape.rank == 1 ? -1 : c));
    if (!pare_node_int(node, "training_mode", 0) && node->out_count > 1)
        return PARE_FAIL_NODE(node, INPUT, "it has %d outputs without training_mode, expected 1",
                              node->out_count);
    for (int i = 1; i < node->out_count; i++) {
        const pare_value *old = pare_node_in(node, 2 + i);
        const pare_shape each = pare_shape_vector(c);
        if (old) pare_infer_out(node, i, old->dtype, &each);
    }
    return pare_infer_same(node);
}

/* BatchNormalization (1, 6): attribute is_test, which with one output makes no difference;
   (1 to 8): attribute spatial (0: one statistic an element: refused where that is not one a
   channel), up to five outputs; (9): no spatial; (14): three outputs and training_mode. */
pare_status pare_upgrade_batch_norm(pare_node *node, int64_t version)
{
    if (version >= 14) return PARE_OK;
    const pare_value *x = pare_node_in(node, 0);
    if (!pare_node_int(node, "spatial", 1) && !(x && x->shape.rank == 2))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "spatial = 0 has no newer form");
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] && (node->out[i]->user_count || node->out[i]->is_output))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "its training form (more than one output) is not supported");
    if (node->out_count > 1) node->out_count = 1;
    pare_node_remove_attr(node, "spatial");
    if (version < 7) pare_node_remove_attr(node, "is_test");
    return pare_upgrade_opset(node, 14);
}

/* MeanVarianceNormalization (9, 13): axes, 0, 2 and 3 without. */
pare_status pare_infer_mean_variance(pare_node *node)
{
    pare_value *x;
    int count;
    const int64_t *axes = pare_node_ints(node, "axes", &count);
    bool seen[PARE_MAX_RANK];
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0 && axes)
        PARE_TRY(pare_infer_axes(node, axes, count, x->shape.rank, seen));
    if (x->shape.rank >= 0 && !axes && x->shape.rank != 4)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has rank %d, expected 4 without axes", x->name,
                              x->shape.rank);
    return pare_infer_same(node);
}

/* LpNormalization (1): p is 1 or 2. */
pare_status pare_infer_lp_norm(pare_node *node)
{
    int64_t p = pare_node_int(node, "p", 2);
    if (p != 1 && p != 2)
        return PARE_FAIL_NODE(node, INPUT, "p is %" PRId64 ", it must be 1 or 2", p);
    return pare_infer_softmax(node);
}

/* ONNX Runtime and tools around it write LayerNormalization (17) into models of older opsets. */
pare_status pare_upgrade_layer_norm(pare_node *node, int64_t version)
{
    return version >= 17 ? PARE_OK : pare_upgrade_opset(node, 17);
}

bool pare_norm_factor_is_row(const int64_t *x, int rank, int axis, const int64_t *factor,
                             int factor_rank)
{
    const int length = rank - axis;
    for (int i = 0; i < factor_rank - length; i++)
        if (factor[i] != 1) return false;
    for (int i = 1; i <= length; i++)
        if ((i <= factor_rank ? factor[factor_rank - i] : 1) != x[rank - i]) return false;
    return true;
}

static bool is_row(const pare_value *x, int axis, const pare_value *factor)
{
    return !factor || pare_norm_factor_is_row(x->shape.dim, x->shape.rank, axis, factor->shape.dim,
                                              factor->shape.rank);
}

/* LayerNormalization (17) with scale and bias of exactly the normalized axes. */
pare_status pare_grad_layer_norm(pare_grad *g, const pare_node *node)
{
    pare_value *x = node->in[0], *scale = node->in[1], *bias = pare_node_in(node, 2);
    pare_value *in[] = {pare_grad_of(g, node->out[0]), x, scale};
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank, &axis));
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] && pare_grad_of(g, node->out[i]))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "it has no gradient rule for its mean and deviation");
    if (!is_row(x, axis, scale) || !is_row(x, axis, bias))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has no gradient rule for a scale that is stretched");
    if (!in[0]) return g->status;
    pare_node *made = pare_grad_begin(g, "LayerNormGrad", in, 3, 3);
    pare_grad_int(g, made, "axis", axis);
    pare_grad_float(g, made, "epsilon", pare_node_float(node, "epsilon", 1e-5f));
    pare_grad_end(g, made);
    if (g->status != PARE_OK) return g->status;
    pare_grad_give(g, x, made->out[0]);
    pare_grad_give(g, scale, made->out[1]);
    if (bias) pare_grad_give(g, bias, pare_grad_reshaped(g, made->out[2], &bias->shape));
    return g->status;
}

/* A vector (C) as (1, C, 1, ...), to be against x. */
static pare_value *per_channel(pare_grad *g, pare_value *v, const pare_value *x)
{
    pare_shape shape = {.rank = x->shape.rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = i == 1 ? x->shape.dim[1] : 1;
    return pare_grad_reshaped(g, v, &shape);
}

/* BatchNormalization (15) with the statistics it was trained with, which stay constants:
     Y = (X - mean) inv scale + bias, inv = 1 / sqrt(variance + epsilon) */
pare_status pare_grad_batch_norm(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0], *scale = node->in[1];
    pare_value *bias = node->in[2], *mean = node->in[3], *variance = node->in[4];
    bool axis[PARE_MAX_RANK] = {true, false, true, true, true, true, true, true};
    if (pare_node_int(node, "training_mode", 0))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule in training mode");
    double epsilon = (double)pare_node_float(node, "epsilon", 1e-5f);
    pare_value *spread =
        PARE_EMIT(g, "Add", variance, pare_grad_number(g, variance->dtype, epsilon));
    pare_value *inv = PARE_EMIT(g, "Reciprocal", PARE_EMIT(g, "Sqrt", spread));
    if (pare_grad_wants(g, x))
        pare_grad_give(g, x,
                       PARE_EMIT(g, "Mul", dy, per_channel(g, PARE_EMIT(g, "Mul", inv, scale), x)));
    if (pare_grad_wants(g, scale)) {
        pare_value *centred = PARE_EMIT(g, "Sub", x, per_channel(g, mean, x));
        pare_value *sum = pare_grad_summed(g, PARE_EMIT(g, "Mul", dy, centred), axis);
        pare_grad_give(g, scale,
                       PARE_EMIT(g, "Mul", pare_grad_reshaped(g, sum, &scale->shape), inv));
    }
    if (pare_grad_wants(g, bias))
        pare_grad_give(g, bias, pare_grad_reshaped(g, pare_grad_summed(g, dy, axis), &bias->shape));
    return g->status;
}

pare_status pare_infer_layer_norm_grad(pare_node *node)
{
    pare_value *x, *scale;
    PARE_TRY(pare_infer_need(node, 1, &x));
    PARE_TRY(pare_infer_need(node, 2, &scale));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, scale->dtype, &scale->shape);
    pare_infer_out(node, 2, scale->dtype, &scale->shape);
    return PARE_OK;
}

/* LayerNormalization (17): axes from `axis` on are worked along. */
pare_status pare_prune_bind_layer_norm(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0];
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank, &axis));
    PARE_TRY(pare_block_from(binder, node, x, axis, pare_along));
    for (int i = 0; i < node->out_count; i++) {
        if (!node->out[i]) continue;
        PARE_TRY(pare_bind_range(binder, node, x, 0, axis, node->out[i], 0));
        PARE_TRY(pare_block_from(binder, node, node->out[i], axis, pare_along));
    }
    for (int i = 1; i < node->in_count; i++)
        PARE_TRY(pare_block_from(binder, node, node->in[i], 0, pare_along));
    return PARE_OK;
}

/* BatchNormalization (15, inference): four numbers a channel, everything else element by element.
 */
pare_status pare_prune_bind_batch_norm(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    if (x->shape.rank < 2 || pare_node_int(node, "training_mode", 0))
        return pare_block_all(binder, node, "normalizes over what it is given");
    PARE_TRY(pare_bind_range(binder, node, x, 0, x->shape.rank, y, 0));
    for (int i = 1; i < 5; i++) PARE_TRY(pare_bind_axes(binder, node, node->in[i], 0, y, 1));
    return PARE_OK;
}

/* Samples pass, channels in blocks of `block` with their scale and bias, the rest is worked along.
 */
static pare_status bind_norm(const pare_node *node, const pare_prune_binder *binder, int64_t block)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_axis_span to = pare_axis_all(y, 1);
    to.inner = block;
    to.count /= block;
    const pare_value *with[] = {x, node->in[1], node->in[2]};
    PARE_TRY(pare_bind_axes(binder, node, x, 0, y, 0));
    for (int i = 0; i < 3; i++) {
        pare_axis_span from = pare_axis_all(with[i], i == 0);
        from.inner = from.count / to.count; /* 1: one number a group (GroupNormalization 18) */
        from.count = to.count;
        PARE_TRY(binder->bind(binder->user, node, &from, &to));
    }
    PARE_TRY(pare_block_from(binder, node, x, 2, pare_along));
    return pare_block_from(binder, node, y, 2, pare_along);
}

/* InstanceNormalization (6) normalizes each channel by itself. */
pare_status pare_prune_bind_instance_norm(const pare_node *node, const pare_prune_binder *binder)
{
    return bind_norm(node, binder, 1);
}

/* GroupNormalization (18, 21): a whole group of channels leaves or none of it. */
pare_status pare_prune_bind_group_norm(const pare_node *node, const pare_prune_binder *binder)
{
    int64_t groups = pare_node_int(node, "num_groups", 1), c = node->in[0]->shape.dim[1];
    if (groups < 1 || c % groups) return pare_block_all(binder, node, pare_along);
    if (groups == 1) {
        PARE_TRY(pare_block_from(binder, node, node->in[0], 1, pare_along));
        PARE_TRY(pare_block_from(binder, node, node->out[0], 1, pare_along));
        for (int i = 1; i < 3; i++)
            PARE_TRY(pare_block_from(binder, node, node->in[i], 0, pare_along));
        return pare_bind_axes(binder, node, node->in[0], 0, node->out[0], 0);
    }
    return bind_norm(node, binder, c / groups);
}

pare_status pare_prune_cut_group_norm(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0];
    int64_t groups = pare_node_int(node, "num_groups", 1), c = x->shape.dim[1];
    if (!pare_cut_changed(cut, x, 1)) return PARE_OK;
    return pare_node_set_int(node, "num_groups", pare_cut_kept(cut, x, 1) / (c / groups));
}
