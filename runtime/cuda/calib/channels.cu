// SPDX-License-Identifier: Apache-2.0
// Sums and largest magnitudes of channels, in the order of calib/channels.h, so that every bit is
// as the host's: a segment of a channel's values in LANES sums of double, which are added up in
// order; then as a whole number of 2^-40 in 128 bits, added by two atomics in any order. A
// segment's lanes are threads: of half a warp where values of a channel may be neighbours in
// memory, of a column of the block where many channels are. Bytes moved: the values once.
#include "runtime/cuda/calib/calib.h"
#include "runtime/cuda/device/common.cuh"

enum {
    LANES = PARE_CHANNELS_LANES,
    SEGMENT = PARE_CHANNELS_SEGMENT,
    ACROSS = 32,    // channels of a block where they are neighbours
    IN_A_ROW = 128, // threads of a block where they are not
    MANY = 8,       // channels, for which a block's width pays
    MOST_Y = 65535,
};

// Adds 128-bit numbers: the low halves' old value says whether this addition carries.
SIMT_INLINE void add_wide(unsigned long long *sum, unsigned long long low, unsigned long long high)
{
    const unsigned long long before = low ? atomicAdd(&sum[0], low) : 0;
    high += before + low < low;
    if (high) atomicAdd(&sum[1], high);
}

// A segment's sum of channel c: rint(part * 2^40) is added.
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
    add_wide(to.sum + 2 * c, low, high);
}

// Magnitudes are in the order of their bits.
SIMT_INLINE void hold_largest(const pare_channel_sums &to, int64_t c, float largest)
{
    if (largest > 0) atomicMax(reinterpret_cast<int *>(to.largest + c), __float_as_int(largest));
}

// Offset of value r of a channel in a sample: the axes but the channels', in logical order.
SIMT_INLINE int64_t offset_of(const pare_cuda_channels &v, int64_t r)
{
    int64_t at = 0;
    for (int k = v.rank - 1; k > 0; k--) {
        int64_t rest = r / v.dim[k];
        at += (r - rest * v.dim[k]) * v.stride[k];
        r = rest;
    }
    return v.rank ? at + r * v.stride[0] : 0;
}

// Sum `lane` of a segment of channel c.
SIMT_INLINE double lane_sum(const pare_cuda_channels &v, int64_t c, int64_t sample, int64_t segment,
                            int lane, float *largest)
{
    const float *x = v.x + sample * v.sample_step + c * v.step;
    const int64_t first = segment * SEGMENT, end = first + SEGMENT < v.n ? first + SEGMENT : v.n;
    double sum = 0;
    for (int64_t r = first + lane; r < end; r += LANES) {
        const float value = __ldg(x + offset_of(v, r)), magnitude = fabsf(value);
        sum += (double)value;
        *largest = magnitude > *largest ? magnitude : *largest;
    }
    return sum;
}

static __global__ void __launch_bounds__(ACROSS *LANES)
    add_side_by_side(pare_channel_sums to, pare_cuda_channels v, int64_t segments)
{
    SIMT_SHARED(double, held, [LANES * ACROSS]);
    SIMT_SHARED(float, most, [LANES * ACROSS]);
    const int me = (int)threadIdx.x, lane = me / ACROSS;
    const int64_t c = (int64_t)blockIdx.x * ACROSS + me % ACROSS;
    for (int64_t at = blockIdx.y; at < v.samples * segments; at += gridDim.y) {
        const int64_t sample = at / segments;
        most[me] = 0;
        held[me] =
            c < to.count ? lane_sum(v, c, sample, at - sample * segments, lane, &most[me]) : 0;
        __syncthreads();
        if (lane == 0 && c < to.count) {
            double sum = 0;
            float largest = 0;
            for (int k = 0; k < LANES; k++) {
                sum += held[me + k * ACROSS];
                largest = fmaxf(largest, most[me + k * ACROSS]);
            }
            settle(to, c, sum);
            hold_largest(to, c, largest);
        }
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(IN_A_ROW)
    add_in_a_row(pare_channel_sums to, pare_cuda_channels v, int64_t segments)
{
    const int lane = (int)threadIdx.x % LANES;
    const int64_t all = v.samples * to.count * segments,
                  at = ((int64_t)blockIdx.x * IN_A_ROW + threadIdx.x) / LANES;
    const int64_t mine = at < all ? at : all - 1; // all reach the shuffles
    const int64_t rest = mine / segments, sample = rest / to.count, c = rest - sample * to.count;
    float largest = 0;
    const double part = lane_sum(v, c, sample, mine - rest * segments, lane, &largest);
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += __shfl_sync(0xffffffffu, part, k, LANES);
    for (int d = LANES / 2; d; d >>= 1)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, d, LANES));
    if (lane || at >= all) return;
    settle(to, c, sum);
    hold_largest(to, c, largest);
}

extern "C" cudaError_t pare_cuda_channels_add(const pare_channel_sums *to,
                                              const pare_cuda_channels *v, cudaStream_t stream)
{
    const int64_t segments = (v->n + SEGMENT - 1) / SEGMENT, parts = v->samples * segments;
    if (to->count * parts == 0) return cudaSuccess;
    if (v->step == 1 && to->count >= MANY) {
        const dim3 grid((unsigned)((to->count + ACROSS - 1) / ACROSS),
                        (unsigned)(parts < MOST_Y ? parts : (int64_t)MOST_Y));
        SIMT_LAUNCH(add_side_by_side, grid, dim3(ACROSS * LANES), 0, stream, *to, *v, segments);
    } else {
        const int64_t each = IN_A_ROW / LANES, blocks = (to->count * parts + each - 1) / each;
        if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
        SIMT_LAUNCH(add_in_a_row, dim3((unsigned)blocks), dim3(IN_A_ROW), 0, stream, *to, *v,
                    segments);
    }
    return cudaGetLastError();
}
