// SPDX-License-Identifier: Apache-2.0
// Sums and largest magnitudes of channels, in the order of calib/channels.c, so that every bit is
// as there: a sample's values in double, one after the other in logical order, or, where a
// channel's values are in a row, in LANES sums that are added up in order; then as a whole number
// of 2^-40 in 128 bits. A channel is one thread's (LANES threads'), so that no atomics are needed
// but on `lost`; the stream keeps additions apart. Bytes moved: the values once.
#include "runtime/cuda/calib/calib.h"
#include "runtime/cuda/device/common.cuh"

enum { LANES = 16, IN_ORDER = 32, IN_LANES = 128 };

// A sample's sum of channel c: s = rint(part * 2^40) is added as a 128-bit number.
SIMT_INLINE void settle(const pare_channel_sums &to, int64_t c, double part)
{
    if (!(fabs(part) < 0x1p60)) {
        atomicAdd(to.lost, 1ull);
        return;
    }
    double whole = rint(part * 0x1p40), size = fabs(whole), top = floor(size * 0x1p-64);
    unsigned long long high = (unsigned long long)top;
    unsigned long long low = (unsigned long long)(size - top * 0x1p64); // 53 bits in all: exact
    if (whole < 0) {
        high = ~high + (low == 0);
        low = ~low + 1;
    }
    unsigned long long *sum = to.sum + 2 * c, before = sum[0];
    sum[0] = before + low;
    sum[1] += high + (before + low < low);
}

// Offset of element r of a channel in a sample: the axes but the channels', in logical order.
SIMT_INLINE int64_t offset_of(const pare_cuda_channels &v, int64_t r)
{
    int64_t at = 0;
    for (int k = v.rank - 1; k >= 0; k--) {
        int64_t rest = r / v.dim[k];
        at += (r - rest * v.dim[k]) * v.stride[k];
        r = rest;
    }
    return at;
}

static __global__ void __launch_bounds__(IN_ORDER)
    add_in_order(pare_channel_sums to, pare_cuda_channels v)
{
    int64_t c = (int64_t)blockIdx.x * IN_ORDER + threadIdx.x;
    if (c >= to.count) return;
    const int64_t inner = v.rank ? v.dim[v.rank - 1] : 1, step = v.rank ? v.stride[v.rank - 1] : 0;
    float largest = to.largest[c];
    for (int64_t s = 0; s < v.samples; s++) {
        double sum = 0;
        for (int64_t r = 0; r < v.n; r += inner) {
            const float *x = v.x + s * v.sample_step + c * v.step + offset_of(v, r);
            for (int64_t i = 0; i < inner; i++) {
                float value = __ldg(x + i * step), magnitude = fabsf(value);
                sum += (double)value;
                largest = magnitude > largest ? magnitude : largest;
            }
        }
        settle(to, c, sum);
    }
    to.largest[c] = largest;
}

// Channels whose n values are in a row, `outer` times in a sample: v.dim[0] times, v.stride[0]
// apart.
static __global__ void __launch_bounds__(IN_LANES)
    add_in_lanes(pare_channel_sums to, pare_cuda_channels v)
{
    const int lane = (int)threadIdx.x % LANES;
    const int64_t at = ((int64_t)blockIdx.x * IN_LANES + threadIdx.x) / LANES;
    const int64_t c = at < to.count ? at : to.count - 1; // all reach the shuffles
    const int64_t run = v.dim[1];
    float largest = 0;
    for (int64_t s = 0; s < v.samples; s++) {
        double sum = 0;
        for (int64_t o = 0; o < v.dim[0]; o++) {
            const float *x = v.x + s * v.sample_step + c * v.step + o * v.stride[0];
            double part = 0;
            for (int64_t i = lane; i < run; i += LANES) {
                float value = __ldg(x + i), magnitude = fabsf(value);
                part += (double)value;
                largest = magnitude > largest ? magnitude : largest;
            }
            for (int k = 0; k < LANES; k++) sum += __shfl_sync(0xffffffffu, part, k, LANES);
        }
        if (lane == 0 && at < to.count) settle(to, c, sum);
    }
    for (int d = LANES / 2; d; d >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, largest, d, LANES);
        largest = other > largest ? other : largest;
    }
    if (lane == 0 && at < to.count && largest > to.largest[c]) to.largest[c] = largest;
}

extern "C" cudaError_t pare_cuda_channels_add(const pare_channel_sums *to,
                                              const pare_cuda_channels *v, cudaStream_t stream)
{
    const int per_block = v->in_lanes ? IN_LANES / LANES : IN_ORDER;
    const dim3 grid((unsigned)((to->count + per_block - 1) / per_block));
    if (v->in_lanes)
        SIMT_LAUNCH(add_in_lanes, grid, dim3(IN_LANES), 0, stream, *to, *v);
    else
        SIMT_LAUNCH(add_in_order, grid, dim3(IN_ORDER), 0, stream, *to, *v);
    return cudaGetLastError();
}

// SPDX-License-Identifier: Apache-2.0
// Stored pixels to an input's floats: y[i] = table[i / inner % channels][x[place of i]], the place
// i itself or that in a transposed matrix. The table was made on the host, so that results are its
// bits. Bytes moved: a byte in and four out an element.

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
