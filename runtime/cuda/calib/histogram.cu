// SPDX-License-Identifier: Apache-2.0
// Three kernels an addition: `count` finds low, high and largest, counts zeros, NaN and Inf, and
// what lies in or below the window of octaves that earlier additions left; `move_window` moves the
// window up where the largest magnitude asks for it, and what was counted with it; `count_above`,
// where the window moved, counts the values that were above it. Counts are made in shared memory,
// one private copy a block, and added with integer atomics, so that no order of execution shows in
// the result. `look` finds and counts without bins. Bytes moved: the values once, 16 at a time
// (twice where the window moved, as it does at the first addition); 96 KiB of bins a block.
#include "runtime/cuda/calib/calib.h"
#include "runtime/cuda/device/simt.h"

enum {
    THREADS = 1024,
    WARPS = THREADS / 32,
    SLOTS = 1 + PARE_HISTOGRAM_BINS, // of one sign
    INFINITE = 0x7f800000            // bits of f32's infinity
};
static const int64_t PART = (int64_t)1 << 31; // a block's counters are 32 bits wide

// Bits of the f32 with the value of a half number of TYPE.
template <int TYPE> SIMT_INLINE unsigned widen(unsigned raw)
{
    if (TYPE == PARE_bf16) return raw << 16;
    __half_raw bits;
    bits.x = (unsigned short)raw;
    return __float_as_uint(__half2float(__half(bits)));
}

// Bits of the f32 nearest to an f64.
SIMT_INLINE unsigned narrow(unsigned low, unsigned high)
{
    long long bits = (long long)((unsigned long long)high << 32 | low);
    return __float_as_uint((float)__longlong_as_double(bits));
}

// Calls f(bits) for the numbers in 16 bytes.
template <int TYPE, class F> SIMT_INLINE void visit_vector(uint4 v, F f)
{
    unsigned word[4] = {v.x, v.y, v.z, v.w};
    SIMT_UNROLL
    for (int k = 0; k < 4; k++) {
        if (TYPE == PARE_f32) f(word[k]);
        if (TYPE == PARE_f64 && k % 2 == 0) f(narrow(word[k], word[k | 1]));
        if (TYPE != PARE_f16 && TYPE != PARE_bf16) continue;
        f(widen<TYPE>(word[k] & 0xffff));
        f(widen<TYPE>(word[k] >> 16));
    }
}

// Bits of number at.
template <int TYPE> SIMT_INLINE unsigned load_one(const unsigned char *bytes, int64_t at)
{
    const unsigned *words = (const unsigned *)bytes;
    if (TYPE == PARE_f32) return words[at];
    if (TYPE == PARE_f64) return narrow(words[2 * at], words[2 * at + 1]);
    return widen<TYPE>(((const unsigned short *)bytes)[at]);
}

// Calls f(bits) for this thread's share of n values. 16 bytes a load from the first aligned
// address; the few values before it and after the last full load are the first block's.
template <int TYPE, class F> SIMT_INLINE void visit(const void *values, int64_t n, F f)
{
    const int size = TYPE == PARE_f64 ? 8 : TYPE == PARE_f32 ? 4 : 2, per_load = 16 / size;
    const unsigned char *bytes = (const unsigned char *)values;
    int64_t head = (int64_t)((16 - (uintptr_t)bytes % 16) % 16) / size;
    head = head < n ? head : n;
    int64_t loads = (n - head) / per_load, tail = head + loads * per_load;
    const uint4 *vectors = (const uint4 *)(bytes + head * size);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < loads;
         i += (int64_t)gridDim.x * blockDim.x)
        visit_vector<TYPE>(__ldg(vectors + i), f);
    if (blockIdx.x) return; // no barrier follows in here
    for (int64_t i = threadIdx.x; i < head + (n - tail); i += blockDim.x) {
        int64_t at = i < head ? i : tail + (i - head);
        f(load_one<TYPE>(bytes, at));
    }
}

typedef struct findings {
    int low, high, largest;
    unsigned zero, nan, inf;
} findings;

// Lanes of a warp to one.
SIMT_INLINE findings gather(findings f)
{
    f.low = __reduce_min_sync(0xffffffffu, f.low);
    f.high = __reduce_max_sync(0xffffffffu, f.high);
    f.largest = __reduce_max_sync(0xffffffffu, f.largest);
    f.zero = __reduce_add_sync(0xffffffffu, f.zero);
    f.nan = __reduce_add_sync(0xffffffffu, f.nan);
    f.inf = __reduce_add_sync(0xffffffffu, f.inf);
    return f;
}

SIMT_INLINE findings nothing(void)
{
    const findings none = {INT32_MAX, INT32_MIN, 0, 0, 0, 0};
    return none;
}

// The number's part in the findings; false where it is NaN or infinite.
SIMT_INLINE bool find(findings &f, unsigned bits)
{
    int v = (int)bits, magnitude = v & 0x7fffffff;
    f.zero += magnitude == 0;
    f.nan += magnitude > INFINITE;
    f.inf += magnitude == INFINITE;
    if (magnitude >= INFINITE) return false;
    int ordered = v ^ ((v >> 31) & 0x7fffffff);
    f.low = min(f.low, ordered);
    f.high = max(f.high, ordered);
    f.largest = max(f.largest, magnitude);
    return true;
}

// A block's findings to the histogram; part: (WARPS), in shared memory.
SIMT_INLINE void settle(pare_histogram_dev *h, findings f, findings *part, int64_t n)
{
    f = gather(f);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (lane == 0) part[warp] = f;
    __syncthreads();
    if (warp) return;
    f = gather(part[lane]);
    if (lane) return;
    atomicMin(&h->low, f.low);
    atomicMax(&h->high, f.high);
    atomicMax(&h->largest, f.largest);
    atomicAdd(&h->zero, (unsigned long long)f.zero);
    atomicAdd(&h->nan, (unsigned long long)f.nan);
    atomicAdd(&h->inf, (unsigned long long)f.inf);
    if (blockIdx.x == 0) atomicAdd(&h->count, (unsigned long long)n);
}

template <int TYPE>
static __global__ void __launch_bounds__(THREADS)
    look(pare_histogram_dev *h, const void *values, int64_t n)
{
    SIMT_SHARED(findings, part, [WARPS]);
    findings f = nothing();
    visit<TYPE>(values, n, [&](unsigned bits) { find(f, bits); });
    settle(h, f, part, n);
}

// A block's bins, (2, SLOTS) in shared memory: empty; into the histogram.
SIMT_INLINE void bins_clear(unsigned *bins)
{
    for (int i = (int)threadIdx.x; i < 2 * SLOTS; i += (int)blockDim.x) bins[i] = 0;
    __syncthreads();
}

SIMT_INLINE void bins_add(pare_histogram_dev_bins *h, const unsigned *bins)
{
    __syncthreads();
    unsigned long long *slots = &h->slot[0][0];
    for (int i = (int)threadIdx.x; i < 2 * SLOTS; i += (int)blockDim.x)
        if (bins[i]) atomicAdd(&slots[i], (unsigned long long)bins[i]);
}

template <int TYPE>
static __global__ void __launch_bounds__(THREADS)
    count(pare_histogram_dev_bins *h, const void *values, int64_t n)
{
    SIMT_DYN_SHARED(unsigned, bins);
    SIMT_SHARED(findings, part, [WARPS]);
    findings f = nothing();
    bins_clear(bins);
    int base = h->histogram.first * PARE_OCTAVE_BINS - 1;
    visit<TYPE>(values, n, [&](unsigned bits) {
        int magnitude = (int)bits & 0x7fffffff;
        if (!find(f, bits) || magnitude == 0) return;
        int slot = max((magnitude >> PARE_BIN_SHIFT) - base, 0);
        if (slot < SLOTS) atomicAdd(&bins[slot + ((int)bits < 0 ? SLOTS : 0)], 1u);
    });
    bins_add(h, bins);
    settle(&h->histogram, f, part, n);
}

// Moves a sign's bins down by `by` octaves, the lowest into below. A thread moves what is at its
// place in each octave, so that none reads what another one writes.
SIMT_INLINE void fold(unsigned long long *slot, int by, unsigned long long *below)
{
    unsigned long long gone = 0;
    for (int octave = 0; octave < PARE_OCTAVES; octave++) {
        unsigned long long *bin = slot + 1 + octave * PARE_OCTAVE_BINS + threadIdx.x;
        int from = octave + by;
        gone += octave < by ? *bin : 0;
        *bin = from < PARE_OCTAVES ? bin[by * PARE_OCTAVE_BINS] : 0;
    }
    atomicAdd(below, gone);
}

// One block. The place in an octave is the thread's number: THREADS is PARE_OCTAVE_BINS.
static __global__ void __launch_bounds__(THREADS) move_window(pare_histogram_dev_bins *bins)
{
    pare_histogram_dev *h = &bins->histogram;
    int octave = h->largest >> PARE_OCTAVE_SHIFT, top = h->top;
    int first = octave < PARE_OCTAVES ? 0 : octave - PARE_OCTAVES + 1;
    int before = h->first, by = first - before;
    __syncthreads(); // all have read what the first thread changes
    if (threadIdx.x == 0) h->counted = before + PARE_OCTAVES;
    if (h->largest == 0 || octave <= top) return;
    for (int sign = 0; sign < 2 && by > 0; sign++)
        fold(bins->slot[sign], by, &bins->slot[sign][0]);
    if (threadIdx.x) return;
    h->first = first;
    h->top = octave;
}

template <int TYPE>
static __global__ void __launch_bounds__(THREADS)
    count_above(pare_histogram_dev_bins *h, const void *values, int64_t n)
{
    SIMT_DYN_SHARED(unsigned, bins);
    const int counted = h->histogram.counted;
    if (h->histogram.top < counted) return; // all threads: there are none
    bins_clear(bins);
    int base = h->histogram.first * PARE_OCTAVE_BINS - 1;
    visit<TYPE>(values, n, [&](unsigned bits) {
        int magnitude = (int)bits & 0x7fffffff;
        if (magnitude >> PARE_OCTAVE_SHIFT < counted || magnitude >= INFINITE) return;
        int slot = max((magnitude >> PARE_BIN_SHIFT) - base, 0);
        atomicAdd(&bins[slot + ((int)bits < 0 ? SLOTS : 0)], 1u);
    });
    bins_add(h, bins);
}

static __global__ void __launch_bounds__(THREADS)
    make_empty(unsigned char *histograms, size_t step, int count)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count) return;
    pare_histogram_dev *h = (pare_histogram_dev *)(histograms + i * step);
    h->low = INT32_MAX;
    h->high = INT32_MIN;
    h->top = -1;
}

template <int TYPE>
static cudaError_t add(pare_histogram_dev *histogram, bool bins, const void *values, int64_t n,
                       int blocks, cudaStream_t stream)
{
    const size_t shared = 2 * SLOTS * sizeof(unsigned);
    const int64_t per_block = THREADS * 16; // so many that they outweigh a block's empty bins
    pare_histogram_dev_bins *h = (pare_histogram_dev_bins *)histogram;
    int64_t most = (n + per_block - 1) / per_block;
    dim3 grid((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
    if (!bins) {
        SIMT_LAUNCH(look<TYPE>, grid, dim3(THREADS), 0, stream, histogram, values, n);
        return cudaGetLastError();
    }
    cudaError_t error = SIMT_ALLOW_SHARED(count<TYPE>, shared);
    if (error == cudaSuccess) error = SIMT_ALLOW_SHARED(count_above<TYPE>, shared);
    if (error) return error;
    SIMT_LAUNCH(count<TYPE>, grid, dim3(THREADS), shared, stream, h, values, n);
    error = cudaGetLastError();
    if (error) return error;
    SIMT_LAUNCH(move_window, dim3(1), dim3(THREADS), 0, stream, h);
    error = cudaGetLastError(); // counting trusts the window
    if (error) return error;
    SIMT_LAUNCH(count_above<TYPE>, grid, dim3(THREADS), shared, stream, h, values, n);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_histogram_clear(void *histograms, size_t step, int count,
                                                 cudaStream_t stream)
{
    cudaError_t error = cudaMemsetAsync(histograms, 0, step * (size_t)count, stream);
    if (error || count == 0) return error;
    SIMT_LAUNCH(make_empty, dim3((unsigned)((count + THREADS - 1) / THREADS)), dim3(THREADS), 0,
                stream, (unsigned char *)histograms, step, count);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_histogram_add(pare_histogram_dev *histogram, bool bins,
                                               pare_dtype dtype, const void *values, int64_t n,
                                               int blocks, cudaStream_t stream)
{
    const int64_t size = dtype == PARE_f64 ? 8 : dtype == PARE_f32 ? 4 : 2;
    for (int64_t at = 0; at < n; at += PART) {
        const void *from = (const unsigned char *)values + at * size;
        int64_t part = n - at < PART ? n - at : PART;
        cudaError_t error = cudaErrorInvalidValue;
        if (dtype == PARE_f32) error = add<PARE_f32>(histogram, bins, from, part, blocks, stream);
        if (dtype == PARE_f16) error = add<PARE_f16>(histogram, bins, from, part, blocks, stream);
        if (dtype == PARE_bf16) error = add<PARE_bf16>(histogram, bins, from, part, blocks, stream);
        if (dtype == PARE_f64) error = add<PARE_f64>(histogram, bins, from, part, blocks, stream);
        if (error) return error;
    }
    return cudaSuccess;
}
