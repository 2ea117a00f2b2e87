/* SPDX-License-Identifier: Apache-2.0 */
/* One warp a row, lanes striding through it, partial results joined by shuffles.
     softmax       y = e^(x - top) / sum e^(x - top); log form x - top - log sum
     layer norm    y = (x - mean) / sqrt(variance + epsilon) * scale + bias; the variance from the
                   differences to the mean
   A row is read three times, the second and third time from cache, and written once. Sums are kept
   in double per lane, so that they agree with the CPU's to the last bits of a float. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/rows.h"

enum { WARPS = 4 };

SIMT_INLINE float warp_max(float v)
{
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, v, d);
        v = other > v || other != other ? other : v; /* NaN wins */
    }
    return v;
}

SIMT_INLINE int64_t row_start(const pare_cuda_rows &r, int64_t row)
{
    int64_t outer = row / r.inner;
    return outer * r.outer_step + (row - outer * r.inner);
}

static __global__ void __launch_bounds__(WARPS * 32) softmax_rows(pare_cuda_rows r, bool log_form)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= r.rows) return; /* a whole warp, and no barrier follows */
    const int64_t at = row_start(r, row);
    float top = -INFINITY;
    for (int64_t i = lane; i < r.n; i += 32) {
        float v = pare_number_at(r.x, r.dtype, at + i * r.step);
        top = v > top || v != v ? v : top;
    }
    top = warp_max(top);
    double sum = 0;
    for (int64_t i = lane; i < r.n; i += 32)
        sum += (double)expf(pare_number_at(r.x, r.dtype, at + i * r.step) - top);
    sum = pare_lanes_sum(sum);
    const float total = (float)sum, shift = log_form ? (float)log(sum) : 0;
    for (int64_t i = lane; i < r.n; i += 32) {
        float v = pare_number_at(r.x, r.dtype, at + i * r.step) - top;
        pare_number_store(r.y, r.dtype, at + i * r.step, log_form ? v - shift : expf(v) / total);
    }
}

static __global__ void __launch_bounds__(WARPS * 32)
    layer_norm_rows(pare_cuda_rows r, const void *scale, const void *bias, float epsilon,
                    float *mean_out, float *inverse_out)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= r.rows) return;
    const int64_t at = row_start(r, row);
    double sum = 0, squares = 0;
    for (int64_t i = lane; i < r.n; i += 32) sum += (double)pare_number_at(r.x, r.dtype, at + i);
    const double mean = pare_lanes_sum(sum) / (double)r.n;
    for (int64_t i = lane; i < r.n; i += 32) {
        double d = (double)pare_number_at(r.x, r.dtype, at + i) - mean;
        squares += d * d;
    }
    const double inverse = 1 / sqrt(pare_lanes_sum(squares) / (double)r.n + (double)epsilon);
    const float m = (float)mean, f = (float)inverse;
    for (int64_t i = lane; i < r.n; i += 32) {
        float v =
            (pare_number_at(r.x, r.dtype, at + i) - m) * f * pare_number_at(scale, r.dtype, i);
        if (bias) v += pare_number_at(bias, r.dtype, i);
        pare_number_store(r.y, r.dtype, at + i, v);
    }
    if (lane == 0 && mean_out) mean_out[row] = m;
    if (lane == 0 && inverse_out) inverse_out[row] = f;
}

static dim3 grid_of(const pare_cuda_rows *r)
{
    return dim3((unsigned)((r->rows + WARPS - 1) / WARPS));
}

extern "C" cudaError_t pare_cuda_softmax_launch(const pare_cuda_rows *r, bool log_form,
                                                cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    SIMT_LAUNCH(softmax_rows, grid_of(r), dim3(WARPS * 32), 0, stream, *r, log_form);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_layer_norm_launch(const pare_cuda_rows *r, const void *scale,
                                                   const void *bias, float epsilon, float *mean,
                                                   float *inverse, cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    SIMT_LAUNCH(layer_norm_rows, grid_of(r), dim3(WARPS * 32), 0, stream, *r, scale, bias, epsilon,
                mean, inverse);
    return cudaGetLastError();
}
