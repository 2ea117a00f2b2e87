/* SPDX-License-Identifier: Apache-2.0 */
/* y[i] = f(x[i], ...): one thread an element of a grid-stride loop over the merged walk, of common
   functions 16 bytes of elements that lie together. Reads each operand once, writes the output
   once. The function is chosen inside the kernel by a number that all threads share, so that a type
   needs one kernel, not one per function. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/cuda/tensor_iterator.h"

/* X(name, expression of x, y, the same of integers): the formulas of runtime/cpu/binary.c, for
   float and double, and for int64_t (ops/number.h). */
#define PARE_CUDA_BINARY(X)                                                                        \
    X(add, x + y, (int64_t)((uint64_t)x + (uint64_t)y))                                            \
    X(sub, x - y, (int64_t)((uint64_t)x - (uint64_t)y))                                            \
    X(mul, x *y, (int64_t)((uint64_t)x * (uint64_t)y))                                             \
    X(div, x / y, wide ? whole(x, y, false) : pare_int_divide(x, y))                               \
    X(prelu, x < 0 ? x * y : x, wide || x >= 0 ? x : (int64_t)((uint64_t)x * (uint64_t)y))         \
    X(min, x != x ? x : y != y ? y : x < y ? x : y, (x ^ turn) < (y ^ turn) ? x : y)               \
    X(max, x != x ? x : y != y ? y : x > y ? x : y, (x ^ turn) > (y ^ turn) ? x : y)               \
    X(mod, x - floor_of(x / y) * y, wide ? whole(x, y, true) : pare_int_modulo(x, y))              \
    X(fmod, fmod_of(x, y), wide ? whole(x, y, true) : pare_int_remainder(x, y))                    \
    X(pow, y == 2 ? x * x : y == 3 ? x * x * x : pow_of(x, y), pare_int_power(x, y))

#define X(name, ...) PARE_CUDA_##name,
typedef enum pare_cuda_binary { PARE_CUDA_BINARY(X) PARE_CUDA_BINARY_COUNT } pare_cuda_binary;
#undef X

SIMT_INLINE float floor_of(float x) { return floorf(x); }
SIMT_INLINE double floor_of(double x) { return floor(x); }
SIMT_INLINE float fmod_of(float x, float y) { return fmodf(x, y); }
SIMT_INLINE double fmod_of(double x, double y) { return fmod(x, y); }
SIMT_INLINE float pow_of(float x, float y) { return powf(x, y); }
SIMT_INLINE double pow_of(double x, double y) { return pow(x, y); }

/* Quotient, or remainder, of u64. */
SIMT_INLINE int64_t whole(int64_t x, int64_t y, bool rest)
{
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    return b == 0 ? 0 : (int64_t)(rest ? a % b : a / b);
}

/* R: float or double. */
template <class R> SIMT_INLINE R binary(int op, R x, R y)
{
    switch (op) {
#define X(name, expr, ints)                                                                        \
    case PARE_CUDA_##name: return expr;
        PARE_CUDA_BINARY(X)
#undef X
    }
    return x;
}

/* u64 keeps its order as int64_t with its top bit turned. */
SIMT_INLINE int64_t binary(int op, int64_t x, int64_t y, bool wide)
{
    int64_t turn = wide ? INT64_MIN : 0;
    switch (op) {
#define X(name, expr, ints)                                                                        \
    case PARE_CUDA_##name: return ints;
        PARE_CUDA_BINARY(X)
#undef X
    }
    return x;
}

SIMT_INLINE double load(const double *x, int64_t at) { return x[at]; }
template <class T> SIMT_INLINE float load(const T *x, int64_t at) { return pare_to_f32(x[at]); }
SIMT_INLINE void pare_store_f32(double *y, double v) { *y = v; }

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) binary_each(pare_cuda_iterator w, int op)
{
    pare_dependent_begin();
    const T *a = static_cast<const T *>(w.data[1]), *b = static_cast<const T *>(w.data[2]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        pare_store_f32(&y[at[0]], binary(op, load(a, at[1]), load(b, at[2])));
    }
}

/* 16 bytes of neighbours a thread, of one function. */
template <class T, int OP>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) binary_vec(pare_cuda_iterator w)
{
    pare_dependent_begin();
    enum { W = 16 / sizeof(T) };
    const int64_t step_a = w.walk.stride[1][w.walk.rank - 1],
                  step_b = w.walk.stride[2][w.walk.rank - 1];
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        T a[W], b[W];
        pare_iterator_at<3>(w.walk, i * W, at);
        vec_load<W>(static_cast<const T *>(w.data[1]), at[1], step_a, a);
        vec_load<W>(static_cast<const T *>(w.data[2]), at[2], step_b, b);
        PARE_UNROLL for (int k = 0; k < W; k++)
            pare_store_f32(&a[k], binary(OP, load(&a[k], 0), load(&b[k], 0)));
        vec_store<W>(static_cast<T *>(w.data[0]), at[0], a);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    binary_ints(pare_cuda_iterator w, pare_dtype type, int op)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        pare_int_store(w.data[0], type, at[0],
                       binary(op, pare_int_at(w.data[1], type, at[1]),
                              pare_int_at(w.data[2], type, at[2]), type == PARE_u64));
    }
}

SIMT_INLINE double any_at(const void *data, pare_dtype type, int64_t at)
{
    if (pare_is_float(type)) return pare_double_at(data, type, at);
    int64_t v = pare_int_at(data, type, at);
    return type == PARE_u64 ? (double)(uint64_t)v : (double)v;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    power_ints(pare_cuda_iterator w, pare_dtype base, pare_dtype exponent)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        pare_int_store(w.data[0], base, at[0],
                       pare_int_power(pare_int_at(w.data[1], base, at[1]),
                                      pare_int_at(w.data[2], exponent, at[2])));
    }
}

/* Short floats compute in float. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    power_floats(pare_cuda_iterator w, pare_dtype base, pare_dtype exponent)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        float v =
            powf(pare_number_at(w.data[1], base, at[1]), (float)any_at(w.data[2], exponent, at[2]));
        pare_number_store(w.data[0], base, at[0], v);
    }
}

/* f64, and integers to the power of floats. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    power_doubles(pare_cuda_iterator w, pare_dtype base, pare_dtype exponent)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        double v = pow(any_at(w.data[1], base, at[1]), any_at(w.data[2], exponent, at[2]));
        if (base == PARE_f64)
            static_cast<double *>(w.data[0])[at[0]] = v;
        else
            pare_int_store(w.data[0], base, at[0], pare_int_of(v, base));
    }
}

/* min(max(v, *low), *high); NaN stays. R: float, double or int64_t. */
template <class R> struct clip_limits {
    R low, high;
    bool has_low, has_high;
};

template <class R> SIMT_INLINE R clip_to(const clip_limits<R> &l, R v)
{
    if (l.has_low && v < l.low) v = l.low;
    if (l.has_high && v > l.high) v = l.high;
    return v;
}

/* Of f32, f16 and bf16. W: 4, or 1, as below. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    clip_floats(pare_cuda_iterator w, pare_dtype type, const void *low, const void *high)
{
    pare_dependent_begin();
    const clip_limits<float> l = {low ? pare_number_at(low, type, 0) : 0,
                                  high ? pare_number_at(high, type, 0) : 0, low != NULL,
                                  high != NULL};
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2];
        float v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_floats<W>(w.data[1], type, at[1], iterator_step(w, 1), v);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = clip_to(l, v[k]);
        vec_store_floats<W>(w.data[0], type, at[0], v);
    }
}

template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    clip_doubles(pare_cuda_iterator w, const double *low, const double *high)
{
    pare_dependent_begin();
    const clip_limits<double> l = {low ? *low : 0, high ? *high : 0, low != NULL, high != NULL};
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2];
        double v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_doubles<W>(w.data[1], PARE_f64, at[1], iterator_step(w, 1), v);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = clip_to(l, v[k]);
        vec_store_doubles<W>(w.data[0], PARE_f64, at[0], v);
    }
}

template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    clip_ints(pare_cuda_iterator w, pare_dtype type, const void *low, const void *high)
{
    pare_dependent_begin();
    const int64_t turn = type == PARE_u64 ? INT64_MIN : 0;
    const clip_limits<int64_t> l = {low ? pare_int_at(low, type, 0) ^ turn : 0,
                                    high ? pare_int_at(high, type, 0) ^ turn : 0, low != NULL,
                                    high != NULL};
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2], v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_ints<W>(w.data[1], type, at[1], iterator_step(w, 1), v);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = clip_to(l, v[k] ^ turn) ^ turn;
        vec_store_ints<W>(w.data[0], type, at[0], v);
    }
}

/* W: 16 bytes of T, or 1. */
template <class T, int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) where_each(pare_cuda_iterator w)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[4];
        uint8_t condition[W];
        T a[W], b[W];
        pare_iterator_at<4>(w.walk, i * W, at);
        vec_load<W>(static_cast<const uint8_t *>(w.data[1]), at[1], iterator_step(w, 1), condition);
        vec_load<W>(static_cast<const T *>(w.data[2]), at[2], iterator_step(w, 2), a);
        vec_load<W>(static_cast<const T *>(w.data[3]), at[3], iterator_step(w, 3), b);
        PARE_UNROLL for (int k = 0; k < W; k++) a[k] = condition[k] ? a[k] : b[k];
        vec_store<W>(static_cast<T *>(w.data[0]), at[0], a);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    sum_each(pare_cuda_iterator w, pare_dtype type, int inputs, bool begun, bool more,
             float divisor)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[PARE_ITERATOR_OPERANDS];
        pare_iterator_at<PARE_ITERATOR_OPERANDS>(w.walk, i, at);
        float sum = pare_number_at(w.data[1], begun ? PARE_f32 : type, at[1]);
        for (int k = 2; k <= inputs; k++) sum += pare_number_at(w.data[k], type, at[k]);
        pare_number_store(w.data[0], more ? PARE_f32 : type, at[0], sum / divisor);
    }
}

/* --- launchers --- */

/* One of three kernels by float type, else the last statement. */
#define BY_FLOAT(kernel, other, ...)                                                               \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        if (dtype == PARE_f32)                                                                     \
            PARE_ITERATOR_LAUNCH((kernel<float>), ##__VA_ARGS__);                                  \
        else if (dtype == PARE_f16)                                                                \
            PARE_ITERATOR_LAUNCH((kernel<__half>), ##__VA_ARGS__);                                 \
        else if (dtype == PARE_bf16)                                                               \
            PARE_ITERATOR_LAUNCH((kernel<__nv_bfloat16>), ##__VA_ARGS__);                          \
        else                                                                                       \
            other;                                                                                 \
        return cudaGetLastError();                                                                 \
    } while (0)

/* Says whether it was launched. */
template <class T>
static bool vec_launch(const pare_cuda_iterator *w, pare_cuda_binary op, cudaStream_t stream)
{
    enum { W = 16 / sizeof(T) };
    if (!pare_cuda_iterator_vectorizes(w, W)) return false;
    const dim3 grid = pare_cuda_grid(w->walk.count / W), block(PARE_CUDA_BLOCK);
    switch (op) {
#define GROUPS(op)                                                                                 \
    case op: PARE_LAUNCH_DEPENDENT((binary_vec<T, op>), grid, block, 0, stream, *w); return true;
        GROUPS(PARE_CUDA_add)
        GROUPS(PARE_CUDA_sub)
        GROUPS(PARE_CUDA_mul)
        GROUPS(PARE_CUDA_div)
#undef GROUPS
    default: return false;
    }
}

static cudaError_t binary_launch(const pare_cuda_iterator *w, pare_dtype dtype, pare_cuda_binary op,
                                 cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    const bool grouped = dtype == PARE_f32    ? vec_launch<float>(w, op, stream)
                         : dtype == PARE_f16  ? vec_launch<__half>(w, op, stream)
                         : dtype == PARE_bf16 ? vec_launch<__nv_bfloat16>(w, op, stream)
                                              : false;
    if (grouped) return cudaGetLastError();
    if (dtype == PARE_f64) {
        PARE_ITERATOR_LAUNCH(binary_each<double>, (int)op);
        return cudaGetLastError();
    }
    BY_FLOAT(binary_each, PARE_ITERATOR_LAUNCH(binary_ints, dtype, (int)op), (int)op);
}

/* Pow (15) of any two types of numbers, computed as the base's type asks. */
static cudaError_t power_launch(const pare_cuda_iterator *w, pare_dtype base, pare_dtype exponent,
                                cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    bool whole_base = base != PARE_f64 && !pare_type_is_float(base);
    if (whole_base && !pare_type_is_float(exponent))
        PARE_ITERATOR_LAUNCH(power_ints, base, exponent);
    else if (whole_base || base == PARE_f64)
        PARE_ITERATOR_LAUNCH(power_doubles, base, exponent);
    else
        PARE_ITERATOR_LAUNCH(power_floats, base, exponent);
    return cudaGetLastError();
}

/* y = min(max(x, *low), *high); low and high are on the device, NULL: no limit. */
static cudaError_t clip_launch(const pare_cuda_iterator *w, pare_dtype dtype, const void *low,
                               const void *high, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    if (pare_cuda_is_float(dtype))
        PARE_ITERATOR_LAUNCH_VEC(4, clip_floats<4>, clip_floats<1>, dtype, low, high);
    else if (dtype == PARE_f64)
        PARE_ITERATOR_LAUNCH_VEC(4, clip_doubles<4>, clip_doubles<1>,
                                 static_cast<const double *>(low),
                                 static_cast<const double *>(high));
    else
        PARE_ITERATOR_LAUNCH_VEC(4, clip_ints<4>, clip_ints<1>, dtype, low, high);
    return cudaGetLastError();
}

/* Operands: y, condition (bool), x, z; elements of `bytes` bytes. */
static cudaError_t where_launch(const pare_cuda_iterator *w, int bytes, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    switch (bytes) {
#define WHERE(T)                                                                                   \
    case sizeof(T):                                                                                \
        PARE_ITERATOR_LAUNCH_VEC(16 / sizeof(T), (where_each<T, 16 / sizeof(T)>),                  \
                                 (where_each<T, 1>));                                              \
        break;
        WHERE(uint8_t)
        WHERE(uint16_t)
        WHERE(uint32_t)
        WHERE(uint64_t)
#undef WHERE
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

/* y = (x + z + ...) / divisor over operands 1 to inputs, in float. begun: operand 1 is what an
   earlier launch left, f32; more: operand 0 is f32 and the next launch's operand 1. */
static cudaError_t sum_launch(const pare_cuda_iterator *w, pare_dtype dtype, int inputs, bool begun,
                              bool more, float divisor, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    PARE_ITERATOR_LAUNCH(sum_each, dtype, inputs, begun, more, divisor);
    return cudaGetLastError();
}

/* --- two inputs --- */

static bool numbers_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++)
        if (p->in[i].dtype != p->in[0].dtype) return false;
    return pare_cuda_is_number(p->in[0].dtype);
}

static bool binary_can(const pare_prep *p) { return numbers_can(p) && p->in_count == 2; }

static pare_status binary_run(const pare_call *c, pare_cuda_binary op)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, binary_launch, &w, c->in[0].dtype, op);
}

#define BINARY(fn)                                                                                 \
    static pare_status fn##_run(const pare_call *c) { return binary_run(c, PARE_CUDA_##fn); }      \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                     \
                                          .can = binary_can,                                       \
                                          .run = fn##_run,                                         \
                                          .flags = PARE_KERNEL_INPLACE_ANY | PARE_KERNEL_PARTS};   \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(prelu)

static pare_status mod_run(const pare_call *c)
{
    return binary_run(c, pare_node_int(c->node, "fmod", 0) ? PARE_CUDA_fmod : PARE_CUDA_mod);
}

static const pare_kernel cuda_mod = {
    .name = "cuda_mod", .can = binary_can, .run = mod_run, .flags = PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cuda_mod[] = {&cuda_mod, NULL};

static bool pow_can(const pare_prep *p)
{
    return pare_cuda_is_number(p->in[0].dtype) && pare_cuda_is_number(p->in[1].dtype);
}

static pare_status pow_run(const pare_call *c)
{
    pare_dtype base = c->in[0].dtype, exponent = c->in[1].dtype;
    if (base == exponent && pare_cuda_is_float(base)) return binary_run(c, PARE_CUDA_pow);
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, power_launch, &w, base, exponent);
}

static const pare_kernel cuda_pow = {.name = "cuda_pow", .can = pow_can, .run = pow_run};
const pare_kernel *const pare_cuda_pow[] = {&cuda_pow, NULL};

/* Min and Max (13) of any number of inputs, folded pairwise into the output, first to last. */
static pare_status many_run(const pare_call *c, pare_cuda_binary op)
{
    pare_view pair[2] = {c->in[0], c->in[c->in_count > 1 ? 1 : 0]};
    pare_call step = *c;
    step.in = pair;
    step.in_count = 2;
    PARE_TRY(binary_run(&step, op));
    for (int i = 2; i < c->in_count; i++) {
        pair[0] = c->out[0];
        pair[1] = c->in[i];
        PARE_TRY(binary_run(&step, op));
    }
    return PARE_OK;
}

#define MANY(fn)                                                                                   \
    static pare_status fn##_run(const pare_call *c) { return many_run(c, PARE_CUDA_##fn); }        \
    static const pare_kernel cuda_##fn = {                                                         \
        .name = "cuda_" #fn, .can = numbers_can, .run = fn##_run};                                 \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
MANY(min)
MANY(max)

/* Sum and Mean (13): up to four inputs a launch, the sum between launches kept in scratch as f32.
 */
enum { AT_ONCE = PARE_ITERATOR_OPERANDS - 1 };

static pare_status sum_prepare(pare_prep *p)
{
    if (p->in_count > AT_ONCE) p->scratch = sizeof(float) * (size_t)pare_view_count(&p->out[0]);
    return PARE_OK;
}

static pare_status sum_floats(const pare_call *c, float divisor)
{
    pare_view sum = c->out[0], wide[AT_ONCE];
    sum.data = c->scratch;
    for (int next = 0; next < c->in_count;) {
        const bool begun = next > 0;
        int inputs = begun;
        if (begun) wide[0] = sum;
        while (inputs < AT_ONCE && next < c->in_count)
            wide[inputs++] = pare_view_stretch(&c->in[next++], &c->out[0]);
        const bool more = next < c->in_count;
        const pare_view *all[PARE_ITERATOR_OPERANDS] = {more ? &sum : &c->out[0]};
        pare_cuda_iterator w = {.data = {all[0]->data}};
        for (int i = 0; i < inputs; i++) all[i + 1] = &wide[i], w.data[i + 1] = wide[i].data;
        pare_iterator_init(&w.walk, all, inputs + 1);
        PARE_TRY(PARE_CUDA_LAUNCH(c, sum_launch, &w, c->out[0].dtype, inputs, begun, more,
                                  more ? 1 : divisor));
    }
    return PARE_OK;
}

static bool floats_can(const pare_prep *p) { return pare_cuda_can_float(p, p->in_count); }

static bool sum_can(const pare_prep *p)
{
    return floats_can(p) || (numbers_can(p) && p->in_count > 1);
}

static pare_status sum_run(const pare_call *c)
{
    return pare_cuda_is_float(c->out[0].dtype) ? sum_floats(c, 1) : many_run(c, PARE_CUDA_add);
}

static pare_status mean_run(const pare_call *c) { return sum_floats(c, (float)c->in_count); }

static const pare_kernel cuda_sum = {
    .name = "cuda_sum", .can = sum_can, .prepare = sum_prepare, .run = sum_run};
static const pare_kernel cuda_mean = {
    .name = "cuda_mean", .can = floats_can, .prepare = sum_prepare, .run = mean_run};
const pare_kernel *const pare_cuda_sum[] = {&cuda_sum, NULL};
const pare_kernel *const pare_cuda_mean[] = {&cuda_mean, NULL};

/* --- Clip (13), Where (16) --- */

static bool clip_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count && i < 3; i++)
        if (p->in[i].dtype && (p->in[i].dtype != p->in[0].dtype || !pare_view_count(&p->in[i])))
            return false;
    return pare_cuda_is_number(p->in[0].dtype);
}

static const void *limit(const pare_call *c, int i)
{
    return c->in_count > i && c->in[i].dtype ? c->in[i].data : NULL;
}

static pare_status clip_run(const pare_call *c)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, clip_launch, &w, c->in[0].dtype, limit(c, 1), limit(c, 2));
}

static const pare_kernel cuda_clip = {.name = "cuda_clip",
                                      .can = clip_can,
                                      .run = clip_run,
                                      .flags = PARE_KERNEL_INPLACE | PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_clip[] = {&cuda_clip, NULL};

static bool where_can(const pare_prep *p)
{
    return p->in_count == 3 && p->in[0].dtype == PARE_bool && pare_cuda_bytes(p->in[1].dtype) > 0;
}

static pare_status where_run(const pare_call *c)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 3);
    return PARE_CUDA_LAUNCH(c, where_launch, &w, pare_cuda_bytes(c->out[0].dtype));
}

static const pare_kernel cuda_where = {.name = "cuda_where", .can = where_can, .run = where_run};
const pare_kernel *const pare_cuda_where[] = {&cuda_where, NULL};
