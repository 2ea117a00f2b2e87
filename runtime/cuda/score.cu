// SPDX-License-Identifier: Apache-2.0
// Sums over the weights of channels and distances between filters, in the host's order, in double.
// A unit's sum is one thread's, a distance, too: tiles of 16 by 16 filters come through shared
// memory 32 numbers at a time.
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/score.h"

enum { SIDE = 16, DEPTH = 32, THREADS = SIDE * SIDE, LINE = 128 };

static __global__ void __launch_bounds__(LINE)
    sum_units(double *sum, const float *x, pare_score_units u)
{
    const int64_t unit = (int64_t)blockIdx.x * LINE + threadIdx.x, each = u.outer / u.parts;
    if (unit >= u.parts * u.dim) return;
    const int64_t part = unit / u.dim, d = unit - part * u.dim;
    double all = sum[unit];
    for (int64_t o = part * each; o < (part + 1) * each; o++) {
        const float *from = x + (o * u.dim + d) * u.inner;
        double some = 0;
        for (int64_t i = 0; i < u.inner; i++) {
            const double v = (double)from[i];
            some += u.squares ? v * v : fabs(v);
        }
        all += some;
    }
    sum[unit] = all;
}

// distance (rows from `first` on, count); 0 of a row to itself and between parts.
static __global__ void __launch_bounds__(THREADS)
    measure(double *distance, const float *rows, const int *part, int first, int count,
            int64_t width)
{
    SIMT_SHARED(float, as, [SIDE][DEPTH + 1]);
    SIMT_SHARED(float, bs, [SIDE][DEPTH + 1]);
    const int t = (int)threadIdx.x, across = t % SIDE, down = t / SIDE;
    const int a0 = first + (int)blockIdx.y * SIDE, b0 = (int)blockIdx.x * SIDE;
    const int a = a0 + down, b = b0 + across;
    double sum = 0;
    for (int64_t k = 0; k < width; k += DEPTH) {
        for (int i = t; i < SIDE * DEPTH; i += THREADS) {
            const int r = i / DEPTH, c = i % DEPTH;
            as[r][c] = a0 + r < count && k + c < width ? rows[(a0 + r) * width + k + c] : 0;
            bs[r][c] = b0 + r < count && k + c < width ? rows[(b0 + r) * width + k + c] : 0;
        }
        __syncthreads();
        const int n = width - k < DEPTH ? (int)(width - k) : DEPTH;
        for (int c = 0; c < n; c++) {
            const double d = (double)as[down][c] - (double)bs[across][c];
            sum += d * d;
        }
        __syncthreads();
    }
    if (a < count && b < count)
        distance[(int64_t)(a - first) * count + b] = a != b && part[a] == part[b] ? sqrt(sum) : 0;
}

static __global__ void __launch_bounds__(LINE)
    add_up(double *sum, const double *distance, int first, int rows, int count)
{
    const int a = (int)(blockIdx.x * LINE + threadIdx.x);
    if (a >= rows) return;
    double all = sum[first + a];
    for (int b = 0; b < count; b++) all += distance[(int64_t)a * count + b];
    sum[first + a] = all;
}

static unsigned blocks(int64_t n, int each) { return (unsigned)((n + each - 1) / each); }

extern "C" cudaError_t pare_cuda_units_launch(double *sum, const float *x,
                                              const pare_score_units *u, cudaStream_t stream)
{
    SIMT_LAUNCH(sum_units, dim3(blocks(u->parts * u->dim, LINE)), dim3(LINE), 0, stream, sum, x,
                *u);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_distances_launch(double *sum, const float *rows, const int *part,
                                                  int count, int64_t width, double *distance,
                                                  cudaStream_t stream)
{
    for (int first = 0; first < count; first += PARE_CUDA_SCORE_ROWS) {
        const int some =
            count - first < PARE_CUDA_SCORE_ROWS ? count - first : PARE_CUDA_SCORE_ROWS;
        SIMT_LAUNCH(measure, dim3(blocks(count, SIDE), blocks(some, SIDE)), dim3(THREADS), 0,
                    stream, distance, rows, part, first, count, width);
        SIMT_LAUNCH(add_up, dim3(blocks(some, LINE)), dim3(LINE), 0, stream, sum, distance, first,
                    some, count);
    }
    return cudaGetLastError();
}
