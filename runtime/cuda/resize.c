/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and what Upsample becomes (10 to 19): nearest by tables of positions, the rest by taps. */
#include "runtime/cuda/resize.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/lookup.h"
#include "runtime/ops/resize.h"

#include <string.h>

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
    return pare_cuda_lookup_new(p, at);
}

static const pare_kernel cuda_resize_nearest = {.name = "cuda_resize_nearest",
                                                .can = nearest_can,
                                                .prepare = nearest_prepare,
                                                .run = pare_cuda_lookup_run,
                                                .release = pare_cuda_lookup_release};

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
    char *table = pare_arena_alloc(p->arena, bytes, 1);
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
    smooth *s = state;
    if (s && s->device) s->device->backend->free(s->device, s->table);
}

static pare_status smooth_prepare(pare_prep *p)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    pare_resize r;
    smooth *s = pare_arena_alloc(p->arena, 1, sizeof *s);
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
    return PARE_CUDA_LAUNCH(c, pare_cuda_resize_launch, &r);
}

static const pare_kernel cuda_resize = {.name = "cuda_resize",
                                        .can = smooth_can,
                                        .prepare = smooth_prepare,
                                        .run = smooth_run,
                                        .release = smooth_release};
const pare_kernel *const pare_cuda_resize[] = {&cuda_resize_nearest, &cuda_resize, NULL};
