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
    MOST_YZ = 65535,
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

// Offset of value r of a channel in a sample: the axes but the channels', in logical order. DENSE:
// they are one.
template <bool DENSE> SIMT_INLINE int64_t offset_of(const pare_cuda_channels &v, int64_t r)
{
    int64_t at = 0;
    for (int k = v.rank - 1; !DENSE && k > 0; k--) {
        int64_t rest = r / v.dim[k];
        at += (r - rest * v.dim[k]) * v.stride[k];
        r = rest;
    }
    return at + r * v.stride[0];
}

// Sum `lane` of a segment of channel c.
template <bool DENSE>
SIMT_INLINE double lane_sum(const pare_cuda_channels &v, int64_t c, int64_t sample, int64_t segment,
                            int lane, float *largest)
{
    const float *x = v.x + sample * v.sample_step + c * v.step;
    const int64_t first = segment * SEGMENT, end = first + SEGMENT < v.n ? first + SEGMENT : v.n;
    double sum = 0;
    for (int64_t r = first + lane; r < end; r += LANES) {
        const float value = __ldg(x + offset_of<DENSE>(v, r)), magnitude = fabsf(value);
        sum += (double)value;
        *largest = magnitude > *largest ? magnitude : *largest;
    }
    return sum;
}

template <bool DENSE>
static __global__ void __launch_bounds__(ACROSS *LANES)
    add_side_by_side(pare_channel_sums to, pare_cuda_channels v, int64_t segments)
{
    SIMT_SHARED(double, held, [LANES * ACROSS]);
    SIMT_SHARED(float, most, [LANES * ACROSS]);
    const int me = (int)threadIdx.x, lane = me / ACROSS;
    const int64_t c = (int64_t)blockIdx.x * ACROSS + me % ACROSS;
    for (int64_t sample = blockIdx.z; sample < v.samples; sample += gridDim.z)
        for (int64_t segment = blockIdx.y; segment < segments; segment += gridDim.y) {
            float largest = 0;
            held[me] = c < to.count ? lane_sum<DENSE>(v, c, sample, segment, lane, &largest) : 0;
            most[me] = largest;
            __syncthreads();
            if (lane == 0 && c < to.count) {
                double sum = 0;
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

template <bool DENSE>
static __global__ void __launch_bounds__(IN_A_ROW)
    add_in_a_row(pare_channel_sums to, pare_cuda_channels v, int64_t segments)
{
    const int lane = (int)threadIdx.x % LANES;
    const int64_t at = (int64_t)blockIdx.x * (IN_A_ROW / LANES) + threadIdx.x / LANES,
                  c = at < to.count ? at : to.count - 1; // all reach the shuffles
    for (int64_t sample = blockIdx.z; sample < v.samples; sample += gridDim.z)
        for (int64_t segment = blockIdx.y; segment < segments; segment += gridDim.y) {
            float largest = 0;
            const double part = lane_sum<DENSE>(v, c, sample, segment, lane, &largest);
            double sum = 0;
            for (int k = 0; k < LANES; k++) sum += __shfl_sync(0xffffffffu, part, k, LANES);
            for (int d = LANES / 2; d; d >>= 1)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, d, LANES));
            if (lane == 0 && at < to.count) {
                settle(to, c, sum);
                hold_largest(to, c, largest);
            }
        }
}

static unsigned at_most(int64_t n) { return (unsigned)(n < MOST_YZ ? n : (int64_t)MOST_YZ); }

extern "C" cudaError_t pare_cuda_channels_add(const pare_channel_sums *to,
                                              const pare_cuda_channels *v, cudaStream_t stream)
{
    const int64_t segments = (v->n + SEGMENT - 1) / SEGMENT;
    const bool across = v->step == 1 && to->count >= MANY, dense = v->rank < 2;
    const int64_t each = across ? (int64_t)ACROSS : IN_A_ROW / LANES;
    const dim3 grid((unsigned)((to->count + each - 1) / each), at_most(segments),
                    at_most(v->samples)),
        block(across ? ACROSS * LANES : (int)IN_A_ROW);
    if (to->count * v->samples * segments == 0) return cudaSuccess;
    if (across && dense)
        SIMT_LAUNCH(add_side_by_side<true>, grid, block, 0, stream, *to, *v, segments);
    else if (across)
        SIMT_LAUNCH(add_side_by_side<false>, grid, block, 0, stream, *to, *v, segments);
    else if (dense)
        SIMT_LAUNCH(add_in_a_row<true>, grid, block, 0, stream, *to, *v, segments);
    else
        SIMT_LAUNCH(add_in_a_row<false>, grid, block, 0, stream, *to, *v, segments);
    return cudaGetLastError();
}
