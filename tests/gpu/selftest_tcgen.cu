// SPDX-License-Identifier: Apache-2.0
// One kernel for each TCGEN row of selftest.inc: products of compute capability 10.0. A block
// multiplies two tiles of 128 rows by all columns, whose sums lie side by side in tensor memory.
// SPAN: bytes of depth, over which rows are swizzled.
#include "selftest_sm90.cuh"
#include "runtime/cuda/device/simt_sm100.cuh"

template <simt_tcgen_kind KIND> SIMT_INLINE unsigned operand_of(unsigned word)
{
    if constexpr (KIND == SIMT_TCGEN_F16 || KIND == SIMT_TCGEN_BF16)
        return pair_of(word, KIND == SIMT_TCGEN_BF16);
    else if constexpr (KIND == SIMT_TCGEN_E4M3 || KIND == SIMT_TCGEN_E5M2)
        return four_of<KIND == SIMT_TCGEN_E5M2>(word);
    else
        return word;
}

template <int COLUMNS, int SPAN> struct tcgen_room {
    enum {
        X = 128 * SPAN, // bytes of a tile's rows
        BARRIERS = 2 * X + COLUMNS * SPAN,
        ADDRESS = BARRIERS + 2 * 8,
        BYTES = ADDRESS + 8
    };
};

template <simt_tcgen_kind KIND, int COLUMNS, int SPAN>
SIMT_INLINE void tiles_multiply(unsigned at, unsigned memory)
{
    typedef tcgen_room<COLUMNS, SPAN> room;
    const uint64_t w = simt_tcgen_matrix<SPAN>(at + 2 * room::X);
    for (int tile = 0; tile < 2; tile++) {
        const uint64_t x = simt_tcgen_matrix<SPAN>(at + tile * room::X);
        for (int part = 0; part < SPAN / 32; part++)
            simt_tcgen_multiply<KIND>(memory + tile * COLUMNS, x + part * 2, w + part * 2,
                                      simt_tcgen_descriptor(KIND, COLUMNS), part > 0);
        simt_tcgen_commit(at + room::BARRIERS + tile * 8);
    }
}

template <typename SUM, int COLUMNS> SIMT_INLINE uint64_t row_hash(unsigned sums)
{
    uint64_t all = 0;
    for (int c = 0; c < COLUMNS; c += 32) {
        SUM some[32];
        simt_tmem_load(some, sums + c);
        all = all * 1000003 + sums_hash(some);
    }
    return all;
}

template <simt_tcgen_kind KIND, typename SUM, int COLUMNS, int SPAN>
static __global__ void __launch_bounds__(SELFTEST_BLOCK)
    row_tcgen(uint64_t *out, const unsigned *in)
{
    typedef tcgen_room<COLUMNS, SPAN> room;
    SIMT_DYN_SHARED_AT(unsigned, words, 1024);
    THREAD;
    const unsigned at = simt_shared_address(words), bar = at + room::BARRIERS;
    const int warp = (int)threadIdx.x / 32, tile = warp / 4;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) simt_mbar_init(bar + i * 8, 1);
        simt_mbar_publish();
    }
    __syncwarp();
    if (warp == 0) simt_tmem_allocate<2 * COLUMNS>(at + room::ADDRESS);
    for (int i = (int)threadIdx.x; i < room::BARRIERS / 4; i += SELFTEST_BLOCK)
        words[i ^ (i / 32 % (SPAN / 16)) << 2] =
            operand_of<KIND>(in[(block * 512 + i) % (N * SELFTEST_INPUTS)]);
    simt_fence_async();
    simt_tcgen_fence_before();
    __syncthreads();
    simt_tcgen_fence_after();
    const unsigned memory = words[room::ADDRESS / 4];
    if (threadIdx.x == 32) tiles_multiply<KIND, COLUMNS, SPAN>(at, memory);
    __syncwarp();
    simt_mbar_wait(bar + tile * 8, 0);
    simt_tcgen_fence_after();
    out[t] = row_hash<SUM, COLUMNS>(memory + ((unsigned)warp % 4 * 32 << 16) + tile * COLUMNS);
    simt_tcgen_fence_before();
    __syncthreads();
    simt_tcgen_fence_after();
    if (warp == 0) simt_tmem_free<2 * COLUMNS>(memory);
}

template <simt_tcgen_kind KIND, typename SUM, int COLUMNS, int SPAN>
static cudaError_t multiply(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    const size_t shared = tcgen_room<COLUMNS, SPAN>::BYTES;
    auto kernel = row_tcgen<KIND, SUM, COLUMNS, SPAN>;
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, shared);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, blocks, threads, shared, stream, out, in);
    return cudaGetLastError();
}

#define TCGEN(name, kind, sum, columns, span)                                                      \
    extern "C" cudaError_t selftest_tcgen_##name##_##columns(uint64_t *out, const unsigned *in,    \
                                                             cudaStream_t stream)                  \
    {                                                                                              \
        return multiply<SIMT_TCGEN_##kind, sum, columns, span>(out, in, stream);                   \
    }
#define TCGEN_KINDS(columns, span)                                                                 \
    TCGEN(s8, S8, int, columns, span)                                                              \
    TCGEN(u8, U8, int, columns, span)                                                              \
    TCGEN(f16, F16, float, columns, span)                                                          \
    TCGEN(bf16, BF16, float, columns, span)                                                        \
    TCGEN(e4m3, E4M3, float, columns, span)                                                        \
    TCGEN(e5m2, E5M2, float, columns, span)
TCGEN_KINDS(64, 64)
TCGEN_KINDS(128, 128)
TCGEN_KINDS(256, 128)
