/* SPDX-License-Identifier: Apache-2.0 */
/* Concat (4), Split (2 to 18), Slice (10), Expand (8), Tile (6), DepthToSpace (1), SpaceToDepth
   (1): each is a few copies between parts of views. */
#include "runtime/cpu/copy.h"

static int axis_of(const pare_call *c, int64_t missing, int rank)
{
    int64_t axis = pare_node_int(c->node, "axis", missing);
    return (int)(axis < 0 ? axis + rank : axis);
}

static pare_status concat_run(const pare_call *c)
{
    int axis = axis_of(c, 1, c->out[0].rank);
    int64_t at = 0;
    for (int i = 0; i < c->in_count; i++) {
        int64_t n = c->in[i].dim[axis];
        pare_view to = pare_view_part(&c->out[0], axis, at, n);
        pare_copy_view(&to, &c->in[i], c->threads);
        at += n;
    }
    return PARE_OK;
}

static pare_status split_run(const pare_call *c)
{
    int axis = axis_of(c, 0, c->in[0].rank);
    int64_t at = 0;
    for (int i = 0; i < c->out_count; i++) {
        if (c->out[i].dtype == PARE_NOTYPE) continue;
        int64_t n = c->out[i].dim[axis];
        pare_view from = pare_view_part(&c->in[0], axis, at, n);
        pare_copy_view(&c->out[i], &from, c->threads);
        at += n;
    }
    return PARE_OK;
}

/* Slice 10: inputs data, starts, ends, axes, steps. The shape rule has clamped the lengths. */
static pare_status slice_run(const pare_call *c)
{
    pare_view from = c->in[0];
    const pare_view *starts = &c->in[1];
    bool axes = c->in_count > 3 && c->in[3].dtype, steps = c->in_count > 4 && c->in[4].dtype;
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    for (int64_t i = 0; i < pare_view_count(starts); i++) {
        int64_t axis = axes ? pare_ref_get_int(&c->in[3], i) : i;
        if (axis < 0) axis += from.rank;
        int64_t n = c->in[0].dim[axis], start = pare_ref_get_int(starts, i);
        int64_t step = steps ? pare_ref_get_int(&c->in[4], i) : 1;
        if (start < 0) start += n;
        int64_t most = step < 0 ? n - 1 : n;
        start = start < 0 ? 0 : start > most ? most : start;
        from.data = pare_ref_at(&from, start * from.stride[axis]);
        from.stride[axis] *= step;
        from.dim[axis] = c->out[0].dim[axis];
    }
    pare_copy_view(&c->out[0], &from, c->threads);
    return PARE_OK;
}

static pare_status expand_run(const pare_call *c)
{
    pare_view from = pare_view_stretch(&c->in[0], &c->out[0]);
    pare_copy_view(&c->out[0], &from, c->threads);
    return PARE_OK;
}

/* One copy of the input for each combination of repeats. */
static pare_status tile_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    pare_view times = *y;
    if (!pare_view_count(y)) return PARE_OK;
    for (int i = 0; i < y->rank; i++) times.dim[i] = y->dim[i] / x->dim[i];
    do {
        pare_view to = *y;
        for (int i = 0; i < y->rank; i++)
            to = pare_view_part(&to, i, index[i] * x->dim[i], x->dim[i]);
        pare_copy_view(&to, x, c->threads);
    } while (pare_ref_next(&times, index));
    return PARE_OK;
}

/* The deep tensor [N, C * b * b, H, W] seen with six axes N, C, H, b, W, b (DepthToSpace 13). */
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

static bool crd_can(const pare_prep *p)
{
    return pare_copy_can(p) && pare_node_attr(p->node, "mode") &&
           pare_node_attr(p->node, "mode")->s.size == 3 &&
           *(const char *)pare_node_attr(p->node, "mode")->s.data == 'C';
}

static pare_status to_space(const pare_call *c, bool crd)
{
    int64_t b = pare_node_int(c->node, "blocksize", 1);
    pare_view from = deep_view(&c->in[0], b, crd), to = wide_view(&c->out[0], b);
    pare_copy_view(&to, &from, c->threads);
    return PARE_OK;
}

static pare_status depth_to_space_crd_run(const pare_call *c)
{
    return to_space(c, true);
}
static pare_status depth_to_space_run(const pare_call *c)
{
    return to_space(c, false);
}

static pare_status space_to_depth_run(const pare_call *c)
{
    int64_t b = pare_node_int(c->node, "blocksize", 1);
    pare_view from = wide_view(&c->in[0], b), to = deep_view(&c->out[0], b, false);
    pare_copy_view(&to, &from, c->threads);
    return PARE_OK;
}

#define COPY_KERNEL(stem, can_fn)                                                                  \
    static const pare_kernel copy_##stem = {                                                       \
        .name = "copy_" #stem, .can = can_fn, .run = stem##_run, .flags = PARE_KERNEL_REF};
COPY_KERNEL(concat, pare_copy_can)
COPY_KERNEL(split, pare_copy_can)
COPY_KERNEL(slice, pare_copy_can)
COPY_KERNEL(expand, pare_copy_can)
COPY_KERNEL(tile, pare_copy_can)
COPY_KERNEL(depth_to_space_crd, crd_can)
COPY_KERNEL(depth_to_space, pare_copy_can)
COPY_KERNEL(space_to_depth, pare_copy_can)

const pare_kernel *const pare_cpu_concat[] = {&copy_concat, NULL};
const pare_kernel *const pare_cpu_split[] = {&copy_split, NULL};
const pare_kernel *const pare_cpu_slice[] = {&copy_slice, NULL};
const pare_kernel *const pare_cpu_expand[] = {&copy_expand, NULL};
const pare_kernel *const pare_cpu_tile[] = {&copy_tile, NULL};
const pare_kernel *const pare_cpu_depth_to_space[] = {&copy_depth_to_space_crd,
                                                      &copy_depth_to_space, NULL};
const pare_kernel *const pare_cpu_space_to_depth[] = {&copy_space_to_depth, NULL};
