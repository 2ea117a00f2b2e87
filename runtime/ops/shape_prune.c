/* SPDX-License-Identifier: Apache-2.0 */
/* The prune rules of operators that move data.

   A reshape keeps the order of the elements. Reading both shapes from the left, it falls into
   stretches with equally many elements on both sides; within one the places where an axis ends, on
   either side, cut it into factors, outermost first. (768) -> (12, 64) has the factors 12 and 64:
   an index i of the long axis is i / 64 in the first and i % 64 in the second. One factor of a
   stretch carries the channels (attention heads, the channels of a flattened image); axes without
   it stay. */
#include "runtime/ops/moves.h"
#include "runtime/ops/pad.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/resize.h"

/* All axes of x but one against the same of y. */
static pare_status bind_beside(const pare_node *node, const pare_prune_binder *binder,
                               const pare_value *x, const pare_value *y, int axis)
{
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis) PARE_TRY(pare_bind_axes(binder, node, x, i, y, i));
    return PARE_OK;
}

/* A part of length n, the channels of `whole` from start on. */
static pare_status bind_part(const pare_node *node, const pare_prune_binder *binder,
                             const pare_value *whole, int64_t start, const pare_value *part,
                             int axis)
{
    pare_axis_span a = pare_axis_all(whole, axis), b = pare_axis_all(part, axis);
    a.start = start;
    a.length = a.count = b.count;
    PARE_TRY(binder->bind(binder->user, node, &a, &b));
    return bind_beside(node, binder, part, whole, axis);
}

/* Concat (4 .. 13). */
pare_status pare_prune_bind_concat(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *y = node->out[0];
    int64_t start = 0;
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), y->shape.rank, &axis));
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        PARE_TRY(bind_part(node, binder, y, start, node->in[i], axis));
        start += node->in[i]->shape.dim[axis];
    }
    return PARE_OK;
}

/* Split (2 .. 18). */
pare_status pare_prune_bind_split(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0];
    int64_t start = 0;
    int axis;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    for (int i = 0; i < node->out_count; i++) {
        if (!node->out[i]) return pare_block_all(binder, node, "leaves a part out");
        PARE_TRY(bind_part(node, binder, x, start, node->out[i], axis));
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

pare_status pare_slice_axes(const pare_node *node, pare_slice_axis *out, int *count)
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
        pare_slice_axis *s = &out[i];
        PARE_TRY(pare_infer_axis(node, axes && i < axes_count ? axes[i] : i, x->rank, &s->axis));
        s->start = starts[i] < 0 ? starts[i] + x->dim[s->axis] : starts[i];
        s->start = s->start < 0 ? 0 : s->start;
        s->length = y->dim[s->axis];
        s->step = steps && i < steps_count ? steps[i] : 1;
    }
    return PARE_OK;
}

bool pare_slice_known(const pare_node *node, pare_slice_axis *out, int *count)
{
    const pare_value *x = pare_node_in(node, 0);
    if (!pare_node_is(node, "Slice") || !x || !node->out_count || !node->out[0] ||
        !pare_shape_known(&x->shape) || !pare_shape_known(&node->out[0]->shape))
        return false;
    const bool read = pare_slice_axes(node, out, count) == PARE_OK;
    if (!read) pare_ctx_clear(node->graph->model->ctx);
    return read && *count >= 0;
}

bool pare_slice_stretch(const pare_node *node, int *axis, int64_t *first)
{
    pare_slice_axis s[PARE_MAX_RANK];
    int count, cut = 0;
    *axis = 0, *first = 0;
    if (!pare_slice_known(node, s, &count)) return false;
    for (int i = 0; i < count; i++) {
        if (s[i].step != 1) return false;
        if (s[i].length == node->in[0]->shape.dim[s[i].axis]) continue;
        *axis = s[i].axis, *first = s[i].start;
        cut++;
    }
    return cut <= 1;
}

pare_status pare_prune_bind_slice(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_slice_axis s[PARE_MAX_RANK];
    bool sliced[PARE_MAX_RANK] = {false};
    int count;
    PARE_TRY(pare_slice_axes(node, s, &count));
    if (count < 0) return pare_block_all(binder, node, "cuts where only a run says");
    for (int i = 0; i < count; i++) {
        pare_axis_span a = pare_axis_all(x, s[i].axis), b = pare_axis_all(y, s[i].axis);
        sliced[s[i].axis] = true;
        a.start = s[i].start;
        a.length = a.count = b.count;
        if (s[i].step == 1) {
            PARE_TRY(binder->bind(binder->user, node, &a, &b));
        } else {
            PARE_TRY(pare_block_axis(binder, node, x, s[i].axis, "cuts it in steps"));
            PARE_TRY(pare_block_axis(binder, node, y, s[i].axis, "cuts it in steps"));
        }
    }
    for (int i = 0; i < x->shape.rank; i++)
        if (!sliced[i]) PARE_TRY(pare_bind_axes(binder, node, x, i, y, i));
    return PARE_OK;
}

/* Starts and ends move to where their channels are now. */
pare_status pare_prune_cut_slice(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0];
    pare_slice_axis s[PARE_MAX_RANK];
    int64_t start[PARE_MAX_RANK] = {0}, end[PARE_MAX_RANK] = {0};
    bool changed[PARE_MAX_RANK] = {false}, any = false;
    int count;
    PARE_TRY(pare_slice_axes(cut->before, s, &count));
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

/* Tile (6, 13): copy after copy. */
pare_status pare_prune_bind_tile(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    for (int i = 0; i < x->shape.rank; i++) {
        pare_axis_span a = pare_axis_all(y, i), b = pare_axis_all(x, i);
        if (!b.count) return pare_block_all(binder, node, "has no elements");
        a.count = b.count;
        PARE_TRY(binder->bind(binder->user, node, &a, &b));
    }
    return PARE_OK;
}

/* deep [N, C * b * b, H, W], wide [N, C, H * b, W * b]; inner: of the deep channels' coordinate. */
static pare_status bind_blocks(const pare_node *node, const pare_prune_binder *binder,
                               const pare_value *deep, const pare_value *wide, int64_t inner)
{
    pare_axis_span a = pare_axis_all(deep, 1), b = pare_axis_all(wide, 1);
    a.inner = inner;
    a.count = b.count;
    PARE_TRY(binder->bind(binder->user, node, &a, &b));
    PARE_TRY(pare_bind_axes(binder, node, deep, 0, wide, 0));
    PARE_TRY(pare_block_from(binder, node, deep, 2, "exchanges it with channels"));
    return pare_block_from(binder, node, wide, 2, "exchanges it with channels");
}

/* DepthToSpace (11, 13): channel k * C + c (DCR) or c * b * b + k (CRD). */
pare_status pare_prune_bind_depth_to_space(const pare_node *node, const pare_prune_binder *binder)
{
    const char *mode = pare_node_string(node, "mode", "DCR");
    int64_t b = pare_node_int(node, "blocksize", 1);
    return bind_blocks(node, binder, node->in[0], node->out[0], mode[0] == 'C' ? b * b : 1);
}

/* SpaceToDepth (1, 13): channel k * C + c. */
pare_status pare_prune_bind_space_to_depth(const pare_node *node, const pare_prune_binder *binder)
{
    return bind_blocks(node, binder, node->out[0], node->in[0], 1);
}

/* Axes first .. last - 1 of the input, from .. to - 1 of the output. */
typedef struct stretch {
    int first, last, from, to;
} stretch;

/* The next stretch from where s ends; false at the end of either shape. */
static bool next_stretch(const pare_shape *x, const pare_shape *y, stretch *s)
{
    int i = s->last, k = s->to;
    while (i < x->rank && x->dim[i] == 1) i++;
    while (k < y->rank && y->dim[k] == 1) k++;
    if (i == x->rank || k == y->rank) return false;
    int64_t a = x->dim[i], b = y->dim[k];
    *s = (stretch){i++, 0, k++, 0};
    while (a != b) {
        if (a < b && i < x->rank)
            a *= x->dim[i++];
        else if (b < a && k < y->rank)
            b *= y->dim[k++];
        else
            return false;
    }
    s->last = i;
    s->to = k;
    return true;
}

/* Inner sizes of the factors of a stretch, outermost first: factor t runs from outer[t] down to
   inner[t]. 0 where the axes' ends do not divide each other. */
typedef struct factors {
    int count;
    int64_t outer[2 * PARE_MAX_RANK], inner[2 * PARE_MAX_RANK];
} factors;

static bool find_factors(const pare_shape *x, const pare_shape *y, const stretch *s, factors *f)
{
    int i = s->first, k = s->from;
    int64_t rest = 1, a, b;
    for (int d = i; d < s->last; d++) rest *= x->dim[d];
    *f = (factors){0};
    a = b = rest; /* what is below the axes passed so far */
    while (rest > 1) {
        while (a == rest && i < s->last) a /= x->dim[i++];
        while (b == rest && k < s->to) b /= y->dim[k++];
        int64_t inner = a > b ? a : b;
        if (inner < 1 || rest % inner || inner >= rest) return false;
        if ((a != inner && inner % a) || (b != inner && inner % b)) return false;
        f->outer[f->count] = rest;
        f->inner[f->count++] = inner;
        rest = inner;
    }
    return f->count > 0;
}

/* The axis of [first, last) that holds the factor, with its channels' coordinates. */
static bool span_of(const pare_value *v, int first, int last, int64_t outer, int64_t inner,
                    pare_axis_span *out)
{
    int64_t below = 1;
    for (int d = last - 1; d >= first; d--) {
        int64_t above = below * v->shape.dim[d];
        if (inner >= below && outer <= above) {
            *out = pare_axis_all(v, d);
            out->inner = inner / below;
            out->count = outer / inner;
            return true;
        }
        below = above;
    }
    return false;
}

static pare_status block_others(const pare_node *node, const pare_prune_binder *binder,
                                const pare_value *v, int first, int last, int carrier)
{
    for (int d = first; d < last; d++)
        if (d != carrier)
            PARE_TRY(pare_block_axis(binder, node, v, d, "merges or splits it with another axis"));
    return PARE_OK;
}

static pare_status bind_stretch(const pare_node *node, const pare_prune_binder *binder,
                                const stretch *s, int part)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_axis_span a, b;
    factors f;
    if (!find_factors(&x->shape, &y->shape, s, &f)) {
        PARE_TRY(block_others(node, binder, x, s->first, s->last, -1));
        return block_others(node, binder, y, s->from, s->to, -1);
    }
    int t = f.count > 1 ? binder->choose(binder->user, node, part, f.count) : 0;
    if (t < 0) return PARE_OK;
    if (!span_of(x, s->first, s->last, f.outer[t], f.inner[t], &a) ||
        !span_of(y, s->from, s->to, f.outer[t], f.inner[t], &b))
        return pare_block_all(binder, node, "merges or splits its axes");
    PARE_TRY(binder->bind(binder->user, node, &a, &b));
    PARE_TRY(block_others(node, binder, x, s->first, s->last, a.axis));
    return block_others(node, binder, y, s->from, s->to, b.axis);
}

/* Reshape (5 .. 21), Flatten, Squeeze, Unsqueeze: shapes say it all. */
pare_status pare_prune_bind_reshape(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_shape *x = &node->in[0]->shape, *y = &node->out[0]->shape;
    stretch s = {0};
    int part = 0;
    if (pare_shape_count(x) < 1) return pare_block_all(binder, node, "has no elements");
    while (next_stretch(x, y, &s)) PARE_TRY(bind_stretch(node, binder, &s, part++));
    return PARE_OK;
}

typedef struct shape_ints {
    int64_t dim[PARE_MAX_RANK];
    bool changed[PARE_MAX_RANK];
    bool any;
} shape_ints;

/* Elements that name an extent which is another now. 0 and -1 continue meaning what they do. */
static void changed_extents(const pare_prune_cut *cut, const int64_t *old, shape_ints *out)
{
    const pare_value *x = cut->before->in[0], *y = cut->before->out[0];
    for (int i = 0; i < y->shape.rank; i++) {
        int64_t kept = pare_cut_kept(cut, y, i);
        bool copies = old[i] == 0 && i < x->shape.rank && pare_cut_kept(cut, x, i) == kept;
        out->dim[i] = old[i];
        if (kept == y->shape.dim[i] || old[i] == -1 || copies) continue;
        out->dim[i] = kept;
        out->changed[i] = out->any = true;
    }
}

/* A shape computed while the model runs is replaced by what holds for all sizes: extents where they
   are the same for all, 0 where the input's dim is copied, -1 once. What none of these can say
   stays as it is computed. */
static pare_status open_extents(const pare_prune_cut *cut, shape_ints *out)
{
    const pare_shape *x = &cut->before->in[0]->shape, *y = &cut->before->out[0]->shape;
    const pare_shape *x2 = cut->again ? &cut->again->in[0]->shape : x;
    const pare_shape *y2 = cut->again ? &cut->again->out[0]->shape : y;
    bool rest = false;
    for (int i = 0; i < y->rank; i++) {
        int64_t kept = pare_cut_kept(cut, cut->before->out[0], i);
        bool open = y->dim[i] != y2->dim[i], was_changed = kept != y->dim[i];
        bool copies = i < x->rank && x->dim[i] == y->dim[i] && x2->dim[i] == y2->dim[i] &&
                      pare_cut_kept(cut, cut->before->in[0], i) == kept;
        bool last = open && !copies && !rest;
        if (open && !copies && rest && was_changed)
            return PARE_FAIL_NODE(cut->before, UNSUPPORTED,
                                  "axis %d of its output depends on the input's size and on what "
                                  "is pruned: fix the sizes of the model's inputs",
                                  i);
        out->dim[i] = !open ? kept : copies ? 0 : -1;
        out->changed[i] = !open || copies || last;
        rest = rest || last;
    }
    return PARE_OK;
}

pare_status pare_prune_cut_reshape(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *y = cut->before->out[0], *shape = pare_node_in(node, 1);
    const int64_t *old;
    shape_ints to = {0};
    int count;
    PARE_TRY(pare_cut_ints(cut, 1, &old, &count));
    if (!shape || count != y->shape.rank) return PARE_OK;
    changed_extents(cut, old, &to);
    if (!to.any) return PARE_OK;
    if (!shape->data) {
        PARE_TRY(open_extents(cut, &to));
        pare_node_remove_attr(node, "allowzero"); /* no axis is 0 long here */
    }
    return cut->set_ints(cut->user, node, 1, to.dim, to.changed, count);
}

/* Transpose (1 .. 21). */
pare_status pare_prune_bind_transpose(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    int count, rank = x->shape.rank;
    const int64_t *perm = pare_node_ints(node, "perm", &count);
    for (int i = 0; i < rank; i++) {
        int from = perm && i < count ? (int)perm[i] : rank - 1 - i;
        PARE_TRY(pare_bind_axes(binder, node, x, from, y, i));
    }
    return PARE_OK;
}

/* Expand (8, 13): axes that are there already. Those it makes hold copies of one. */
pare_status pare_prune_bind_expand(const pare_node *node, const pare_prune_binder *binder)
{
    return pare_bind_broadcast(binder, node, node->in[0], node->out[0]);
}

pare_status pare_prune_cut_expand(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0], *y = cut->before->out[0];
    const int64_t *old;
    shape_ints to = {0};
    int count;
    PARE_TRY(pare_cut_ints(cut, 1, &old, &count));
    for (int i = 0; i < count && count <= y->shape.rank; i++) {
        int axis = y->shape.rank - count + i, of_x = x->shape.rank - count + i;
        bool copies = of_x >= 0 && x->shape.dim[of_x] == y->shape.dim[axis];
        to.dim[i] = copies ? 1 : pare_cut_kept(cut, y, axis); /* 1: as long as the input's */
        to.changed[i] = old[i] != 1 && pare_cut_changed(cut, y, axis);
        to.any = to.any || to.changed[i];
    }
    return to.any ? cut->set_ints(cut->user, node, 1, to.dim, to.changed, count) : PARE_OK;
}

/* ConstantOfShape (9 .. 21): a weight, all of one number, whose axes others bind. */
pare_status pare_prune_bind_constant_of_shape(const pare_node *node,
                                              const pare_prune_binder *binder)
{
    bool known = binder->constant(binder->user, node->in[0]);
    return known ? PARE_OK : pare_block_all(binder, node, "is made from sizes alone");
}

pare_status pare_prune_cut_constant_of_shape(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *y = cut->before->out[0];
    shape_ints to = {0};
    for (int i = 0; i < y->shape.rank; i++) {
        to.dim[i] = pare_cut_kept(cut, y, i);
        to.changed[i] = to.dim[i] != y->shape.dim[i];
        to.any = to.any || to.changed[i];
    }
    return to.any ? cut->set_ints(cut->user, node, 0, to.dim, to.changed, y->shape.rank) : PARE_OK;
}
