/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample (16, 20, 22), AffineGrid (20), RoiAlign (10, 16, 22) and DeformConv (19, 22): shapes,
   attributes and version conversion. */
#include "runtime/ops/sample.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <string.h>

/* The place of the attribute's word among count words; the first where it is missing. */
static pare_status word_of(const pare_node *node, const char *attr, const char *const *word,
                           int count, int *out)
{
    const char *text = pare_node_string(node, attr, word[0]);
    for (*out = 0; *out < count; ++*out)
        if (!strcmp(text, word[*out])) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s is '%s', expected %s, ... or %s", attr, text, word[0],
                          word[count - 1]);
}

static bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

/* Input i has this rank, where it is there and known. */
static pare_status need_rank(const pare_node *node, int i, int rank, const char *axes)
{
    const pare_value *v = pare_node_in(node, i);
    if (!v || v->shape.rank < 0 || v->shape.rank == rank) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "'%s' has rank %d, expected %s", v->name, v->shape.rank,
                          axes);
}

/* --- GridSample --- */

pare_status pare_grid_sample_of(const pare_node *node, pare_grid_sample *out)
{
    static const char *const mode[] = {"linear", "nearest", "cubic"};
    static const char *const padding[] = {"zeros", "border", "reflection"};
    int at;
    PARE_TRY(word_of(node, "mode", mode, 3, &at));
    out->mode = (pare_grid_mode)at;
    PARE_TRY(word_of(node, "padding_mode", padding, 3, &at));
    out->padding = (pare_grid_padding)at;
    out->align_corners = pare_node_int(node, "align_corners", 0);
    return PARE_OK;
}

/* Version 16 says bilinear and bicubic. */
pare_status pare_upgrade_grid_sample(pare_node *node, int64_t version)
{
    const char *mode = pare_node_string(node, "mode", "");
    if (version >= 20) return PARE_OK;
    if (!strcmp(mode, "bilinear")) PARE_TRY(pare_node_set_string(node, "mode", "linear"));
    if (!strcmp(mode, "bicubic")) PARE_TRY(pare_node_set_string(node, "mode", "cubic"));
    return pare_upgrade_opset(node, 20);
}

/* X [N, C, spatial] and grid [N, spatial of Y, spatial axes]. */
pare_status pare_infer_grid_sample(pare_node *node)
{
    pare_value *x, *grid;
    pare_grid_sample s;
    char a[128], b[128];
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &grid));
    PARE_TRY(pare_grid_sample_of(node, &s));
    const pare_shape *xs = &x->shape, *gs = &grid->shape;
    pare_shape y = pare_shape_unknown(-1);
    if (xs->rank >= 0 && gs->rank >= 0) {
        if (xs->rank != gs->rank || (xs->rank != 4 && xs->rank != 5) ||
            differ(xs->dim[0], gs->dim[0]) || differ(gs->dim[gs->rank - 1], xs->rank - 2))
            return PARE_FAIL_NODE(node, INPUT,
                                  "X %s and grid %s are not [N,C,H,W] and [N,h,w,2], or "
                                  "[N,C,D,H,W] and [N,d,h,w,3]",
                                  pare_shape_text(xs, a, sizeof a),
                                  pare_shape_text(gs, b, sizeof b));
        y = *xs;
        for (int i = 2; i < y.rank; i++) {
            y.dim[i] = gs->dim[i - 1];
            y.name[i] = gs->name[i - 1];
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* --- AffineGrid --- */

/* theta [N, 2, 3] with size [N, C, H, W], or [N, 3, 4] with [N, C, D, H, W]. */
pare_status pare_infer_affine_grid(pare_node *node)
{
    pare_value *theta;
    pare_shape size, y = pare_shape_unknown(-1);
    char text[128];
    PARE_TRY(pare_infer_need(node, 0, &theta));
    PARE_TRY(pare_infer_shape_input(node, 1, &size));
    PARE_TRY(need_rank(node, 0, 3, "[N,2,3] or [N,3,4]"));
    const pare_shape *t = &theta->shape;
    if (size.rank >= 0) {
        const int axes = size.rank - 2;
        if ((axes != 2 && axes != 3) ||
            (t->rank == 3 && (differ(t->dim[1], axes) || differ(t->dim[2], axes + 1) ||
                              differ(t->dim[0], size.dim[0]))))
            return PARE_FAIL_NODE(node, INPUT, "theta %s does not fit a size of %d numbers",
                                  pare_shape_text(t, text, sizeof text), size.rank);
        y = pare_shape_unknown(axes + 2);
        y.dim[0] = size.dim[0];
        for (int i = 0; i < axes; i++) y.dim[1 + i] = size.dim[2 + i];
        y.dim[axes + 1] = axes;
    }
    pare_infer_out(node, 0, theta->dtype, &y);
    return PARE_OK;
}

/* --- RoiAlign --- */

pare_status pare_roi_align_of(const pare_node *node, pare_roi_align *out)
{
    static const char *const mode[] = {"avg", "max"};
    static const char *const coordinates[] = {"half_pixel", "output_half_pixel"};
    int at;
    PARE_TRY(word_of(node, "mode", mode, 2, &at));
    out->max = at == 1;
    PARE_TRY(word_of(node, "coordinate_transformation_mode", coordinates, 2, &at));
    out->half_pixel = at == 0;
    out->height = pare_node_int(node, "output_height", 1);
    out->width = pare_node_int(node, "output_width", 1);
    out->sampling = pare_node_int(node, "sampling_ratio", 0);
    out->scale = pare_node_float(node, "spatial_scale", 1);
    if (out->height < 1 || out->width < 1 || out->height > 4096 || out->width > 4096 ||
        out->sampling < 0 || out->sampling > 4096)
        return PARE_FAIL_NODE(node, INPUT,
                              "bins of %" PRId64 " x %" PRId64 " with %" PRId64
                              " samples an axis, expected 1 to 4096 and 0 to 4096",
                              out->height, out->width, out->sampling);
    return PARE_OK;
}

/* Version 10 has no coordinate_transformation_mode and means output_half_pixel. */
pare_status pare_upgrade_roi_align(pare_node *node, int64_t version)
{
    if (version >= 16) return PARE_OK;
    PARE_TRY(pare_node_set_string(node, "coordinate_transformation_mode", "output_half_pixel"));
    return pare_upgrade_opset(node, 16);
}

/* X [N, C, H, W], rois [R, 4], batch_indices [R]: [R, C, height, width]. */
pare_status pare_infer_roi_align(pare_node *node)
{
    pare_value *x, *rois, *batch;
    pare_roi_align r;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &rois));
    PARE_TRY(pare_infer_need(node, 2, &batch));
    PARE_TRY(pare_roi_align_of(node, &r));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(need_rank(node, 0, 4, "[N,C,H,W]"));
    PARE_TRY(need_rank(node, 1, 2, "[R,4]"));
    PARE_TRY(need_rank(node, 2, 1, "[R]"));
    const pare_shape *s = &rois->shape;
    if (s->rank == 2 && (differ(s->dim[1], 4) ||
                         (batch->shape.rank == 1 && differ(s->dim[0], batch->shape.dim[0]))))
        return PARE_FAIL_NODE(node, INPUT,
                              "'%s' and '%s' are not [R,4] and [R], a box and its picture each",
                              rois->name, batch->name);
    pare_shape y = pare_shape_unknown(4);
    if (s->rank == 2) y.dim[0] = s->dim[0], y.name[0] = s->name[0];
    if (x->shape.rank == 4) y.dim[1] = x->shape.dim[1], y.name[1] = x->shape.name[1];
    y.dim[2] = r.height;
    y.dim[3] = r.width;
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* --- DeformConv --- */

pare_status pare_deform_conv_of(const pare_node *node, const pare_shape *x, const int64_t *kernel,
                                pare_deform_conv *out)
{
    PARE_TRY(pare_window_read(node, x, kernel, &out->window));
    out->offset_groups = pare_node_int(node, "offset_group", 1);
    if (out->offset_groups < 1 || (x->dim[1] >= 0 && x->dim[1] % out->offset_groups))
        return PARE_FAIL_NODE(node, INPUT,
                              "offset_group %" PRId64 " does not divide the %" PRId64 " channels",
                              out->offset_groups, x->dim[1]);
    return PARE_OK;
}

/* Input i, where it is there, is [N, channels, spatial of Y]. */
static pare_status check_field(const pare_node *node, int i, const pare_shape *y, int64_t channels)
{
    const pare_value *v = pare_node_in(node, i);
    char has[128];
    if (!v || v->shape.rank < 0) return PARE_OK;
    const pare_shape *s = &v->shape;
    if (s->rank == 4 && !differ(s->dim[0], y->dim[0]) && !differ(s->dim[1], channels) &&
        !differ(s->dim[2], y->dim[2]) && !differ(s->dim[3], y->dim[3]))
        return PARE_OK;
    return PARE_FAIL_NODE(
        node, INPUT,
        "'%s' has shape %s, expected [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] (-1: any)",
        v->name, pare_shape_text(s, has, sizeof has), y->dim[0], channels, y->dim[2], y->dim[3]);
}

/* X [N, C, H, W], W [M, C / group, kernel], offset [N, 2 * groups * kernel, h, w], bias [M], mask
   [N, groups * kernel, h, w]. */
pare_status pare_infer_deform_conv(pare_node *node)
{
    pare_value *x, *w, *offset, *bias = pare_node_in(node, 3);
    pare_deform_conv d;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &w));
    PARE_TRY(pare_infer_need(node, 2, &offset));
    for (int i = 1; i < node->in_count; i++) PARE_TRY(pare_infer_same_type(node, 0, i));
    PARE_TRY(need_rank(node, 0, 4, "[N,C,H,W]"));
    PARE_TRY(need_rank(node, 1, 4, "[M,C/group,kernel]"));
    PARE_TRY(need_rank(node, 3, 1, "[M]"));
    pare_shape y = pare_shape_unknown(4);
    if (x->shape.rank == 4 && w->shape.rank == 4 && pare_shape_known(&w->shape)) {
        const int64_t *k = w->shape.dim, c = x->shape.dim[1];
        const int64_t group = pare_node_int(node, "group", 1);
        if (group < 1 || k[0] % group || (c >= 0 && c != k[1] * group) || k[1] < 1)
            return PARE_FAIL_NODE(node, INPUT,
                                  "%" PRId64 " channels, %" PRId64 " groups and a weight of "
                                  "%" PRId64 " x %" PRId64 " channels do not fit",
                                  c, group, k[0], k[1]);
        if (bias && bias->shape.rank == 1 && differ(bias->shape.dim[0], k[0]))
            return PARE_FAIL_NODE(node, INPUT, "bias '%s' has not the %" PRId64 " values of W",
                                  bias->name, k[0]);
        PARE_TRY(pare_deform_conv_of(node, &x->shape, k + 2, &d));
        y.dim[0] = x->shape.dim[0];
        y.name[0] = x->shape.name[0];
        y.dim[1] = k[0];
        for (int i = 0; i < 2; i++) y.dim[2 + i] = d.window.out[1 + i];
        const int64_t taps = d.offset_groups * k[2] * k[3];
        PARE_TRY(check_field(node, 2, &y, 2 * taps));
        PARE_TRY(check_field(node, 4, &y, taps));
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}
