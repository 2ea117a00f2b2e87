/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/gather.h"
#include "runtime/cuda/element.h"
#include "runtime/cuda/kernel.h"

#include <inttypes.h>
#include <string.h>

/* A view with y's dims that stands still: what follows gives it the strides it has. */
static pare_view still(const pare_view *y, pare_dtype dtype)
{
    pare_view v = *y;
    v.dtype = dtype;
    memset(v.stride, 0, sizeof v.stride);
    return v;
}

/* --- Gather, GatherElements, GatherND --- */

typedef struct gather {
    pare_cuda_walk walk;
    pare_cuda_axes axes;
    int bytes;
} gather;

static bool gather_can(const pare_prep *p)
{
    return pare_cuda_bytes(p->in[0].dtype) > 0 && pare_cuda_is_int(p->in[1].dtype);
}

static void axis_add(pare_cuda_axes *axes, const pare_view *x, int axis)
{
    axes->n[axes->count] = x->dim[axis];
    axes->step[axes->count++] = x->stride[axis];
}

static pare_status gather_new(pare_prep *p, gather **out)
{
    gather *g = pare_arena_alloc(p->arena, 1, sizeof *g);
    if (!g) return PARE_MEMORY;
    g->bytes = pare_cuda_bytes(p->in[0].dtype);
    g->axes.type = p->in[1].dtype;
    p->state = *out = g;
    return PARE_OK;
}

static void gather_walk(gather *g, const pare_view *y, const pare_view *x, const pare_view *at)
{
    const pare_view *all[3] = {y, x, at};
    pare_walk_init(&g->walk.walk, all, 3);
}

/* y's axes: those of data before the axis, those of the indices, those of data behind. */
static pare_status gather_prepare(pare_prep *p)
{
    gather *g;
    PARE_TRY(gather_new(p, &g));
    const pare_view *x = &p->in[0], *at = &p->in[1], *y = &p->out[0];
    int axis = pare_node_axis(p->node, 0, x->rank);
    pare_view from = still(y, x->dtype), index = still(y, at->dtype);
    for (int a = 0; a < x->rank; a++)
        if (a != axis) from.stride[a < axis ? a : a - 1 + at->rank] = x->stride[a];
    for (int a = 0; a < at->rank; a++) index.stride[axis + a] = at->stride[a];
    axis_add(&g->axes, x, axis);
    gather_walk(g, y, &from, &index);
    return PARE_OK;
}

static pare_status gather_elements_prepare(pare_prep *p)
{
    gather *g;
    PARE_TRY(gather_new(p, &g));
    const pare_view *x = &p->in[0], *y = &p->out[0];
    int axis = pare_node_axis(p->node, 0, x->rank);
    pare_view from = still(y, x->dtype);
    for (int a = 0; a < x->rank; a++)
        if (a != axis) from.stride[a] = x->stride[a];
    axis_add(&g->axes, x, axis);
    gather_walk(g, y, &from, &p->in[1]);
    return PARE_OK;
}

/* y's axes: those of the indices but the last, then what is left of data. */
static pare_status gather_nd_prepare(pare_prep *p)
{
    gather *g;
    PARE_TRY(gather_new(p, &g));
    const pare_view *x = &p->in[0], *at = &p->in[1], *y = &p->out[0];
    int batch = (int)pare_node_int(p->node, "batch_dims", 0), lead = at->rank - 1;
    int axes = batch + (int)at->dim[lead];
    pare_view from = still(y, x->dtype), index = still(y, at->dtype);
    for (int a = 0; a < batch; a++) from.stride[a] = x->stride[a];
    for (int a = axes; a < x->rank; a++) from.stride[lead + a - axes] = x->stride[a];
    for (int a = 0; a < lead; a++) index.stride[a] = at->stride[a];
    for (int a = batch; a < axes; a++) axis_add(&g->axes, x, a);
    g->axes.apart = at->stride[lead];
    gather_walk(g, y, &from, &index);
    return PARE_OK;
}

static pare_status gather_run(const pare_call *c)
{
    gather g = *(const gather *)c->state;
    g.walk.data[0] = c->out[0].data;
    g.walk.data[1] = c->in[0].data;
    g.walk.data[2] = c->in[1].data;
    g.axes.fault = (pare_cuda_fault){c->fault, c->step};
    return PARE_CUDA_LAUNCH(c, pare_cuda_gather_launch, &g.walk, &g.axes, g.bytes);
}

static pare_status index_fault(const pare_call *c, const pare_cuda_axes *axes, int64_t value)
{
    char text[256];
    if (axes->count == 1)
        return PARE_FAIL_NODE(c->node, INPUT,
                              "index %" PRId64 " is outside an axis of length %" PRId64, value,
                              axes->n[0]);
    return PARE_FAIL_NODE(c->node, INPUT, "index %" PRId64 " is outside its axis of '%s' %s", value,
                          c->node->in[0]->name,
                          pare_shape_text(&c->node->in[0]->shape, text, sizeof text));
}

static pare_status gather_fault(const pare_call *c, int64_t value)
{
    return index_fault(c, &((const gather *)c->state)->axes, value);
}

#define GATHER(stem)                                                                               \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = gather_can,                                     \
                                            .prepare = stem##_prepare,                             \
                                            .run = gather_run,                                     \
                                            .fault = gather_fault};                                \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
GATHER(gather)
GATHER(gather_elements)
GATHER(gather_nd)

/* --- ScatterElements, ScatterND --- */

static bool scatter_can(const pare_prep *p)
{
    return gather_can(p) && p->in[2].dtype == p->in[0].dtype;
}

static pare_status scatter_new(pare_prep *p, pare_cuda_scatter **out)
{
    static const char *const name[] = {"none", "add", "mul", "min", "max"};
    const char *text = pare_node_string(p->node, "reduction", "none");
    pare_cuda_scatter *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    int kind = 0;
    while (kind < 5 && strcmp(text, name[kind])) kind++;
    if (kind == 5)
        return PARE_FAIL_NODE(p->node, INPUT,
                              "reduction is '%s', expected none, add, mul, min or max", text);
    s->kind = (pare_cuda_scatter_kind)kind;
    s->dtype = p->in[0].dtype;
    s->bytes = pare_cuda_bytes(s->dtype);
    s->axes.type = p->in[1].dtype;
    p->state = *out = s;
    return PARE_OK;
}

/* Axes from .. to - 1 of a view. */
static pare_view some_axes(const pare_view *v, int from, int to)
{
    pare_view s = {.dtype = v->dtype, .rank = to - from};
    memcpy(s.dim, v->dim + from, (size_t)s.rank * sizeof *s.dim);
    memcpy(s.stride, v->stride + from, (size_t)s.rank * sizeof *s.stride);
    return s;
}

/* Lines run along the axis. */
static pare_status scatter_elements_prepare(pare_prep *p)
{
    pare_cuda_scatter *s;
    PARE_TRY(scatter_new(p, &s));
    const pare_view *at = &p->in[1], *u = &p->in[2], *y = &p->out[0];
    int axis = pare_node_axis(p->node, 0, y->rank);
    pare_view to = *at, from = *u, index = *at;
    memcpy(to.stride, y->stride, sizeof to.stride);
    pare_view along_to = still(&(pare_view){.rank = 1, .dim = {at->dim[axis]}}, y->dtype);
    pare_view along_from = some_axes(u, axis, axis + 1), along_at = some_axes(at, axis, axis + 1);
    to.dim[axis] = from.dim[axis] = index.dim[axis] = 1;
    const pare_view *line[3] = {&to, &from, &index},
                    *along[3] = {&along_to, &along_from, &along_at};
    pare_walk_init(&s->line.walk, line, 3);
    pare_walk_init(&s->along.walk, along, 3);
    axis_add(&s->axes, y, axis);
    return PARE_OK;
}

/* Lines run over all slices, one for each element of a slice. */
static pare_status scatter_nd_prepare(pare_prep *p)
{
    pare_cuda_scatter *s;
    PARE_TRY(scatter_new(p, &s));
    const pare_view *at = &p->in[1], *u = &p->in[2], *y = &p->out[0];
    int lead = at->rank - 1, axes = (int)at->dim[lead];
    pare_view to = some_axes(y, axes, y->rank), from = some_axes(u, lead, u->rank);
    pare_view none = still(&to, at->dtype);
    pare_view along_from = some_axes(u, 0, lead), along_at = some_axes(at, 0, lead);
    pare_view along_to = still(&along_at, y->dtype);
    const pare_view *line[3] = {&to, &from, &none}, *along[3] = {&along_to, &along_from, &along_at};
    pare_walk_init(&s->line.walk, line, 3);
    pare_walk_init(&s->along.walk, along, 3);
    for (int a = 0; a < axes; a++) axis_add(&s->axes, y, a);
    s->axes.apart = at->stride[lead];
    return PARE_OK;
}

static pare_status scatter_run(const pare_call *c)
{
    pare_cuda_scatter s = *(const pare_cuda_scatter *)c->state;
    if (c->out[0].data != c->in[0].data) {
        pare_cuda_walk copy;
        pare_cuda_walk_call(&copy, c, 1);
        PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_copy_launch, &copy, s.bytes));
    }
    s.line.data[0] = c->out[0].data;
    s.line.data[1] = c->in[2].data;
    s.line.data[2] = c->in[1].data;
    s.axes.fault = (pare_cuda_fault){c->fault, c->step};
    return PARE_CUDA_LAUNCH(c, pare_cuda_scatter_launch, &s);
}

static pare_status scatter_fault(const pare_call *c, int64_t value)
{
    return index_fault(c, &((const pare_cuda_scatter *)c->state)->axes, value);
}

#define SCATTER(stem)                                                                              \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = scatter_can,                                    \
                                            .prepare = stem##_prepare,                             \
                                            .run = scatter_run,                                    \
                                            .fault = scatter_fault,                                \
                                            .flags = PARE_KERNEL_INPLACE};                         \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
SCATTER(scatter_elements)
SCATTER(scatter_nd)

/* --- OneHot, ReverseSequence --- */

static bool one_hot_can(const pare_prep *p)
{
    return (pare_cuda_is_int(p->in[0].dtype) || pare_type_is_float(p->in[0].dtype)) &&
           pare_cuda_bytes(p->in[2].dtype) > 0;
}

static pare_status one_hot_run(const pare_call *c)
{
    const pare_view *at = &c->in[0], *values = &c->in[2], *y = &c->out[0];
    int axis = pare_node_axis(c->node, -1, y->rank);
    pare_view index = still(y, at->dtype), position = still(y, PARE_s64);
    for (int a = 0; a < at->rank; a++) index.stride[a < axis ? a : a + 1] = at->stride[a];
    position.stride[axis] = 1;
    const pare_view *all[3] = {y, &index, &position};
    pare_cuda_walk w = {.data = {y->data, at->data}};
    pare_walk_init(&w.walk, all, 3);
    return PARE_CUDA_LAUNCH(c, pare_cuda_one_hot_launch, &w, at->dtype, y->dim[axis], values->data,
                            values->stride[0], pare_cuda_bytes(y->dtype));
}

static const pare_kernel cuda_one_hot = {
    .name = "cuda_one_hot", .can = one_hot_can, .run = one_hot_run};
const pare_kernel *const pare_cuda_one_hot[] = {&cuda_one_hot, NULL};

static pare_status reverse_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *n = &c->in[1], *y = &c->out[0];
    int batch = (int)pare_node_int(c->node, "batch_axis", 1), time = 1 - batch;
    pare_view length = still(y, n->dtype), position = still(y, PARE_s64);
    length.stride[batch] = n->stride[0];
    position.stride[time] = 1;
    const pare_view *all[4] = {y, x, &length, &position};
    pare_cuda_walk w = {.data = {y->data, x->data, n->data}};
    pare_cuda_fault fault = {c->fault, c->step};
    pare_walk_init(&w.walk, all, 4);
    return PARE_CUDA_LAUNCH(c, pare_cuda_reverse_launch, &w, n->dtype, x->dim[time],
                            x->stride[time], &fault, pare_cuda_bytes(y->dtype));
}

static pare_status reverse_fault(const pare_call *c, int64_t value)
{
    int time = 1 - (int)pare_node_int(c->node, "batch_axis", 1);
    return PARE_FAIL_NODE(c->node, INPUT, "a length of %" PRId64 " is outside [0, %" PRId64 "]",
                          value, c->in[0].dim[time]);
}

static const pare_kernel cuda_reverse_sequence = {
    .name = "cuda_reverse_sequence", .can = gather_can, .run = reverse_run, .fault = reverse_fault};
const pare_kernel *const pare_cuda_reverse_sequence[] = {&cuda_reverse_sequence, NULL};
