/* SPDX-License-Identifier: Apache-2.0 */
/* The prune column of operators that copy parts: joins, cuts, look-ups, paddings. */
#include "runtime/ops/pad.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/resize.h"

/* All axes of x but one against the same of y. */
static pare_status bind_beside(const pare_node *node, const pare_prune_units *units,
                               const pare_value *x, const pare_value *y, int axis)
{
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis) PARE_TRY(pare_bind_axes(units, node, x, i, y, i));
    return PARE_OK;
}

/* A part of length n, the units of `whole` from start on. */
static pare_status bind_part(const pare_node *node, const pare_prune_units *units,
                             const pare_value *whole, int64_t start, const pare_value *part,
                             int axis)
{
    pare_axis_span a = pare_axis_all(whole, axis), b = pare_axis_all(part, axis);
    a.start = start;
    a.length = a.count = b.count;
    PARE_TRY(units->bind(units->user, node, &a, &b));
    return bind_beside(node, units, part, whole, axis);
}

/* Concat (4 .. 13). */
pare_status pare_prune_bind_concat(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *y = node->out[0];
    int64_t start = 0;
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), y->shape.rank, &axis));
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        PARE_TRY(bind_part(node, units, y, start, node->in[i], axis));
        start += node->in[i]->shape.dim[axis];
    }
    return PARE_OK;
}

/* Split (2 .. 18). */
pare_status pare_prune_bind_split(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0];
    int64_t start = 0;
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    for (int i = 0; i < node->out_count; i++) {
        if (!node->out[i]) return pare_block_all(units, node, "leaves a part out");
        PARE_TRY(bind_part(node, units, x, start, node->out[i], axis));
        start += node->out[i]->shape.dim[axis];
    }
    return PARE_OK;
}

/* Sizes are written out where they were left to be equal. */
pare_status pare_prune_cut_split(const pare_prune_cut *cut, pare_node *node)
{
    enum { MOST = 256 };
    const pare_node *before = cut->before;
    int64_t size[MOST];
    bool any = false;
    int axis;
    PARE_TRY(pare_infer_axis(before, pare_node_int(before, "axis", 0), before->in[0]->shape.rank,
                             &axis));
    for (int i = 0; i < before->out_count && i < MOST; i++) {
        size[i] = pare_cut_kept(cut, before->out[i], axis);
        any = any || pare_cut_changed(cut, before->out[i], axis);
    }
    if (!any) return PARE_OK;
    if (before->out_count > MOST)
        return PARE_FAIL_NODE(before, UNSUPPORTED, "it has %d outputs, expected %d at most",
                              before->out_count, MOST);
    pare_node_remove_attr(node, "num_outputs");
    return cut->set_ints(cut->user, node, 1, size, NULL, before->out_count);
}

/* --- Slice --- */

typedef struct slice_axis {
    int axis;
    int64_t start, length, step;
} slice_axis;

/* Slice (10 .. 13) as axes with starts inside the input; false where it is computed. */
static pare_status slice_read(const pare_node *node, slice_axis *out, int *count)
{
    const int64_t *starts, *axes, *steps;
    int n, axes_count, steps_count;
    const pare_shape *x = &node->in[0]->shape, *y = &node->out[0]->shape;
    PARE_TRY(pare_infer_ints(node, 1, &starts, &n));
    PARE_TRY(pare_infer_ints(node, 3, &axes, &axes_count));
    PARE_TRY(pare_infer_ints(node, 4, &steps, &steps_count));
    bool known = starts && (axes || !pare_node_in(node, 3)) && (steps || !pare_node_in(node, 4));
    *count = known && n <= PARE_MAX_RANK ? n : -1;
    for (int i = 0; i < *count; i++) {
        slice_axis *s = &out[i];
        PARE_TRY(pare_infer_axis(node, axes && i < axes_count ? axes[i] : i, x->rank, &s->axis));
        s->start = starts[i] < 0 ? starts[i] + x->dim[s->axis] : starts[i];
        s->start = s->start < 0 ? 0 : s->start;
        s->length = y->dim[s->axis];
        s->step = steps && i < steps_count ? steps[i] : 1;
    }
    return PARE_OK;
}

pare_status pare_prune_bind_slice(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    slice_axis s[PARE_MAX_RANK];
    bool sliced[PARE_MAX_RANK] = {false};
    int count;
    PARE_TRY(slice_read(node, s, &count));
    if (count < 0) return pare_block_all(units, node, "cuts where only a run says");
    for (int i = 0; i < count; i++) {
        pare_axis_span a = pare_axis_all(x, s[i].axis), b = pare_axis_all(y, s[i].axis);
        sliced[s[i].axis] = true;
        a.start = s[i].start;
        a.length = a.count = b.count;
        if (s[i].step == 1) {
            PARE_TRY(units->bind(units->user, node, &a, &b));
        } else {
            PARE_TRY(pare_block_axis(units, node, x, s[i].axis, "cuts it in steps"));
            PARE_TRY(pare_block_axis(units, node, y, s[i].axis, "cuts it in steps"));
        }
    }
    for (int i = 0; i < x->shape.rank; i++)
        if (!sliced[i]) PARE_TRY(pare_bind_axes(units, node, x, i, y, i));
    return PARE_OK;
}

/* Starts and ends move to where their units are now. */
pare_status pare_prune_cut_slice(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0];
    slice_axis s[PARE_MAX_RANK];
    int64_t start[PARE_MAX_RANK] = {0}, end[PARE_MAX_RANK] = {0};
    bool changed[PARE_MAX_RANK] = {false}, any = false;
    int count;
    PARE_TRY(slice_read(cut->before, s, &count));
    for (int i = 0; i < count; i++) {
        if (s[i].step != 1 || !pare_cut_changed(cut, x, s[i].axis)) continue;
        start[i] = cut->kept(cut->user, x, s[i].axis, 0, s[i].start);
        end[i] = start[i] + cut->kept(cut->user, x, s[i].axis, s[i].start, s[i].length);
        changed[i] = any = true;
    }
    if (!any) return PARE_OK;
    PARE_TRY(cut->set_ints(cut->user, node, 1, start, changed, count));
    return cut->set_ints(cut->user, node, 2, end, changed, count);
}

/* --- Gather --- */

/* Gather (1 .. 13). Constant indices: a single one pins its unit, a list picks its units one by
   one. Computed ones (a table of words) may ask for any. */
pare_status pare_prune_bind_gather(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *at = node->in[1], *y = node->out[0];
    const int64_t *index;
    int axis, count, rank = at->shape.rank;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    PARE_TRY(pare_bind_range(units, node, x, 0, axis, y, 0));
    PARE_TRY(pare_bind_range(units, node, x, axis + 1, x->shape.rank - axis - 1, y, axis + rank));
    PARE_TRY(pare_infer_ints(node, 1, &index, &count));
    if (!index || rank > 1) {
        PARE_TRY(
            pare_block_axis(units, node, x, axis, "looks it up by numbers of its other input"));
        return pare_bind_range(units, node, at, 0, rank, y, axis);
    }
    if (rank && count > 1) PARE_TRY(pare_bind_axes(units, node, at, 0, y, axis));
    for (int i = 0; i < count; i++) {
        int64_t n = x->shape.dim[axis], unit = index[i] < 0 ? index[i] + n : index[i];
        if (unit < 0 || unit >= n) return pare_block_all(units, node, "looks up what is not there");
        pare_axis_span a = {x, axis, 1, unit, 1, 1, 1}, b = {y, axis, 1, i, 1, 1, 1};
        PARE_TRY(rank && count > 1 ? units->bind(units->user, node, &a, &b)
                                   : units->block(units->user, node, &a, "takes this one out"));
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
        int64_t unit = index[i] < 0 ? index[i] + x->shape.dim[axis] : index[i];
        if (list && !cut->kept(cut->user, y, axis, i, 1)) continue;
        to[kept++] = cut->kept(cut->user, x, axis, 0, unit);
    }
    return cut->set_ints(cut->user, node, 1, to, NULL, kept);
}

/* --- Pad, Tile, Resize --- */

/* Pad (11 .. 19). Zeros around the channels (the short cut of a residual net) belong to the output.
 */
pare_status pare_prune_bind_pad(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_pad pad;
    PARE_TRY(pare_pad_read(node, x->shape.rank, &pad));
    if (!pad.known) return pare_block_all(units, node, "pads by what only a run says");
    for (int i = 0; i < x->shape.rank; i++) {
        bool none = !pad.begin[i] && !pad.end[i], cuts = pad.begin[i] < 0 || pad.end[i] < 0;
        pare_axis_span a = pare_axis_all(y, i), b = pare_axis_all(x, i);
        if (!none && (cuts || pad.mode != PARE_PAD_CONSTANT)) {
            PARE_TRY(pare_block_axis(units, node, x, i, "pads it with what is beside"));
            PARE_TRY(pare_block_axis(units, node, y, i, "pads it with what is beside"));
            continue;
        }
        a.start = pad.begin[i];
        a.length = a.count = b.count;
        PARE_TRY(units->bind(units->user, node, &a, &b));
    }
    return PARE_OK;
}

pare_status pare_prune_cut_pad(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0], *y = cut->before->out[0];
    int64_t to[2 * PARE_MAX_RANK] = {0};
    bool changed[2 * PARE_MAX_RANK] = {false}, any = false;
    const int64_t *axes;
    pare_pad pad;
    int count, rank = x->shape.rank, axis;
    PARE_TRY(pare_pad_read(cut->before, rank, &pad));
    PARE_TRY(pare_infer_ints(cut->before, 3, &axes, &count));
    int n = axes ? count : rank;
    for (int i = 0; i < n; i++) {
        PARE_TRY(pare_infer_axis(node, axes ? axes[i] : i, rank, &axis));
        if (pad.begin[axis] <= 0 && pad.end[axis] <= 0) continue;
        to[i] = cut->kept(cut->user, y, axis, 0, pad.begin[axis]);
        to[n + i] =
            cut->kept(cut->user, y, axis, pad.begin[axis] + x->shape.dim[axis], pad.end[axis]);
        changed[i] = to[i] != pad.begin[axis];
        changed[n + i] = to[n + i] != pad.end[axis];
        any = any || changed[i] || changed[n + i];
    }
    return any ? cut->set_ints(cut->user, node, 1, to, changed, 2 * n) : PARE_OK;
}

/* Tile (6, 13): copy after copy. */
pare_status pare_prune_bind_tile(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    for (int i = 0; i < x->shape.rank; i++) {
        pare_axis_span a = pare_axis_all(y, i), b = pare_axis_all(x, i);
        if (!b.count) return pare_block_all(units, node, "has no elements");
        a.count = b.count;
        PARE_TRY(units->bind(units->user, node, &a, &b));
    }
    return PARE_OK;
}

/* Resize (10 .. 19): axes that stay as long as they are. */
pare_status pare_prune_bind_resize(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_resize r;
    PARE_TRY(pare_resize_read(node, &x->shape, &r));
    if (!r.known || r.coord == PARE_TF_CROP_AND_RESIZE)
        return pare_block_all(units, node, "resizes it");
    for (int i = 0; i < x->shape.rank; i++) {
        if (r.in[i] == r.out[i] && r.scale[i] == 1.0F) {
            PARE_TRY(pare_bind_axes(units, node, x, i, y, i));
        } else {
            PARE_TRY(pare_block_axis(units, node, x, i, "resizes it"));
            PARE_TRY(pare_block_axis(units, node, y, i, "resizes it"));
        }
    }
    return PARE_OK;
}

pare_status pare_prune_cut_resize(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *y = cut->before->out[0];
    int64_t size[PARE_MAX_RANK] = {0};
    bool changed[PARE_MAX_RANK] = {false}, any = false;
    int count, axis, n = y->shape.rank;
    const int64_t *axes = pare_node_ints(node, "axes", &count);
    if (!pare_node_in(node, 3)) return PARE_OK; /* scales */
    if (axes) n = count;
    for (int i = 0; i < n; i++) {
        PARE_TRY(pare_infer_axis(node, axes ? axes[i] : i, y->shape.rank, &axis));
        size[i] = pare_cut_kept(cut, y, axis);
        changed[i] = pare_cut_changed(cut, y, axis);
        any = any || changed[i];
    }
    return any ? cut->set_ints(cut->user, node, 3, size, changed, n) : PARE_OK;
}

/* --- blocks of pixels and channels --- */

/* deep [N, C * b * b, H, W], wide [N, C, H * b, W * b]; inner: of the deep channels' coordinate. */
static pare_status bind_blocks(const pare_node *node, const pare_prune_units *units,
                               const pare_value *deep, const pare_value *wide, int64_t inner)
{
    pare_axis_span a = pare_axis_all(deep, 1), b = pare_axis_all(wide, 1);
    a.inner = inner;
    a.count = b.count;
    PARE_TRY(units->bind(units->user, node, &a, &b));
    PARE_TRY(pare_bind_axes(units, node, deep, 0, wide, 0));
    PARE_TRY(pare_block_from(units, node, deep, 2, "exchanges it with channels"));
    return pare_block_from(units, node, wide, 2, "exchanges it with channels");
}

/* DepthToSpace (11, 13): channel k * C + c (DCR) or c * b * b + k (CRD). */
pare_status pare_prune_bind_depth_to_space(const pare_node *node, const pare_prune_units *units)
{
    const char *mode = pare_node_string(node, "mode", "DCR");
    int64_t b = pare_node_int(node, "blocksize", 1);
    return bind_blocks(node, units, node->in[0], node->out[0], mode[0] == 'C' ? b * b : 1);
}

/* SpaceToDepth (1, 13): channel k * C + c. */
pare_status pare_prune_bind_space_to_depth(const pare_node *node, const pare_prune_units *units)
{
    return bind_blocks(node, units, node->out[0], node->in[0], 1);
}
