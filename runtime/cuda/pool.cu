/* SPDX-License-Identifier: Apache-2.0 */
/* MaxPool (12), AveragePool (19), their global forms and the 8-bit averages of pare.QAveragePool:
   one thread an output, or neighbouring channels of one that lie together (four; of maxima 16
   bytes), channels fastest, walking its window clipped to the tensor. Padding is never a candidate
   of a maximum; NaN wins. Reads each element once a window it is in. */
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/vec.cuh"
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
    pare_cuda_fast_divisor by[4]; /* of max_vec and average_vec4: vectors of channels, then the
                                     window's axes, last first */
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
    pare_dependent_begin();
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
    pare_dependent_begin();
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

/* --- V channels that lie together, windows whose taps follow one another --- */

/* The same without divisions. */
template <int V> SIMT_INLINE place vec_place(const pare_cuda_pool &p, int i)
{
    place r = {0, 0, {}};
    int left = fast_divide(i, p.by[0]);
    r.x = r.y = (int64_t)(i - left * p.by[0].by) * V;
    for (int a = 2; a >= 0; a--) {
        const int whole = fast_divide(left, p.by[3 - a]), at = left - whole * p.by[3 - a].by;
        const int start = at * p.stride[a] - p.begin[a], first = start < 0 ? 0 : start;
        const int taps = min(p.in[a], start + p.kernel[a]) - first;
        r.at[a] = {first, taps > 0 ? taps : 0, min(p.kernel[a], p.in[a] + p.end[a] - start)};
        r.x += first * p.x_stride[2 + a];
        r.y += at * p.y_stride[2 + a];
        left = whole;
    }
    r.x += left * p.x_stride[0];
    r.y += left * p.y_stride[0];
    return r;
}

/* What four elements are summed in, and where a maximum begins. */
template <class T> struct pool_of {
    typedef double sum;
    typedef float value;
};
template <> struct pool_of<int8_t> {
    typedef int sum, value;
};
template <> struct pool_of<uint8_t> {
    typedef int sum, value;
};

SIMT_INLINE int pool_value(int8_t x) { return x; }
SIMT_INLINE int pool_value(uint8_t x) { return x; }
template <class T> SIMT_INLINE float pool_value(T x) { return pare_to_f32(x); }

SIMT_INLINE int lowest(int8_t) { return -128; }
SIMT_INLINE int lowest(uint8_t) { return 0; }
template <class T> SIMT_INLINE float lowest(T) { return -INFINITY; }

SIMT_INLINE int most(int a, int b) { return max(a, b); }
SIMT_INLINE float most(float a, float b) { return b > a || b != b ? b : a; }

SIMT_INLINE void narrow(int v, int8_t &to) { to = (int8_t)v; }
SIMT_INLINE void narrow(int v, uint8_t &to) { to = (uint8_t)v; }
SIMT_INLINE void narrow(float v, __half &to) { to = __float2half_rn(v); }
SIMT_INLINE void narrow(float v, __nv_bfloat16 &to) { to = __float2bfloat16_rn(v); }
SIMT_INLINE void narrow(float v, float &to) { to = v; }

/* Averages of `n` taps, stored. */
SIMT_INLINE void average_store(const pare_cuda_pool &p, const int sum[4], int n, int64_t at)
{
    float v[4];
    PARE_UNROLL PARE_VEC4 v[k] = ((float)sum[k] * p.factor) / (float)(n > 0 ? n : 1);
    vec4_act(p.epilogue.act, v);
    if (p.epilogue.to != PARE_f32)
        PARE_UNROLL PARE_VEC4 v[k] = pare_epilogue_round(&p.epilogue, v[k]);
    vec4_store(p.epilogue.to, static_cast<char *>(p.y), at, v, 4, true);
}

SIMT_INLINE void average_store(const pare_cuda_pool &p, const double sum[4], int n, int64_t at)
{
    float v[4];
    PARE_UNROLL PARE_VEC4 v[k] = n ? (float)(sum[k] / n) : 0;
    vec4_store(p.dtype, static_cast<char *>(p.y), at, v, 4, true);
}

/* SIDE: of a square window, whose taps are read before any is compared, inside ones in place of
   those outside; 0: any window. */
template <class T, int V, int SIDE>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK, 3) max_vec(pare_cuda_pool p)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, p.count / V) {
        const place r = vec_place<V>(p, (int)i);
        typename pool_of<T>::value best[V];
        T x[SIDE > 0 ? SIDE * SIDE : 1][V];
        PARE_UNROLL for (int k = 0; k < V; k++) best[k] = lowest(T());
        if (SIDE > 0 && r.at[1].taps > 0 && r.at[2].taps > 0) {
            PARE_UNROLL for (int h = 0; h < SIDE; h++) PARE_UNROLL for (int w = 0; w < SIDE; w++)
                vec_load<V>(static_cast<const T *>(p.x),
                            r.x + min(h, r.at[1].taps - 1) * p.x_stride[3] +
                                min(w, r.at[2].taps - 1) * p.x_stride[4],
                            1, x[h * SIDE + w]);
            PARE_UNROLL for (int t = 0; t < SIDE * SIDE; t++)
                PARE_UNROLL for (int k = 0; k < V; k++) best[k] =
                    most(best[k], pool_value(x[t][k]));
        } else {
            EACH_TAP(r, at)
            {
                vec_load<V>(static_cast<const T *>(p.x), at, 1, x[0]);
                PARE_UNROLL for (int k = 0; k < V; k++) best[k] =
                    most(best[k], pool_value(x[0][k]));
            }
        }
        PARE_UNROLL for (int k = 0; k < V; k++) narrow(best[k], x[0][k]);
        vec_store<V>(static_cast<T *>(p.y), r.y, x[0]);
    }
}

/* Adds COUNT taps `apart` elements apart, which are read before the first is added. */
template <class T, int COUNT>
SIMT_INLINE void taps_add(const pare_cuda_pool &p, int64_t at, int64_t apart,
                          typename pool_of<T>::sum sum[4])
{
    T x[COUNT][4];
    PARE_UNROLL for (int t = 0; t < COUNT; t++)
        vec_load<4>(static_cast<const T *>(p.x), at + t * apart, 1, x[t]);
    PARE_UNROLL for (int t = 0; t < COUNT; t++) PARE_UNROLL PARE_VEC4 sum[k] +=
        pool_value(x[t][k]) - static_cast<typename pool_of<T>::value>(p.zero);
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK, 3) average_vec4(pare_cuda_pool p)
{
    pare_dependent_begin();
    enum { AT_ONCE = 8 };
    PARE_CUDA_EACH (i, p.count / 4) {
        const place r = vec_place<4>(p, (int)i);
        typename pool_of<T>::sum sum[4] = {0, 0, 0, 0};
        for (int d = 0; d < r.at[0].taps; d++)
            for (int h = 0; h < r.at[1].taps; h++) {
                int64_t at = r.x + d * p.x_stride[2] + h * p.x_stride[3];
                int left = r.at[2].taps;
                for (; left >= AT_ONCE; left -= AT_ONCE, at += AT_ONCE * p.x_stride[4])
                    taps_add<T, AT_ONCE>(p, at, p.x_stride[4], sum);
                for (; left > 0; left--, at += p.x_stride[4])
                    taps_add<T, 1>(p, at, p.x_stride[4], sum);
            }
        average_store(p, sum, divisor(p, r), r.y);
    }
}

/* May a thread take v neighbouring channels? */
static bool vec_fits(const pare_cuda_pool *p, int v)
{
    bool well = p->dim[1] % v == 0 && p->x_stride[1] == 1 && p->y_stride[1] == 1 &&
                p->count / v <= INT_MAX && (uintptr_t)p->x % 16 == 0 && (uintptr_t)p->y % 16 == 0;
    for (int a = 0; a < 5; a++)
        well = well && (a == 1 || (p->x_stride[a] % v == 0 && p->y_stride[a] % v == 0));
    for (int a = 0; a < 3; a++) well = well && p->dilation[a] == 1;
    return well;
}

template <class T> static cudaError_t vec_launch(const pare_cuda_pool *p, cudaStream_t stream)
{
    enum { WIDE = 16 / sizeof(T) };
    const bool wide = p->kind == PARE_CUDA_POOL_MAX && vec_fits(p, WIDE);
    const int v = wide ? WIDE : 4;
    const dim3 grid = pare_cuda_grid(p->count / v), block(PARE_CUDA_BLOCK);
    pare_cuda_pool vec = *p;
    vec.by[0] = pare_cuda_fast_divisor_of(p->dim[1] / v);
    for (int a = 0; a < 3; a++) vec.by[3 - a] = pare_cuda_fast_divisor_of(p->dim[2 + a]);
    const bool flat = p->kernel[0] == 1 && p->in[0] == 1 && p->begin[0] == 0 && p->dim[2] == 1;
    const int side = flat && p->kernel[1] == p->kernel[2] ? p->kernel[1] : 0;
    if (wide && side == 3)
        PARE_LAUNCH_DEPENDENT((max_vec<T, WIDE, 3>), grid, block, 0, stream, vec);
    else if (wide && side == 2)
        PARE_LAUNCH_DEPENDENT((max_vec<T, WIDE, 2>), grid, block, 0, stream, vec);
    else if (wide)
        PARE_LAUNCH_DEPENDENT((max_vec<T, WIDE, 0>), grid, block, 0, stream, vec);
    else if (p->kind == PARE_CUDA_POOL_MAX)
        PARE_LAUNCH_DEPENDENT((max_vec<T, 4, 0>), grid, block, 0, stream, vec);
    else
        PARE_LAUNCH_DEPENDENT(average_vec4<T>, grid, block, 0, stream, vec);
    return cudaGetLastError();
}

static cudaError_t pool_launch(const pare_cuda_pool *p, cudaStream_t stream)
{
    if (p->count == 0) return cudaSuccess;
    if (vec_fits(p, 4)) {
        switch (p->dtype) {
        case PARE_s8: return vec_launch<int8_t>(p, stream);
        case PARE_u8: return vec_launch<uint8_t>(p, stream);
        case PARE_f16: return vec_launch<__half>(p, stream);
        case PARE_bf16: return vec_launch<__nv_bfloat16>(p, stream);
        default: return vec_launch<float>(p, stream);
        }
    }
    dim3 grid = pare_cuda_grid(p->count), block(PARE_CUDA_BLOCK);
    if (p->dtype == PARE_s8)
        PARE_LAUNCH_DEPENDENT(pool_bytes<int8_t>, grid, block, 0, stream, *p);
    else if (p->dtype == PARE_u8)
        PARE_LAUNCH_DEPENDENT(pool_bytes<uint8_t>, grid, block, 0, stream, *p);
    else
        PARE_LAUNCH_DEPENDENT(pool_floats, grid, block, 0, stream, *p);
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

/* The whole plane is one window; its last two axes are one where lines follow one another. */
static void plane_set(const pare_prep *p, pare_cuda_pool *s)
{
    int d[5];
    sizes_of(&p->in[0], d);
    if (d[4] > 0 && s->x_stride[3] == d[4] * s->x_stride[4] && d[3] <= INT_MAX / 2 / d[4]) {
        d[4] *= d[3];
        d[3] = 1;
    }
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
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                     \
                                          .can = accepts,                                          \
                                          .prepare = fn##_prepare,                                 \
                                          .run = pool_run,                                         \
                                          .flags = PARE_KERNEL_PARTS};
#define POOL_ONLY(fn, ...)                                                                         \
    POOL(fn, __VA_ARGS__)                                                                          \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
POOL_ONLY(max_pool, max_can, MAX, PARE_TRY(window_set(p, s)))
POOL_ONLY(average_pool, float_can, AVERAGE, PARE_TRY(window_set(p, s)))
POOL_ONLY(q_average_pool, int8_can, AVERAGE, PARE_TRY(window_set(p, s));
          PARE_TRY(quantization_set(p, s)))
/* A thread walks the plane: a small one. */
enum { MOST_PLANE = 256 };
static bool plane_fits(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    int64_t plane = 1;
    for (int i = 2; i < x->rank; i++) plane *= x->dim[i];
    return float_can(p) && p->out[0].dtype == x->dtype && x->stride[1] == 1 && x->dim[1] % 4 == 0 &&
           plane <= MOST_PLANE;
}
POOL(global_average_channels, plane_fits, AVERAGE, plane_set(p, s))
POOL_ONLY(q_global_average_pool, int8_can, AVERAGE, plane_set(p, s);
          PARE_TRY(quantization_set(p, s)))

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
                                          .run = pare_cuda_reduce_run};
PLANE(global_average_pool, plane_mean_can, MEAN)
PLANE(global_max_pool, plane_max_can, MAX)
const pare_kernel *const pare_cuda_global_average_pool[] = {&cuda_global_average_channels,
                                                            &cuda_global_average_pool, NULL};
const pare_kernel *const pare_cuda_global_max_pool[] = {&cuda_global_max_pool, NULL};
