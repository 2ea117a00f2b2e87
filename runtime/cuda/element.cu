/* SPDX-License-Identifier: Apache-2.0 */
/* y[i] = f(x[i], ...): one thread an element of a grid-stride loop over the merged walk. Reads each
   operand once, writes the output once. The function is chosen inside the kernel by a number that
   all threads share, so that a type needs one kernel, not one per function. */
#include "runtime/cuda/element.h"
#include "runtime/cuda/number.cuh"

/* Comparisons that let NaN through. */
SIMT_INLINE float hold(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

SIMT_INLINE float unary(int op, float x, float alpha, float beta)
{
    switch (op) {
#define X(name, a, b, expr)                                                                        \
    case PARE_CUDA_##name: return expr;
        PARE_CUDA_UNARY(X)
#undef X
    }
    return x;
}

SIMT_INLINE int64_t unary(int op, int64_t x, bool wide)
{
    switch (op) {
#define X(name, expr)                                                                              \
    case PARE_CUDA_##name: return expr;
        PARE_CUDA_UNARY_INT(X)
#undef X
    }
    return x;
}

SIMT_INLINE float floor_of(float x) { return floorf(x); }
SIMT_INLINE double floor_of(double x) { return floor(x); }
SIMT_INLINE float fmod_of(float x, float y) { return fmodf(x, y); }
SIMT_INLINE double fmod_of(double x, double y) { return fmod(x, y); }
SIMT_INLINE float pow_of(float x, float y) { return powf(x, y); }
SIMT_INLINE double pow_of(double x, double y) { return pow(x, y); }

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

/* Quotient, or remainder, of u64. */
SIMT_INLINE int64_t whole(int64_t x, int64_t y, bool rest)
{
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    return b == 0 ? 0 : (int64_t)(rest ? a % b : a / b);
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
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_each(pare_cuda_walk w, int op, float alpha, float beta)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        pare_store_f32(&y[at[0]], unary(op, pare_to_f32(x[at[1]]), alpha, beta));
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) binary_each(pare_cuda_walk w, int op)
{
    const T *a = static_cast<const T *>(w.data[1]), *b = static_cast<const T *>(w.data[2]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        pare_store_f32(&y[at[0]], binary(op, load(a, at[1]), load(b, at[2])));
    }
}

/* Integers of any type. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_ints(pare_cuda_walk w, pare_dtype type, int op)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        pare_int_store(w.data[0], type, at[0],
                       unary(op, pare_int_at(w.data[1], type, at[1]), type == PARE_u64));
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    binary_ints(pare_cuda_walk w, pare_dtype type, int op)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
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
    power_ints(pare_cuda_walk w, pare_dtype base, pare_dtype exponent)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        pare_int_store(w.data[0], base, at[0],
                       pare_int_power(pare_int_at(w.data[1], base, at[1]),
                                      pare_int_at(w.data[2], exponent, at[2])));
    }
}

/* Short floats compute in float. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    power_floats(pare_cuda_walk w, pare_dtype base, pare_dtype exponent)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        float v =
            powf(pare_number_at(w.data[1], base, at[1]), (float)any_at(w.data[2], exponent, at[2]));
        pare_number_store(w.data[0], base, at[0], v);
    }
}

/* f64, and integers to the power of floats. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    power_doubles(pare_cuda_walk w, pare_dtype base, pare_dtype exponent)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        double v = pow(any_at(w.data[1], base, at[1]), any_at(w.data[2], exponent, at[2]));
        if (base == PARE_f64)
            static_cast<double *>(w.data[0])[at[0]] = v;
        else
            pare_int_store(w.data[0], base, at[0], pare_int_of(v, base));
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    clip_each(pare_cuda_walk w, const T *low, const T *high)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        float v = pare_to_f32(x[at[1]]);
        if (low && v < pare_to_f32(*low)) v = pare_to_f32(*low);
        if (high && v > pare_to_f32(*high)) v = pare_to_f32(*high);
        pare_store_f32(&y[at[0]], v);
    }
}

/* Of every type the one above does not know. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    clip_any(pare_cuda_walk w, pare_dtype type, const void *low, const void *high)
{
    int64_t turn = type == PARE_u64 ? INT64_MIN : 0;
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        if (type == PARE_f64) {
            double v = pare_double_at(w.data[1], type, at[1]);
            if (low && v < pare_double_at(low, type, 0)) v = pare_double_at(low, type, 0);
            if (high && v > pare_double_at(high, type, 0)) v = pare_double_at(high, type, 0);
            pare_double_store(w.data[0], type, at[0], v);
            continue;
        }
        int64_t v = pare_int_at(w.data[1], type, at[1]) ^ turn;
        if (low && v < (pare_int_at(low, type, 0) ^ turn)) v = pare_int_at(low, type, 0) ^ turn;
        if (high && v > (pare_int_at(high, type, 0) ^ turn)) v = pare_int_at(high, type, 0) ^ turn;
        pare_int_store(w.data[0], type, at[0], v ^ turn);
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) where_each(pare_cuda_walk w)
{
    const uint8_t *condition = static_cast<const uint8_t *>(w.data[1]);
    const T *a = static_cast<const T *>(w.data[2]), *b = static_cast<const T *>(w.data[3]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_walk_at<4>(w.walk, i, at);
        y[at[0]] = condition[at[1]] ? a[at[2]] : b[at[3]];
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    sum_each(pare_cuda_walk w, pare_dtype type, int inputs, bool begun, bool more, float divisor)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[PARE_WALK_OPERANDS];
        pare_walk_at<PARE_WALK_OPERANDS>(w.walk, i, at);
        float sum = pare_number_at(w.data[1], begun ? PARE_f32 : type, at[1]);
        for (int k = 2; k <= inputs; k++) sum += pare_number_at(w.data[k], type, at[k]);
        pare_number_store(w.data[0], more ? PARE_f32 : type, at[0], sum / divisor);
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) copy_each(pare_cuda_walk w)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        y[at[0]] = x[at[1]];
    }
}

/* --- launchers --- */

#define LAUNCH(kernel, ...)                                                                        \
    SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,       \
                ##__VA_ARGS__)

/* One of three kernels by float type, else the last statement. */
#define BY_FLOAT(kernel, other, ...)                                                               \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        if (dtype == PARE_f32)                                                                     \
            LAUNCH((kernel<float>), ##__VA_ARGS__);                                                \
        else if (dtype == PARE_f16)                                                                \
            LAUNCH((kernel<__half>), ##__VA_ARGS__);                                               \
        else if (dtype == PARE_bf16)                                                               \
            LAUNCH((kernel<__nv_bfloat16>), ##__VA_ARGS__);                                        \
        else                                                                                       \
            other;                                                                                 \
        return cudaGetLastError();                                                                 \
    } while (0)

/* One of four by the size of an element. */
#define BY_BYTES(kernel)                                                                           \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        if (bytes == 1)                                                                            \
            LAUNCH((kernel<uint8_t>));                                                             \
        else if (bytes == 2)                                                                       \
            LAUNCH((kernel<uint16_t>));                                                            \
        else if (bytes == 4)                                                                       \
            LAUNCH((kernel<uint32_t>));                                                            \
        else if (bytes == 8)                                                                       \
            LAUNCH((kernel<uint64_t>));                                                            \
        else                                                                                       \
            return cudaErrorInvalidValue;                                                          \
        return cudaGetLastError();                                                                 \
    } while (0)

extern "C" cudaError_t pare_cuda_unary_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                              pare_cuda_unary op, float alpha, float beta,
                                              cudaStream_t stream)
{
    BY_FLOAT(unary_each, LAUNCH(unary_ints, dtype, (int)op), (int)op, alpha, beta);
}

extern "C" cudaError_t pare_cuda_binary_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                               pare_cuda_binary op, cudaStream_t stream)
{
    if (w->walk.count != 0 && dtype == PARE_f64) {
        LAUNCH(binary_each<double>, (int)op);
        return cudaGetLastError();
    }
    BY_FLOAT(binary_each, LAUNCH(binary_ints, dtype, (int)op), (int)op);
}

extern "C" cudaError_t pare_cuda_power_launch(const pare_cuda_walk *w, pare_dtype base,
                                              pare_dtype exponent, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    bool whole_base = base != PARE_f64 && !pare_type_is_float(base);
    if (whole_base && !pare_type_is_float(exponent))
        LAUNCH(power_ints, base, exponent);
    else if (whole_base || base == PARE_f64)
        LAUNCH(power_doubles, base, exponent);
    else
        LAUNCH(power_floats, base, exponent);
    return cudaGetLastError();
}

template <class T>
static cudaError_t clip(const pare_cuda_walk *w, const void *low, const void *high,
                        cudaStream_t stream)
{
    LAUNCH(clip_each<T>, static_cast<const T *>(low), static_cast<const T *>(high));
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_clip_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                             const void *low, const void *high, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    switch (dtype) {
    case PARE_f32: return clip<float>(w, low, high, stream);
    case PARE_f16: return clip<__half>(w, low, high, stream);
    case PARE_bf16: return clip<__nv_bfloat16>(w, low, high, stream);
    default: LAUNCH(clip_any, dtype, low, high); return cudaGetLastError();
    }
}

extern "C" cudaError_t pare_cuda_where_launch(const pare_cuda_walk *w, int bytes,
                                              cudaStream_t stream)
{
    BY_BYTES(where_each);
}

extern "C" cudaError_t pare_cuda_sum_launch(const pare_cuda_walk *w, pare_dtype dtype, int inputs,
                                            bool begun, bool more, float divisor,
                                            cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    LAUNCH(sum_each, dtype, inputs, begun, more, divisor);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_copy_launch(const pare_cuda_walk *w, int bytes,
                                             cudaStream_t stream)
{
    BY_BYTES(copy_each);
}
