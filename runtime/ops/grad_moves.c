/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of operators that move elements: the move backwards, sums where an element went to
   several places. They emit, besides ONNX operators,
     GatherGrad (dY, indices) -> dX                    attributes axis, `shape` of X
     SliceGrad (dY, starts, ends, axes, steps) -> dX   attribute `shape` of X */
#include "runtime/ops/grad.h"

#include <string.h>

/* Reshape, Flatten, Squeeze, Unsqueeze. */
pare_status pare_grad_reshape(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]);
    pare_grad_give(g, node->in[0], pare_grad_reshaped(g, dy, &node->in[0]->shape));
    return g->status;
}

pare_status pare_grad_transpose(pare_grad *g, const pare_node *node)
{
    int count, rank = node->in[0]->shape.rank, back[PARE_MAX_RANK];
    const int64_t *perm = pare_node_ints(node, "perm", &count);
    for (int i = 0; i < rank; i++) back[perm ? (int)perm[i] : rank - 1 - i] = i;
    pare_grad_give(g, node->in[0], pare_grad_permuted(g, pare_grad_of(g, node->out[0]), back));
    return g->status;
}

/* Part first .. first + n - 1 of an axis of v. */
static pare_value *part(pare_grad *g, pare_value *v, int axis, int64_t first, int64_t n)
{
    pare_value *in[] = {v, pare_grad_ints(g, &first, 1),
                        pare_grad_ints(g, &(int64_t){first + n}, 1),
                        pare_grad_ints(g, &(int64_t){axis}, 1)};
    return pare_grad_emit(g, "Slice", in, 4);
}

pare_status pare_grad_concat(pare_grad *g, const pare_node *node)
{
    int axis;
    int64_t at = 0;
    PARE_TRY(
        pare_infer_axis(node, pare_node_int(node, "axis", 1), node->out[0]->shape.rank, &axis));
    for (int i = 0; i < node->in_count; i++) {
        int64_t n = node->in[i]->shape.dim[axis];
        if (pare_grad_wants(g, node->in[i]))
            pare_grad_give(g, node->in[i], part(g, pare_grad_of(g, node->out[0]), axis, at, n));
        at += n;
    }
    return g->status;
}

pare_status pare_grad_split(pare_grad *g, const pare_node *node)
{
    pare_value *all[64];
    if (node->out_count > 64)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule for more than 64 parts");
    for (int i = 0; i < node->out_count; i++) {
        all[i] = node->out[i] ? pare_grad_of(g, node->out[i]) : NULL;
        if (!all[i]) all[i] = pare_grad_zeros(g, node->out[i]);
    }
    pare_node *made = pare_grad_begin(g, "Concat", all, node->out_count, 1);
    pare_grad_int(g, made, "axis", pare_node_int(node, "axis", 0));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* dY put back where it came from, zeros elsewhere. */
pare_status pare_grad_slice(pare_grad *g, const pare_node *node)
{
    const pare_value *x = node->in[0];
    pare_value *in[5] = {pare_grad_of(g, node->out[0])};
    for (int i = 1; i < 5; i++) {
        in[i] = pare_node_in(node, i);
        if (in[i] && !in[i]->data)
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "it has no gradient rule for bounds that are computed");
    }
    pare_node *made = pare_grad_begin(g, "SliceGrad", in, 5, 1);
    pare_grad_shape(g, made, &x->shape);
    pare_grad_give(g, x, pare_grad_end(g, made));
    return g->status;
}

/* Pad (2) with a constant: the middle of dY; negative pads leave edges without gradient. */
pare_status pare_grad_pad(pare_grad *g, const pare_node *node)
{
    const pare_value *x = node->in[0];
    const int64_t *pads, *axes;
    int count, axis_count;
    PARE_TRY(pare_infer_ints(node, 1, &pads, &count));
    PARE_TRY(pare_infer_ints(node, 3, &axes, &axis_count));
    int n = pare_node_in(node, 3) ? axis_count : x->shape.rank;
    if (!pads || count != 2 * n || strcmp(pare_node_string(node, "mode", "constant"), "constant"))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has a gradient rule for mode constant with known pads only");
    pare_value *d = pare_grad_of(g, node->out[0]);
    for (int i = 0; i < n; i++) {
        int axis = axes ? (int)(axes[i] < 0 ? axes[i] + x->shape.rank : axes[i]) : i;
        if (pads[i] < 0 || pads[n + i] < 0)
            return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule for negative pads");
        if (pads[i] || pads[n + i]) d = part(g, d, axis, pads[i], x->shape.dim[axis]);
    }
    pare_grad_give(g, x, d);
    return g->status;
}

pare_status pare_grad_expand(pare_grad *g, const pare_node *node)
{
    pare_grad_give_sum(g, node->in[0], pare_grad_of(g, node->out[0]));
    return g->status;
}

/* Copies of an axis lie behind each other: (copies, n) of them are summed, axis by axis. */
pare_status pare_grad_tile(pare_grad *g, const pare_node *node)
{
    const pare_shape *x = &node->in[0]->shape;
    pare_value *d = pare_grad_of(g, node->out[0]);
    pare_shape s = node->out[0]->shape;
    for (int i = 0; i < x->rank; i++) {
        const bool copies[PARE_MAX_RANK] = {false, true};
        if (s.dim[i] == x->dim[i]) continue;
        int64_t before = pare_shape_product(&s, 0, i),
                after = pare_shape_product(&s, i + 1, s.rank);
        pare_shape apart = {.rank = 4, .dim = {before, s.dim[i] / x->dim[i], x->dim[i], after}};
        s.dim[i] = x->dim[i];
        d = pare_grad_reshaped(g, pare_grad_summed(g, pare_grad_reshaped(g, d, &apart), copies),
                               &s);
    }
    pare_grad_give(g, node->in[0], d);
    return g->status;
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

/* The same move with axes swapped: blocks of size b, in the order of DepthToSpace's mode DCR. */
pare_status pare_grad_depth_to_space(pare_grad *g, const pare_node *node)
{
    const pare_shape *x = &node->in[0]->shape;
    int64_t b = pare_node_int(node, "blocksize", 1);
    bool crd = !strcmp(pare_node_string(node, "mode", "DCR"), "CRD");
    pare_node *made =
        pare_grad_begin(g, "SpaceToDepth", (pare_value *[]){pare_grad_of(g, node->out[0])}, 1, 1);
    pare_grad_int(g, made, "blocksize", b);
    pare_value *d = pare_grad_end(g, made); /* channels (b, b, C) */
    if (crd) {                              /* to (C, b, b) */
        int64_t c = x->dim[1] / (b * b);
        pare_shape apart = {.rank = 5, .dim = {x->dim[0], b * b, c, x->dim[2], x->dim[3]}};
        d = pare_grad_permuted(g, pare_grad_reshaped(g, d, &apart), (int[]){0, 2, 1, 3, 4});
        d = pare_grad_reshaped(g, d, x);
    }
    pare_grad_give(g, node->in[0], d);
    return g->status;
}

pare_status pare_grad_space_to_depth(pare_grad *g, const pare_node *node)
{
    pare_node *made =
        pare_grad_begin(g, "DepthToSpace", (pare_value *[]){pare_grad_of(g, node->out[0])}, 1, 1);
    pare_grad_int(g, made, "blocksize", pare_node_int(node, "blocksize", 1));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* The triangle that was kept. */
pare_status pare_grad_trilu(pare_grad *g, const pare_node *node)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), pare_node_in(node, 1)};
    pare_node *made = pare_grad_begin(g, "Trilu", in, in[1] ? 2 : 1, 1);
    pare_grad_int(g, made, "upper", pare_node_int(node, "upper", 1));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}
