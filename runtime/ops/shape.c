/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, Flatten, Squeeze, Unsqueeze, Transpose, View: shapes and version conversion; gradients
   of these and of Expand, Tile and the blocks of pixels. AllGather and SliceSum. */
#include "runtime/ops/all_gather.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/kernel.h"

#include <inttypes.h>
#include <string.h>

/* One dim of -1 (known at): what is left of the input. Unknown input dims that are in the output
   under the same name cancel. */
static void solve_rest(const pare_shape *x, pare_shape *y, int at)
{
    int64_t in = 1, out = 1;
    bool used[PARE_MAX_RANK] = {false};
    const char *name = NULL;
    int unknown = 0;
    for (int i = 0; i < y->rank; i++) {
        if (i == at) continue;
        if (y->dim[i] >= 0) {
            if (__builtin_mul_overflow(out, y->dim[i], &out)) return;
            continue;
        }
        int k = 0;
        while (k < x->rank && (used[k] || x->dim[k] >= 0 || !x->name[k] || !y->name[i] ||
                               strcmp(x->name[k], y->name[i])))
            k++;
        if (k == x->rank) return;
        used[k] = true;
    }
    for (int k = 0; k < x->rank; k++) {
        if (used[k]) continue;
        if (x->dim[k] < 0) {
            unknown++;
            name = x->name[k];
        } else if (__builtin_mul_overflow(in, x->dim[k], &in)) {
            return;
        }
    }
    if (unknown == 0 && out > 0) y->dim[at] = in / out;
    if (unknown == 1 && in == out) y->name[at] = name;
}

static pare_status check_count(const pare_node *node, const pare_shape *x, const pare_shape *y)
{
    char from[256], to[256];
    int64_t in = pare_shape_count(x), out = pare_shape_count(y);
    if (in < 0 || out < 0 || in == out) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s has %" PRId64 " elements and cannot become %s",
                          pare_shape_text(x, from, sizeof from), in,
                          pare_shape_text(y, to, sizeof to));
}

/* Reshape 14: 0 copies the input's dim (unless allowzero), one -1 takes the rest. */
static pare_status reshape_to(pare_node *node, const pare_value *x, const int64_t *dims, int rank,
                              bool allow_zero)
{
    pare_shape y = pare_shape_unknown(rank);
    int rest = -1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == -1) {
            if (rest >= 0) return PARE_FAIL_NODE(node, INPUT, "its shape has more than one -1");
            rest = i;
        } else if (dims[i] < 0) {
            return PARE_FAIL_NODE(node, INPUT, "its shape has a dimension of %" PRId64, dims[i]);
        } else if (dims[i] > 0 || allow_zero) {
            y.dim[i] = dims[i];
        } else if (x->shape.rank >= 0) {
            if (i >= x->shape.rank)
                return PARE_FAIL_NODE(node, INPUT,
                                      "0 at position %d of its shape copies a dimension "
                                      "that the input of rank %d does not have",
                                      i, x->shape.rank);
            y.dim[i] = x->shape.dim[i];
            y.name[i] = x->shape.name[i];
        }
    }
    if (rest >= 0 && x->shape.rank >= 0) solve_rest(&x->shape, &y, rest);
    PARE_TRY(check_count(node, &x->shape, &y));
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

pare_status pare_infer_reshape(pare_node *node)
{
    pare_value *x, *shape;
    const int64_t *dims;
    int count;
    bool known;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints_or_attr(node, 1, "shape", &dims, &count, &known));
    shape = pare_node_in(node, 1);
    int64_t rank = known ? count : shape && shape->shape.rank == 1 ? shape->shape.dim[0] : -1;
    if (rank > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %" PRId64 " is above %d", rank,
                              PARE_MAX_RANK);
    if (known) return reshape_to(node, x, dims, count, pare_node_int(node, "allowzero", 0));
    pare_shape y = pare_shape_unknown((int)rank);
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* Flatten 13: [product before axis, product from axis]. */
pare_status pare_infer_flatten(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = pare_shape_unknown(2);
    int rank = x->shape.rank;
    if (rank >= 0) {
        int64_t axis = pare_node_int(node, "axis", 1);
        if (axis < 0) axis += rank;
        if (axis < 0 || axis > rank)
            return PARE_FAIL_NODE(node, INPUT, "axis %" PRId64 " is outside a tensor of rank %d",
                                  axis, rank);
        y.dim[0] = pare_shape_product(&x->shape, 0, (int)axis);
        y.dim[1] = pare_shape_product(&x->shape, (int)axis, rank);
        if (axis == 1) y.name[0] = x->shape.name[0];
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

pare_status pare_infer_squeeze(pare_node *node)
{
    pare_value *x;
    const int64_t *axes;
    int count;
    bool known, drop[PARE_MAX_RANK] = {false};
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints_or_attr(node, 1, "axes", &axes, &count, &known));
    pare_shape y = pare_shape_unknown(-1);
    const pare_shape *s = &x->shape;
    bool ready = known && s->rank >= 0 && (axes || pare_shape_known(s));
    if (ready) {
        y.rank = 0;
        if (axes) PARE_TRY(pare_infer_axes(node, axes, count, s->rank, drop));
        for (int i = 0; i < s->rank; i++) {
            if (axes && drop[i] && s->dim[i] >= 0 && s->dim[i] != 1)
                return PARE_FAIL_NODE(node, INPUT, "axis %d has length %" PRId64 ", expected 1", i,
                                      s->dim[i]);
            if (axes ? drop[i] : s->dim[i] == 1) continue;
            y.dim[y.rank] = s->dim[i];
            y.name[y.rank++] = s->name[i];
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

pare_status pare_infer_unsqueeze(pare_node *node)
{
    pare_value *x;
    const int64_t *axes;
    int count;
    bool known, fresh[PARE_MAX_RANK];
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints_or_attr(node, 1, "axes", &axes, &count, &known));
    if (known && !axes) return PARE_FAIL_NODE(node, INPUT, "axes are missing");
    pare_shape y = pare_shape_unknown(-1);
    if (known && x->shape.rank >= 0) {
        y.rank = x->shape.rank + count;
        if (y.rank > PARE_MAX_RANK)
            return PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %d is above %d", y.rank,
                                  PARE_MAX_RANK);
        PARE_TRY(pare_infer_axes(node, axes, count, y.rank, fresh));
        for (int i = 0, k = 0; i < y.rank; i++) {
            y.dim[i] = fresh[i] ? 1 : x->shape.dim[k];
            y.name[i] = fresh[i] ? NULL : x->shape.name[k];
            k += !fresh[i];
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* Squeeze and Unsqueeze 13: axes became an input. */
pare_status pare_upgrade_axes_input(pare_node *node, int64_t version)
{
    if (version >= 13 || !pare_node_attr(node, "axes")) return PARE_OK;
    PARE_TRY(pare_upgrade_ints(node, "axes", 1));
    return pare_upgrade_opset(node, 13);
}

/* Reshape 5: the shape became an input. */
pare_status pare_upgrade_reshape(pare_node *node, int64_t version)
{
    if (version >= 5) return PARE_OK;
    PARE_TRY(pare_upgrade_ints(node, "shape", 1));
    return pare_upgrade_opset(node, 5);
}

pare_status pare_infer_transpose(pare_node *node)
{
    pare_value *x;
    int count;
    bool seen[PARE_MAX_RANK];
    PARE_TRY(pare_infer_need(node, 0, &x));
    const int64_t *perm = pare_node_ints(node, "perm", &count);
    pare_shape y = pare_shape_unknown(perm && count <= PARE_MAX_RANK ? count : x->shape.rank);
    if (x->shape.rank >= 0) {
        if (perm && count != x->shape.rank)
            return PARE_FAIL_NODE(node, INPUT, "perm has %d values, expected %d", count,
                                  x->shape.rank);
        if (perm) PARE_TRY(pare_infer_axes(node, perm, count, x->shape.rank, seen));
        for (int i = 0; i < y.rank; i++) {
            if (perm && perm[i] < 0)
                return PARE_FAIL_NODE(node, INPUT, "perm has a negative value");
            int64_t from = perm ? perm[i] : y.rank - 1 - i;
            y.dim[i] = x->shape.dim[from];
            y.name[i] = x->shape.name[from];
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* pare.View: attribute shape, the same bytes as they are in memory. */
pare_status pare_infer_view(pare_node *node)
{
    pare_value *x;
    int count;
    PARE_TRY(pare_infer_need(node, 0, &x));
    const int64_t *dims = pare_node_ints(node, "shape", &count);
    if (!pare_node_attr(node, "shape") || count > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, INPUT, "attribute shape is missing or too long");
    pare_shape y = {.rank = count};
    for (int i = 0; i < count; i++) y.dim[i] = dims[i];
    PARE_TRY(check_count(node, &x->shape, &y));
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

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

pare_status pare_grad_expand(pare_grad *g, const pare_node *node)
{
    pare_grad_give_sum(g, node->in[0], pare_grad_of(g, node->out[0]));
    return g->status;
}

/* Copies of an axis are after each other: (copies, n) of them are summed, axis by axis. */
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

int64_t pare_view_count(const pare_view *view)
{
    int64_t n = 1;
    for (int i = 0; i < view->rank; i++) n *= view->dim[i];
    return n;
}

size_t pare_view_bytes(const pare_view *view)
{
    size_t bytes;
    return pare_type_bytes(view->dtype, pare_view_count(view), &bytes) ? bytes : 0;
}

size_t pare_view_reach(const pare_view *view)
{
    const size_t bytes = pare_view_bytes(view);
    int64_t last = 0;
    if (!bytes || pare_type(view->dtype)->bits % 8) return bytes;
    for (int i = 0; i < view->rank; i++) last += (view->dim[i] - 1) * view->stride[i];
    const size_t reach = (size_t)(last + 1) * (size_t)(pare_type(view->dtype)->bits / 8);
    return reach > bytes ? reach : bytes;
}

/* Dense when walked with axis[rank - 1] fastest? Axes of length 1 may have any stride. */
static bool dense(const pare_view *v, const int *axis)
{
    int64_t expected = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        int a = axis ? axis[i] : i;
        if (v->dim[a] == 1) continue;
        if (v->stride[a] != expected) return false;
        expected *= v->dim[a];
    }
    return true;
}

bool pare_view_rowmajor(const pare_view *view) { return dense(view, NULL); }

bool pare_view_nhwc(const pare_view *view)
{
    static const int order[4] = {0, 2, 3, 1};
    return view->rank == 4 && dense(view, order);
}

bool pare_view_same_order(const pare_view *a, const pare_view *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i] || (a->dim[i] != 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

void pare_view_set(pare_view *view, pare_dtype dtype, const pare_shape *shape, bool nhwc)
{
    static const int channels_last[4] = {0, 2, 3, 1};
    view->dtype = dtype;
    view->rank = shape->rank;
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        int a = nhwc && shape->rank == 4 ? channels_last[i] : i;
        view->dim[a] = shape->dim[a];
        view->stride[a] = stride;
        /* a tensor without elements may have lengths whose product overflows */
        stride = (int64_t)((uint64_t)stride * (uint64_t)shape->dim[a]);
    }
}

/* --- AllGather (all_gather.h) --- */

pare_status pare_gather_args_read(const pare_node *node, int rank, pare_gather_args *out)
{
    int count = 0;
    const int64_t *size = pare_node_ints(node, "parts", &count);
    *out = (pare_gather_args){.axis = (int)pare_node_int(node, "axis", -1),
                              .part = (int)pare_node_int(node, "part", -1),
                              .parts = count,
                              .size = size};
    bool good = size && out->axis >= 0 && out->axis < rank && out->part >= 0 && out->part < count;
    for (int i = 0; good && i < count; i++) {
        good = size[i] >= 0 && size[i] <= INT64_MAX - out->all;
        if (i == out->part) out->first = out->all;
        if (good) out->all += size[i];
    }
    if (good) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT,
                          "axis %d, part %d of %d: expected an axis of its input, and one of the "
                          "parts",
                          out->axis, out->part, count);
}

pare_status pare_infer_all_gather(pare_node *node)
{
    pare_value *x;
    pare_gather_args args;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = x->shape;
    if (y.rank >= 0) {
        PARE_TRY(pare_gather_args_read(node, y.rank, &args));
        if (y.dim[args.axis] >= 0 && y.dim[args.axis] != args.size[args.part])
            return PARE_FAIL_NODE(node, INPUT, "part %d has %lld of axis %d, expected %lld",
                                  args.part, (long long)y.dim[args.axis], args.axis,
                                  (long long)args.size[args.part]);
        y.dim[args.axis] = args.all;
        y.name[args.axis] = NULL;
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* SliceSum (X...) -> (Y...): where microbatches run side by side (pare_replicas), Y is the sum of X
   over all of them, the same in each; in a plain run it is X. f32 or f64, any shapes. */

pare_status pare_infer_slice_sum(pare_node *node)
{
    if (node->out_count > node->in_count)
        return PARE_FAIL_NODE(node, INPUT, "it has %d inputs and %d outputs, expected as many",
                              node->in_count, node->out_count);
    for (int i = 0; i < node->out_count; i++) {
        pare_value *x;
        PARE_TRY(pare_infer_need(node, i, &x));
        if (x->dtype != PARE_NOTYPE && x->dtype != PARE_f32 && x->dtype != PARE_f64)
            return PARE_FAIL_NODE(node, INPUT, "its input %d has type %s, expected f32 or f64", i,
                                  pare_type(x->dtype)->name);
        pare_infer_out(node, i, x->dtype, &x->shape);
    }
    return PARE_OK;
}

/* Every slice's loss depends on each slice's X by way of the one sum: dX = SliceSum(dY), of the sum
   of all slices' losses. */
pare_status pare_grad_slice_sum(pare_grad *g, const pare_node *node)
{
    for (int i = 0; i < node->out_count; i++) {
        pare_value *dy = pare_grad_of(g, node->out[i]);
        if (dy) pare_grad_give(g, node->in[i], PARE_EMIT(g, "SliceSum", dy));
    }
    return g->status;
}
