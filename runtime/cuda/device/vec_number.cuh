/* SPDX-License-Identifier: Apache-2.0 */
/* W neighbours whose type is known by number only (number.cuh), W 4 or 1, and the launch of a
   kernel for as many a thread as lie together. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_VEC_NUMBER_CUH
#define PARE_RUNTIME_CUDA_DEVICE_VEC_NUMBER_CUH

#include "runtime/cuda/device/number.cuh"
#include "runtime/cuda/device/vec.cuh"

/* Before loops that stay loops. */
#ifdef __CUDACC__
#define PARE_ROLLED _Pragma("unroll 1")
#else
#define PARE_ROLLED
#endif

SIMT_INLINE int64_t iterator_step(const pare_cuda_iterator &w, int operand)
{
    return w.walk.stride[operand][w.walk.rank - 1];
}

/* As vec_load and vec_store, by 16 bytes at a time. */
template <int W, typename T>
SIMT_INLINE void vec_load_long(const T *from, int64_t at, int64_t step, T to[W])
{
    enum { PART = sizeof(T) * W > 16 ? 16 / sizeof(T) : W };
    PARE_UNROLL for (int k = 0; k < W; k += PART) vec_load<PART>(from, at + k * step, step, to + k);
}

template <int W, typename T> SIMT_INLINE void vec_store_long(T *to, int64_t at, const T from[W])
{
    enum { PART = sizeof(T) * W > 16 ? 16 / sizeof(T) : W };
    PARE_UNROLL for (int k = 0; k < W; k += PART) vec_store<PART>(to, at + k, from + k);
}

template <int W, typename T, typename R>
SIMT_INLINE void vec_load_as(const void *data, int64_t at, int64_t step, R to[W])
{
    T of[W];
    vec_load_long<W>(static_cast<const T *>(data), at, step, of);
    PARE_UNROLL for (int k = 0; k < W; k++) to[k] = (R)of[k];
}

template <int W, typename T>
SIMT_INLINE void vec_store_ints_as(void *data, int64_t at, const int64_t v[W])
{
    T of[W];
    PARE_UNROLL for (int k = 0; k < W; k++) of[k] = (T)v[k];
    vec_store_long<W>(static_cast<T *>(data), at, of);
}

/* As pare_int_at. */
template <int W>
SIMT_INLINE void vec_load_ints(const void *data, pare_dtype type, int64_t at, int64_t step,
                               int64_t to[W])
{
    switch (type) {
    case PARE_s8: vec_load_as<W, int8_t>(data, at, step, to); break;
    case PARE_u8: vec_load_as<W, uint8_t>(data, at, step, to); break;
    case PARE_s16: vec_load_as<W, int16_t>(data, at, step, to); break;
    case PARE_u16: vec_load_as<W, uint16_t>(data, at, step, to); break;
    case PARE_s32: vec_load_as<W, int32_t>(data, at, step, to); break;
    case PARE_u32: vec_load_as<W, uint32_t>(data, at, step, to); break;
    case PARE_s64:
    case PARE_u64: vec_load_as<W, int64_t>(data, at, step, to); break;
    case PARE_bool:
        vec_load_as<W, uint8_t>(data, at, step, to);
        PARE_UNROLL for (int k = 0; k < W; k++) to[k] = to[k] != 0;
        break;
    default: PARE_UNROLL for (int k = 0; k < W; k++) to[k] = pare_int_at(data, type, at + k * step);
    }
}

/* As pare_int_store. */
template <int W>
SIMT_INLINE void vec_store_ints(void *data, pare_dtype type, int64_t at, int64_t v[W])
{
    switch (type) {
    case PARE_bool: PARE_UNROLL for (int k = 0; k < W; k++) v[k] = v[k] != 0; [[fallthrough]];
    case PARE_s8:
    case PARE_u8: vec_store_ints_as<W, uint8_t>(data, at, v); break;
    case PARE_s16:
    case PARE_u16: vec_store_ints_as<W, uint16_t>(data, at, v); break;
    case PARE_s32:
    case PARE_u32: vec_store_ints_as<W, uint32_t>(data, at, v); break;
    default: vec_store_long<W>(static_cast<int64_t *>(data), at, v);
    }
}

/* Of f32, f16 or bf16. */
template <int W>
SIMT_INLINE void vec_store_floats(void *data, pare_dtype type, int64_t at, const float v[W])
{
    if (W == 4)
        vec4_store(type, static_cast<char *>(data), at, v, 4, true);
    else
        PARE_UNROLL for (int k = 0; k < W; k++) pare_number_store(data, type, at + k, v[k]);
}

/* As pare_double_at and pare_double_store. */
template <int W>
SIMT_INLINE void vec_load_doubles(const void *data, pare_dtype type, int64_t at, int64_t step,
                                  double to[W])
{
    if (type == PARE_f64) {
        vec_load_long<W>(static_cast<const double *>(data), at, step, to);
        return;
    }
    float of[W];
    vec_load_floats<W>(data, type, at, step, of);
    PARE_UNROLL for (int k = 0; k < W; k++) to[k] = (double)of[k];
}

template <int W>
SIMT_INLINE void vec_store_doubles(void *data, pare_dtype type, int64_t at, const double v[W])
{
    if (type == PARE_f64) {
        vec_store_long<W>(static_cast<double *>(data), at, v);
        return;
    }
    float of[W];
    PARE_UNROLL for (int k = 0; k < W; k++) of[k] = (float)v[k];
    vec_store_floats<W>(data, type, at, of);
}

/* In a launcher of (const pare_cuda_iterator *w, ..., cudaStream_t stream): `wide`, for `width`
   neighbours a thread, where they are that, else `narrow`, for one. Both begin with
   pare_dependent_begin(). */
#define PARE_ITERATOR_LAUNCH_VEC(width, wide, narrow, ...)                                         \
    do {                                                                                           \
        if (pare_cuda_iterator_vectorizes(w, width))                                               \
            PARE_LAUNCH_DEPENDENT(wide, pare_cuda_grid(w->walk.count / (width)),                   \
                                  dim3(PARE_CUDA_BLOCK), 0, stream, *w, ##__VA_ARGS__);            \
        else                                                                                       \
            PARE_ITERATOR_LAUNCH(narrow, ##__VA_ARGS__);                                           \
    } while (0)

#endif
