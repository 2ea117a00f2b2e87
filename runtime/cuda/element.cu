/* SPDX-License-Identifier: Apache-2.0 */
/* y[i] = f(x[i], ...): one thread an element of a grid-stride loop over the merged walk. Reads each
   operand once, writes the output once. The function is chosen inside the kernel by a number that all
   threads share, so that a type needs one kernel, not one per function. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/element.h"

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

SIMT_INLINE float binary(int op, float x, float y)
{
    switch (op) {
#define X(name, expr)                                                                              \
    case PARE_CUDA_##name: return expr;
        PARE_CUDA_BINARY(X)
#undef X
    }
    return x;
}

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
        pare_store_f32(&y[at[0]], binary(op, pare_to_f32(a[at[1]]), pare_to_f32(b[at[2]])));
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

/* One of three kernels by float type. */
#define BY_FLOAT(kernel, ...)                                                                      \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        if (dtype == PARE_f32)                                                                     \
            LAUNCH((kernel<float>), ##__VA_ARGS__);                                                \
        else if (dtype == PARE_f16)                                                                \
            LAUNCH((kernel<__half>), ##__VA_ARGS__);                                               \
        else if (dtype == PARE_bf16)                                                               \
            LAUNCH((kernel<__nv_bfloat16>), ##__VA_ARGS__);                                        \
        else                                                                                       \
            return cudaErrorInvalidValue;                                                          \
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
    BY_FLOAT(unary_each, (int)op, alpha, beta);
}

extern "C" cudaError_t pare_cuda_binary_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                               pare_cuda_binary op, cudaStream_t stream)
{
    BY_FLOAT(binary_each, (int)op);
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
    default: return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t pare_cuda_where_launch(const pare_cuda_walk *w, int bytes,
                                              cudaStream_t stream)
{
    BY_BYTES(where_each);
}

extern "C" cudaError_t pare_cuda_copy_launch(const pare_cuda_walk *w, int bytes,
                                             cudaStream_t stream)
{
    BY_BYTES(copy_each);
}
