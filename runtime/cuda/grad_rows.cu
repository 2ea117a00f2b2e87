/* SPDX-License-Identifier: Apache-2.0 */
/* One warp a row, lanes striding through it, sums in double joined by shuffles; formulas of
   cpu/norm_grad.c and cpu/loss.c. Losses of rows are added up by one warp, whatever ran when.
 */
#include "runtime/cuda/fault.cuh"
#include "runtime/cuda/grad_rows.h"
#include "runtime/cuda/number.cuh"

enum { WARPS = 4 };

/* The warp's row, or -1 behind the last: a whole warp then has nothing to do. */
SIMT_INLINE int64_t row_of(int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    return row < rows ? row : -1;
}

static __global__ void __launch_bounds__(WARPS * 32)
    softmax_grad_rows(pare_cuda_rows r, const void *dy, bool log_form)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(r.rows);
    if (row < 0) return;
    const int64_t outer = row / r.inner, at = outer * r.outer_step + (row - outer * r.inner);
    double sum = 0;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double d = (double)pare_number_at(dy, r.dtype, at + i * r.step);
        sum += log_form ? d : d * (double)pare_number_at(r.x, r.dtype, at + i * r.step);
    }
    const float s = (float)pare_lanes_sum(sum);
    for (int64_t i = lane; i < r.n; i += 32) {
        const float d = pare_number_at(dy, r.dtype, at + i * r.step),
                    y = pare_number_at(r.x, r.dtype, at + i * r.step);
        pare_number_store(r.y, r.dtype, at + i * r.step, log_form ? d - expf(y) * s : y * (d - s));
    }
}

static __global__ void __launch_bounds__(WARPS * 32)
    layer_norm_grad_rows(pare_cuda_rows r, const void *dy, const void *scale, double epsilon,
                         double *stats)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(r.rows), at = row * r.n;
    if (row < 0) return;
    double sum = 0, squares = 0, g_sum = 0, gx_sum = 0;
    for (int64_t i = lane; i < r.n; i += 32) sum += (double)pare_number_at(r.x, r.dtype, at + i);
    const double mean = pare_lanes_sum(sum) / (double)r.n;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double d = (double)pare_number_at(r.x, r.dtype, at + i) - mean;
        squares += d * d;
    }
    const double inv = 1 / sqrt(pare_lanes_sum(squares) / (double)r.n + epsilon);
    if (lane == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = inv;
    }
    if (!r.y) return;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double norm = ((double)pare_number_at(r.x, r.dtype, at + i) - mean) * inv;
        const double g =
            (double)pare_number_at(dy, r.dtype, at + i) * (double)pare_number_at(scale, r.dtype, i);
        g_sum += g;
        gx_sum += g * norm;
    }
    g_sum = pare_lanes_sum(g_sum) / (double)r.n;
    gx_sum = pare_lanes_sum(gx_sum) / (double)r.n;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double norm = ((double)pare_number_at(r.x, r.dtype, at + i) - mean) * inv;
        const double g =
            (double)pare_number_at(dy, r.dtype, at + i) * (double)pare_number_at(scale, r.dtype, i);
        pare_number_store(r.y, r.dtype, at + i, (float)(inv * (g - g_sum - norm * gx_sum)));
    }
}

/* --- losses --- */

/* A row's largest number and where it first is. */
typedef struct largest {
    float v;
    int64_t at;
} largest;

SIMT_INLINE largest largest_of(const void *x, pare_dtype type, int64_t from, int64_t n)
{
    largest l = {-INFINITY, n};
    for (int64_t i = (int)threadIdx.x & 31; i < n; i += 32) {
        const float v = pare_number_at(x, type, from + i);
        if (v > l.v || l.at == n) l.v = v, l.at = i;
    }
    for (int d = 16; d; d >>= 1) {
        const float v = __shfl_xor_sync(0xffffffffu, l.v, d);
        const int64_t at = __shfl_xor_sync(0xffffffffu, l.at, d);
        if (at < n && (l.at == n || v > l.v || (v == l.v && at < l.at))) l.v = v, l.at = at;
    }
    return l;
}

/* Of e^((x - top) / temperature), in each lane. */
SIMT_INLINE double exponents_sum(const void *x, pare_dtype type, int64_t from, int64_t n, float top,
                                 double temperature)
{
    double sum = 0;
    for (int64_t i = (int)threadIdx.x & 31; i < n; i += 32)
        sum += exp(((double)pare_number_at(x, type, from + i) - (double)top) / temperature);
    return pare_lanes_sum(sum);
}

static __global__ void __launch_bounds__(WARPS * 32) softmax_kl_rows(pare_cuda_loss l)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(l.rows), at = row * l.n;
    if (row < 0) return;
    const float top_s = largest_of(l.x, l.dtype, at, l.n).v,
                top_t = largest_of(l.teacher, l.dtype, at, l.n).v;
    const double ss = exponents_sum(l.x, l.dtype, at, l.n, top_s, l.temperature),
                 us = exponents_sum(l.teacher, l.dtype, at, l.n, top_t, l.temperature);
    const double factor = l.temperature / (double)l.rows;
    double kl = 0;
    for (int64_t i = lane; i < l.n; i += 32) {
        const double s = ((double)pare_number_at(l.x, l.dtype, at + i) - (double)top_s) /
                         l.temperature,
                     t = ((double)pare_number_at(l.teacher, l.dtype, at + i) - (double)top_t) /
                         l.temperature,
                     p = exp(t) / us;
        if (p > 0) kl += p * (t - s);
        if (l.dx) pare_number_store(l.dx, l.dtype, at + i, (float)((exp(s) / ss - p) * factor));
    }
    kl = pare_lanes_sum(kl);
    if (lane == 0) l.part[row] = kl - log(us) + log(ss);
}

static __global__ void __launch_bounds__(WARPS * 32) cross_entropy_rows(pare_cuda_loss l)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(l.rows), at = row * l.n;
    if (row < 0) return;
    const largest top = largest_of(l.x, l.dtype, at, l.n);
    int label = (int)top.at; /* fits: loss_can */
    if (l.labels) {
        const int64_t given = pare_int_at(l.labels, l.label_type, row * l.apart);
        const bool inside = given >= 0 && given < l.n;
        if (!inside && lane == 0) pare_fault_note(l.fault, given);
        label = inside ? (int)given : 0;
    }
    const double sum = exponents_sum(l.x, l.dtype, at, l.n, top.v, 1);
    if (lane == 0)
        l.part[row] = (double)top.v + log(sum) - (double)pare_number_at(l.x, l.dtype, at + label);
    if (!l.dx) return;
    const double share = l.part_of_mean / sum;
    for (int i = lane; i < (int)l.n; i += 32) {
        const double e = exp((double)pare_number_at(l.x, l.dtype, at + i) - (double)top.v);
        pare_number_store(l.dx, l.dtype, at + i,
                          (float)(e * share - (i == label ? l.part_of_mean : 0)));
    }
}

/* The mean of the rows, times factor. */
static __global__ void __launch_bounds__(32) join_rows(pare_cuda_loss l, double factor)
{
    double sum = 0;
    for (int64_t r = threadIdx.x; r < l.rows; r += 32) sum += l.part[r];
    sum = pare_lanes_sum(sum);
    if (threadIdx.x == 0)
        pare_number_store(l.loss, l.dtype, 0, (float)(factor * sum / (double)l.rows));
}

/* --- launchers --- */

static dim3 grid_of(int64_t rows) { return dim3((unsigned)((rows + WARPS - 1) / WARPS)); }

extern "C" cudaError_t pare_cuda_softmax_grad_launch(const pare_cuda_rows *r, const void *dy,
                                                     bool log_form, cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    SIMT_LAUNCH(softmax_grad_rows, grid_of(r->rows), dim3(WARPS * 32), 0, stream, *r, dy, log_form);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_layer_norm_grad_launch(const pare_cuda_rows *r, const void *dy,
                                                        const void *scale, double epsilon,
                                                        double *stats, cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    SIMT_LAUNCH(layer_norm_grad_rows, grid_of(r->rows), dim3(WARPS * 32), 0, stream, *r, dy, scale,
                epsilon, stats);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_softmax_kl_launch(const pare_cuda_loss *l, cudaStream_t stream)
{
    if (l->rows) SIMT_LAUNCH(softmax_kl_rows, grid_of(l->rows), dim3(WARPS * 32), 0, stream, *l);
    SIMT_LAUNCH(join_rows, dim3(1), dim3(32), 0, stream, *l, l->temperature * l->temperature);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_cross_entropy_launch(const pare_cuda_loss *l, cudaStream_t stream)
{
    if (l->rows) SIMT_LAUNCH(cross_entropy_rows, grid_of(l->rows), dim3(WARPS * 32), 0, stream, *l);
    SIMT_LAUNCH(join_rows, dim3(1), dim3(32), 0, stream, *l, 1.0);
    return cudaGetLastError();
}
