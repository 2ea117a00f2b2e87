// SPDX-License-Identifier: Apache-2.0
// One kernel for each SM90 row of selftest.inc, on compute capability 9.0 and 10.0. The inputs are
// taken for a tensor of bytes: 192 rows of 64, or 4 pictures of 6 x 8 pixels of 64 channels.
#include "selftest_sm90.cuh"
#include "runtime/cuda/device/dependent.cuh"

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

// --- maps and launchers ---

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
