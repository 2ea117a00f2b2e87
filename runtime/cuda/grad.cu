/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients without sums over a tensor: one thread an element. Where several numbers meet in one
   (pools, Gather) the thread that owns it adds them in the order of the CPU's kernels, so that
   nothing is atomic and results are the same each time. */
#include "runtime/cuda/fault.cuh"
#include "runtime/cuda/grad.h"
#include "runtime/cuda/levels.cuh"
#include "runtime/cuda/number.cuh"

/* --- functions of one tensor --- */

enum unary_row {
#define PARE_UNARY_GRAD(op, reads, a, b, dx) ROW_##op,
#include "runtime/ops/grad_unary.inc"
#undef PARE_UNARY_GRAD
    ROWS
};

#define real     float
#define EXP      expf
#define ERF      erff
#define SIN      sinf
#define COS      cosf
#define SINH     sinhf
#define COSH     coshf
#define SQRT     sqrtf
#define FABS     fabsf
#define TANH     tanhf
#define LOG1P    log1pf
#define FORM(fn) SIMT_INLINE real fn
#include "runtime/ops/grad_unary_forms.inc"

SIMT_INLINE float unary_slope(int row, float g, float x, float a, float b)
{
    const float y = x;
    switch (row) {
#define PARE_UNARY_GRAD(op, reads, a_, b_, dx)                                                     \
    case ROW_##op:                                                                                 \
        return dx;
#include "runtime/ops/grad_unary.inc"
#undef PARE_UNARY_GRAD
    }
    return g;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_grad_each(pare_cuda_walk w, pare_dtype type, int row, float a, float b)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        const float g = pare_number_at(w.data[1], type, at[1]),
                    x = pare_number_at(w.data[2], type, at[2]);
        pare_number_store(w.data[0], type, at[0], unary_slope(row, g, x, a, b));
    }
}

/* --- FakeQuantize --- */

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    fake_each(pare_cuda_walk w, pare_cuda_levels l)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_walk_at<4>(w.walk, i, at);
        const float s = static_cast<const float *>(w.data[2])[at[2]],
                    z = pare_zero_at(w.data[3], l.zero, at[3]),
                    v = static_cast<const float *>(w.data[1])[at[1]] / s;
        static_cast<float *>(w.data[0])[at[0]] = (pare_level_hold(rintf(v) + z, l) - z) * s;
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    fake_grad_each(pare_cuda_walk w, pare_cuda_levels l)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[5];
        pare_walk_at<5>(w.walk, i, at);
        const float s = static_cast<const float *>(w.data[3])[at[3]],
                    z = pare_zero_at(w.data[4], l.zero, at[4]),
                    q = rintf(static_cast<const float *>(w.data[2])[at[2]] / s) + z;
        const bool inside = q >= l.low && q <= l.high;
        static_cast<float *>(w.data[0])[at[0]] =
            inside ? static_cast<const float *>(w.data[1])[at[1]] : 0;
    }
}

/* --- pools --- */

/* The windows on one axis that have position `at` among their taps: from first on, every one
   before end whose distance is a multiple of the dilation. */
typedef struct windows {
    int first, end;
} windows;

SIMT_INLINE windows windows_of(const pare_cuda_windows &p, int axis, int at)
{
    const int place = at + p.begin[axis], reach = (p.kernel[axis] - 1) * p.dilation[axis];
    const int low = place - reach, s = p.stride[axis];
    windows r = {low <= 0 ? 0 : (low + s - 1) / s, place / s + 1};
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

/* --- Gather --- */

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

/* --- launchers --- */

extern "C" cudaError_t pare_cuda_unary_grad_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                                   int row, float a, float b, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(unary_grad_each, w->walk.count, *w, dtype, row, a, b);
}

extern "C" cudaError_t pare_cuda_fake_launch(const pare_cuda_walk *w,
                                             const pare_cuda_levels *levels, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(fake_each, w->walk.count, *w, *levels);
}

extern "C" cudaError_t pare_cuda_fake_grad_launch(const pare_cuda_walk *w,
                                                  const pare_cuda_levels *levels,
                                                  cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(fake_grad_each, w->walk.count, *w, *levels);
}

extern "C" cudaError_t pare_cuda_pool_grad_launch(const pare_cuda_windows *p, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(pool_grad_each, p->count, *p);
}

extern "C" cudaError_t pare_cuda_gather_grad_launch(const pare_cuda_scattered *g,
                                                    cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(gather_grad_lines, g->count ? g->outer * g->inner : 0, *g);
}
