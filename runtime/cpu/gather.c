/* SPDX-License-Identifier: Apache-2.0 */
/* Gather (1), GatherElements (11), GatherND (12), ScatterND (18), ScatterElements (18),
   TensorScatter (24), OneHot (11). Indices are checked before anything is written; a negative one
   counts from the end. */
#include "runtime/cpu/copy.h"

#include <inttypes.h>
#include <string.h>

static pare_status check_index(const pare_call *c, int64_t *i, int64_t n)
{
    if (*i < -n || *i >= n)
        return PARE_FAIL_CALL(c, INPUT, "index %" PRId64 " is outside an axis of length %" PRId64,
                              *i, n);
    if (*i < 0) *i += n;
    return PARE_OK;
}

/* Index at an offset; the two usual types without a call. */
static inline int64_t index_at(const pare_view *at, int64_t offset)
{
    if (at->dtype == PARE_s64) return ((const int64_t *)at->data)[offset];
    if (at->dtype == PARE_s32) return ((const int32_t *)at->data)[offset];
    return pare_ref_get_int(at, offset);
}

static pare_status check_indices(const pare_call *c, const pare_view *at, int64_t n)
{
    int64_t index[PARE_MAX_RANK] = {0}, last = at->rank ? at->dim[at->rank - 1] : 1;
    const int64_t step = at->rank ? at->stride[at->rank - 1] : 0;
    pare_view rows = *at;
    if (!pare_view_count(at)) return PARE_OK;
    if (rows.rank) rows.dim[rows.rank - 1] = 1;
    do {
        const int64_t row = pare_ref_offset(at, index);
        for (int64_t j = 0; j < last; j++) {
            int64_t i = index_at(at, row + j * step);
            PARE_TRY(check_index(c, &i, n));
        }
    } while (pare_ref_next(&rows, index));
    return PARE_OK;
}

/* One element; the usual sizes without a call. */
static inline void move(void *to, const void *from, size_t bytes)
{
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, bytes);
}

/* Data [outer, n, inner] and output [outer, count, inner], all row-major: runs of inner elements.
 */
static void gather_runs(const pare_call *c, int axis)
{
    const pare_view *x = &c->in[0], *at = &c->in[1];
    int64_t outer = 1, n = x->dim[axis], count = pare_view_count(at);
    size_t run = (size_t)pare_type(x->dtype)->bits / 8;
    for (int i = 0; i < axis; i++) outer *= x->dim[i];
    for (int i = axis + 1; i < x->rank; i++) run *= (size_t)x->dim[i];
    int64_t total = outer * count;
    char *to = c->out[0].data;
    const char *from = x->data;
#pragma omp parallel for num_threads(c->threads)                                                   \
    schedule(static) if (c->threads > 1 && total * (int64_t)run > 1 << 18)
    for (int64_t t = 0; t < total; t++) {
        int64_t i = pare_ref_get_int(at, t % count);
        if (i < 0) i += n;
        memcpy(to + (size_t)t * run, from + (size_t)(t / count * n + i) * run, run);
    }
}

/* Any strides: one copy of the remaining axes for each index. */
static void gather_parts(const pare_call *c, int axis)
{
    const pare_view *x = &c->in[0], *at = &c->in[1], *y = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0}, n = x->dim[axis];
    do {
        int64_t i = pare_ref_get_int(at, pare_ref_offset(at, index));
        pare_view from = pare_view_part(x, axis, i < 0 ? i + n : i, 1), to = from;
        to.data = y->data;
        for (int a = 0; a < at->rank; a++)
            to.data = pare_ref_at(&to, index[a] * y->stride[axis + a]);
        for (int a = 0; a < x->rank; a++) /* the gathered axis has length 1: any stride will do */
            to.stride[a] = a < axis ? y->stride[a] : a > axis ? y->stride[a + at->rank - 1] : 1;
        pare_copy_view(&to, &from, c->threads);
    } while (pare_ref_next(at, index));
}

static pare_status gather_run(const pare_call *c)
{
    int axis = pare_node_axis(c->node, 0, c->in[0].rank);
    PARE_TRY(check_indices(c, &c->in[1], c->in[0].dim[axis]));
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    if (pare_view_rowmajor(&c->in[0]) && pare_view_rowmajor(&c->in[1]) &&
        pare_view_rowmajor(&c->out[0]))
        gather_runs(c, axis);
    else
        gather_parts(c, axis);
    return PARE_OK;
}

static pare_status gather_elements_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *at = &c->in[1], *y = &c->out[0];
    int axis = pare_node_axis(c->node, 0, x->rank);
    int64_t index[PARE_MAX_RANK] = {0};
    const size_t bytes = (size_t)pare_type(x->dtype)->bits / 8;
    if (!pare_view_count(y)) return PARE_OK;
    PARE_TRY(check_indices(c, at, x->dim[axis]));
    if (!y->rank) {
        memcpy(y->data, x->data, bytes);
        return PARE_OK;
    }
    const int last = y->rank - 1;
    const int64_t step = axis == last ? 0 : x->stride[last];
    pare_view rows = *y;
    rows.dim[last] = 1;
    do {
        const int64_t row = pare_ref_offset(at, index);
        const char *from =
            pare_ref_at(x, pare_ref_offset(x, index) - index[axis] * x->stride[axis]);
        char *to = pare_ref_at(y, pare_ref_offset(y, index));
        for (int64_t j = 0; j < y->dim[last]; j++) {
            int64_t i = index_at(at, row + j * at->stride[last]);
            if (i < 0) i += x->dim[axis];
            move(to + j * y->stride[last] * (int64_t)bytes,
                 from + (j * step + i * x->stride[axis]) * (int64_t)bytes, bytes);
        }
    } while (pare_ref_next(&rows, index));
    return PARE_OK;
}

/* Offset in x of the slice that the index vector at (start, step) names, after batch axes. */
static pare_status slice_offset(const pare_call *c, const pare_view *x, int batch,
                                const pare_view *at, int64_t start, int64_t *offset)
{
    int last = at->rank - 1;
    for (int64_t k = 0; k < at->dim[last]; k++) {
        int64_t i = pare_ref_get_int(at, start + k * at->stride[last]);
        PARE_TRY(check_index(c, &i, x->dim[batch + k]));
        *offset += i * x->stride[batch + k];
    }
    return PARE_OK;
}

/* The axes of v from first on, moved by offset. */
static pare_view tail(const pare_view *v, int first, int64_t offset)
{
    pare_view t = {.dtype = v->dtype, .rank = v->rank - first, .data = pare_ref_at(v, offset)};
    for (int i = 0; i < t.rank; i++) {
        t.dim[i] = v->dim[first + i];
        t.stride[i] = v->stride[first + i];
    }
    return t;
}

static pare_status gather_nd_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *at = &c->in[1], *y = &c->out[0];
    int batch = (int)pare_node_int(c->node, "batch_dims", 0), lead = at->rank - 1;
    int axes = batch + (int)at->dim[lead];
    int64_t index[PARE_MAX_RANK] = {0};
    if (!pare_view_count(y)) return PARE_OK;
    pare_view leading = *at;
    leading.rank = lead;
    do {
        int64_t from = 0, to = 0, start = pare_ref_offset(&leading, index);
        for (int i = 0; i < batch; i++) from += index[i] * x->stride[i];
        for (int i = 0; i < lead; i++) to += index[i] * y->stride[i];
        PARE_TRY(slice_offset(c, x, batch, at, start, &from));
        pare_view source = tail(x, axes, from), target = tail(y, lead, to);
        pare_copy_view(&target, &source, 1);
    } while (pare_ref_next(&leading, index));
    return PARE_OK;
}

/* --- scatter --- */

typedef enum reduction { REPLACE, ADD, MUL, MIN, MAX } reduction;

static pare_status scatter_prepare(pare_prep *p)
{
    static const char *const name[] = {"none", "add", "mul", "min", "max"};
    const char *text = pare_node_string(p->node, "reduction", "none");
    reduction *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    p->state = r;
    for (int i = 0; i < 5; i++) {
        if (strcmp(text, name[i])) continue;
        *r = (reduction)i;
        if (*r != REPLACE && !pare_type(p->in[0].dtype)->to_f32)
            return PARE_FAIL_NODE(p->node, INPUT, "reduction is '%s', of %s only none is defined",
                                  text, pare_type(p->in[0].dtype)->name);
        return PARE_OK;
    }
    return PARE_FAIL_NODE(p->node, INPUT, "reduction is '%s', expected none, add, mul, min or max",
                          text);
}

static inline void combine(const pare_view *y, int64_t to, const pare_view *u, int64_t from,
                           reduction r)
{
    if (r == REPLACE) {
        move(pare_ref_at(y, to), pare_ref_at(u, from), (size_t)pare_type(y->dtype)->bits / 8);
    } else if (pare_type_is_float(y->dtype)) {
        double a = pare_ref_get(y, to), b = pare_ref_get(u, from);
        pare_ref_set(y, to, r == ADD ? a + b : r == MUL ? a * b : (r == MIN) == (b < a) ? b : a);
    } else {
        int64_t a = pare_ref_get_int(y, to), b = pare_ref_get_int(u, from);
        uint64_t sum = (uint64_t)a + (uint64_t)b, product = (uint64_t)a * (uint64_t)b;
        pare_ref_set_int(y, to,
                         r == ADD                ? (int64_t)sum
                         : r == MUL              ? (int64_t)product
                         : (r == MIN) == (b < a) ? b
                                                 : a);
    }
}

static pare_status scatter_elements_run(const pare_call *c)
{
    const pare_view *at = &c->in[1], *u = &c->in[2], *y = &c->out[0];
    int axis = pare_node_axis(c->node, 0, y->rank);
    int64_t index[PARE_MAX_RANK] = {0};
    PARE_TRY(check_indices(c, at, y->dim[axis]));
    if (y->data != c->in[0].data) pare_copy_view(y, &c->in[0], c->threads);
    if (!pare_view_count(at)) return PARE_OK;
    const int last = y->rank - 1;
    const int64_t at_step = y->rank ? at->stride[last] : 0, u_step = y->rank ? u->stride[last] : 0;
    const int64_t n = y->rank ? at->dim[last] : 1, y_step = y->rank ? y->stride[axis] : 0;
    const int64_t step = axis == last || !y->rank ? 0 : y->stride[last];
    pare_view rows = *at;
    if (rows.rank) rows.dim[last] = 1;
    do {
        const int64_t row = pare_ref_offset(at, index), from = pare_ref_offset(u, index);
        const int64_t to = pare_ref_offset(y, index) - (y->rank ? index[axis] * y_step : 0);
        for (int64_t j = 0; j < n; j++) {
            int64_t i = index_at(at, row + j * at_step);
            if (i < 0) i += y->dim[axis];
            combine(y, to + j * step + i * y_step, u, from + j * u_step,
                    *(const reduction *)c->state);
        }
    } while (pare_ref_next(&rows, index));
    return PARE_OK;
}

static pare_status scatter_nd_run(const pare_call *c)
{
    const pare_view *at = &c->in[1], *u = &c->in[2], *y = &c->out[0];
    int lead = at->rank - 1, axes = (int)at->dim[lead];
    int64_t index[PARE_MAX_RANK] = {0};
    if (y->data != c->in[0].data) pare_copy_view(y, &c->in[0], c->threads);
    pare_view leading = *at;
    leading.rank = lead;
    if (!pare_view_count(u) || !pare_view_count(&leading)) return PARE_OK;
    do {
        int64_t to = 0, from = 0, inner[PARE_MAX_RANK] = {0};
        PARE_TRY(slice_offset(c, y, 0, at, pare_ref_offset(&leading, index), &to));
        for (int i = 0; i < lead; i++) from += index[i] * u->stride[i];
        pare_view target = tail(y, axes, to), source = tail(u, lead, from);
        do
            combine(&target, pare_ref_offset(&target, inner), &source,
                    pare_ref_offset(&source, inner), *(const reduction *)c->state);
        while (pare_ref_next(&target, inner));
    } while (pare_ref_next(&leading, index));
    return PARE_OK;
}

typedef struct cache_write {
    int axis;
    bool circular;
} cache_write;

static pare_status tensor_scatter_prepare(pare_prep *p)
{
    cache_write *w = pare_arena_alloc(p->arena, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    w->axis = pare_node_axis(p->node, -2, p->in[0].rank);
    w->circular = !strcmp(pare_node_string(p->node, "mode", "linear"), "circular");
    p->state = w;
    return PARE_OK;
}

/* Where the update of batch b begins. */
static pare_status write_index(const pare_call *c, int64_t b, int64_t *out)
{
    const cache_write *w = c->state;
    const pare_view *at = c->in_count > 2 && c->in[2].dtype ? &c->in[2] : NULL;
    const int64_t length = c->out[0].dim[w->axis], written = c->in[1].dim[w->axis];
    const int64_t i = at ? pare_ref_get_int(at, b * at->stride[0]) : 0;
    *out = i;
    if (w->circular) {
        *out = length ? (i % length + length) % length : 0;
        return PARE_OK;
    }
    if (i >= 0 && i <= length - written) return PARE_OK;
    return PARE_FAIL_CALL(c, INPUT,
                          "%" PRId64 " places from write index %" PRId64
                          " on do not fit into a cache of %" PRId64 " ('%s')",
                          written, i, length, c->node->in[0]->name);
}

/* TensorScatter 24: each of the batch in one run, or in two where it wraps around. */
static pare_status tensor_scatter_run(const pare_call *c)
{
    const cache_write *w = c->state;
    const pare_view *u = &c->in[1], *y = &c->out[0];
    const int64_t length = y->dim[w->axis], written = u->dim[w->axis];
    int64_t start;
    for (int64_t b = 0; b < y->dim[0]; b++) PARE_TRY(write_index(c, b, &start));
    if (y->data != c->in[0].data) pare_copy_view(y, &c->in[0], c->threads);
    for (int64_t b = 0; b < y->dim[0]; b++) {
        PARE_TRY(write_index(c, b, &start));
        for (int64_t done = 0; done < written;) {
            const int64_t at = (start + done) % length;
            const int64_t n = written - done < length - at ? written - done : length - at;
            pare_view to = *y, from = *u;
            to.dim[0] = from.dim[0] = 1;
            to.dim[w->axis] = from.dim[w->axis] = n;
            to.data = pare_ref_at(y, b * y->stride[0] + at * y->stride[w->axis]);
            from.data = pare_ref_at(u, b * u->stride[0] + done * u->stride[w->axis]);
            pare_copy_view(&to, &from, c->threads);
            done += n;
        }
    }
    return PARE_OK;
}

/* OneHot 11: values[1] where the index along the new axis equals the (wrapped) index, else
   values[0]; an index outside the depth gives no 1. */
static pare_status one_hot_run(const pare_call *c)
{
    const pare_view *at = &c->in[0], *values = &c->in[2], *y = &c->out[0];
    int axis = pare_node_axis(c->node, -1, y->rank);
    int64_t index[PARE_MAX_RANK] = {0}, depth = y->dim[axis];
    size_t bytes = (size_t)pare_type(y->dtype)->bits / 8;
    pare_copy_fill(y, values->data, c->threads);
    if (!pare_view_count(y)) return PARE_OK;
    do {
        int64_t i = pare_ref_get_int(at, pare_ref_offset(at, index)), to = 0;
        if (i < 0) i += depth;
        if (i < 0 || i >= depth) continue;
        for (int a = 0; a < at->rank; a++) to += index[a] * y->stride[a < axis ? a : a + 1];
        memcpy(pare_ref_at(y, to + i * y->stride[axis]), pare_ref_at(values, values->stride[0]),
               bytes);
    } while (pare_ref_next(at, index));
    return PARE_OK;
}

static bool one_hot_can(const pare_prep *p) { return pare_type(p->in[2].dtype)->bits >= 8; }

#define GATHER_KERNEL(stem, can_fn, prepare_fn)                                                    \
    static const pare_kernel copy_##stem = {.name = "copy_" #stem,                                 \
                                            .can = can_fn,                                         \
                                            .prepare = prepare_fn,                                 \
                                            .run = stem##_run,                                     \
                                            .flags = PARE_KERNEL_REF};
GATHER_KERNEL(gather, pare_copy_can, NULL)
GATHER_KERNEL(gather_elements, pare_copy_can, NULL)
GATHER_KERNEL(gather_nd, pare_copy_can, NULL)
GATHER_KERNEL(scatter_elements, pare_copy_can, scatter_prepare)
GATHER_KERNEL(scatter_nd, pare_copy_can, scatter_prepare)
GATHER_KERNEL(tensor_scatter, pare_copy_can, tensor_scatter_prepare)
GATHER_KERNEL(one_hot, one_hot_can, NULL)

const pare_kernel *const pare_cpu_gather[] = {&copy_gather, NULL};
const pare_kernel *const pare_cpu_gather_elements[] = {&copy_gather_elements, NULL};
const pare_kernel *const pare_cpu_gather_nd[] = {&copy_gather_nd, NULL};
const pare_kernel *const pare_cpu_scatter_elements[] = {&copy_scatter_elements, NULL};
const pare_kernel *const pare_cpu_scatter_nd[] = {&copy_scatter_nd, NULL};
const pare_kernel *const pare_cpu_tensor_scatter[] = {&copy_tensor_scatter, NULL};
const pare_kernel *const pare_cpu_one_hot[] = {&copy_one_hot, NULL};
