/* SPDX-License-Identifier: Apache-2.0 */
/* Shape and upgrade rules of normalizations. */
#include "runtime/ops/infer.h"

#include <inttypes.h>

/* LayerNormalization (17): Y like X; Mean and InvStdDev with the normalized axes as 1, in the type
   stash_type names. */
pare_status pare_infer_layer_norm(pare_node *node)
{
    pare_value *x, *scale;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &scale));
    pare_shape stats = x->shape;
    if (stats.rank >= 0) {
        int axis;
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), stats.rank, &axis));
        for (int i = axis; i < stats.rank; i++) {
            stats.dim[i] = 1;
            stats.name[i] = NULL;
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
    pare_dtype stash = (pare_dtype)pare_node_int(node, "stash_type", PARE_f32);
    if (stash != PARE_f32 && stash != PARE_bf16)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "stash_type %d is not f32 or bf16", (int)stash);
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, stash, &stats);
    pare_infer_out(node, 2, stash, &stats);
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
pare_status pare_up_group_norm(pare_node *node, int64_t version)
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
        PARE_TRY(pare_up_constant(node, i, i == 1 ? "scale" : "bias", old->dtype, 1, &c, wide));
    }
    return pare_up_opset(node, 21);
}

/* BatchNormalization (15), inference form: X [N, C, ...], scale, B, mean, var [C]. */
pare_status pare_infer_batch_norm(pare_node *node)
{
    if (pare_node_int(node, "training_mode", 0))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "training_mode is not supported: export for inference");
    const pare_value *x = pare_node_in(node, 0);
    int64_t c = x && x->shape.rank == 1 ? x->shape.dim[0] : channels(node);
    PARE_TRY(vectors(node, 1, 4, x && x->shape.rank == 1 ? -1 : c));
    return pare_infer_same(node);
}

/* BatchNormalization (7): attribute spatial (0: one statistic an element, refused), up to five
   outputs; (9): no spatial; (14): three outputs and training_mode. */
pare_status pare_up_batch_norm(pare_node *node, int64_t version)
{
    if (version >= 14) return PARE_OK;
    if (!pare_node_int(node, "spatial", 1))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "spatial = 0 has no newer form");
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] && (node->out[i]->user_count || node->out[i]->is_output))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "its training form (more than one output) is not supported");
    if (node->out_count > 1) node->out_count = 1;
    pare_node_remove_attr(node, "spatial");
    return pare_up_opset(node, 14);
}

/* LpNormalization (1): p is 1 or 2. */
pare_status pare_infer_lp_norm(pare_node *node)
{
    int64_t p = pare_node_int(node, "p", 2);
    if (p != 1 && p != 2)
        return PARE_FAIL_NODE(node, INPUT, "p is %" PRId64 ", it must be 1 or 2", p);
    return pare_infer_softmax(node);
}
