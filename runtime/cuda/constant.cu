/* SPDX-License-Identifier: Apache-2.0 */
/* Shape and Size (1 to 21), Range (11), EyeLike (9), Trilu (14): one thread an element. The
   distance from the diagonal is the offset of an operand with stride 1 along rows and -1 along
   columns. */
#include "runtime/cuda/constant.h"
#include "runtime/cuda/number.cuh"

static __global__ void numbers_each(int64_t *y, pare_cuda_numbers n)
{
    if ((int)threadIdx.x < n.count) y[threadIdx.x] = n.value[threadIdx.x];
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    range_each(void *y, int64_t count, pare_dtype type, const void *start, const void *delta)
{
    PARE_CUDA_EACH (i, count) {
        if (pare_is_float(type))
            pare_double_store(y, type, i,
                              pare_double_at(start, type, 0) +
                                  (double)i * pare_double_at(delta, type, 0));
        else
            pare_int_store(y, type, i,
                           (int64_t)((uint64_t)pare_int_at(start, type, 0) +
                                     (uint64_t)i * (uint64_t)pare_int_at(delta, type, 0)));
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    eye_each(pare_cuda_walk w, pare_dtype type, int64_t k)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        if (pare_is_float(type))
            pare_double_store(w.data[0], type, at[0], at[1] == k);
        else
            pare_int_store(w.data[0], type, at[0], at[1] == k);
    }
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    trilu_each(pare_cuda_walk w, bool upper, const void *diagonal, pare_dtype type)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    int64_t k = diagonal ? pare_int_at(diagonal, type, 0) : 0;
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        y[at[0]] = (upper ? at[2] >= k : at[2] <= k) ? x[at[1]] : T(0);
    }
}

/* --- launchers --- */

extern "C" cudaError_t pare_cuda_numbers_launch(int64_t *y, const pare_cuda_numbers *n,
                                                cudaStream_t stream)
{
    if (n->count == 0) return cudaSuccess;
    SIMT_LAUNCH(numbers_each, dim3(1), dim3(32), 0, stream, y, *n);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_range_launch(void *y, int64_t count, pare_dtype dtype,
                                              const void *start, const void *delta,
                                              cudaStream_t stream)
{
    if (count == 0) return cudaSuccess;
    SIMT_LAUNCH(range_each, pare_cuda_grid(count), dim3(PARE_CUDA_BLOCK), 0, stream, y, count,
                dtype, start, delta);
    return cudaGetLastError();
}

#define LAUNCH(kernel, ...)                                                                        \
    SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,       \
                __VA_ARGS__)

extern "C" cudaError_t pare_cuda_eye_launch(const pare_cuda_walk *w, pare_dtype dtype, int64_t k,
                                            cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    LAUNCH(eye_each, dtype, k);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_trilu_launch(const pare_cuda_walk *w, int bytes, bool upper,
                                              const void *k, pare_dtype k_type, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    switch (bytes) {
    case 1: LAUNCH(trilu_each<uint8_t>, upper, k, k_type); break;
    case 2: LAUNCH(trilu_each<uint16_t>, upper, k, k_type); break;
    case 4: LAUNCH(trilu_each<uint32_t>, upper, k, k_type); break;
    default: LAUNCH(trilu_each<uint64_t>, upper, k, k_type);
    }
    return cudaGetLastError();
}
