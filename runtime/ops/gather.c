/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, Scatter, TensorScatter, OneHot: shapes, gradients, prune rules. Gather's gradient rule
   emits GatherGrad (dY, indices) -> dX                    attributes axis, `shape` of X */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/pad.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/resize.h"

#include <inttypes.h>
#include <string.h>

/* Puts dims [from, to) of s at the end of y. */
static void append(pare_shape *y, const pare_shape *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        y->dim[y->rank] = s->dim[i];
        y->name[y->rank++] = s->name[i];
    }
}

static pare_status check_rank(const pare_node *node, int rank)
{
    return rank <= PARE_MAX_RANK
               ? PARE_OK
               : PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %d is above %d", rank, PARE_MAX_RANK);
}

/* Gather 1: data's axis is replaced by the indices' shape. */
pare_status pare_infer_gather(pare_node *node)
{
    pare_value *x, *at;
    int axis;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0)
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.rank >= 0 && at->shape.rank >= 0) {
        PARE_TRY(check_rank(node, x->shape.rank - 1 + at->shape.rank));
        y.rank = 0;
        append(&y, &x->shape, 0, axis);
        append(&y, &at->shape, 0, at->shape.rank);
        append(&y, &x->shape, axis + 1, x->shape.rank);
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* GatherElements and ScatterElements: on every axis but one an index counts for its own position.
 */
static pare_status check_inside(const pare_node *node, const pare_shape *at, const pare_shape *x,
                                int axis)
{
    if (pare_shape_count(at) == 0) return PARE_OK;
    for (int a = 0; a < x->rank; a++)
        if (a != axis && x->dim[a] >= 0 && at->dim[a] > x->dim[a])
            return PARE_FAIL_NODE(node, INPUT, "indices are larger than data on axis %d", a);
    return PARE_OK;
}

/* GatherElements 11: the indices' shape. */
pare_status pare_infer_gather_elements(pare_node *node)
{
    pare_value *x, *at;
    int axis = 0;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    if (x->shape.rank >= 0)
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.rank >= 0 && at->shape.rank >= 0 && x->shape.rank != at->shape.rank)
        return PARE_FAIL_NODE(node, INPUT, "indices have rank %d, expected %d", at->shape.rank,
                              x->shape.rank);
    if (x->shape.rank >= 0 && at->shape.rank >= 0)
        PARE_TRY(check_inside(node, &at->shape, &x->shape, axis));
    pare_infer_out(node, 0, x->dtype, &at->shape);
    return PARE_OK;
}

/* GatherND 12: indices [batch..., more..., k] name slices of data after batch + k axes. */
pare_status pare_infer_gather_nd(pare_node *node)
{
    pare_value *x, *at;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    pare_shape y = pare_shape_unknown(-1);
    int q = at->shape.rank;
    int64_t batch = pare_node_int(node, "batch_dims", 0);
    if (q == 0) return PARE_FAIL_NODE(node, INPUT, "'%s' is a scalar, expected an axis", at->name);
    if (x->shape.rank >= 0 && q >= 1 && at->shape.dim[q - 1] >= 0) {
        int64_t k = at->shape.dim[q - 1];
        if (batch < 0 || batch >= q || batch > x->shape.rank || k > x->shape.rank - batch)
            return PARE_FAIL_NODE(node, INPUT,
                                  "%" PRId64 " batch axes and indices of %" PRId64
                                  " values do not fit data of rank %d",
                                  batch, k, x->shape.rank);
        for (int i = 0; i < batch; i++)
            if (x->shape.dim[i] >= 0 && at->shape.dim[i] >= 0 &&
                x->shape.dim[i] != at->shape.dim[i])
                return PARE_FAIL_NODE(node, INPUT,
                                      "batch axis %d of indices is %" PRId64 ", of data %" PRId64,
                                      i, at->shape.dim[i], x->shape.dim[i]);
        PARE_TRY(check_rank(node, q - 1 + x->shape.rank - (int)(batch + k)));
        y.rank = 0;
        append(&y, &at->shape, 0, q - 1);
        append(&y, &x->shape, (int)(batch + k), x->shape.rank);
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* Scatter (9) became ScatterElements (11). */
pare_status pare_upgrade_scatter(pare_node *node, int64_t version)
{
    (void)version;
    node->op_type = "ScatterElements";
    return PARE_OK;
}

/* ScatterND and ScatterElements: data with some elements replaced. */
pare_status pare_infer_scatter(pare_node *node)
{
    pare_value *x, *at, *updates;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &at));
    PARE_TRY(pare_infer_need(node, 2, &updates));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    int r = x->shape.rank, q = at->shape.rank, u = updates->shape.rank;
    if (q == 0 && pare_node_is(node, "ScatterND"))
        return PARE_FAIL_NODE(node, INPUT, "'%s' is a scalar, expected an axis", at->name);
    if (pare_node_is(node, "ScatterND")) {
        int64_t k = q >= 1 ? at->shape.dim[q - 1] : -1;
        if (r >= 0 && k >= 0 && (k > r || (u >= 0 && u != q - 1 + r - k)))
            return PARE_FAIL_NODE(node, INPUT,
                                  "data, indices and updates of ranks %d, %d and %d do "
                                  "not fit each other",
                                  r, q, u);
        for (int i = 0; r >= 0 && k >= 0 && i < u; i++) {
            int64_t n = updates->shape.dim[i];
            int64_t want = i < q - 1 ? at->shape.dim[i] : x->shape.dim[k + i - (q - 1)];
            if (n >= 0 && want >= 0 && n != want)
                return PARE_FAIL_NODE(node, INPUT,
                                      "updates have %" PRId64 " on axis %d, expected %" PRId64, n,
                                      i, want);
        }
    } else {
        int axis = 0;
        if (r >= 0) PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), r, &axis));
        bool equal = pare_shape_equal(&at->shape, &updates->shape);
        if (r >= 0 && q >= 0 && u >= 0 &&
            (q != r || u != r ||
             (!equal && pare_shape_known(&at->shape) && pare_shape_known(&updates->shape))))
            return PARE_FAIL_NODE(node, INPUT,
                                  "indices and updates must have one shape and data's rank");
        if (r >= 0 && q >= 0) PARE_TRY(check_inside(node, &at->shape, &x->shape, axis));
    }
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

/* TensorScatter (24): past_cache with update written along one axis, from write_indices on. */
pare_status pare_infer_tensor_scatter(pare_node *node)
{
    pare_value *x, *u;
    int axis;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &u));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    const char *mode = pare_node_string(node, "mode", "linear");
    if (strcmp(mode, "linear") != 0 && strcmp(mode, "circular") != 0)
        return PARE_FAIL_NODE(node, INPUT, "mode is '%s', expected linear or circular", mode);
    const pare_value *at = pare_node_in(node, 2);
    const pare_shape *s = &x->shape, *n = &u->shape;
    if (s->rank >= 0) {
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -2), s->rank, &axis));
        if (axis == 0) return PARE_FAIL_NODE(node, INPUT, "axis 0 is the batch, expected another");
        bool fits = n->rank < 0 || n->rank == s->rank;
        for (int i = 0; fits && i < n->rank; i++)
            fits = s->dim[i] < 0 || n->dim[i] < 0 || n->dim[i] == s->dim[i] ||
                   (i == axis && n->dim[i] < s->dim[i]);
        if (!fits)
            return PARE_FAIL_NODE(node, INPUT, "update '%s' does not fit into '%s' along axis %d",
                                  u->name, x->name, axis);
        if (at && at->shape.rank >= 0 &&
            (at->shape.rank != 1 ||
             (at->shape.dim[0] >= 0 && s->dim[0] >= 0 && at->shape.dim[0] != s->dim[0])))
            return PARE_FAIL_NODE(node, INPUT, "'%s' must have one index for each of the batch",
                                  at->name);
    }
    if (at && at->dtype && at->dtype != PARE_s64)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has type %s, expected s64", at->name,
                              pare_type(at->dtype)->name);
    pare_infer_out(node, 0, x->dtype, s);
    return PARE_OK;
}

/* Inputs indices, depth, values [off, on]; axis is a new one. */
pare_status pare_infer_one_hot(pare_node *node)
{
    pare_value *x;
    const int64_t *depth;
    int count, axis;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints(node, 1, &depth, &count));
    if (depth && (count != 1 || depth[0] < 0))
        return PARE_FAIL_NODE(node, INPUT, "depth must be one value, at least 0");
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0) {
        PARE_TRY(check_rank(node, x->shape.rank + 1));
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", -1), x->shape.rank + 1, &axis));
        y.rank = 0;
        append(&y, &x->shape, 0, axis);
        append(&y, &(pare_shape){.rank = 1, .dim = {depth ? depth[0] : -1}}, 0, 1);
        append(&y, &x->shape, axis, x->shape.rank);
    }
    pare_infer_out(node, 0, pare_infer_dtype(node, 2), &y);
    return PARE_OK;
}

pare_status pare_grad_gather(pare_grad *g, const pare_node *node)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), node->in[1]};
    pare_node *made = pare_grad_begin(g, "GatherGrad", in, 2, 1);
    pare_grad_int(g, made, "axis", pare_node_int(node, "axis", 0));
    pare_grad_shape(g, made, &node->in[0]->shape);
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* Elements are added back where they were taken: ScatterElements (18), ScatterND (18). */
static pare_status scatter(pare_grad *g, const pare_node *node, const char *op, bool along)
{
    pare_value *in[] = {pare_grad_zeros(g, node->in[0]), node->in[1],
                        pare_grad_of(g, node->out[0])};
    pare_node *made = pare_grad_begin(g, op, in, 3, 1);
    if (along) pare_grad_int(g, made, "axis", pare_node_int(node, "axis", 0));
    pare_grad_string(g, made, "reduction", "add");
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

pare_status pare_grad_gather_elements(pare_grad *g, const pare_node *node)
{
    return scatter(g, node, "ScatterElements", true);
}

pare_status pare_grad_gather_nd(pare_grad *g, const pare_node *node)
{
    if (pare_node_int(node, "batch_dims", 0))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule for batch_dims");
    return scatter(g, node, "ScatterND", false);
}

/* Gather (1 .. 13). Constant indices: a single one pins its channel, a list picks its channels one
   by one. Computed ones (a table of words) may ask for any. */
pare_status pare_prune_bind_gather(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *at = node->in[1], *y = node->out[0];
    const int64_t *index;
    int axis, count, rank = at->shape.rank;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    PARE_TRY(pare_bind_range(binder, node, x, 0, axis, y, 0));
    PARE_TRY(pare_bind_range(binder, node, x, axis + 1, x->shape.rank - axis - 1, y, axis + rank));
    PARE_TRY(pare_infer_ints(node, 1, &index, &count));
    if (!index || rank > 1) {
        PARE_TRY(
            pare_block_axis(binder, node, x, axis, "looks it up by numbers of its other input"));
        return pare_bind_range(binder, node, at, 0, rank, y, axis);
    }
    if (rank && count > 1) PARE_TRY(pare_bind_axes(binder, node, at, 0, y, axis));
    for (int i = 0; i < count; i++) {
        int64_t n = x->shape.dim[axis], channel = index[i] < 0 ? index[i] + n : index[i];
        if (channel < 0 || channel >= n)
            return pare_block_all(binder, node, "looks up what is not there");
        pare_axis_span a = {x, axis, 1, channel, 1, 1, 1}, b = {y, axis, 1, i, 1, 1, 1};
        PARE_TRY(rank && count > 1 ? binder->bind(binder->user, node, &a, &b)
                                   : binder->block(binder->user, node, &a, "takes this one out"));
    }
    return PARE_OK;
}

pare_status pare_prune_cut_gather(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0], *y = cut->before->out[0];
    const int64_t *index;
    int axis, count, kept = 0;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    PARE_TRY(pare_infer_ints(cut->before, 1, &index, &count));
    if (!index || cut->before->in[1]->shape.rank > 1 || !pare_cut_changed(cut, x, axis))
        return PARE_OK;
    int64_t *to = pare_arena_alloc(&node->graph->model->arena, (size_t)count + 1, sizeof *to);
    if (!to) return PARE_MEMORY;
    bool list = cut->before->in[1]->shape.rank == 1 && count > 1;
    for (int i = 0; i < count; i++) {
        int64_t channel = index[i] < 0 ? index[i] + x->shape.dim[axis] : index[i];
        if (list && !cut->kept(cut->user, y, axis, i, 1)) continue;
        to[kept++] = cut->kept(cut->user, x, axis, 0, channel);
    }
    return cut->set_ints(cut->user, node, 1, to, NULL, kept);
}
