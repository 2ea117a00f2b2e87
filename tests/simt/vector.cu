// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels for tests of the runtime.
#include "kernels.h"
#include "runtime/cuda/device/simt.h"

static __global__ void fill(float *y, int n, float value)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = value;
}

static __global__ void axpy(float *y, const float *x, int n, float a)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}

static __global__ void wide(int *y, int words)
{
    SIMT_DYN_SHARED(int, room);
    for (int i = (int)threadIdx.x; i < words; i += (int)blockDim.x) room[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *y = room[words - 1];
}

static __global__ void shape(int *y)
{
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
        atomicAdd(y, (int)(blockDim.x * blockDim.y * blockDim.z));
}

static __global__ void last_block(const int *x, int n, int *parts, unsigned *counter, int *sum)
{
    SIMT_SHARED(int, total, [1]);
    SIMT_SHARED(int, last, [1]);
    if (threadIdx.x == 0) *total = 0;
    __syncthreads();
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        atomicAdd(total, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = *total;
        __threadfence();
        *last = atomicAdd(counter, 1u) == gridDim.x - 1;
        if (*last) simt_acquire_grid();
    }
    __syncthreads();
    if (!*last || threadIdx.x) return;
    int all = 0;
    for (int i = 0; i < (int)gridDim.x; i++) all += parts[i];
    *sum = all;
}

extern "C" cudaError_t simt_test_fill(float *y, int n, float value, cudaStream_t stream)
{
    SIMT_LAUNCH(fill, dim3((unsigned)(n + 63) / 64), dim3(64), 0, stream, y, n, value);
    return cudaGetLastError();
}

extern "C" cudaError_t simt_test_axpy(float *y, const float *x, int n, float a, cudaStream_t stream)
{
    SIMT_LAUNCH(axpy, dim3((unsigned)(n + 63) / 64), dim3(64), 0, stream, y, x, n, a);
    return cudaGetLastError();
}

extern "C" cudaError_t simt_test_wide(int *y, int words, int allow, cudaStream_t stream)
{
    size_t bytes = (size_t)words * sizeof(int);
    cudaError_t error = allow ? SIMT_ALLOW_SHARED(wide, bytes) : cudaSuccess;
    if (error) return error;
    SIMT_LAUNCH(wide, dim3(1), dim3(64), bytes, stream, y, words);
    return cudaGetLastError();
}

extern "C" cudaError_t simt_test_shape(int *y, dim3 grid, dim3 block, cudaStream_t stream)
{
    SIMT_LAUNCH(shape, grid, block, 0, stream, y);
    return cudaGetLastError();
}

extern "C" cudaError_t simt_test_last_block(const int *x, int n, int blocks, int *parts,
                                            unsigned *counter, int *sum, cudaStream_t stream)
{
    SIMT_LAUNCH(last_block, dim3((unsigned)blocks), dim3(64), 0, stream, x, n, parts, counter, sum);
    return cudaGetLastError();
}
