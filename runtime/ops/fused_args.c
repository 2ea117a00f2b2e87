/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the attributes of nodes of domain pare (fused.h). */
#include "runtime/ops/fused.h"

#include <math.h>
#include <string.h>

pare_status pare_act_read(const pare_node *node, pare_act *out)
{
    static const char *const words[PARE_ACT_COUNT] = {
        "none", "relu", "clip", "leaky_relu", "sigmoid", "tanh",
        "silu", "hardswish", "hardsigmoid", "gelu", "gelu_tanh"};
    const char *word = pare_node_string(node, "activation", "none");
    for (int i = 0; i < PARE_ACT_COUNT; i++) {
        if (strcmp(word, words[i])) continue;
        out->kind = (pare_act_kind)i;
        bool hard = i == PARE_ACT_HARDSIGMOID, clip = i == PARE_ACT_CLIP;
        out->alpha = out->beta = 0;
        if (hard || clip || i == PARE_ACT_LEAKY_RELU)
            out->alpha = pare_node_float(node, "alpha", hard ? 0.2f : clip ? -INFINITY : 0.01f);
        if (hard || clip) out->beta = pare_node_float(node, "beta", hard ? 0.5f : INFINITY);
        return PARE_OK;
    }
    return PARE_FAIL_NODE(node, UNSUPPORTED, "activation '%s' is not known", word);
}

bool pare_act_is_curved(const pare_act *act)
{
    return act->kind > PARE_ACT_LEAKY_RELU;
}

static pare_status scale_read(const pare_node *node, const char *name, float *out)
{
    *out = pare_node_float(node, name, 1);
    if (*out > 0 && isfinite(*out)) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s is %g, expected a positive number", name, (double)*out);
}

static pare_status zero_read(const pare_node *node, const char *name, int32_t *out)
{
    int64_t zero = pare_node_int(node, name, 0);
    if (zero < -128 || zero > 255)
        return PARE_FAIL_NODE(node, INPUT, "%s is %lld, expected an 8-bit value", name,
                              (long long)zero);
    *out = (int32_t)zero;
    return PARE_OK;
}

pare_status pare_quant_read(const pare_node *node, pare_quant_args *out)
{
    bool pair = pare_node_attr(node, "a_scale") || pare_node_attr(node, "b_scale");
    PARE_TRY(scale_read(node, pair ? "a_scale" : "x_scale", &out->x_scale));
    PARE_TRY(zero_read(node, pair ? "a_zero_point" : "x_zero_point", &out->x_zero));
    PARE_TRY(scale_read(node, pair ? "b_scale" : "z_scale", &out->z_scale));
    PARE_TRY(zero_read(node, pair ? "b_zero_point" : "z_zero_point", &out->z_zero));
    PARE_TRY(scale_read(node, "y_scale", &out->y_scale));
    PARE_TRY(zero_read(node, "y_zero_point", &out->y_zero));
    PARE_TRY(zero_read(node, "w_zero_point", &out->w_zero));
    const pare_value *x = pare_node_in(node, 0);
    out->to = (pare_dtype)pare_node_int(node, "to", x ? (int64_t)x->dtype : PARE_NOTYPE);
    if (pare_type_is_int8(out->to) || out->to == PARE_f32) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "output type %s, expected s8, u8 or f32",
                          pare_type(out->to)->name);
}

/* Copies the last `axes` of a list of count * repeat ints behind fill. */
static pare_status ints_read(const pare_node *node, const char *name, int axes, int64_t *out,
                             int64_t low)
{
    int count;
    const int64_t *ints = pare_node_ints(node, name, &count);
    if (!ints) return PARE_OK;
    if (count != axes)
        return PARE_FAIL_NODE(node, INPUT, "%s has %d entries, expected %d", name, count, axes);
    for (int i = 0; i < axes; i++) {
        if (ints[i] < low || ints[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "%s has the entry %lld, expected %lld or more", name,
                                  (long long)ints[i], (long long)low);
        out[3 - axes + i] = ints[i];
    }
    return PARE_OK;
}

static pare_status pads_read(const pare_node *node, pare_window *w)
{
    int count;
    const int64_t *pads = pare_node_ints(node, "pads", &count);
    if (!pads) return PARE_OK;
    if (count != 2 * w->axes)
        return PARE_FAIL_NODE(node, INPUT, "pads has %d entries, expected %d", count, 2 * w->axes);
    for (int i = 0; i < count; i++)
        if (pads[i] < 0 || pads[i] > INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "pads has the entry %lld, expected 0 or more",
                                  (long long)pads[i]);
    for (int i = 0; i < w->axes; i++) {
        w->begin[3 - w->axes + i] = pads[i];
        w->end[3 - w->axes + i] = pads[w->axes + i];
    }
    return PARE_OK;
}

static pare_status kernel_read(const pare_node *node, const pare_shape *weight, pare_window *w)
{
    if (weight && weight->rank >= 0) {
        if (weight->rank != w->axes + 2)
            return PARE_FAIL_NODE(node, INPUT, "the weight has rank %d, expected %d", weight->rank,
                                  w->axes + 2);
        for (int i = 0; i < w->axes; i++) w->kernel[3 - w->axes + i] = weight->dim[2 + i];
    }
    int64_t stated[3] = {w->kernel[0], w->kernel[1], w->kernel[2]};
    PARE_TRY(ints_read(node, "kernel_shape", w->axes, stated, 1));
    for (int i = 0; i < 3; i++) {
        if (w->kernel[i] > 0 && weight && stated[i] != w->kernel[i])
            return PARE_FAIL_NODE(node, INPUT, "kernel_shape says %lld, the weight %lld",
                                  (long long)stated[i], (long long)w->kernel[i]);
        w->kernel[i] = stated[i];
    }
    return PARE_OK;
}

/* ONNX Conv-11, auto_pad: SAME gives ceil(in / stride) outputs, the odd pad behind (UPPER) or in
   front (LOWER); VALID pads nothing. */
static void auto_pad(pare_window *w, int i, const char *word)
{
    w->begin[i] = w->end[i] = 0;
    if (!strcmp(word, "VALID") || w->in[i] < 0) return;
    int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t outputs = (w->in[i] + w->stride[i] - 1) / w->stride[i];
    int64_t total = (outputs - 1) * w->stride[i] + reach - w->in[i];
    if (total < 0) total = 0;
    w->begin[i] = !strcmp(word, "SAME_LOWER") ? total - total / 2 : total / 2;
    w->end[i] = total - w->begin[i];
}

static pare_status outputs_count(const pare_node *node, pare_window *w, int i)
{
    w->out[i] = -1;
    if (w->in[i] < 0 || w->kernel[i] < 1) return PARE_OK;
    int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t room = w->in[i] + w->begin[i] + w->end[i] - reach;
    if (room < 0)
        return PARE_FAIL_NODE(node, INPUT, "a window of %lld does not fit into %lld with its pads",
                              (long long)reach, (long long)w->in[i]);
    w->out[i] = (room + (w->ceil ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
    if (w->ceil && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->begin[i]) w->out[i]--;
    return PARE_OK;
}

pare_status pare_window_read(const pare_node *node, const pare_shape *x, const pare_shape *weight,
                             pare_window *out)
{
    *out = (pare_window){.axes = x->rank - 2, .group = pare_node_int(node, "group", 1)};
    if (x->rank < 3 || x->rank > 5)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "the input has rank %d, expected 3 to 5", x->rank);
    for (int i = 0; i < 3; i++) {
        int axis = i - (3 - out->axes);
        out->kernel[i] = out->stride[i] = out->dilation[i] = 1;
        out->in[i] = axis < 0 ? 1 : x->dim[2 + axis];
    }
    if (out->group < 1 || out->group > INT32_MAX)
        return PARE_FAIL_NODE(node, INPUT, "group is %lld, expected 1 or more",
                              (long long)out->group);
    out->ceil = pare_node_int(node, "ceil_mode", 0) != 0;
    out->include_pad = pare_node_int(node, "count_include_pad", 0) != 0;
    PARE_TRY(kernel_read(node, weight, out));
    PARE_TRY(ints_read(node, "strides", out->axes, out->stride, 1));
    PARE_TRY(ints_read(node, "dilations", out->axes, out->dilation, 1));
    PARE_TRY(pads_read(node, out));
    const char *word = pare_node_string(node, "auto_pad", "NOTSET");
    for (int i = 0; i < 3; i++) {
        if (*word && strcmp(word, "NOTSET")) auto_pad(out, i, word);
        PARE_TRY(outputs_count(node, out, i));
    }
    return PARE_OK;
}
