/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/moves.h"
#include "runtime/ops/tensor_iterator.h"

#include <string.h>

const void *pare_call_host(const pare_call *c, int i)
{
    if (!c->stream) return c->in[i].data;
    const pare_value *v = i < c->node->in_count ? c->node->in[i] : NULL;
    return v && v->data ? v->data->data : NULL;
}

static void *element(const pare_view *v, int64_t offset)
{
    return (char *)v->data + offset * (int64_t)(pare_type(v->dtype)->bits / 8);
}

pare_view pare_view_part(const pare_view *view, int axis, int64_t first, int64_t n)
{
    pare_view v = *view;
    v.dim[axis] = n;
    if (v.data) v.data = element(view, first * view->stride[axis]);
    return v;
}

pare_view pare_view_permute(const pare_view *view, const int *order)
{
    pare_view v = *view;
    for (int i = 0; i < view->rank; i++) {
        v.dim[i] = view->dim[order[i]];
        v.stride[i] = view->stride[order[i]];
    }
    return v;
}

/* Out axis i is in axis perm[i]; without perm the axes are reversed. */
pare_status pare_moves_transpose(const pare_call *c, pare_move_fn move)
{
    int count, order[PARE_MAX_RANK], rank = c->in[0].rank;
    const int64_t *perm = pare_node_ints(c->node, "perm", &count);
    for (int i = 0; i < rank; i++) order[i] = perm ? (int)perm[i] : rank - 1 - i;
    pare_view from = pare_view_permute(&c->in[0], order);
    return move(c, &c->out[0], &from);
}

pare_status pare_moves_concat(const pare_call *c, pare_move_fn move)
{
    int axis = pare_node_axis(c->node, 1, c->out[0].rank);
    int64_t at = 0;
    for (int i = 0; i < c->in_count; i++) {
        int64_t n = c->in[i].dim[axis];
        pare_view to = pare_view_part(&c->out[0], axis, at, n);
        if (c->in[i].data != to.data) /* a plan may have made it there */
            PARE_TRY(move(c, &to, &c->in[i]));
        at += n;
    }
    return PARE_OK;
}

pare_status pare_moves_split(const pare_call *c, pare_move_fn move)
{
    int axis = pare_node_axis(c->node, 0, c->in[0].rank);
    int64_t at = 0;
    for (int i = 0; i < c->out_count; i++) {
        if (c->out[i].dtype == PARE_NOTYPE) continue;
        int64_t n = c->out[i].dim[axis];
        pare_view from = pare_view_part(&c->in[0], axis, at, n);
        if (c->out[i].data != from.data) /* a plan may have it there */
            PARE_TRY(move(c, &c->out[i], &from));
        at += n;
    }
    return PARE_OK;
}

static int64_t integer(const void *data, pare_dtype dtype, int64_t i)
{
    return dtype == PARE_s32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}

/* Inputs data, starts, ends, axes, steps. The shape rule has clamped the lengths. */
pare_status pare_moves_slice(const pare_call *c, pare_move_fn move)
{
    pare_view from = c->in[0];
    const void *starts = pare_call_host(c, 1);
    const void *axes = c->in_count > 3 && c->in[3].dtype ? pare_call_host(c, 3) : NULL;
    const void *steps = c->in_count > 4 && c->in[4].dtype ? pare_call_host(c, 4) : NULL;
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    for (int64_t i = 0; i < pare_view_count(&c->in[1]); i++) {
        int64_t axis = axes ? integer(axes, c->in[3].dtype, i) : i;
        if (axis < 0) axis += from.rank;
        int64_t n = c->in[0].dim[axis], start = integer(starts, c->in[1].dtype, i);
        int64_t step = steps ? integer(steps, c->in[4].dtype, i) : 1;
        if (start < 0) start += n;
        int64_t most = step < 0 ? n - 1 : n;
        start = start < 0 ? 0 : start > most ? most : start;
        from.data = element(&from, start * from.stride[axis]);
        from.dim[axis] = c->out[0].dim[axis];
        if (from.dim[axis] > 1) from.stride[axis] *= step; /* a step beyond the axis may be any */
    }
    return move(c, &c->out[0], &from);
}

pare_status pare_moves_expand(const pare_call *c, pare_move_fn move)
{
    pare_view from = pare_view_stretch(&c->in[0], &c->out[0]);
    return move(c, &c->out[0], &from);
}

/* One copy of the input for each combination of repeats. */
pare_status pare_moves_tile(const pare_call *c, pare_move_fn move)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    if (!pare_view_count(y)) return PARE_OK;
    int64_t copies = pare_view_count(y) / pare_view_count(x);
    for (int64_t n = 0; n < copies; n++) {
        pare_view to = *y;
        int64_t left = n;
        for (int i = y->rank - 1; i >= 0; i--) {
            int64_t times = y->dim[i] / x->dim[i];
            to = pare_view_part(&to, i, left % times * x->dim[i], x->dim[i]);
            left /= times;
        }
        PARE_TRY(move(c, &to, x));
    }
    return PARE_OK;
}

/* The deep tensor [N, C * b * b, H, W] seen with six axes N, C, H, b, W, b. */
static pare_view deep_view(const pare_view *v, int64_t b, bool crd)
{
    int64_t c = v->dim[1] / (b * b), s = v->stride[1];
    int64_t channel = crd ? s * b * b : s, row = crd ? s * b : s * b * c, column = crd ? s : s * c;
    return (pare_view){v->dtype,
                       6,
                       {v->dim[0], c, v->dim[2], b, v->dim[3], b},
                       {v->stride[0], channel, v->stride[2], row, v->stride[3], column},
                       v->data};
}

/* The wide tensor [N, C, H * b, W * b] seen the same way. */
static pare_view wide_view(const pare_view *v, int64_t b)
{
    return (pare_view){v->dtype,
                       6,
                       {v->dim[0], v->dim[1], v->dim[2] / b, b, v->dim[3] / b, b},
                       {v->stride[0], v->stride[1], v->stride[2] * b, v->stride[2],
                        v->stride[3] * b, v->stride[3]},
                       v->data};
}

pare_status pare_moves_depth_to_space(const pare_call *c, pare_move_fn move)
{
    int64_t b = pare_node_int(c->node, "blocksize", 1);
    bool crd = !strcmp(pare_node_string(c->node, "mode", "DCR"), "CRD");
    pare_view from = deep_view(&c->in[0], b, crd), to = wide_view(&c->out[0], b);
    return move(c, &to, &from);
}

pare_status pare_moves_space_to_depth(const pare_call *c, pare_move_fn move)
{
    int64_t b = pare_node_int(c->node, "blocksize", 1);
    pare_view from = wide_view(&c->in[0], b), to = deep_view(&c->out[0], b, false);
    return move(c, &to, &from);
}

pare_status pare_moves_reorder(const pare_call *c, pare_move_fn move)
{
    return move(c, &c->out[0], &c->in[0]);
}
