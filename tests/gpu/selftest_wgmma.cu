// SPDX-License-Identifier: Apache-2.0
// One kernel for each WGMMA row of selftest.inc: products of compute capability 9.0.
#include "selftest_sm90.cuh"

// --- products: each half of a block 64 rows of its own by all columns ---

// 64 bytes of depth by `multiply` of 32 of them.
template <int COLUMNS, typename SUM, typename MULTIPLY>
SIMT_INLINE void rows_multiply(unsigned at, int group, SUM (&sums)[COLUMNS / 2], MULTIPLY multiply)
{
    const uint64_t x = simt_wgmma_matrix<ROW>(at + group * TILE);
    const uint64_t w = simt_wgmma_matrix<ROW>(at + 2 * TILE);
    simt_wgmma_order(sums);
    simt_wgmma_fence();
    for (int part = 0; part < 2; part++) multiply(sums, x + part * 2, w + part * 2, part);
    simt_wgmma_commit();
    simt_wgmma_wait<0>();
    simt_wgmma_order(sums);
}

template <int COLUMNS>
SIMT_INLINE unsigned operands_load(unsigned at, const CUtensorMap *a, const CUtensorMap *b,
                                   int block)
{
    const unsigned bar = barrier_set(at + 2 * TILE + COLUMNS * ROW);
    if (threadIdx.x == 0) {
        simt_mbar_expect(bar, 2 * TILE + COLUMNS * ROW);
        for (int i = 0; i < 2; i++) simt_tma_load(at + i * TILE, a, bar, 0, block * 32 + i * 16);
        simt_tma_load(at + 2 * TILE, b, bar, 0, 0);
    }
    simt_mbar_wait(bar, 0);
    return at;
}

enum signs { SIGNED, ROWS_UNSIGNED, COLUMNS_UNSIGNED };

template <int SIGNS, int COLUMNS>
static __global__ void __launch_bounds__(SELFTEST_BLOCK)
    row_wgmma(uint64_t *out, const __grid_constant__ CUtensorMap a,
              const __grid_constant__ CUtensorMap b)
{
    SIMT_DYN_SHARED_AT(char, room, 1024);
    THREAD;
    const unsigned at = operands_load<COLUMNS>(simt_shared_address(room), &a, &b, block);
    int sums[COLUMNS / 2] = {};
    rows_multiply<COLUMNS>(at, (int)threadIdx.x / 128, sums,
                           [](int(&d)[COLUMNS / 2], uint64_t x, uint64_t w, int add) {
                               if constexpr (SIGNS == (int)COLUMNS_UNSIGNED)
                                   simt_wgmma_k32_s8u8(d, x, w, add);
                               else
                                   simt_wgmma_k32<SIGNS == (int)ROWS_UNSIGNED>(d, x, w, add);
                           });
    out[t] = sums_hash(sums);
}

// The same of 32 numbers of f16 or bf16, which threads write where a swizzled box would have them.
template <bool BF16, int COLUMNS>
static __global__ void __launch_bounds__(SELFTEST_BLOCK)
    row_wgmma_half(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    const int group = (int)threadIdx.x / 128;
    const unsigned at = simt_shared_address(room);
    for (int i = (int)threadIdx.x; i < (2 * TILE + COLUMNS * ROW) / 4; i += SELFTEST_BLOCK)
        room[i ^ (i / 32 % 4) << 2] = pair_of(in[(block * 512 + i) % (N * SELFTEST_INPUTS)], BF16);
    simt_fence_async();
    __syncthreads();
    float sums[COLUMNS / 2] = {};
    rows_multiply<COLUMNS>(at, group, sums,
                           [](float(&d)[COLUMNS / 2], uint64_t x, uint64_t w, int add) {
                               simt_wgmma_k16<BF16>(d, x, w, add);
                           });
    out[t] = sums_hash(sums);
}

// The same of 64 numbers of FP8.
template <bool E5M2, int COLUMNS>
static __global__ void __launch_bounds__(SELFTEST_BLOCK)
    row_wgmma_f8(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    const int group = (int)threadIdx.x / 128;
    const unsigned at = simt_shared_address(room);
    for (int i = (int)threadIdx.x; i < (2 * TILE + COLUMNS * ROW) / 4; i += SELFTEST_BLOCK)
        room[i ^ (i / 32 % 4) << 2] = four_of<E5M2>(in[(block * 512 + i) % (N * SELFTEST_INPUTS)]);
    simt_fence_async();
    __syncthreads();
    float sums[COLUMNS / 2] = {};
    rows_multiply<COLUMNS>(at, group, sums,
                           [](float(&d)[COLUMNS / 2], uint64_t x, uint64_t w, int add) {
                               simt_wgmma_f8<E5M2>(d, x, w, add);
                           });
    out[t] = sums_hash(sums);
}

// --- products with 2:4, of 64 bytes of depth at a time: each half of a block 64 rows of its own
// ---

enum sparse_kind { SP_S8, SP_U8, SP_F16, SP_BF16 }; // of the dense operand

template <int KIND, int COUNT>
SIMT_INLINE void sparse_multiply(int (&d)[COUNT], uint64_t a, uint64_t b, unsigned meta, int add)
{
    simt_wgmma_sp_k64<KIND == SP_U8>(d, a, b, meta, add);
}
template <int KIND, int COUNT>
SIMT_INLINE void sparse_multiply(float (&d)[COUNT], uint64_t a, uint64_t b, unsigned meta, int add)
{
    simt_wgmma_sp_k32<KIND == SP_BF16>(d, a, b, meta, add);
}

template <int KIND, int COLUMNS, typename SUM>
static __global__ void __launch_bounds__(SELFTEST_BLOCK)
    row_wgmma_sp(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    const int group = (int)threadIdx.x / 128;
    const unsigned at = simt_shared_address(room);
    for (int i = (int)threadIdx.x; i < 2 * (TILE + COLUMNS * ROW) / 4; i += SELFTEST_BLOCK) {
        const unsigned word = in[(block * 512 + i) % (N * SELFTEST_INPUTS)];
        room[i ^ (i / 32 % 4) << 2] = KIND < SP_F16 ? word : pair_of(word, KIND == SP_BF16);
    }
    simt_fence_async();
    __syncthreads();
    const uint64_t a = simt_wgmma_matrix<ROW>(at + group * TILE),
                   b = simt_wgmma_matrix<ROW>(at + 2 * TILE);
    SUM sums[COLUMNS / 2] = {};
    unsigned meta[2];
    for (int part = 0; part < 2; part++) meta[part] = ascending(in[t * SELFTEST_INPUTS + part]);
    simt_wgmma_order(sums);
    simt_wgmma_fence();
    for (int part = 0; part < 2; part++)
        sparse_multiply<KIND>(sums, a + part * 2, b + part * (COLUMNS * ROW >> 4), meta[part],
                              part);
    simt_wgmma_commit();
    simt_wgmma_wait<0>();
    simt_wgmma_order(sums);
    out[t] = sums_hash(sums);
}

// --- launchers ---

template <int SIGNS, int COLUMNS>
static cudaError_t multiply(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    CUtensorMap a, b;
    if (!map_rows(&a, in, ROW, ROWS, 64) || !map_rows(&b, in, ROW, ROWS, COLUMNS))
        return cudaErrorInvalidValue;
    SIMT_LAUNCH((row_wgmma<SIGNS, COLUMNS>), blocks, threads, SHARED, stream, out, a, b);
    return cudaGetLastError();
}

template <bool BF16, int COLUMNS>
static cudaError_t multiply_half(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    SIMT_LAUNCH((row_wgmma_half<BF16, COLUMNS>), blocks, threads, SHARED, stream, out, in);
    return cudaGetLastError();
}

template <bool E5M2, int COLUMNS>
static cudaError_t multiply_f8(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    SIMT_LAUNCH((row_wgmma_f8<E5M2, COLUMNS>), blocks, threads, SHARED, stream, out, in);
    return cudaGetLastError();
}

#define WGMMA(name, launch, second, columns)                                                       \
    extern "C" cudaError_t selftest_##name(uint64_t *out, const unsigned *in, cudaStream_t stream) \
    {                                                                                              \
        return launch<second, columns>(out, in, stream);                                           \
    }
WGMMA(wgmma_s8_32, multiply, SIGNED, 32)
WGMMA(wgmma_u8_32, multiply, ROWS_UNSIGNED, 32)
WGMMA(wgmma_f16_32, multiply_half, false, 32)
WGMMA(wgmma_bf16_32, multiply_half, true, 32)
WGMMA(wgmma_s8u8_32, multiply, COLUMNS_UNSIGNED, 32)
WGMMA(wgmma_s8u8_64, multiply, COLUMNS_UNSIGNED, 64)
WGMMA(wgmma_s8u8_128, multiply, COLUMNS_UNSIGNED, 128)
WGMMA(wgmma_s8_64, multiply, SIGNED, 64)
WGMMA(wgmma_u8_64, multiply, ROWS_UNSIGNED, 64)
WGMMA(wgmma_f16_64, multiply_half, false, 64)
WGMMA(wgmma_bf16_64, multiply_half, true, 64)
WGMMA(wgmma_s8_128, multiply, SIGNED, 128)
WGMMA(wgmma_u8_128, multiply, ROWS_UNSIGNED, 128)
WGMMA(wgmma_f16_128, multiply_half, false, 128)
WGMMA(wgmma_bf16_128, multiply_half, true, 128)
WGMMA(wgmma_s8_192, multiply, SIGNED, 192)
WGMMA(wgmma_u8_192, multiply, ROWS_UNSIGNED, 192)
WGMMA(wgmma_f16_192, multiply_half, false, 192)
WGMMA(wgmma_bf16_192, multiply_half, true, 192)
WGMMA(wgmma_e4m3_64, multiply_f8, false, 64)
WGMMA(wgmma_e5m2_64, multiply_f8, true, 64)
WGMMA(wgmma_e4m3_128, multiply_f8, false, 128)
WGMMA(wgmma_e5m2_128, multiply_f8, true, 128)
WGMMA(wgmma_e4m3_192, multiply_f8, false, 192)
WGMMA(wgmma_e5m2_192, multiply_f8, true, 192)

template <int KIND, int COLUMNS>
static cudaError_t multiply_sparse(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    enum { ROOM = 2 * (TILE + COLUMNS * ROW) };
    if constexpr (KIND < SP_F16)
        SIMT_LAUNCH((row_wgmma_sp<KIND, COLUMNS, int>), blocks, threads, ROOM, stream, out, in);
    else
        SIMT_LAUNCH((row_wgmma_sp<KIND, COLUMNS, float>), blocks, threads, ROOM, stream, out, in);
    return cudaGetLastError();
}

WGMMA(wgmma_sp_s8s8_128, multiply_sparse, SP_S8, 128)
WGMMA(wgmma_sp_s8u8_128, multiply_sparse, SP_U8, 128)
WGMMA(wgmma_sp_f16_128, multiply_sparse, SP_F16, 128)
WGMMA(wgmma_sp_bf16_128, multiply_sparse, SP_BF16, 128)
WGMMA(wgmma_sp_s8s8_256, multiply_sparse, SP_S8, 256)
WGMMA(wgmma_sp_s8u8_256, multiply_sparse, SP_U8, 256)
WGMMA(wgmma_sp_f16_256, multiply_sparse, SP_F16, 256)
WGMMA(wgmma_sp_bf16_256, multiply_sparse, SP_BF16, 256)
