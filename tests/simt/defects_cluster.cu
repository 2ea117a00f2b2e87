// SPDX-License-Identifier: Apache-2.0
// Planted defects around clusters of blocks, and boxes of constants that are loaded early.
#include "defects.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/simt_sm90.cuh"

// --- y = sums over a cluster's blocks of what each has in its shared memory; a quarter a block ---

enum { BLOCKS = 4, THREADS = 128, WORDS = THREADS * 4 };
enum cluster_defect { C_RIGHT, C_UNMET, C_PART, C_ENDS };

SIMT_INLINE void blocks_meet(void)
{
    simt_cluster_arrive();
    simt_cluster_wait();
}

template <int BAD> static __global__ void sums_of_blocks(int *y)
{
    SIMT_DYN_SHARED_AT(int, part, 16);
    const unsigned at = simt_shared_address(part);
    const int t = (int)threadIdx.x, rank = simt_cluster_rank();
    blocks_meet(); /* all have begun */
    for (int i = t * 4; i < t * 4 + 4; i++) part[i] = (rank + 1) * i;
    if (BAD != C_UNMET && (BAD != C_PART || t >= 32)) blocks_meet();
    if (t < THREADS / BLOCKS) {
        const int first = (rank * (THREADS / BLOCKS) + t) * 4;
        int sum[4] = {0, 0, 0, 0}, more[4];
        for (int b = 0; b < simt_cluster_size(); b++) {
            simt_cluster_load(more, at + (unsigned)first * 4, b);
            for (int i = 0; i < 4; i++) sum[i] += more[i];
        }
        for (int i = 0; i < 4; i++) y[(int)blockIdx.x / BLOCKS * WORDS + first + i] = sum[i];
    }
    __syncwarp();
    if (BAD != C_ENDS) blocks_meet();
}

template <int BAD> static int run_cluster(int planted)
{
    static int y[2 * WORDS];
    int *device, bad = 0;
    cudaMalloc((void **)&device, sizeof y);
    if (planted)
        SIMT_LAUNCH_CLUSTER(sums_of_blocks<BAD>, false, BLOCKS, dim3(2 * BLOCKS), dim3(THREADS),
                            WORDS * 4, nullptr, device);
    else
        SIMT_LAUNCH_CLUSTER(sums_of_blocks<C_RIGHT>, false, BLOCKS, dim3(2 * BLOCKS), dim3(THREADS),
                            WORDS * 4, nullptr, device);
    bad |= cudaDeviceSynchronize() != cudaSuccess;
    cudaMemcpy(y, device, sizeof y, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 2 * WORDS; i++) bad |= y[i] != 10 * (i % WORDS);
    cudaFree(device);
    return bad;
}

int defect_cluster_blocks_never_meet(int planted) { return run_cluster<C_UNMET>(planted); }
int defect_cluster_barrier_of_a_part(int planted) { return run_cluster<C_PART>(planted); }
int defect_cluster_block_ends_early(int planted) { return run_cluster<C_ENDS>(planted); }

int defect_cluster_of_odd_grid(int planted)
{
    int *device;
    cudaMalloc((void **)&device, 2 * WORDS * 4);
    SIMT_LAUNCH_CLUSTER(sums_of_blocks<C_RIGHT>, false, BLOCKS, dim3(planted ? BLOCKS + 1 : BLOCKS),
                        dim3(THREADS), WORDS * 4, nullptr, device);
    const int bad = cudaGetLastError() != cudaSuccess;
    cudaDeviceSynchronize();
    cudaFree(device);
    return bad;
}

// --- a box that is loaded as constant ahead of the wait, which a kernel ahead writes ---

enum { SIDE = 64, BOX = SIDE * SIDE };

static __global__ void words_write(unsigned *x)
{
    for (unsigned i = threadIdx.x; i < BOX / 4; i += blockDim.x) x[i] = ~i;
}

static __global__ void constant_read(const __grid_constant__ CUtensorMap x, unsigned *y)
{
    SIMT_DYN_SHARED_AT(unsigned, tile, 1024);
    const unsigned at = simt_shared_address(tile);
    if (threadIdx.x == 0) {
        simt_mbar_init(at + BOX, 1);
        simt_mbar_publish();
        simt_mbar_expect(at + BOX, BOX);
        simt_tma_load_constant(at, &x, at + BOX, 0, 0);
    }
    __syncthreads();
    simt_mbar_wait(at + BOX, 0);
    simt_dependency_wait();
    for (unsigned i = threadIdx.x; i < BOX / 4; i += blockDim.x) y[i] = tile[i];
}

static bool map_make(CUtensorMap *map, void *at)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
    const cuuint64_t dims[2] = {SIDE, SIDE}, strides[1] = {SIDE};
    const cuuint32_t box[2] = {SIDE, SIDE}, ones[2] = {1, 1};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &how) != cudaSuccess ||
        !found)
        return false;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, at, dims, strides, box, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int defect_constant_is_written_ahead(int planted)
{
    static unsigned y[BOX / 4], x[BOX / 4];
    char *room; /* constants, what a kernel writes, what is read */
    CUtensorMap map;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int bad = 0;
    for (unsigned i = 0; i < BOX / 4; i++) x[i] = ~i;
    cudaMalloc((void **)&room, 3 * BOX);
    cudaMemcpy(room, x, BOX, cudaMemcpyHostToDevice);
    cudaMemset(room + BOX, 0, 2 * BOX);
    cudaDeviceSynchronize();
    if (!map_make(&map, room + (planted ? BOX : 0))) return 1;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    SIMT_LAUNCH(words_write, dim3(1), dim3(128), 0, stream, (unsigned *)(void *)(room + BOX));
    SIMT_LAUNCH_DEPENDENT(constant_read, dim3(1), dim3(128), BOX + 8, stream, map,
                          (unsigned *)(void *)(room + 2 * BOX));
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(y, room + 2 * BOX, BOX, cudaMemcpyDeviceToHost);
    for (unsigned i = 0; i < BOX / 4; i++) bad |= y[i] != ~(i ^ (i / 32 % 4) << 2);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaFree(room);
    return bad;
}
