/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: shapes of DFT (17, 20), STFT (17), HannWindow, HammingWindow, BlackmanWindow (17) and
   MelWeightMatrix (17); version conversion of DFT. */
#include "runtime/ops/signal.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>

/* A constant scalar input of integers; *known is false where it is computed, and where it is absent
 *out keeps its value. */
static pare_status scalar(const pare_node *node, int i, int64_t *out, bool *known)
{
    const pare_value *v = pare_node_in(node, i);
    const int64_t *list;
    int count;
    *known = true;
    if (!v) return PARE_OK;
    if (v->dtype && v->dtype != PARE_s32 && v->dtype != PARE_s64)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has type %s, expected s32 or s64", v->name,
                              pare_type(v->dtype)->name);
    PARE_TRY(pare_infer_ints(node, i, &list, &count));
    *known = list != NULL;
    if (list && count != 1) return PARE_FAIL_NODE(node, INPUT, "'%s' must be one number", v->name);
    if (list) *out = list[0];
    return PARE_OK;
}

/* --- DFT --- */

/* DFT (17): the axis is an attribute, 1 where it is missing. */
pare_status pare_upgrade_dft(pare_node *node, int64_t version)
{
    if (version >= 20) return PARE_OK;
    PARE_TRY(pare_node_set_int(node, "axis", pare_node_int(node, "axis", 1)));
    if (node->in_count < 2) PARE_TRY(pare_node_set_in(node, 1, NULL));
    PARE_TRY(pare_upgrade_int(node, "axis", 2));
    return pare_upgrade_opset(node, 20);
}

static pare_status dft_axis(const pare_node *node, int rank, int *out)
{
    const bool old = pare_model_opset(node->graph->model, "") < 20;
    int64_t axis = old ? pare_node_int(node, "axis", 1) : -2;
    bool known;
    PARE_TRY(scalar(node, 2, &axis, &known));
    *out = -1;
    if (!known || rank < 0) return PARE_OK;
    PARE_TRY(pare_infer_axis(node, axis, rank, out));
    if (*out == rank - 1)
        return PARE_FAIL_NODE(
            node, INPUT, "axis %" PRId64 " holds real and imaginary parts, expected another", axis);
    return PARE_OK;
}

/* 1 or 2 numbers along the last axis; -1: not known. */
static pare_status parts_of(const pare_node *node, int64_t *out)
{
    const pare_value *x = node->in[0];
    *out = x->shape.rank > 0 ? x->shape.dim[x->shape.rank - 1] : -1;
    if (x->shape.rank < 0 || (x->shape.rank >= 2 && (*out < 0 || *out == 1 || *out == 2)))
        return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT,
                          "'%s' must have rank 2 or more and 1 (real) or 2 (complex) numbers along "
                          "its last axis",
                          x->name);
}

pare_status pare_dft_of(const pare_node *node, pare_dft *out)
{
    pare_value *x;
    int64_t parts;
    bool known;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(parts_of(node, &parts));
    *out = (pare_dft){.length = -1,
                      .inverse = pare_node_int(node, "inverse", 0) != 0,
                      .onesided = pare_node_int(node, "onesided", 0) != 0};
    PARE_TRY(dft_axis(node, x->shape.rank, &out->axis));
    if (out->onesided && parts == (out->inverse ? 1 : 2))
        return PARE_FAIL_NODE(node, INPUT, "onesided needs a %s signal, '%s' is %s",
                              out->inverse ? "complex" : "real", x->name,
                              out->inverse ? "real" : "complex");
    const int64_t size = out->axis >= 0 ? x->shape.dim[out->axis] : -1;
    if (size >= 0) out->length = out->inverse && out->onesided ? 2 * (size - 1) : size;
    PARE_TRY(scalar(node, 1, &out->length, &known));
    if (!known) out->length = -1;
    if ((known && pare_node_in(node, 1)) || size >= 0)
        if (known && out->length < 1)
            return PARE_FAIL_NODE(node, INPUT, "a length of %" PRId64 " cannot be transformed",
                                  out->length);
    return PARE_OK;
}

pare_status pare_infer_dft(pare_node *node)
{
    pare_dft d;
    PARE_TRY(pare_dft_of(node, &d));
    pare_shape s = node->in[0]->shape;
    for (int i = 0; i < s.rank - 1; i++) {
        if (i != d.axis && d.axis >= 0) continue;
        s.dim[i] = d.length < 0 || d.axis < 0 ? -1
                   : d.onesided && !d.inverse ? d.length / 2 + 1
                                              : d.length;
        s.name[i] = NULL;
    }
    if (s.rank > 0) s.dim[s.rank - 1] = d.onesided && d.inverse ? 1 : 2;
    if (s.rank > 0) s.name[s.rank - 1] = NULL;
    pare_infer_out(node, 0, node->in[0]->dtype, &s);
    return PARE_OK;
}

/* --- STFT: signal (batch, length) or (batch, length, 1 or 2), frame step, window, frame length ---
 */

static pare_status stft_length(const pare_node *node, const pare_shape *x, int64_t *out)
{
    const pare_value *window = pare_node_in(node, 2);
    int64_t length = -1;
    bool known;
    PARE_TRY(scalar(node, 3, &length, &known));
    const bool given = pare_node_in(node, 3) != NULL;
    if (given && known && length < 1)
        return PARE_FAIL_NODE(node, INPUT, "frame_length is %" PRId64 ", it must be at least 1",
                              length);
    if (window && window->shape.rank >= 0 && window->shape.rank != 1)
        return PARE_FAIL_NODE(node, INPUT, "window '%s' has rank %d, expected 1", window->name,
                              window->shape.rank);
    const int64_t width = window && window->shape.rank == 1 ? window->shape.dim[0] : -1;
    if (given && length >= 0 && width >= 0 && length != width)
        return PARE_FAIL_NODE(node, INPUT,
                              "window '%s' has %" PRId64 " numbers, a frame has %" PRId64,
                              window->name, width, length);
    *out = given ? length : window ? width : x->rank > 0 ? x->dim[1] : -1;
    return PARE_OK;
}

pare_status pare_stft_of(const pare_node *node, pare_stft *out)
{
    pare_value *x, *step;
    bool known;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &step));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    const pare_shape *s = &x->shape;
    *out = (pare_stft){-1, -1, -1, pare_node_int(node, "onesided", 1) != 0};
    if (s->rank >= 0 && s->rank != 2 && s->rank != 3)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has rank %d, expected [batch,length,1 or 2]",
                              x->name, s->rank);
    if (s->rank == 3) PARE_TRY(parts_of(node, &(int64_t){0}));
    PARE_TRY(scalar(node, 1, &out->step, &known));
    if (known && out->step < 1)
        return PARE_FAIL_NODE(node, INPUT, "frame_step is %" PRId64 ", it must be at least 1",
                              out->step);
    PARE_TRY(stft_length(node, s, &out->length));
    if (s->rank < 0 || s->dim[1] < 0 || out->length < 0 || !known) return PARE_OK;
    if (out->length < 1 || s->dim[1] < out->length)
        return PARE_FAIL_NODE(node, INPUT,
                              "a signal of %" PRId64 " has no frame of %" PRId64 " ('%s')",
                              s->dim[1], out->length, x->name);
    out->frames = 1 + (s->dim[1] - out->length) / out->step;
    return PARE_OK;
}

/* (batch, frames, bins, 2) */
pare_status pare_infer_stft(pare_node *node)
{
    pare_stft t;
    PARE_TRY(pare_stft_of(node, &t));
    pare_shape s = pare_shape_unknown(4);
    if (node->in[0]->shape.rank > 0) {
        s.dim[0] = node->in[0]->shape.dim[0];
        s.name[0] = node->in[0]->shape.name[0];
    }
    s.dim[1] = t.frames;
    s.dim[2] = t.length < 0 || !t.onesided ? t.length : t.length / 2 + 1;
    s.dim[3] = 2;
    pare_infer_out(node, 0, node->in[0]->dtype, &s);
    return PARE_OK;
}

/* --- windows and filters --- */

static pare_status number_type(const pare_node *node, pare_dtype *out)
{
    const int64_t type = pare_node_int(node, "output_datatype", PARE_f32);
    *out = type > 0 && type < PARE_DTYPE_COUNT ? (pare_dtype)type : PARE_NOTYPE;
    switch (*out) {
    case PARE_s8:
    case PARE_u8:
    case PARE_s16:
    case PARE_u16:
    case PARE_s32:
    case PARE_u32:
    case PARE_s64:
    case PARE_u64: return PARE_OK;
    default:
        if (pare_type_is_float(*out)) return PARE_OK;
        return PARE_FAIL_NODE(node, INPUT, "output_datatype %" PRId64 " is no type of numbers",
                              type);
    }
}

static pare_status size_input(const pare_node *node, int i, int64_t least, int64_t *out)
{
    pare_value *v;
    bool known;
    PARE_TRY(pare_infer_need(node, i, &v));
    PARE_TRY(scalar(node, i, out, &known));
    if (!known) *out = -1;
    if (known && *out < least)
        return PARE_FAIL_NODE(node, INPUT, "'%s' is %" PRId64 ", it must be at least %" PRId64,
                              v->name, *out, least);
    return PARE_OK;
}

/* Windows: [size]. */
pare_status pare_infer_signal_window(pare_node *node)
{
    int64_t size = -1;
    pare_dtype type;
    PARE_TRY(size_input(node, 0, 0, &size));
    PARE_TRY(number_type(node, &type));
    const pare_shape s = pare_shape_vector(size);
    pare_infer_out(node, 0, type, &s);
    return PARE_OK;
}

/* MelWeightMatrix: [dft_length / 2 + 1, num_mel_bins]. */
pare_status pare_infer_mel_weight_matrix(pare_node *node)
{
    int64_t bands = -1, length = -1, rate = -1;
    pare_value *edge;
    pare_dtype type;
    PARE_TRY(size_input(node, 0, 1, &bands));
    PARE_TRY(size_input(node, 1, 1, &length));
    PARE_TRY(size_input(node, 2, 1, &rate));
    for (int i = 3; i < 5; i++) {
        PARE_TRY(pare_infer_need(node, i, &edge));
        if (edge->shape.rank < 0 || pare_shape_count(&edge->shape) < 0) continue;
        if (pare_shape_count(&edge->shape) != 1)
            return PARE_FAIL_NODE(node, INPUT, "'%s' must be one number", edge->name);
    }
    PARE_TRY(number_type(node, &type));
    pare_shape s = pare_shape_unknown(2);
    if (length >= 0) s.dim[0] = length / 2 + 1;
    s.dim[1] = bands;
    pare_infer_out(node, 0, type, &s);
    return PARE_OK;
}
