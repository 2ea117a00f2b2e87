/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/window.h"

#include <inttypes.h>
#include <string.h>

/* Copies an INTS attribute over the node's own axes; each must be at least low. */
static pare_status read_ints(const pare_node *node, const char *name, int nd, int64_t low,
                             int64_t missing, int64_t out[3])
{
    int count;
    const int64_t *ints = pare_node_ints(node, name, &count);
    for (int i = 0; i < 3; i++) out[i] = missing;
    if (!ints) return PARE_OK;
    if (count != nd)
        return PARE_FAIL_NODE(node, INPUT, "%s has %d values, expected %d", name, count, nd);
    for (int i = 0; i < nd; i++) {
        if (ints[i] < low || ints[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "%s is %" PRId64 ", expected at least %" PRId64,
                                  name, ints[i], low);
        out[3 - nd + i] = ints[i];
    }
    return PARE_OK;
}

static pare_status read_pads(const pare_node *node, pare_window *w)
{
    int count;
    const int64_t *pads = pare_node_ints(node, "pads", &count);
    if (!pads) return PARE_OK;
    if (count != 2 * w->nd)
        return PARE_FAIL_NODE(node, INPUT, "pads has %d values, expected %d", count, 2 * w->nd);
    for (int i = 0; i < count; i++)
        if (pads[i] < -INT32_MAX || pads[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "a pad of %" PRId64 " is out of range", pads[i]);
    for (int i = 0; i < w->nd; i++) {
        w->begin[3 - w->nd + i] = pads[i];
        w->end[3 - w->nd + i] = pads[w->nd + i];
    }
    return PARE_OK;
}

/* Everything but pads and output sizes. */
static pare_status read_common(const pare_node *node, const pare_shape *x, const int64_t *kernel,
                               pare_window *w)
{
    memset(w, 0, sizeof *w);
    w->nd = x->rank - 2;
    w->group = pare_node_int(node, "group", 1);
    w->include_pad = pare_node_int(node, "count_include_pad", 0) != 0;
    if (w->group < 1 || w->group > INT32_MAX)
        return PARE_FAIL_NODE(node, INPUT, "group is %" PRId64 ", expected 1 or more", w->group);
    if (w->nd < 1 || w->nd > 3)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "its input has rank %d, expected 3 to 5 (1 to 3 spatial axes)",
                              x->rank);
    int first = 3 - w->nd;
    for (int i = 0; i < 3; i++) w->in[i] = w->out[i] = 1;
    for (int i = 0; i < w->nd; i++) w->in[first + i] = x->dim[2 + i];
    PARE_TRY(read_ints(node, "strides", w->nd, 1, 1, w->stride));
    PARE_TRY(read_ints(node, "dilations", w->nd, 1, 1, w->dilation));
    PARE_TRY(read_ints(node, "kernel_shape", w->nd, 1, kernel ? 1 : 0, w->kernel));
    bool given = pare_node_attr(node, "kernel_shape");
    if (!kernel && !given) return PARE_FAIL_NODE(node, INPUT, "kernel_shape is missing");
    for (int i = 0; i < first; i++) w->kernel[i] = 1;
    for (int i = 0; kernel && i < w->nd; i++) {
        if (given && kernel[i] >= 0 && kernel[i] != w->kernel[first + i])
            return PARE_FAIL_NODE(node, INPUT,
                                  "kernel_shape %" PRId64 " contradicts the weight's %" PRId64,
                                  w->kernel[first + i], kernel[i]);
        if (!given) w->kernel[first + i] = kernel[i];
        if (w->kernel[first + i] < 1)
            return PARE_FAIL_NODE(node, INPUT, "a kernel of length %" PRId64 " has no values",
                                  w->kernel[first + i]);
    }
    return PARE_OK;
}

typedef enum auto_pad { EXPLICIT, SAME_UPPER, SAME_LOWER, VALID } auto_pad;

static pare_status read_auto_pad(const pare_node *node, auto_pad *out)
{
    static const char *const name[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    const char *text = pare_node_string(node, "auto_pad", "NOTSET");
    for (int i = 0; i < 4; i++)
        if (!strcmp(text, name[i])) {
            *out = (auto_pad)i;
            return PARE_OK;
        }
    return PARE_FAIL_NODE(
        node, INPUT, "auto_pad is '%s', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID", text);
}

static int64_t extent(const pare_window *w, int i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

static void split_pad(pare_window *w, int i, int64_t total, bool upper)
{
    w->begin[i] = upper ? total / 2 : total - total / 2;
    w->end[i] = total - w->begin[i];
}

/* Conv 11 and AveragePool 19: floor or ceil((in + pads - extent) / stride) + 1; SAME: ceil(in /
 * stride). */
static pare_status size_axis(const pare_node *node, pare_window *w, int i, auto_pad pad, bool ceil)
{
    w->out[i] = -1;
    if (w->in[i] < 0) return PARE_OK;
    int64_t stride = w->stride[i];
    if (pad == SAME_UPPER || pad == SAME_LOWER) {
        w->out[i] = (w->in[i] + stride - 1) / stride;
        int64_t total = (w->out[i] - 1) * stride + extent(w, i) - w->in[i];
        split_pad(w, i, total > 0 ? total : 0, pad == SAME_UPPER);
        return PARE_OK;
    }
    int64_t room = w->in[i] + w->begin[i] + w->end[i] - extent(w, i);
    if (room < 0)
        return PARE_FAIL_NODE(
            node, INPUT, "its window of %" PRId64 " is larger than the padded input of %" PRId64,
            extent(w, i), room + extent(w, i));
    w->out[i] = (room + (ceil ? stride - 1 : 0)) / stride + 1;
    if (ceil && (w->out[i] - 1) * stride >= w->in[i] + w->begin[i]) w->out[i]--;
    return PARE_OK;
}

pare_status pare_window_read(const pare_node *node, const pare_shape *x, const int64_t *kernel,
                             pare_window *out)
{
    auto_pad pad = EXPLICIT;
    PARE_TRY(read_common(node, x, kernel, out));
    PARE_TRY(read_auto_pad(node, &pad));
    if (pad == EXPLICIT) PARE_TRY(read_pads(node, out));
    bool ceil = pare_node_int(node, "ceil_mode", 0);
    for (int i = 3 - out->nd; i < 3; i++) PARE_TRY(size_axis(node, out, i, pad, ceil));
    return PARE_OK;
}

/* ConvTranspose 11: out = stride * (in - 1) + output_padding + extent - pads; with output_shape or
   SAME the pads follow from the size instead. */
pare_status pare_window_read_transposed(const pare_node *node, const pare_shape *x,
                                        const int64_t *kernel, pare_window *out)
{
    auto_pad pad = EXPLICIT;
    int64_t more[3], shape[3];
    int given;
    PARE_TRY(read_common(node, x, kernel, out));
    PARE_TRY(read_auto_pad(node, &pad));
    if (pad == EXPLICIT) PARE_TRY(read_pads(node, out));
    PARE_TRY(read_ints(node, "output_padding", out->nd, 0, 0, more));
    const int64_t *sizes = pare_node_ints(node, "output_shape", &given);
    if (given == out->nd + 2)
        sizes += 2; /* older exporters list N and C, too */
    else if (sizes && given != out->nd)
        return PARE_FAIL_NODE(node, INPUT, "output_shape has %d values, expected %d", given,
                              out->nd);
    for (int i = 3 - out->nd; i < 3; i++) {
        bool same = pad == SAME_UPPER || pad == SAME_LOWER;
        shape[i] = sizes ? sizes[i - 3 + out->nd] : out->in[i] * out->stride[i];
        out->out[i] = -1;
        if (out->in[i] < 0) continue;
        int64_t full = out->stride[i] * (out->in[i] - 1) + more[i] + extent(out, i);
        if (sizes || same) {
            int64_t total = full - shape[i];
            split_pad(out, i, total > 0 ? total : 0, pad == SAME_UPPER);
            out->out[i] = shape[i];
        } else {
            out->out[i] = full - out->begin[i] - out->end[i];
        }
        if (out->out[i] < 0)
            return PARE_FAIL_NODE(node, INPUT, "its pads are larger than its output of %" PRId64,
                                  full);
    }
    return PARE_OK;
}
