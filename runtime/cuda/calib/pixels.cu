// SPDX-License-Identifier: Apache-2.0
// Stored pixels to an input's floats: y[i] = table[i / inner % channels][x[place of i]], the place
// i itself or that in a transposed matrix. The table was made on the host, so that results are its
// bits. Bytes moved: a byte in and four out an element.
#include "runtime/cuda/calib/calib.h"
#include "runtime/cuda/device/common.cuh"

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    pixels_to_floats(float *y, const uint8_t *x, pare_pixels p, int64_t n)
{
    for (int64_t at = (int64_t)blockIdx.x * PARE_CUDA_BLOCK + threadIdx.x; at < n;
         at += (int64_t)gridDim.x * PARE_CUDA_BLOCK) {
        int64_t sample = at / p.count, i = at - sample * p.count, place = i;
        if (p.rows) {
            int64_t column = i / p.rows;
            place = (i - column * p.rows) * p.columns + column;
        }
        int64_t channel = i / p.inner % p.channels;
        y[at] = __ldg(p.table + channel * 256 + __ldg(x + sample * p.count + place));
    }
}

extern "C" cudaError_t pare_cuda_pixels_launch(float *y, const uint8_t *x, const pare_pixels *p,
                                               int64_t samples, cudaStream_t stream)
{
    const int64_t n = samples * p->count;
    if (n == 0) return cudaSuccess;
    SIMT_LAUNCH(pixels_to_floats, pare_cuda_grid(n), dim3(PARE_CUDA_BLOCK), 0, stream, y, x, *p, n);
    return cudaGetLastError();
}
