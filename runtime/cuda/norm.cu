/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of InstanceNormalization 6, GroupNormalization 21, BatchNormalization 15,
   LpNormalization 1, and LRN 13: one thread an element of the merged walk.
   Statistics come from reduce.cu. Reads x once (LRN: its neighbours from cache), writes y once. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/norm.h"

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    center_each(pare_cuda_walk w, pare_dtype type)
{
    const double *stats = static_cast<const double *>(w.data[2]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[5];
        pare_walk_at<5>(w.walk, i, at);
        const float mean = (float)stats[at[2]], inverse = (float)stats[at[2] + 1];
        float v = (pare_number_at(w.data[1], type, at[1]) - mean) * inverse;
        v = v * pare_number_at(w.data[3], type, at[3]) + pare_number_at(w.data[4], type, at[4]);
        pare_number_store(w.data[0], type, at[0], v);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) channels_each(pare_cuda_channels c)
{
    PARE_CUDA_EACH (i, c.n) {
        double v[4];
        for (int k = 0; k < 4; k++) v[k] = (double)pare_number_at(c.in[k], c.type[k], i);
        const double factor = v[0] / sqrt(v[3] + (double)c.epsilon);
        c.factor[2 * i] = (float)factor;
        c.factor[2 * i + 1] = (float)(v[1] - v[2] * factor);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    affine_each(pare_cuda_walk w, pare_dtype type)
{
    const float *factor = static_cast<const float *>(w.data[2]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        float v = pare_number_at(w.data[1], type, at[1]) * factor[at[2]] + factor[at[2] + 1];
        pare_number_store(w.data[0], type, at[0], v);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    divide_each(pare_cuda_walk w, pare_dtype type)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        const float norm = (float)static_cast<const double *>(w.data[2])[at[2]];
        float v = norm != 0 ? pare_number_at(w.data[1], type, at[1]) / norm : 0;
        pare_number_store(w.data[0], type, at[0], v);
    }
}

/* One element a thread: no barrier follows the return. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    lrn_each(pare_cuda_walk w, pare_cuda_neighbours p)
{
    const int64_t i = (int64_t)blockIdx.x * PARE_CUDA_BLOCK + threadIdx.x;
    int64_t at[3];
    if (i >= w.walk.count) return;
    pare_walk_at<3>(w.walk, i, at);
    int64_t low = at[2] - p.before, high = at[2] + p.after;
    low = low < 0 ? 0 : low;
    high = high < p.channels ? high : p.channels - 1;
    double sum = 0;
    for (int64_t k = low; k <= high; k++) {
        float v = pare_number_at(w.data[1], p.dtype, at[1] + (k - at[2]) * p.stride);
        sum += (double)v * (double)v;
    }
    float v = pare_number_at(w.data[1], p.dtype, at[1]);
    pare_number_store(w.data[0], p.dtype, at[0], v / powf(p.bias + p.alpha * (float)sum, p.beta));
}

/* --- launchers --- */

extern "C" cudaError_t pare_cuda_center_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                               cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(center_each, w->walk.count, *w, dtype);
}

extern "C" cudaError_t pare_cuda_channels_launch(const pare_cuda_channels *c, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(channels_each, c->n, *c);
}

extern "C" cudaError_t pare_cuda_affine_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                               cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(affine_each, w->walk.count, *w, dtype);
}

extern "C" cudaError_t pare_cuda_divide_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                               cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(divide_each, w->walk.count, *w, dtype);
}

extern "C" cudaError_t pare_cuda_lrn_launch(const pare_cuda_walk *w,
                                            const pare_cuda_neighbours *lrn, cudaStream_t stream)
{
    const int64_t blocks = (w->walk.count + PARE_CUDA_BLOCK - 1) / PARE_CUDA_BLOCK;
    if (blocks == 0) return cudaSuccess;
    SIMT_LAUNCH(lrn_each, dim3((unsigned)blocks), dim3(PARE_CUDA_BLOCK), 0, stream, *w, *lrn);
    return cudaGetLastError();
}
