// SPDX-License-Identifier: Apache-2.0
// One kernel for each SM90 row of selftest.inc, on compute capability 9.0 alone. The inputs are
// taken for a tensor of bytes: 192 rows of 64, or 4 pictures of 6 x 8 pixels of 64 channels.
#include "selftest.cuh"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/simt_f8.cuh"
#include "runtime/cuda/device/simt_sm90.cuh"

enum {
    N = SELFTEST_THREADS,
    HALF = SELFTEST_BLOCK / 2,
    ROW = 64,
    TILE = 64 * ROW,
    ROWS = N * SELFTEST_INPUTS * 4 / ROW
};

#define THREAD const int t = (int)(blockIdx.x * blockDim.x + threadIdx.x), block = (int)blockIdx.x

// --- kernels that begin early: the second adds what all blocks of the first have written ---

template <bool EARLY> static __global__ void row_ahead(uint64_t *out, const unsigned *in)
{
    THREAD;
    (void)block;
    if (EARLY) simt_dependents_launch();
    out[t] = 0;
    for (int i = 0; i < SELFTEST_INPUTS; i++) out[t] = out[t] * 31 + in[t * SELFTEST_INPUTS + i];
}

static __global__ void row_behind(uint64_t *out)
{
    THREAD;
    (void)block;
    simt_dependency_wait();
    if (t % 2 == 0) out[t] += out[N - 1 - t]; // which no other thread changes
}

// --- barriers: the upper half of a block writes twice, the lower half reads twice ---

static __global__ void row_mbar(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    (void)block;
    const int mine = (int)threadIdx.x % HALF;
    const unsigned full = simt_shared_address(room) + TILE, empty = full + 8;
    if (threadIdx.x == 0) {
        simt_mbar_init(full, HALF);
        simt_mbar_init(empty, HALF);
        simt_mbar_publish();
    }
    __syncthreads();
    for (unsigned turn = 0; turn < 2; turn++) {
        if ((int)threadIdx.x >= HALF) {
            simt_mbar_wait(empty, turn ^ 1);
            room[mine] = in[t * SELFTEST_INPUTS + (int)turn];
            simt_mbar_arrive(full);
        } else {
            simt_mbar_wait(full, turn);
            out[(int)turn * N + t] = room[HALF - 1 - mine];
            simt_mbar_arrive(empty);
        }
    }
}

static __global__ void row_sync_group(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    (void)block;
    room[threadIdx.x] = in[t * SELFTEST_INPUTS];
    simt_sync_group(1 + (int)threadIdx.x / 128);
    out[t] = room[threadIdx.x ^ 127u];
}

// --- clusters: a thread reads 16 bytes that the next block but one wrote ---

static __global__ void row_cluster(uint64_t *out, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    const int size = simt_cluster_size(), rank = simt_cluster_rank();
    const unsigned mine = threadIdx.x * 4, other = threadIdx.x ^ 5u;
    unsigned word[4];
    for (int i = 0; i < 4; i++) room[mine + i] = in[(t * 4 + i) % (N * SELFTEST_INPUTS)];
    simt_cluster_arrive();
    simt_cluster_wait();
    simt_cluster_load(word, simt_shared_address(room) + other * 16, (rank + 2) % size);
    out[t] = (uint64_t)word[1] << 32 | word[0];
    out[N + t] = (uint64_t)word[3] << 32 | word[2];
    out[2 * N + t] = (unsigned)(block * 64 + size * 8 + rank);
    simt_cluster_arrive();
    simt_cluster_wait();
}

// --- boxes: what a block loaded, in its swizzled order ---

SIMT_INLINE unsigned barrier_set(unsigned bar)
{
    if (threadIdx.x == 0) {
        simt_mbar_init(bar, 1);
        simt_mbar_publish();
    }
    __syncthreads();
    return bar;
}

SIMT_INLINE void tile_put(uint64_t *out, const uint64_t *tile, int t)
{
    for (int i = 0; i < 2; i++) out[i * N + t] = tile[i * SELFTEST_BLOCK + (int)threadIdx.x];
}

template <bool CONSTANT>
static __global__ void row_tma_load(uint64_t *out, const __grid_constant__ CUtensorMap map)
{
    SIMT_DYN_SHARED_AT(uint64_t, room, 1024);
    THREAD;
    const unsigned at = simt_shared_address(room), bar = barrier_set(at + TILE);
    if (threadIdx.x == 0) {
        simt_tma_prefetch(&map);
        simt_mbar_expect(bar, TILE);
        if (CONSTANT)
            simt_tma_load_constant(at, &map, bar, block * 16 - 16, block * 50 - 10);
        else
            simt_tma_load(at, &map, bar, block * 16 - 16, block * 50 - 10);
    }
    simt_mbar_wait(bar, 0);
    tile_put(out, room, t);
}

static __global__ void row_tma_load_im2col(uint64_t *out, const __grid_constant__ CUtensorMap map)
{
    SIMT_DYN_SHARED_AT(uint64_t, room, 1024);
    THREAD;
    const unsigned at = simt_shared_address(room), bar = barrier_set(at + TILE);
    if (threadIdx.x == 0) {
        simt_mbar_expect(bar, TILE);
        simt_tma_load_im2col(at, &map, bar, 0, block * 2 - 1, block - 1, block, block % 3, 2);
    }
    simt_mbar_wait(bar, 0);
    tile_put(out, room, t);
}

static __global__ void row_tma_store(const __grid_constant__ CUtensorMap map, const unsigned *in)
{
    SIMT_DYN_SHARED_AT(unsigned, room, 1024);
    THREAD;
    for (int i = 0; i < TILE / 4 / SELFTEST_BLOCK; i++)
        room[i * SELFTEST_BLOCK + (int)threadIdx.x] = in[(t * 4 + i) % (N * SELFTEST_INPUTS)];
    simt_fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        simt_tma_store(&map, simt_shared_address(room), 0, block * 64);
        simt_tma_store_commit();
        simt_tma_store_wait_read();
        simt_tma_store_wait();
    }
}

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

// Sums of floats are integers.
template <typename SUM, int COUNT> SIMT_INLINE uint64_t sums_hash(const SUM (&sums)[COUNT])
{
    uint64_t all = 0;
    for (int i = 0; i < COUNT; i++) all = all * 31 + (unsigned)(int)sums[i];
    return all;
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

// Two integers from -16 to 15 as f16 or bf16.
SIMT_INLINE unsigned pair_of(unsigned a, bool bf16)
{
    const float low = (float)((int)(a >> 3 & 31u) - 16), high = (float)((int)(a >> 19 & 31u) - 16);
    return bf16 ? (unsigned)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16 |
                      __bfloat16_as_ushort(__float2bfloat16_rn(low))
                : (unsigned)__half_as_ushort(__float2half_rn(high)) << 16 |
                      __half_as_ushort(__float2half_rn(low));
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

// Four integers from -4 to 3 as FP8: 14 bits hold their sums.
template <bool E5M2> SIMT_INLINE unsigned four_of(unsigned a)
{
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = (float)((int)(a >> (8 * i + 3) & 7u) - 4);
    return simt_floats_to_f8<E5M2>(v);
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

// --- maps and launchers ---

template <typename F> static F encoder(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
    (void)cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
    return reinterpret_cast<F>(found);
}

static bool map_rows(CUtensorMap *map, const void *at, unsigned columns, unsigned rows,
                     unsigned box)
{
    const auto encode = encoder<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    const cuuint64_t dims[2] = {columns, rows}, strides[1] = {ROW};
    const cuuint32_t boxes[2] = {ROW, box}, ones[2] = {1, 1};
    return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(at), dims,
                            strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Windows of 3 x 3 over a border of 1; every other pixel of a line.
static bool map_pixels(CUtensorMap *map, const void *at)
{
    const auto encode = encoder<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    const cuuint64_t dims[4] = {ROW, 8, 6, 4}, strides[3] = {ROW, 8 * ROW, 48 * ROW};
    const int low[2] = {-1, -1}, high[2] = {-1, -1};
    const cuuint32_t steps[4] = {1, 2, 1, 1};
    return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void *>(at), dims,
                            strides, low, high, ROW, 64, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static const dim3 blocks(N / SELFTEST_BLOCK), threads(SELFTEST_BLOCK);
enum { SHARED = 2 * TILE + 192 * ROW + 16 };

extern "C" cudaError_t selftest_dependency_wait(uint64_t *out, const unsigned *in,
                                                cudaStream_t stream)
{
    SIMT_LAUNCH(row_ahead<false>, blocks, threads, 0, stream, out, in);
    SIMT_LAUNCH_DEPENDENT(row_behind, blocks, threads, 0, stream, out);
    return cudaGetLastError();
}

extern "C" cudaError_t selftest_dependents_launch(uint64_t *out, const unsigned *in,
                                                  cudaStream_t stream)
{
    SIMT_LAUNCH(row_ahead<true>, blocks, threads, 0, stream, out, in);
    SIMT_LAUNCH_DEPENDENT(row_behind, blocks, threads, 0, stream, out);
    return cudaGetLastError();
}

extern "C" cudaError_t selftest_mbar(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    SIMT_LAUNCH(row_mbar, blocks, threads, SHARED, stream, out, in);
    return cudaGetLastError();
}

extern "C" cudaError_t selftest_sync_group(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    SIMT_LAUNCH(row_sync_group, blocks, threads, SHARED, stream, out, in);
    return cudaGetLastError();
}

template <bool CONSTANT>
static cudaError_t load(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    CUtensorMap map;
    if (!map_rows(&map, in, 48, ROWS - 5, 64)) return cudaErrorInvalidValue;
    SIMT_LAUNCH((row_tma_load<CONSTANT>), blocks, threads, SHARED, stream, out, map);
    return cudaGetLastError();
}

extern "C" cudaError_t selftest_tma_load(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    return load<false>(out, in, stream);
}

extern "C" cudaError_t selftest_tma_load_constant(uint64_t *out, const unsigned *in,
                                                  cudaStream_t stream)
{
    return load<true>(out, in, stream);
}

extern "C" cudaError_t selftest_cluster(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    SIMT_LAUNCH_CLUSTER(row_cluster, false, 4, blocks, threads, SELFTEST_BLOCK * 16, stream, out,
                        in);
    return cudaGetLastError();
}

extern "C" cudaError_t selftest_tma_load_im2col(uint64_t *out, const unsigned *in,
                                                cudaStream_t stream)
{
    CUtensorMap map;
    if (!map_pixels(&map, in)) return cudaErrorInvalidValue;
    SIMT_LAUNCH(row_tma_load_im2col, blocks, threads, SHARED, stream, out, map);
    return cudaGetLastError();
}

extern "C" cudaError_t selftest_tma_store(uint64_t *out, const unsigned *in, cudaStream_t stream)
{
    CUtensorMap map;
    if (!map_rows(&map, out, 56, N * 16 / ROW - 6, 64)) return cudaErrorInvalidValue;
    SIMT_LAUNCH(row_tma_store, blocks, threads, SHARED, stream, map, in);
    return cudaGetLastError();
}

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
