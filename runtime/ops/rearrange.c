/* SPDX-License-Identifier: Apache-2.0 */
/* Col2Im (18), MaxUnpool (9, 11, 22) and CenterCropPad (18): shapes. */
#include "runtime/ops/rearrange.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <string.h>

/* --- Col2Im --- */

/* Ints of an attribute for `count` axes, all `missing` where it is absent. */
static pare_status ints_of(const pare_node *node, const char *attr, int count, int64_t missing,
                           int64_t least, int64_t *out)
{
    int given;
    const int64_t *v = pare_node_ints(node, attr, &given);
    if (v && given != count)
        return PARE_FAIL_NODE(node, INPUT, "%s has %d numbers, expected %d", attr, given, count);
    for (int i = 0; i < count; i++) {
        out[i] = v ? v[i] : missing;
        if (out[i] < least || out[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "%s has %" PRId64 ", expected at least %" PRId64,
                                  attr, out[i], least);
    }
    return PARE_OK;
}

pare_status pare_col2im_of(const pare_node *node, const int64_t *image, const int64_t *block,
                           int axes, pare_col2im *out)
{
    int64_t pads[2 * PARE_COL2IM_AXES];
    if (axes < 1 || axes > PARE_COL2IM_AXES)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "an image of %d axes, expected 1 to %d", axes,
                              PARE_COL2IM_AXES);
    out->axes = axes;
    PARE_TRY(ints_of(node, "dilations", axes, 1, 1, out->dilation));
    PARE_TRY(ints_of(node, "strides", axes, 1, 1, out->stride));
    PARE_TRY(ints_of(node, "pads", 2 * axes, 0, 0, pads));
    out->taps = out->places = 1;
    for (int i = 0; i < axes; i++) {
        out->image[i] = image[i];
        out->block[i] = block[i];
        out->begin[i] = pads[i];
        if (image[i] < 0 || block[i] < 1 || image[i] > INT32_MAX || block[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT,
                                  "image_shape and block_shape hold %" PRId64 " and %" PRId64
                                  ", expected sizes",
                                  image[i], block[i]);
        const int64_t reach = out->dilation[i] * (block[i] - 1) + 1;
        const int64_t room = image[i] + pads[i] + pads[axes + i] - reach;
        out->count[i] = room < 0 ? 0 : room / out->stride[i] + 1;
        if (__builtin_mul_overflow(out->taps, block[i], &out->taps) ||
            __builtin_mul_overflow(out->places, out->count[i], &out->places))
            return PARE_FAIL_NODE(node, INPUT, "its sizes overflow");
    }
    return PARE_OK;
}

/* input [N, C * taps, places], image_shape and block_shape [axes]: [N, C, image]. */
pare_status pare_infer_col2im(pare_node *node)
{
    pare_value *x;
    const int64_t *image, *block;
    int axes, more;
    pare_col2im s;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints(node, 1, &image, &axes));
    PARE_TRY(pare_infer_ints(node, 2, &block, &more));
    pare_shape y = pare_shape_unknown(-1);
    if (image && block) {
        const pare_shape *xs = &x->shape;
        if (axes != more)
            return PARE_FAIL_NODE(node, INPUT, "image_shape has %d numbers, block_shape %d", axes,
                                  more);
        PARE_TRY(pare_col2im_of(node, image, block, axes, &s));
        if (xs->rank >= 0 && (xs->rank != 3 || (xs->dim[1] >= 0 && xs->dim[1] % s.taps) ||
                              (xs->dim[2] >= 0 && xs->dim[2] != s.places))) {
            char text[128];
            return PARE_FAIL_NODE(
                node, INPUT, "'%s' has shape %s, expected [N, C * %" PRId64 ", %" PRId64 "]",
                x->name, pare_shape_text(xs, text, sizeof text), s.taps, s.places);
        }
        y = pare_shape_unknown(axes + 2);
        if (xs->rank == 3) {
            y.dim[0] = xs->dim[0];
            y.name[0] = xs->name[0];
            y.dim[1] = xs->dim[1] < 0 ? -1 : xs->dim[1] / s.taps;
        }
        for (int i = 0; i < axes; i++) y.dim[2 + i] = image[i];
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* --- MaxUnpool --- */

pare_status pare_max_unpool_shape(const pare_node *node, const pare_shape *x, pare_shape *out)
{
    int count;
    const int64_t *kernel = pare_node_ints(node, "kernel_shape", &count);
    int64_t stride[PARE_MAX_RANK], pads[2 * PARE_MAX_RANK];
    if (x->rank < 3 || count != x->rank - 2 || !kernel)
        return PARE_FAIL_NODE(node, INPUT, "kernel_shape has %d numbers for an input of rank %d",
                              count, x->rank);
    PARE_TRY(ints_of(node, "strides", count, 1, 1, stride));
    PARE_TRY(ints_of(node, "pads", 2 * count, 0, 0, pads));
    *out = *x;
    for (int i = 0; i < count; i++) {
        int64_t *d = &out->dim[2 + i];
        if (kernel[i] < 1 || kernel[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "kernel_shape has %" PRId64, kernel[i]);
        if (*d < 0) continue;
        if (__builtin_mul_overflow(*d - 1, stride[i], d)) *d = -1;
        *d += kernel[i] - pads[i] - pads[count + i];
        if (*d < 0)
            return PARE_FAIL_NODE(node, INPUT, "axis %d of its output has a negative length",
                                  2 + i);
        out->name[2 + i] = NULL;
    }
    return PARE_OK;
}

/* X and I of one shape, output_shape [rank] or absent. */
pare_status pare_infer_max_unpool(pare_node *node)
{
    pare_value *x, *index, *wanted = pare_node_in(node, 2);
    pare_shape y = pare_shape_unknown(-1);
    char a[128], b[128];
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &index));
    if (pare_shape_known(&x->shape) && pare_shape_known(&index->shape) &&
        !pare_shape_equal(&x->shape, &index->shape))
        return PARE_FAIL_NODE(node, INPUT, "X has shape %s, its indices %s",
                              pare_shape_text(&x->shape, a, sizeof a),
                              pare_shape_text(&index->shape, b, sizeof b));
    if (x->shape.rank >= 0) PARE_TRY(pare_max_unpool_shape(node, &x->shape, &y));
    if (wanted) {
        const pare_shape own = y;
        PARE_TRY(pare_infer_shape_input(node, 2, &y));
        bool fits = own.rank < 0 || y.rank < 0 || own.rank == y.rank;
        for (int i = 0; fits && own.rank == y.rank && i < y.rank; i++)
            fits = y.dim[i] < 0 || own.dim[i] < 0 || y.dim[i] >= own.dim[i];
        if (!fits)
            return PARE_FAIL_NODE(node, INPUT, "output_shape %s is smaller than the %s unpooled",
                                  pare_shape_text(&y, a, sizeof a),
                                  pare_shape_text(&own, b, sizeof b));
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* --- CenterCropPad --- */

pare_status pare_infer_center_crop_pad(pare_node *node)
{
    pare_value *x;
    const int64_t *size, *axes;
    int count, named;
    bool seen[PARE_MAX_RANK];
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints(node, 1, &size, &count));
    axes = pare_node_ints(node, "axes", &named);
    pare_shape y = x->shape;
    const int rank = y.rank;
    if (rank >= 0 && axes) PARE_TRY(pare_infer_axes(node, axes, named, rank, seen));
    if (rank >= 0 && size && count != (axes ? named : rank))
        return PARE_FAIL_NODE(node, INPUT, "shape has %d numbers for %d axes", count,
                              axes ? named : rank);
    for (int i = 0; rank >= 0 && i < (axes ? named : rank); i++) {
        const int64_t axis = axes ? axes[i] < 0 ? axes[i] + rank : axes[i] : i;
        if (size && size[i] < 0)
            return PARE_FAIL_NODE(node, INPUT, "shape has a size of %" PRId64, size[i]);
        y.dim[axis] = size ? size[i] : -1;
        y.name[axis] = NULL;
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}
