/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/infer.h"
#include "runtime/ops/pad.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/resize.h"

#include <math.h>
#include <string.h>

static pare_status read_word(const pare_node *node, const char *attr, const char *const *words,
                             int count, int missing, int *out)
{
    const char *text = pare_node_string(node, attr, words[missing]);
    for (*out = 0; *out < count; ++*out)
        if (!strcmp(text, words[*out])) return PARE_OK;
    return PARE_FAIL_NODE(node, UNSUPPORTED, "%s '%s' is not known", attr, text);
}

static pare_status read_words(const pare_node *node, pare_resize *r)
{
    static const char *const mode[] = {"nearest", "linear", "cubic"};
    static const char *const coord[] = {
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
        "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
    static const char *const rounding[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                           "ceil"};
    int word = 0;
    PARE_TRY(read_word(node, "mode", mode, 3, 0, &word));
    r->mode = (pare_resize_mode)word;
    PARE_TRY(read_word(node, "coordinate_transformation_mode", coord, 7, 0, &word));
    r->coord = (pare_resize_coord)word;
    PARE_TRY(read_word(node, "nearest_mode", rounding, 4, 0, &word));
    r->round = (pare_resize_round)word;
    r->cubic_a = pare_node_float(node, "cubic_coeff_a", -0.75f);
    r->extrapolation = pare_node_float(node, "extrapolation_value", 0);
    r->exclude_outside = pare_node_int(node, "exclude_outside", 0);
    r->antialias = pare_node_int(node, "antialias", 0);
    return PARE_OK;
}

/* The axes that scales, sizes and roi speak of, in their order. */
static pare_status read_axes(const pare_node *node, int rank, int axis[PARE_MAX_RANK], int *count)
{
    const int64_t *axes = pare_node_ints(node, "axes", count);
    bool seen[PARE_MAX_RANK];
    if (!axes)
        *count = rank;
    else
        PARE_TRY(pare_infer_axes(node, axes, *count, rank, seen));
    for (int i = 0; i < *count; i++)
        axis[i] = axes ? (int)(axes[i] < 0 ? axes[i] + rank : axes[i]) : i;
    return PARE_OK;
}

static pare_status use_scales(const pare_node *node, pare_resize *r, const float *scales,
                              const int *axis, int count)
{
    for (int i = 0; i < count; i++) {
        int a = axis[i];
        if (!(scales[i] > 0) || !(scales[i] < 0x1p20f))
            return PARE_FAIL_NODE(node, INPUT, "a scale of %g is not possible", (double)scales[i]);
        r->scale[a] = scales[i];
        if (r->in[a] < 0)
            r->out[a] = scales[i] == 1 ? r->in[a] : -1;
        else
            r->out[a] = (int64_t)floorf((float)r->in[a] * scales[i]);
    }
    return PARE_OK;
}

/* Resize 18: with not_larger and not_smaller one scale serves all axes. */
static pare_status use_sizes(const pare_node *node, pare_resize *r, const int64_t *sizes,
                             const int *axis, int count)
{
    static const char *const words[] = {"stretch", "not_larger", "not_smaller"};
    int policy = 0;
    float common = 0;
    PARE_TRY(read_word(node, "keep_aspect_ratio_policy", words, 3, 0, &policy));
    for (int i = 0; i < count; i++) {
        int a = axis[i];
        if (sizes[i] < 0) return PARE_FAIL_NODE(node, INPUT, "sizes has a negative value");
        if (sizes[i] > 0 && r->in[a] == 0)
            return PARE_FAIL_NODE(node, INPUT, "axis %d is empty and cannot be resized", a);
        r->out[a] = sizes[i];
        r->scale[a] = r->in[a] > 0 ? (float)sizes[i] / (float)r->in[a] : 1;
        bool better = policy == 1 ? r->scale[a] < common : r->scale[a] > common;
        if (i == 0 || better) common = r->scale[a];
    }
    for (int i = 0; policy && i < count; i++) {
        int a = axis[i];
        r->scale[a] = common;
        if (r->in[a] >= 0) r->out[a] = (int64_t)floorf(common * (float)r->in[a] + 0.5f);
    }
    return PARE_OK;
}

pare_status pare_resize_read(const pare_node *node, const pare_shape *x, pare_resize *out)
{
    const float *roi, *scales;
    const int64_t *sizes;
    int axis[PARE_MAX_RANK], axes, roi_count, scale_count, size_count;
    memset(out, 0, sizeof *out);
    out->rank = x->rank;
    PARE_TRY(read_words(node, out));
    PARE_TRY(read_axes(node, x->rank, axis, &axes));
    for (int i = 0; i < x->rank; i++) {
        out->in[i] = out->out[i] = x->dim[i];
        out->scale[i] = out->end[i] = 1;
    }
    PARE_TRY(pare_infer_floats(node, 1, &roi, &roi_count));
    PARE_TRY(pare_infer_floats(node, 2, &scales, &scale_count));
    PARE_TRY(pare_infer_ints(node, 3, &sizes, &size_count));
    if (out->coord == PARE_TF_CROP_AND_RESIZE && roi && roi_count == 2 * axes)
        for (int i = 0; i < axes; i++) {
            out->start[axis[i]] = roi[i];
            out->end[axis[i]] = roi[axes + i];
        }
    out->known = (scales && scale_count) || (sizes && size_count);
    if (!out->known) {
        if ((!pare_node_in(node, 2) || scales) && (!pare_node_in(node, 3) || sizes))
            return PARE_FAIL_NODE(node, INPUT, "it has neither scales nor sizes");
        for (int i = 0; i < axes; i++) out->out[axis[i]] = -1;
        return PARE_OK;
    }
    bool by_size = sizes && size_count;
    if ((by_size ? size_count : scale_count) != axes)
        return PARE_FAIL_NODE(node, INPUT, "its scales or sizes have %d values, expected %d",
                              by_size ? size_count : scale_count, axes);
    return by_size ? use_sizes(node, out, sizes, axis, axes)
                   : use_scales(node, out, scales, axis, axes);
}

float pare_resize_coordinate(const pare_resize *r, int axis, int64_t o)
{
    float x = (float)o, scale = r->scale[axis], in = (float)r->in[axis], out = (float)r->out[axis];
    float start = r->start[axis], end = r->end[axis];
    switch (r->coord) {
    case PARE_HALF_PIXEL: return (x + 0.5f) / scale - 0.5f;
    case PARE_HALF_PIXEL_SYMMETRIC:
        return in / 2 * (1 - out / (scale * in)) + (x + 0.5f) / scale - 0.5f;
    case PARE_PYTORCH_HALF_PIXEL: return out > 1 ? (x + 0.5f) / scale - 0.5f : 0;
    case PARE_ALIGN_CORNERS: return out > 1 ? x * (in - 1) / (out - 1) : 0;
    case PARE_ASYMMETRIC: return x / scale;
    case PARE_TF_HALF_PIXEL_FOR_NN: return (x + 0.5f) / scale;
    default:
        return out > 1 ? start * (in - 1) + x * (end - start) * (in - 1) / (out - 1)
                       : 0.5f * (start + end) * (in - 1);
    }
}

/* --- nearest --- */

static int64_t nearest(const pare_resize *r, int axis, int64_t o)
{
    float x = pare_resize_coordinate(r, axis, o);
    float at = r->round == PARE_ROUND_PREFER_FLOOR  ? ceilf(x - 0.5f)
               : r->round == PARE_ROUND_PREFER_CEIL ? floorf(x + 0.5f)
               : r->round == PARE_ROUND_FLOOR       ? floorf(x)
                                                    : ceilf(x);
    int64_t i = (int64_t)at, last = r->in[axis] - 1;
    return i < 0 ? 0 : i > last ? last : i;
}

pare_status pare_resize_positions(const pare_resize *r, pare_arena *arena, int64_t **at)
{
    for (int a = 0; a < r->rank; a++) {
        at[a] = pare_arena_alloc(arena, (size_t)r->out[a] + 1, sizeof *at[a]);
        if (!at[a]) return PARE_MEMORY;
        bool same = r->in[a] == r->out[a] && r->scale[a] == 1 && r->end[a] == 1;
        for (int64_t o = 0; o < r->out[a]; o++) at[a][o] = same ? o : nearest(r, a, o);
    }
    return PARE_OK;
}

/* --- linear and cubic: triangle, and Keys' cubic (1981) --- */

static double triangle(double x) { return fabs(x) < 1 ? 1 - fabs(x) : 0; }

static double cubic(double x, double a)
{
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* The weights of output o; their sum is 1. */
static void tap_weights(const pare_resize *r, int axis, int64_t o, pare_resize_axis *t)
{
    float x = pare_resize_coordinate(r, axis, o);
    double shrink = r->antialias && r->scale[axis] < 1 ? (double)r->scale[axis] : 1, sum = 0;
    double base = floor((double)x), ratio = (double)x - base;
    double *w = t->weight + o * t->count;
    int64_t last = r->in[axis] - 1;
    t->first[o] = (int64_t)base + 1 - t->count / 2;
    t->outside[o] = r->coord == PARE_TF_CROP_AND_RESIZE && (x < 0 || x > (float)last);
    if (r->mode == PARE_NEAREST) {
        t->first[o] = nearest(r, axis, o);
        w[0] = 1;
        return;
    }
    for (int k = 0; k < t->count; k++) {
        double distance = ((double)(k + 1 - t->count / 2) - ratio) * shrink;
        w[k] = r->mode == PARE_LINEAR ? triangle(distance) : cubic(distance, (double)r->cubic_a);
        int64_t i = t->first[o] + k;
        if (r->exclude_outside && (i < 0 || i > last)) w[k] = 0;
        sum += w[k];
    }
    for (int k = 0; k < t->count && sum != 0; k++) w[k] /= sum;
}

pare_status pare_resize_taps(const pare_node *node, const pare_resize *r, int axis,
                             pare_arena *arena, pare_resize_axis *t)
{
    bool same = r->in[axis] == r->out[axis] && r->scale[axis] == 1 && r->start[axis] == 0 &&
                r->end[axis] == 1;
    if (same) return PARE_OK;
    double shrink = r->antialias && r->scale[axis] < 1 ? (double)r->scale[axis] : 1;
    double reach = r->mode == PARE_CUBIC ? 2 : 1;
    if (reach / shrink > 1e6)
        return PARE_FAIL_NODE(node, INPUT, "a scale of %g is too small", (double)r->scale[axis]);
    t->count = r->mode == PARE_NEAREST ? 1 : 2 * (int)ceil(reach / shrink);
    t->first = pare_arena_alloc(arena, (size_t)r->out[axis], sizeof *t->first);
    t->outside = pare_arena_alloc(arena, (size_t)r->out[axis], sizeof *t->outside);
    t->weight = pare_arena_alloc(arena, (size_t)r->out[axis] * (size_t)t->count, sizeof *t->weight);
    if (!t->first || !t->outside || !t->weight) return PARE_MEMORY;
    for (int64_t o = 0; o < r->out[axis]; o++) tap_weights(r, axis, o, t);
    return PARE_OK;
}

/* --- shape rules --- */

pare_status pare_infer_resize(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = x->shape;
    if (y.rank >= 0) {
        pare_resize r;
        PARE_TRY(pare_resize_read(node, &x->shape, &r));
        for (int i = 0; i < y.rank; i++) {
            y.dim[i] = r.out[i];
            if (r.scale[i] != 1 || !r.known) y.name[i] = NULL;
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* A Constant node is not folded yet. */
static const pare_tensor *scales_of_10(const pare_node *node)
{
    const pare_value *v = pare_node_in(node, 1);
    if (!v) return NULL;
    if (v->data || !v->producer || !pare_node_is(v->producer, "Constant")) return v->data;
    const pare_attr *value = pare_node_attr(v->producer, "value");
    return value && value->kind == PARE_ATTR_TENSOR ? value->tensor : NULL;
}

/* Which element the nearest form of opset 10 takes: ONNX's text does not say; its example and ONNX
   Runtime take the one below where an axis grows, the one above where it shrinks. */
static pare_status nearest_of_10(const pare_node *node, const char **mode)
{
    const pare_tensor *scales = scales_of_10(node);
    bool grows = false, shrinks = false;
    for (int64_t i = 0; scales && scales->dtype == PARE_f32 && i < scales->count; i++) {
        grows |= pare_tensor_number(scales, i) > 1;
        shrinks |= pare_tensor_number(scales, i) < 1;
    }
    if (grows && shrinks && !strcmp(pare_node_string(node, "mode", "nearest"), "nearest"))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "nearest of opset 10 with axes that grow and axes that shrink has no "
                              "newer form; export the model at opset 11 or newer");
    *mode = shrinks ? "ceil" : "floor";
    return PARE_OK;
}

/* Resize 11: input 1 became roi; what 10 and Upsample computed is asymmetric. */
static pare_status to_resize_11(pare_node *node)
{
    const char *nearest;
    PARE_TRY(nearest_of_10(node, &nearest));
    pare_value *scales = pare_node_in(node, 1);
    PARE_TRY(pare_node_set_in(node, 2, scales));
    PARE_TRY(pare_node_set_in(node, 1, NULL));
    PARE_TRY(pare_node_set_string(node, "coordinate_transformation_mode", "asymmetric"));
    PARE_TRY(pare_node_set_string(node, "nearest_mode", nearest));
    return pare_upgrade_opset(node, 13); /* an absent roi is allowed from 13 on */
}

pare_status pare_upgrade_resize(pare_node *node, int64_t version)
{
    return version >= 11 ? PARE_OK : to_resize_11(node);
}

/* Upsample 1 scales rows and columns of images by two attributes. */
static pare_status upsample_1(pare_node *node)
{
    const float scales[4] = {1, 1, pare_node_float(node, "height_scale", 1),
                             pare_node_float(node, "width_scale", 1)};
    PARE_TRY(pare_upgrade_constant(node, 1, "scales", PARE_f32, 1, &(int64_t){4}, scales));
    pare_node_remove_attr(node, "height_scale");
    pare_node_remove_attr(node, "width_scale");
    return PARE_OK;
}

/* Upsample 7 has its scales in an attribute, 9 as an input; both are Resize 10 by another name. */
pare_status pare_upgrade_upsample(pare_node *node, int64_t version)
{
    if (version < 7 && !pare_node_attr(node, "scales")) PARE_TRY(upsample_1(node));
    const pare_attr *scales = pare_node_attr(node, "scales");
    if (version < 9 && scales && scales->kind == PARE_ATTR_FLOATS) {
        int64_t count = scales->count;
        PARE_TRY(pare_upgrade_constant(node, 1, "scales", PARE_f32, 1, &count, scales->floats));
        pare_node_remove_attr(node, "scales");
    }
    PARE_TRY(to_resize_11(node));
    if (!strcmp(pare_node_string(node, "mode", "nearest"), "bilinear"))
        PARE_TRY(pare_node_set_string(node, "mode", "linear"));
    node->op_type = "Resize";
    return PARE_OK;
}

/* Resize (10 .. 19): axes that stay as long as they are. */
pare_status pare_prune_bind_resize(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    pare_resize r;
    PARE_TRY(pare_resize_read(node, &x->shape, &r));
    if (!r.known || r.coord == PARE_TF_CROP_AND_RESIZE)
        return pare_block_all(binder, node, "resizes it");
    for (int i = 0; i < x->shape.rank; i++) {
        if (r.in[i] == r.out[i] && r.scale[i] == 1.0F) {
            PARE_TRY(pare_bind_axes(binder, node, x, i, y, i));
        } else {
            PARE_TRY(pare_block_axis(binder, node, x, i, "resizes it"));
            PARE_TRY(pare_block_axis(binder, node, y, i, "resizes it"));
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
