/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of MaxPool and AveragePool. */
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/window.h"

#include <limits.h>

/* --- gradient: kernels --- */

/* A pool's gradient: axes N, C, three of the window (missing ones of length 1). */
typedef struct pare_cuda_windows {
    const void *dy, *x; /* x: of maxima, else NULL */
    void *dx;
    pare_dtype dtype;
    int64_t count; /* of dx */
    int channels, in[3], out[3], kernel[3], stride[3], dilation[3], begin[3], end[3];
    int64_t x_stride[5], dx_stride[5], dy_stride[5];
    bool include_pad;
} pare_cuda_windows;

/* The windows on one axis that have position `at` among their taps: from first on, every one
   before end whose distance is a multiple of the dilation. */
typedef struct windows {
    int first, end;
} windows;

SIMT_INLINE windows windows_of(const pare_cuda_windows &p, int axis, int at)
{
    const int padded = at + p.begin[axis], reach = (p.kernel[axis] - 1) * p.dilation[axis];
    const int low = padded - reach, s = p.stride[axis];
    windows r = {low <= 0 ? 0 : (low + s - 1) / s, padded / s + 1};
    if (r.end > p.out[axis]) r.end = p.out[axis];
    return r;
}

SIMT_INLINE bool meets(const pare_cuda_windows &p, int axis, int at, int window)
{
    return (at + p.begin[axis] - window * p.stride[axis]) % p.dilation[axis] == 0;
}

/* Taps of a window on an axis: the first inside, how many inside, how many inside the padding. */
typedef struct taps {
    int first, count, padded;
} taps;

SIMT_INLINE taps taps_of(const pare_cuda_windows &p, int axis, int window)
{
    const int start = window * p.stride[axis] - p.begin[axis], d = p.dilation[axis];
    const int skip = start < 0 ? (-start + d - 1) / d : 0;
    const int room = p.in[axis] - start, reach = room + p.end[axis];
    int last = room <= 0 ? 0 : (room + d - 1) / d, padded = reach <= 0 ? 0 : (reach + d - 1) / d;
    if (last > p.kernel[axis]) last = p.kernel[axis];
    if (padded > p.kernel[axis]) padded = p.kernel[axis];
    taps t = {start + skip * d, last > skip ? last - skip : 0, padded};
    return t;
}

/* What the windows of one axis that meet a position do next: the next of them, or end. */
SIMT_INLINE int next_of(const pare_cuda_windows &p, int axis, int at, int window, int end)
{
    while (window < end && !meets(p, axis, at, window)) window++;
    return window;
}

/* Is the place of these three positions its window's first largest x? A NaN is largest. */
SIMT_INLINE bool is_largest(const pare_cuda_windows &p, int64_t plane, const taps &t0,
                            const taps &t1, const taps &t2, int at0, int at1, int at2)
{
    float best = 0;
    bool ours = false, any = false;
    for (int d = 0; d < t0.count; d++)
        for (int h = 0; h < t1.count; h++)
            for (int k = 0; k < t2.count; k++) {
                const int a = t0.first + d * p.dilation[0], b = t1.first + h * p.dilation[1],
                          c = t2.first + k * p.dilation[2];
                const float v = pare_number_at(p.x, p.dtype,
                                               plane + a * p.x_stride[2] + b * p.x_stride[3] +
                                                   c * p.x_stride[4]);
                if (any && !(v > best || (v != v && best == best))) continue;
                any = true;
                best = v;
                ours = a == at0 && b == at1 && c == at2;
            }
    return ours;
}

#define EACH_WINDOW(axis, o, at, w)                                                                \
    for (int o = next_of(p, axis, at, (w).first, (w).end); o < (w).end;                            \
         o = next_of(p, axis, at, o + 1, (w).end))

/* The sum of what the windows that hold these positions give them. */
SIMT_INLINE float pool_sum(const pare_cuda_windows &p, int64_t plane, int64_t from, int at0,
                           int at1, int at2)
{
    const windows w0 = windows_of(p, 0, at0), w1 = windows_of(p, 1, at1),
                  w2 = windows_of(p, 2, at2);
    float sum = 0;
    EACH_WINDOW(0, o0, at0, w0)
    {
        const taps t0 = taps_of(p, 0, o0);
        EACH_WINDOW(1, o1, at1, w1)
        {
            const taps t1 = taps_of(p, 1, o1);
            EACH_WINDOW(2, o2, at2, w2)
            {
                const taps t2 = taps_of(p, 2, o2);
                if (p.x && !is_largest(p, plane, t0, t1, t2, at0, at1, at2)) continue;
                const float dy = pare_number_at(p.dy, p.dtype,
                                                from + o0 * p.dy_stride[2] + o1 * p.dy_stride[3] +
                                                    o2 * p.dy_stride[4]);
                const int n = p.include_pad ? t0.padded * t1.padded * t2.padded
                                            : t0.count * t1.count * t2.count;
                sum += p.x ? dy : dy / (float)n;
            }
        }
    }
    return sum;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) pool_grad_each(pare_cuda_windows p)
{
    PARE_CUDA_EACH (i, p.count) {
        int left = (int)i; /* fits: pool_can */
        const int c = left % p.channels, plane = p.in[0] * p.in[1] * p.in[2];
        left /= p.channels;
        const int64_t n = left / plane;
        left %= plane;
        const int at2 = left % p.in[2];
        left /= p.in[2];
        const int at1 = left % p.in[1], at0 = left / p.in[1];
        const float sum = pool_sum(p, n * p.x_stride[0] + c * p.x_stride[1],
                                   n * p.dy_stride[0] + c * p.dy_stride[1], at0, at1, at2);
        pare_number_store(p.dx, p.dtype,
                          n * p.dx_stride[0] + c * p.dx_stride[1] + at0 * p.dx_stride[2] +
                              at1 * p.dx_stride[3] + at2 * p.dx_stride[4],
                          sum);
    }
}

static cudaError_t pool_grad_launch(const pare_cuda_windows *p, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(pool_grad_each, p->count, *p);
}

/* --- MaxPoolGrad, AveragePoolGrad --- */

static bool pool_grad_can(const pare_prep *p)
{
    const pare_view *x = &p->out[0];
    if (!pare_cuda_can_float(p, p->in_count) || x->rank < 3 || x->rank > 5) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] > INT_MAX / 2) return false;
    return pare_view_count(x) <= INT_MAX;
}

static pare_status pool_grad_prepare(pare_prep *p)
{
    pare_cuda_windows *s = (pare_cuda_windows *)pare_arena_alloc(p->arena, 1, sizeof *s);
    pare_window w;
    pare_shape x = {.rank = p->out[0].rank};
    if (!s) return PARE_MEMORY;
    memcpy(x.dim, p->out[0].dim, sizeof x.dim);
    PARE_TRY(pare_window_read(p->node, &x, NULL, &w));
    for (int i = 0; i < 3; i++) {
        s->in[i] = (int)w.in[i], s->out[i] = (int)w.out[i], s->kernel[i] = (int)w.kernel[i];
        s->stride[i] = (int)w.stride[i], s->dilation[i] = (int)w.dilation[i];
        s->begin[i] = (int)w.begin[i], s->end[i] = (int)w.end[i];
    }
    s->include_pad = w.include_pad;
    s->dtype = p->in[0].dtype;
    s->count = pare_view_count(&p->out[0]);
    s->channels = (int)x.dim[1];
    pare_cuda_strides(&p->in[0], s->dy_stride);
    pare_cuda_strides(&p->in[p->in_count - 1], s->x_stride);
    pare_cuda_strides(&p->out[0], s->dx_stride);
    p->state = s;
    return PARE_OK;
}

static pare_status pool_grad_run(const pare_call *c)
{
    pare_cuda_windows p = *(const pare_cuda_windows *)c->state;
    p.dy = c->in[0].data;
    p.x = c->in_count > 1 ? c->in[1].data : NULL;
    p.dx = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pool_grad_launch, &p);
}

static const pare_kernel cuda_pool_grad = {.name = "cuda_pool_grad",
                                           .can = pool_grad_can,
                                           .prepare = pool_grad_prepare,
                                           .run = pool_grad_run};
const pare_kernel *const pare_cuda_max_pool_grad[] = {&cuda_pool_grad, NULL};
const pare_kernel *const pare_cuda_average_pool_grad[] = {&cuda_pool_grad, NULL};
