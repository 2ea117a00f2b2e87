/* SPDX-License-Identifier: Apache-2.0 */
/* MaxPool (12), AveragePool (19), their global forms and the 8-bit averages of pare.QAveragePool:
   one thread an output, channels fastest, walking its window clipped to the tensor. Padding is
   never a candidate of a maximum; NaN wins. Reads each element once a window it is in. */
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.h"
#include "runtime/ops/epilogue.h"
#include "runtime/ops/window.h"

#include <limits.h>

typedef enum pare_cuda_pool_kind { PARE_CUDA_POOL_MAX, PARE_CUDA_POOL_AVERAGE } pare_cuda_pool_kind;

/* Axes N, C, then three of the window (missing ones of length 1). The window's lists are int: they
   are counts of taps and positions, checked to fit. */
typedef struct pare_cuda_pool {
    const void *x;
    void *y;
    pare_cuda_pool_kind kind;
    pare_dtype dtype; /* of x: f32, f16, bf16, s8, u8 */
    int64_t count;    /* outputs */
    int dim[5], in[3], kernel[3], stride[3], dilation[3], begin[3], end[3];
    int64_t x_stride[5], y_stride[5];
    bool include_pad;
    /* averages of 8-bit numbers: v = (sum of (x - zero)) * factor / taps, then the epilogue */
    pare_epilogue epilogue;
    float factor;
    int zero;
} pare_cuda_pool;

/* Taps of one output position on one axis: the first inside the tensor, their number, and the
   number inside the padded tensor. */
typedef struct span {
    int first, taps, padded;
} span;

SIMT_INLINE span span_of(const pare_cuda_pool &p, int axis, int at)
{
    int start = at * p.stride[axis] - p.begin[axis], d = p.dilation[axis];
    int skip = start < 0 ? (-start + d - 1) / d : 0;
    int room = p.in[axis] - start, reach = p.in[axis] + p.end[axis] - start;
    int last = room <= 0 ? 0 : (room + d - 1) / d, padded = (reach + d - 1) / d;
    if (last > p.kernel[axis]) last = p.kernel[axis];
    if (padded > p.kernel[axis]) padded = p.kernel[axis];
    span s = {start + skip * d, last > skip ? last - skip : 0, padded};
    return s;
}

/* An output's place: offsets of its plane in x and of itself in y, and its spans. */
typedef struct place {
    int64_t x, y;
    span at[3];
} place;

SIMT_INLINE place place_of(const pare_cuda_pool &p, int64_t i)
{
    /* order of outputs: N, spatial axes, C, so that neighbours are channels */
    int64_t c = i % p.dim[1], left = i / p.dim[1];
    place r;
    r.x = c * p.x_stride[1];
    r.y = c * p.y_stride[1];
    for (int a = 2; a >= 0; a--) {
        int at = (int)(left % p.dim[2 + a]);
        left /= p.dim[2 + a];
        r.at[a] = span_of(p, a, at);
        r.x += r.at[a].first * p.x_stride[2 + a];
        r.y += at * p.y_stride[2 + a];
    }
    r.x += left * p.x_stride[0];
    r.y += left * p.y_stride[0];
    return r;
}

#define EACH_TAP(r, at)                                                                            \
    for (int d_ = 0; d_ < (r).at[0].taps; d_++)                                                    \
        for (int h_ = 0; h_ < (r).at[1].taps; h_++)                                                \
            for (int w_ = 0; w_ < (r).at[2].taps; w_++)                                            \
                for (int64_t at = (r).x + (int64_t)d_ * p.dilation[0] * p.x_stride[2] +            \
                                  (int64_t)h_ * p.dilation[1] * p.x_stride[3] +                    \
                                  (int64_t)w_ * p.dilation[2] * p.x_stride[4],                     \
                             once_ = 1;                                                            \
                     once_; once_ = 0)

SIMT_INLINE int divisor(const pare_cuda_pool &p, const place &r)
{
    int n = 1;
    for (int a = 0; a < 3; a++) n *= p.include_pad ? r.at[a].padded : r.at[a].taps;
    return n;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) pool_floats(pare_cuda_pool p)
{
    PARE_CUDA_EACH (i, p.count) {
        place r = place_of(p, i);
        float best = -INFINITY;
        double sum = 0;
        EACH_TAP(r, at)
        {
            float v = pare_number_at(p.x, p.dtype, at);
            if (v > best || v != v) best = v;
            sum += (double)v;
        }
        int n = divisor(p, r);
        if (p.kind == PARE_CUDA_POOL_AVERAGE) best = n ? (float)(sum / n) : 0;
        pare_number_store(p.y, p.dtype, r.y, best);
    }
}

/* s8 and u8: T is the element. */
template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) pool_bytes(pare_cuda_pool p)
{
    const T *x = static_cast<const T *>(p.x);
    PARE_CUDA_EACH (i, p.count) {
        place r = place_of(p, i);
        int best = (T)-1 > 0 ? 0 : -128, sum = 0;
        EACH_TAP(r, at)
        {
            int v = x[at];
            best = v > best ? v : best;
            sum += v - p.zero;
        }
        if (p.kind == PARE_CUDA_POOL_MAX) {
            static_cast<T *>(p.y)[r.y] = (T)best;
            continue;
        }
        int n = divisor(p, r);
        pare_epilogue_store(&p.epilogue, ((float)sum * p.factor) / (float)(n > 0 ? n : 1), p.y,
                            r.y);
    }
}

static cudaError_t pool_launch(const pare_cuda_pool *p, cudaStream_t stream)
{
    if (p->count == 0) return cudaSuccess;
    dim3 grid = pare_cuda_grid(p->count), block(PARE_CUDA_BLOCK);
    if (p->dtype == PARE_s8)
        SIMT_LAUNCH(pool_bytes<int8_t>, grid, block, 0, stream, *p);
    else if (p->dtype == PARE_u8)
        SIMT_LAUNCH(pool_bytes<uint8_t>, grid, block, 0, stream, *p);
    else
        SIMT_LAUNCH(pool_floats, grid, block, 0, stream, *p);
    return cudaGetLastError();
}

/* N, C, three window axes of a tensor of rank 3 to 5. */
static void sizes_of(const pare_view *v, int d[5])
{
    d[0] = (int)v->dim[0];
    d[1] = (int)v->dim[1];
    for (int i = 0; i < 3; i++) {
        int axis = i - (5 - v->rank);
        d[2 + i] = axis < 0 ? 1 : (int)v->dim[2 + axis];
    }
}

static bool fits(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    bool values_only = p->out_count < 2 || !p->out[1].dtype;
    if (x->rank < 3 || x->rank > 5 || !values_only) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] > INT_MAX / 2) return false;
    return true;
}

static pare_status pool_new(pare_prep *p, pare_cuda_pool_kind kind, pare_cuda_pool **out)
{
    pare_cuda_pool *s = (pare_cuda_pool *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->kind = kind;
    s->dtype = p->in[0].dtype;
    s->count = pare_view_count(&p->out[0]);
    sizes_of(&p->out[0], s->dim);
    pare_cuda_strides(&p->in[0], s->x_stride);
    pare_cuda_strides(&p->out[0], s->y_stride);
    p->state = *out = s;
    return PARE_OK;
}

static pare_status window_set(pare_prep *p, pare_cuda_pool *s)
{
    pare_window w;
    pare_shape x = {.rank = p->in[0].rank};
    for (int i = 0; i < x.rank; i++) x.dim[i] = p->in[0].dim[i];
    PARE_TRY(pare_window_read(p->node, &x, NULL, &w));
    for (int i = 0; i < 3; i++) {
        s->in[i] = (int)w.in[i], s->kernel[i] = (int)w.kernel[i], s->stride[i] = (int)w.stride[i];
        s->dilation[i] = (int)w.dilation[i];
        s->begin[i] = (int)w.begin[i], s->end[i] = (int)w.end[i];
    }
    s->include_pad = w.include_pad;
    return PARE_OK;
}

/* The whole plane is one window. */
static void plane_set(const pare_prep *p, pare_cuda_pool *s)
{
    int d[5];
    sizes_of(&p->in[0], d);
    for (int i = 0; i < 3; i++) {
        s->in[i] = s->kernel[i] = d[2 + i];
        s->stride[i] = s->dilation[i] = 1;
    }
}

static pare_status quantization_set(pare_prep *p, pare_cuda_pool *s)
{
    pare_quant_args q;
    pare_act act;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&s->epilogue, &q, &act, PARE_NOTYPE);
    s->factor = s->epilogue.real ? q.x_scale : q.x_scale / q.y_scale;
    s->zero = q.x_zero;
    return PARE_OK;
}

static pare_status pool_run(const pare_call *c)
{
    pare_cuda_pool p = *(const pare_cuda_pool *)c->state;
    p.x = c->in[0].data;
    p.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pool_launch, &p);
}

static bool max_can(const pare_prep *p)
{
    return fits(p) && (pare_cuda_can_float(p, 1) || pare_type_is_int8(p->in[0].dtype));
}

static bool float_can(const pare_prep *p) { return fits(p) && pare_cuda_can_float(p, 1); }
static bool int8_can(const pare_prep *p) { return fits(p) && pare_type_is_int8(p->in[0].dtype); }

#define POOL(fn, accepts, pool_kind, ...)                                                          \
    static pare_status fn##_prepare(pare_prep *p)                                                  \
    {                                                                                              \
        pare_cuda_pool *s;                                                                         \
        PARE_TRY(pool_new(p, PARE_CUDA_POOL_##pool_kind, &s));                                     \
        __VA_ARGS__;                                                                               \
        return PARE_OK;                                                                            \
    }                                                                                              \
    static const pare_kernel cuda_##fn = {                                                         \
        .name = "cuda_" #fn, .can = accepts, .prepare = fn##_prepare, .run = pool_run};            \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
POOL(max_pool, max_can, MAX, PARE_TRY(window_set(p, s)))
POOL(average_pool, float_can, AVERAGE, PARE_TRY(window_set(p, s)))
POOL(q_average_pool, int8_can, AVERAGE, PARE_TRY(window_set(p, s));
     PARE_TRY(quantization_set(p, s)))
POOL(q_global_average_pool, int8_can, AVERAGE, plane_set(p, s); PARE_TRY(quantization_set(p, s)))

/* --- pools over the whole plane: reductions --- */

static bool plane_mean_can(const pare_prep *p)
{
    return pare_cuda_is_float(p->in[0].dtype) && p->in[0].rank >= 2;
}

static bool plane_max_can(const pare_prep *p)
{
    return pare_cuda_reduce_takes(PARE_CUDA_MAX, p->in[0].dtype) && p->in[0].rank >= 2;
}

static pare_status plane_prepare(pare_prep *p, pare_cuda_reduction kind)
{
    pare_cuda_reduce *r;
    bool flag[PARE_MAX_RANK] = {false};
    PARE_TRY(pare_cuda_reduce_new(p, &r));
    for (int i = 2; i < p->in[0].rank; i++) flag[i] = true;
    r->p = (float)pare_node_int(p->node, "p", 2);
    pare_cuda_reduce_into(p, r, kind, flag);
    return PARE_OK;
}

#define PLANE(fn, accepts, kind)                                                                   \
    static pare_status fn##_prepare(pare_prep *p) { return plane_prepare(p, PARE_CUDA_##kind); }   \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                     \
                                          .can = accepts,                                          \
                                          .prepare = fn##_prepare,                                 \
                                          .run = pare_cuda_reduce_run};                            \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
PLANE(global_average_pool, plane_mean_can, MEAN)
PLANE(global_max_pool, plane_max_can, MAX)

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
