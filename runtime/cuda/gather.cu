/* SPDX-License-Identifier: Apache-2.0 */
/* Gather (1), GatherElements (11), GatherND (12), ScatterElements and ScatterND (18), OneHot (11).
   All but the scatters: one thread an element of y, one read of the index,
   one of the element. A position on an axis is the offset of an operand that has stride 1 there and
   0 elsewhere. */
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/cuda/tensor_iterator.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <string.h>

/* Axes of a tensor that indices name: index k counts along an axis of n[k], its elements step[k]
   apart; the indices of one element are `apart` elements from each other. */
typedef struct pare_cuda_axes {
    pare_dtype type; /* of the indices */
    int count;
    int64_t apart, n[PARE_MAX_RANK], step[PARE_MAX_RANK];
    pare_cuda_fault fault;
} pare_cuda_axes;

typedef enum pare_cuda_scatter_kind {
    PARE_CUDA_SCATTER_NONE,
    PARE_CUDA_SCATTER_ADD,
    PARE_CUDA_SCATTER_MUL,
    PARE_CUDA_SCATTER_MIN,
    PARE_CUDA_SCATTER_MAX
} pare_cuda_scatter_kind;

/* Updates in lines: those of one line may meet in one element of y and are applied in order, those
   of different lines never do. Operands of each walk: y (without the indexed axes), update, index.
 */
typedef struct pare_cuda_scatter {
    pare_cuda_iterator line, along;
    pare_cuda_axes axes;
    pare_cuda_scatter_kind kind;
    pare_dtype dtype;
    int bytes;
} pare_cuda_scatter;

enum { SCATTER_BLOCK = 128 };

/* Where indices point, in elements from where their axes begin; false where one is wrong. */
SIMT_INLINE bool place_of(const pare_cuda_axes &axes, const void *index, int64_t at, int64_t *out)
{
    bool inside = true;
    *out = 0;
    for (int k = 0; k < axes.count; k++) {
        int64_t i = pare_int_at(index, axes.type, at + k * axes.apart);
        inside = pare_index_of(axes.fault, axes.n[k], &i) && inside;
        *out += i * axes.step[k];
    }
    return inside;
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    gather_each(pare_cuda_iterator w, pare_cuda_axes axes)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3], from;
        pare_iterator_at<3>(w.walk, i, at);
        bool inside = place_of(axes, w.data[2], at[2], &from);
        y[at[0]] = inside ? x[at[1] + from] : T(0);
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    one_hot_each(pare_cuda_iterator w, pare_dtype type, int64_t depth, const T *values,
                 int64_t apart)
{
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3], hot;
        pare_iterator_at<3>(w.walk, i, at);
        if (pare_is_float(type))
            hot = pare_int_of(pare_double_at(w.data[1], type, at[1]), PARE_s64);
        else
            hot = pare_int_at(w.data[1], type, at[1]);
        if (hot < 0) hot += depth;
        y[at[0]] = values[hot == at[2] ? apart : 0];
    }
}

/* --- scatter --- */

template <class T> SIMT_INLINE void copy_one(void *y, int64_t to, const void *x, int64_t from)
{
    static_cast<T *>(y)[to] = static_cast<const T *>(x)[from];
}

SIMT_INLINE void copy_bytes(int bytes, void *y, int64_t to, const void *x, int64_t from)
{
    if (bytes == 1)
        copy_one<uint8_t>(y, to, x, from);
    else if (bytes == 2)
        copy_one<uint16_t>(y, to, x, from);
    else if (bytes == 4)
        copy_one<uint32_t>(y, to, x, from);
    else
        copy_one<uint64_t>(y, to, x, from);
}

/* Of doubles: rounded to the tensor's type after each step, as the order of updates wants. */
SIMT_INLINE double combine(int kind, double a, double b)
{
    return kind == PARE_CUDA_SCATTER_ADD                ? a + b
           : kind == PARE_CUDA_SCATTER_MUL              ? a * b
           : (kind == PARE_CUDA_SCATTER_MIN) == (b < a) ? b
                                                        : a;
}

SIMT_INLINE int64_t combine(int kind, int64_t a, int64_t b)
{
    return kind == PARE_CUDA_SCATTER_ADD                ? (int64_t)((uint64_t)a + (uint64_t)b)
           : kind == PARE_CUDA_SCATTER_MUL              ? (int64_t)((uint64_t)a * (uint64_t)b)
           : (kind == PARE_CUDA_SCATTER_MIN) == (b < a) ? b
                                                        : a;
}

SIMT_INLINE void apply(const pare_cuda_scatter &s, int64_t to, int64_t from)
{
    void *y = s.line.data[0];
    const void *u = s.line.data[1];
    if (s.kind == PARE_CUDA_SCATTER_NONE)
        copy_bytes(s.bytes, y, to, u, from);
    else if (pare_is_float(s.dtype))
        pare_double_store(
            y, s.dtype, to,
            combine(s.kind, pare_double_at(y, s.dtype, to), pare_double_at(u, s.dtype, from)));
    else
        pare_int_store(y, s.dtype, to,
                       combine(s.kind, pare_int_at(y, s.dtype, to), pare_int_at(u, s.dtype, from)));
}

SIMT_INLINE void line_begin(const pare_cuda_scatter &s, int64_t line, int64_t *at)
{
    int64_t mine[3];
    pare_iterator_at<3>(s.line.walk, line, mine);
    for (int k = 0; k < 3; k++) at[k] = mine[k];
}

/* Where update i of the line at `at` goes, -1 for nowhere, and where it is. */
SIMT_INLINE void update_begin(const pare_cuda_scatter &s, int64_t i, const int64_t *at,
                              int64_t *target, int64_t *source)
{
    int64_t step[3], place;
    *target = -1;
    if (i >= s.along.walk.count) return;
    pare_iterator_at<3>(s.along.walk, i, step);
    *source = at[1] + step[1];
    if (place_of(s.axes, s.line.data[2], at[2] + step[2], &place)) *target = at[0] + place;
}

/* A block takes a line in pieces of one update a thread. Of the updates of a piece that meet in one
   element, the thread of the first applies all, in order; pieces follow each other. So the result
   is that of one update after the other, whatever runs first. */
static __global__ void __launch_bounds__(SCATTER_BLOCK) scatter_lines(pare_cuda_scatter s)
{
    SIMT_SHARED(int64_t, target, [SCATTER_BLOCK]);
    SIMT_SHARED(int64_t, source, [SCATTER_BLOCK]);
    SIMT_SHARED(int64_t, at, [3]);
    int me = (int)threadIdx.x;
    for (int64_t line = blockIdx.x; line < s.line.walk.count; line += gridDim.x) {
        if (me == 0) line_begin(s, line, at);
        __syncthreads();
        for (int64_t first = 0; first < s.along.walk.count; first += SCATTER_BLOCK) {
            update_begin(s, first + me, at, &target[me], &source[me]);
            __syncthreads();
            int64_t mine = target[me];
            bool leads = mine >= 0;
            for (int k = 0; k < me && leads; k++) leads = target[k] != mine;
            for (int k = me; k < SCATTER_BLOCK && leads; k++)
                if (target[k] == mine) apply(s, mine, source[k]);
            __syncthreads();
        }
    }
}

/* --- launchers --- */

#define LAUNCH(kernel, ...)                                                                        \
    SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,       \
                __VA_ARGS__)

#define BY_BYTES(launch)                                                                           \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        switch (bytes) {                                                                           \
        case 1: launch(uint8_t); break;                                                            \
        case 2: launch(uint16_t); break;                                                           \
        case 4: launch(uint32_t); break;                                                           \
        default: launch(uint64_t);                                                                 \
        }                                                                                          \
        return cudaGetLastError();                                                                 \
    } while (0)

/* Operands y, x, index, all with y's dims: y = x[+ where the indices point], elements of `bytes`.
 */
static cudaError_t gather_launch(const pare_cuda_iterator *w, const pare_cuda_axes *axes, int bytes,
                                 cudaStream_t stream)
{
#define GATHER(T) LAUNCH(gather_each<T>, *axes)
    BY_BYTES(GATHER);
}

/* Operands y, index, position along the new axis (no data: offsets count): y = values[index,
   wrapped, is the position], values: (2), `apart` elements between them. */
static cudaError_t one_hot_launch(const pare_cuda_iterator *w, pare_dtype index_type, int64_t depth,
                                  const void *values, int64_t apart, int bytes, cudaStream_t stream)
{
#define ONE_HOT(T) LAUNCH(one_hot_each<T>, index_type, depth, static_cast<const T *>(values), apart)
    BY_BYTES(ONE_HOT);
}

static cudaError_t scatter_launch(const pare_cuda_scatter *s, cudaStream_t stream)
{
    int64_t lines = s->line.walk.count;
    if (lines == 0 || s->along.walk.count == 0) return cudaSuccess;
    dim3 grid(lines < PARE_CUDA_MOST_BLOCKS ? (unsigned)lines : (unsigned)PARE_CUDA_MOST_BLOCKS);
    SIMT_LAUNCH(scatter_lines, grid, dim3(SCATTER_BLOCK), 0, stream, *s);
    return cudaGetLastError();
}

/* --- still --- */

/* A view with y's dims and strides of 0: what follows gives it the strides it has. */
static pare_view still(const pare_view *y, pare_dtype dtype)
{
    pare_view v = *y;
    v.dtype = dtype;
    memset(v.stride, 0, sizeof v.stride);
    return v;
}

/* --- Gather, GatherElements, GatherND --- */

typedef struct gather {
    pare_cuda_iterator walk;
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
    gather *g = (gather *)pare_arena_alloc(p->arena, 1, sizeof *g);
    if (!g) return PARE_MEMORY;
    g->bytes = pare_cuda_bytes(p->in[0].dtype);
    g->axes.type = p->in[1].dtype;
    p->state = *out = g;
    return PARE_OK;
}

static void gather_walk(gather *g, const pare_view *y, const pare_view *x, const pare_view *at)
{
    const pare_view *all[3] = {y, x, at};
    pare_iterator_init(&g->walk.walk, all, 3);
}

/* y's axes: those of data before the axis, those of the indices, those of data after. */
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
    return PARE_CUDA_LAUNCH(c, gather_launch, &g.walk, &g.axes, g.bytes);
}

static pare_status index_fault(const pare_call *c, const pare_cuda_axes *axes, int64_t value)
{
    char text[256];
    if (axes->count == 1)
        return PARE_FAIL_CALL(c, INPUT, "index %" PRId64 " is outside an axis of length %" PRId64,
                              value, axes->n[0]);
    return PARE_FAIL_CALL(c, INPUT, "index %" PRId64 " is outside its axis of '%s' %s", value,
                          c->node->in[0]->name,
                          pare_shape_text(&c->node->in[0]->shape, text, sizeof text));
}

static pare_status gather_fault(const pare_call *c, int64_t value)
{
    return index_fault(c, &((const gather *)c->state)->axes, value);
}

#define GATHER_KERNEL(stem)                                                                        \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = gather_can,                                     \
                                            .prepare = stem##_prepare,                             \
                                            .run = gather_run,                                     \
                                            .fault = gather_fault};                                \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
GATHER_KERNEL(gather)
GATHER_KERNEL(gather_elements)
GATHER_KERNEL(gather_nd)

/* --- ScatterElements, ScatterND --- */

static bool scatter_can(const pare_prep *p)
{
    return gather_can(p) && p->in[2].dtype == p->in[0].dtype;
}

static pare_status scatter_new(pare_prep *p, pare_cuda_scatter **out)
{
    static const char *const name[] = {"none", "add", "mul", "min", "max"};
    const char *text = pare_node_string(p->node, "reduction", "none");
    pare_cuda_scatter *s = (pare_cuda_scatter *)pare_arena_alloc(p->arena, 1, sizeof *s);
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
    const pare_view lane = {.rank = 1, .dim = {at->dim[axis]}};
    pare_view along_to = still(&lane, y->dtype);
    pare_view along_from = some_axes(u, axis, axis + 1), along_at = some_axes(at, axis, axis + 1);
    to.dim[axis] = from.dim[axis] = index.dim[axis] = 1;
    const pare_view *line[3] = {&to, &from, &index},
                    *along[3] = {&along_to, &along_from, &along_at};
    pare_iterator_init(&s->line.walk, line, 3);
    pare_iterator_init(&s->along.walk, along, 3);
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
    pare_iterator_init(&s->line.walk, line, 3);
    pare_iterator_init(&s->along.walk, along, 3);
    for (int a = 0; a < axes; a++) axis_add(&s->axes, y, a);
    s->axes.apart = at->stride[lead];
    return PARE_OK;
}

static pare_status scatter_run(const pare_call *c)
{
    pare_cuda_scatter s = *(const pare_cuda_scatter *)c->state;
    if (c->out[0].data != c->in[0].data) {
        PARE_TRY(pare_cuda_copy(c, &c->out[0], &c->in[0]));
    }
    s.line.data[0] = c->out[0].data;
    s.line.data[1] = c->in[2].data;
    s.line.data[2] = c->in[1].data;
    s.axes.fault = (pare_cuda_fault){c->fault, c->step};
    return PARE_CUDA_LAUNCH(c, scatter_launch, &s);
}

static pare_status scatter_fault(const pare_call *c, int64_t value)
{
    return index_fault(c, &((const pare_cuda_scatter *)c->state)->axes, value);
}

#define SCATTER_KERNEL(stem)                                                                       \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = scatter_can,                                    \
                                            .prepare = stem##_prepare,                             \
                                            .run = scatter_run,                                    \
                                            .fault = scatter_fault,                                \
                                            .flags = PARE_KERNEL_INPLACE};                         \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
SCATTER_KERNEL(scatter_elements)
SCATTER_KERNEL(scatter_nd)

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
    pare_cuda_iterator w = {.data = {y->data, at->data}};
    pare_iterator_init(&w.walk, all, 3);
    return PARE_CUDA_LAUNCH(c, one_hot_launch, &w, at->dtype, y->dim[axis], values->data,
                            values->stride[0], pare_cuda_bytes(y->dtype));
}

static const pare_kernel cuda_one_hot = {
    .name = "cuda_one_hot", .can = one_hot_can, .run = one_hot_run};
const pare_kernel *const pare_cuda_one_hot[] = {&cuda_one_hot, NULL};

/* --- GatherGrad --- */

/* GatherGrad, row-major: dx (outer, n, inner), which is zero, gets dy (outer, count, inner). */
typedef struct pare_cuda_scattered {
    const void *dy, *index;
    void *dx;
    pare_dtype dtype, index_type;
    int64_t outer, n, count, inner;
    pare_cuda_fault fault;
} pare_cuda_scattered;

/* One thread a column of a slice: it takes the indices one after the other. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) gather_grad_lines(pare_cuda_scattered g)
{
    PARE_CUDA_EACH (line, g.outer * g.inner) {
        const int64_t outer = line / g.inner, inner = line - outer * g.inner;
        for (int64_t t = 0; t < g.count; t++) {
            int64_t i = pare_int_at(g.index, g.index_type, t);
            if (!pare_index_of(g.fault, g.n, &i)) continue;
            const int64_t to = (outer * g.n + i) * g.inner + inner,
                          from = (outer * g.count + t) * g.inner + inner;
            pare_number_store(g.dx, g.dtype, to,
                              pare_number_at(g.dx, g.dtype, to) +
                                  pare_number_at(g.dy, g.dtype, from));
        }
    }
}

static cudaError_t gather_grad_launch(const pare_cuda_scattered *g, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(gather_grad_lines, g->count ? g->outer * g->inner : 0, *g);
}

static pare_status clear(const pare_call *c, const pare_view *v)
{
    const size_t bytes = pare_view_bytes(v);
    if (!bytes) return PARE_OK;
    return c->stream->device->backend->fill(c->ctx, c->stream, v->data, 0, bytes);
}

static bool gather_grad_can(const pare_prep *p)
{
    return pare_cuda_can_float(p, 1) && pare_cuda_is_int(p->in[1].dtype) &&
           pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->in[1]) &&
           pare_view_rowmajor(&p->out[0]);
}

static pare_status gather_grad_prepare(pare_prep *p)
{
    pare_cuda_scattered *g = (pare_cuda_scattered *)pare_arena_alloc(p->arena, 1, sizeof *g);
    const pare_view *dx = &p->out[0];
    if (!g) return PARE_MEMORY;
    const int axis = pare_node_axis(p->node, 0, dx->rank);
    g->dtype = dx->dtype;
    g->index_type = p->in[1].dtype;
    g->outer = g->inner = 1;
    for (int i = 0; i < axis; i++) g->outer *= dx->dim[i];
    for (int i = axis + 1; i < dx->rank; i++) g->inner *= dx->dim[i];
    g->n = dx->dim[axis];
    g->count = pare_view_count(&p->in[1]);
    p->state = g;
    return PARE_OK;
}

static pare_status gather_grad_run(const pare_call *c)
{
    pare_cuda_scattered g = *(const pare_cuda_scattered *)c->state;
    g.dy = c->in[0].data;
    g.index = c->in[1].data;
    g.dx = c->out[0].data;
    g.fault = (pare_cuda_fault){c->fault, c->step};
    PARE_TRY(clear(c, &c->out[0]));
    return PARE_CUDA_LAUNCH(c, gather_grad_launch, &g);
}

static pare_status gather_grad_fault(const pare_call *c, int64_t value)
{
    return PARE_FAIL_CALL(c, INPUT, "index %" PRId64 " is outside an axis of length %" PRId64,
                          value, ((const pare_cuda_scattered *)c->state)->n);
}

static const pare_kernel cuda_gather_grad = {.name = "cuda_gather_grad",
                                             .can = gather_grad_can,
                                             .prepare = gather_grad_prepare,
                                             .run = gather_grad_run,
                                             .fault = gather_grad_fault};
const pare_kernel *const pare_cuda_gather_grad[] = {&cuda_gather_grad, NULL};
