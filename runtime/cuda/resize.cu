/* SPDX-License-Identifier: Apache-2.0 */
/* Resize (10 to 19), linear and cubic: y = the sum over the last axis' taps of weight times the sum
   over the one before ... times x, in double and in that order, which is what resizing axis by
   axis, the first one first, computes. One thread an output; reads the product of the axes' taps.
 */
#include "runtime/cuda/index_copy.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/ops/kernel.h"
#include "runtime/ops/resize.h"

#include <string.h>

/* An axis that changes; lists of its output positions, on the device. */
typedef struct pare_cuda_taps {
    int axis, count;        /* taps of one output */
    int64_t n;              /* of the axis in x: a tap outside reads its border */
    const int64_t *first;   /* (out) of the first tap, may be negative */
    const double *weight;   /* (out, count) */
    const uint8_t *outside; /* (out) the value is the extrapolated one */
} pare_cuda_taps;

typedef struct pare_cuda_resizing {
    const void *x;
    void *y;
    pare_dtype dtype; /* a float, s8 or u8 */
    int rank, taps_count;
    int64_t count, dim[PARE_MAX_RANK], y_stride[PARE_MAX_RANK], x_stride[PARE_MAX_RANK];
    pare_cuda_taps taps[PARE_MAX_RANK]; /* first axis first */
    double extrapolation;
} pare_cuda_resizing;

SIMT_INLINE double element(const pare_cuda_resizing &r, int64_t at)
{
    return pare_is_float(r.dtype) ? pare_double_at(r.x, r.dtype, at)
                                  : (double)pare_int_at(r.x, r.dtype, at);
}

/* Where the taps of one output begin: per axis that changes its output position; and the offset in
   x of the axes that stay. */
typedef struct place {
    int64_t from, to, o[PARE_MAX_RANK];
    bool outside;
} place;

SIMT_INLINE place place_of(const pare_cuda_resizing &r, int64_t i)
{
    place p = {0, 0, {0}, false};
    int t = r.taps_count - 1;
    for (int a = r.rank - 1; a >= 0; a--) {
        int64_t whole = i / r.dim[a], o = i - whole * r.dim[a];
        p.to += o * r.y_stride[a];
        if (t >= 0 && r.taps[t].axis == a) {
            p.outside = p.outside || r.taps[t].outside[o];
            p.o[t--] = o;
        } else {
            p.from += o * r.x_stride[a];
        }
        i = whole;
    }
    return p;
}

/* A counter of taps, the first axis fastest: a sum that is complete is a term of the next axis'. */
SIMT_INLINE double weigh(const pare_cuda_resizing &r, const place &p)
{
    int k[PARE_MAX_RANK] = {0};
    double sum[PARE_MAX_RANK + 1] = {0};
    for (;;) {
        int64_t at = p.from;
        for (int t = 0; t < r.taps_count; t++) {
            const pare_cuda_taps &s = r.taps[t];
            int64_t tap = s.first[p.o[t]] + k[t];
            at += (tap < 0 ? 0 : tap >= s.n ? s.n - 1 : tap) * r.x_stride[s.axis];
        }
        double term = element(r, at);
        int t = 0;
        for (; t < r.taps_count; t++) {
            const pare_cuda_taps &s = r.taps[t];
            sum[t] += s.weight[p.o[t] * s.count + k[t]] * term;
            if (++k[t] < s.count) break;
            term = sum[t];
            sum[t] = 0;
            k[t] = 0;
        }
        if (t == r.taps_count) return term;
    }
}

SIMT_INLINE void store(const pare_cuda_resizing &r, int64_t at, double v)
{
    if (pare_is_float(r.dtype))
        pare_double_store(r.y, r.dtype, at, v);
    else
        pare_int_store(r.y, r.dtype, at, pare_int_of(rint(v), r.dtype));
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) resize_each(pare_cuda_resizing r)
{
    PARE_CUDA_EACH (i, r.count) {
        place p = place_of(r, i);
        store(r, p.to, p.outside ? r.extrapolation : weigh(r, p));
    }
}

static cudaError_t resize_launch(const pare_cuda_resizing *r, cudaStream_t stream)
{
    if (r->count == 0) return cudaSuccess;
    SIMT_LAUNCH(resize_each, pare_cuda_grid(r->count), dim3(PARE_CUDA_BLOCK), 0, stream, *r);
    return cudaGetLastError();
}

static bool read(const pare_prep *p, pare_resize *r)
{
    pare_shape x = {.rank = p->in[0].rank};
    memcpy(x.dim, p->in[0].dim, sizeof x.dim);
    return pare_resize_read(p->node, &x, r) == PARE_OK && r->known;
}

static bool nearest_can(const pare_prep *p)
{
    pare_resize r;
    return pare_cuda_bytes(p->in[0].dtype) > 0 && read(p, &r) && r.mode == PARE_NEAREST &&
           r.coord != PARE_TF_CROP_AND_RESIZE;
}

static pare_status nearest_prepare(pare_prep *p)
{
    pare_resize r;
    int64_t *at[PARE_MAX_RANK];
    (void)read(p, &r);
    PARE_TRY(pare_resize_positions(&r, p->arena, at));
    return pare_cuda_index_copy_new(p, at);
}

static const pare_kernel cuda_resize_nearest = {.name = "cuda_resize_nearest",
                                                .can = nearest_can,
                                                .prepare = nearest_prepare,
                                                .run = pare_cuda_index_copy_run,
                                                .release = pare_cuda_index_copy_release,
                                                .flags = PARE_KERNEL_PARTS};

/* --- linear and cubic --- */

typedef struct smooth {
    pare_cuda_resizing r;
    pare_device *device;
    void *table; /* every axis' lists, on the device */
} smooth;

static bool smooth_can(const pare_prep *p)
{
    pare_resize r;
    pare_dtype t = p->in[0].dtype;
    return (pare_type_is_float(t) || t == PARE_s8 || t == PARE_u8) && read(p, &r);
}

/* Bytes of an axis' lists: weights, first positions, marks. */
static size_t taps_bytes(const pare_resize_axis *t, int64_t out)
{
    return ((size_t)out * (size_t)t->count + (size_t)out + ((size_t)out + 7) / 8) * 8;
}

/* Writes an axis' lists at offset of what will be the device's table, there to be found at base. */
static void taps_pack(char *table, const char *base, const pare_resize_axis *t, int64_t out,
                      pare_cuda_taps *to)
{
    size_t n = (size_t)out, weights = n * (size_t)t->count * sizeof *t->weight;
    memcpy(table, t->weight, weights);
    memcpy(table + weights, t->first, n * sizeof *t->first);
    for (size_t o = 0; o < n; o++) table[weights + n * sizeof *t->first + o] = t->outside[o];
    to->count = t->count;
    to->weight = (const double *)(const void *)base;
    to->first = (const int64_t *)(const void *)(base + weights);
    to->outside = (const uint8_t *)base + weights + n * sizeof *t->first;
}

static pare_status tables_make(pare_prep *p, const pare_resize *r, smooth *s)
{
    pare_resize_axis taps[PARE_MAX_RANK] = {0};
    size_t bytes = 8, at = 0;
    for (int a = 0; a < r->rank; a++) {
        PARE_TRY(pare_resize_taps(p->node, r, a, p->arena, &taps[a]));
        bytes += taps_bytes(&taps[a], r->out[a]);
    }
    char *table = (char *)pare_arena_alloc(p->arena, bytes, 1);
    if (!table) return PARE_MEMORY;
    s->device = p->device;
    PARE_TRY(p->device->backend->alloc(p->ctx, p->device, &s->table, bytes));
    for (int a = 0; a < r->rank; a++) {
        if (!taps[a].count) continue;
        pare_cuda_taps *to = &s->r.taps[s->r.taps_count++];
        taps_pack(table + at, (char *)s->table + at, &taps[a], r->out[a], to);
        to->axis = a;
        to->n = r->in[a];
        at += taps_bytes(&taps[a], r->out[a]);
    }
    PARE_TRY(p->device->backend->upload(p->ctx, p->device->setup, s->table, table, bytes));
    return p->device->backend->sync(p->ctx, p->device->setup);
}

static void smooth_release(void *state)
{
    smooth *s = (smooth *)state;
    if (s && s->device) s->device->backend->free(s->device, s->table);
}

static pare_status smooth_prepare(pare_prep *p)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    pare_resize r;
    smooth *s = (smooth *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    (void)read(p, &r);
    s->r.dtype = x->dtype;
    s->r.rank = y->rank;
    s->r.count = pare_view_count(y);
    memcpy(s->r.dim, y->dim, sizeof s->r.dim);
    memcpy(s->r.y_stride, y->stride, sizeof s->r.y_stride);
    memcpy(s->r.x_stride, x->stride, sizeof s->r.x_stride);
    s->r.extrapolation = (double)r.extrapolation;
    pare_status st = tables_make(p, &r, s);
    if (st != PARE_OK)
        smooth_release(s);
    else
        p->state = s;
    return st;
}

static pare_status smooth_run(const pare_call *c)
{
    pare_cuda_resizing r = ((const smooth *)c->state)->r;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, resize_launch, &r);
}

static const pare_kernel cuda_resize = {.name = "cuda_resize",
                                        .can = smooth_can,
                                        .prepare = smooth_prepare,
                                        .run = smooth_run,
                                        .release = smooth_release};
const pare_kernel *const pare_cuda_resize[] = {&cuda_resize_nearest, &cuda_resize, NULL};
