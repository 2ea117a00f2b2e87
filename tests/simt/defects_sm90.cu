// SPDX-License-Identifier: Apache-2.0
// Planted defects around the instructions of compute capability 9.0 and 10.0, as defects.cu has
// others.
#include "defects.h"
#include "runtime/cuda/device/simt_sm100.cuh"

// --- y (64, 64) = x (64, DEPTH) w (64, DEPTH)^T: a thread fills two stages of 64 bytes of depth,
// four warps multiply ---

enum { SIDE = 64, STEPS = 6, DEPTH = STEPS * 64, BOX = SIDE * 64, STAGE = 2 * BOX };
enum product_defect { P_RIGHT, P_PARITY, P_BYTES, P_SUMS, P_STAGE, P_FENCE, P_PUBLISH };

template <int BAD>
SIMT_INLINE void stages_fill(const CUtensorMap *x, const CUtensorMap *w, unsigned shared)
{
    const unsigned full = shared + 2 * STAGE, empty = full + 16;
    for (unsigned k = 0; k < STEPS; k++) {
        const unsigned s = k % 2, to = shared + s * STAGE;
        simt_mbar_wait(empty + s * 8, (k / 2 & 1) ^ 1);
        simt_mbar_expect(full + s * 8, BAD == P_BYTES ? BOX : STAGE);
        simt_tma_load(to, x, full + s * 8, (int)k * 64, 0);
        simt_tma_load(to + BOX, w, full + s * 8, (int)k * 64, 0);
    }
}

SIMT_INLINE void sums_write(const int (&sums)[32], int *y)
{
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < 32; i++)
        y[(row + i / 2 % 2 * 8) * SIDE + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

template <int BAD> SIMT_INLINE void stages_multiply(unsigned shared, int *y)
{
    const unsigned full = shared + 2 * STAGE, empty = full + 16;
    const bool releases = threadIdx.x % 32 == 0;
    int sums[32];
    simt_wgmma_order(sums);
    for (unsigned k = 0; k < STEPS; k++) {
        const unsigned s = k % 2, from = shared + s * STAGE;
        simt_mbar_wait(full + s * 8, (k / 2 & 1) ^ (BAD == P_PARITY));
        if (BAD != P_FENCE) simt_wgmma_fence();
        for (unsigned part = 0; part < 2; part++)
            simt_wgmma_k32<false>(sums, simt_wgmma_matrix<64>(from) + part * 2,
                                  simt_wgmma_matrix<64>(from + BOX) + part * 2, k + part > 0);
        simt_wgmma_commit();
        if (BAD == P_STAGE && releases) simt_mbar_arrive(empty + s * 8);
        if (BAD == P_SUMS && k == STEPS - 1) sums_write(sums, y);
        simt_wgmma_wait<0>();
        if (BAD != P_STAGE && releases) simt_mbar_arrive(empty + s * 8);
    }
    simt_wgmma_order(sums);
    if (BAD != P_SUMS) sums_write(sums, y);
}

template <int BAD>
static __global__ void product(const __grid_constant__ CUtensorMap x,
                               const __grid_constant__ CUtensorMap w, int *y)
{
    SIMT_DYN_SHARED_AT(char, bytes, 1024);
    const unsigned shared = simt_shared_address(bytes);
    if (threadIdx.x == 0) {
        for (unsigned s = 0; s < 2; s++) {
            simt_mbar_init(shared + 2 * STAGE + s * 8, 1);
            simt_mbar_init(shared + 2 * STAGE + 16 + s * 8, 4);
        }
        if (BAD != P_PUBLISH) simt_mbar_publish();
    }
    __syncthreads();
    if (threadIdx.x == 128) stages_fill<BAD>(&x, &w, shared);
    if (threadIdx.x < 128) stages_multiply<BAD>(shared, y);
}

// A map of rows of `columns` bytes in boxes of 64 x 64.
static bool map_make(CUtensorMap *map, void *at, uint64_t rows, uint64_t columns)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
    const cuuint64_t dims[2] = {columns, rows}, strides[1] = {columns};
    const cuuint32_t box[2] = {64, SIDE}, ones[2] = {1, 1};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &how) != cudaSuccess ||
        !found)
        return false;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, at, dims, strides, box, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The word of a box that is in place i of shared memory, and the other way round: chunks of 16
// bytes are swizzled by pairs of rows.
SIMT_INLINE unsigned unswizzled(unsigned i) { return i ^ (i / 32 % 4) << 2; }

static void operand_make(int8_t (*host)[DEPTH], void **device, int seed)
{
    for (int r = 0; r < SIDE; r++)
        for (int k = 0; k < DEPTH; k++) host[r][k] = (int8_t)((r * 31 + k * seed) % 251 - 125);
    cudaMalloc(device, SIDE * DEPTH);
    cudaMemcpy(*device, host, SIDE * DEPTH, cudaMemcpyHostToDevice);
}

template <int BAD> static int run_product(int planted)
{
    static int8_t x[SIDE][DEPTH], w[SIDE][DEPTH];
    static int y[SIDE][SIDE];
    const size_t shared = 2 * STAGE + 32;
    void *dx, *dw, *dy;
    CUtensorMap xm, wm;
    int bad = 0;
    operand_make(x, &dx, 7);
    operand_make(w, &dw, 11);
    cudaMalloc(&dy, sizeof y);
    if (!map_make(&xm, dx, SIDE, DEPTH) || !map_make(&wm, dw, SIDE, DEPTH)) return 1;
    if (planted)
        SIMT_LAUNCH(product<BAD>, dim3(1), dim3(256), shared, nullptr, xm, wm, (int *)dy);
    else
        SIMT_LAUNCH(product<P_RIGHT>, dim3(1), dim3(256), shared, nullptr, xm, wm, (int *)dy);
    cudaDeviceSynchronize();
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SIDE; c++) {
            int sum = 0;
            for (int k = 0; k < DEPTH; k++) sum += x[r][k] * w[c][k];
            bad |= y[r][c] != sum;
        }
    cudaFree(dx);
    cudaFree(dw);
    cudaFree(dy);
    return bad;
}

int defect_barrier_of_wrong_parity(int planted) { return run_product<P_PARITY>(planted); }
int defect_barrier_expects_too_few(int planted) { return run_product<P_BYTES>(planted); }
int defect_sums_before_wait(int planted) { return run_product<P_SUMS>(planted); }
int defect_stage_freed_too_early(int planted) { return run_product<P_STAGE>(planted); }
int defect_wgmma_without_fence(int planted) { return run_product<P_FENCE>(planted); }
int defect_barrier_not_published(int planted) { return run_product<P_PUBLISH>(planted); }

// --- y (BOX / 4) = x: one thread loads a box, all read it ---

template <bool BAD>
static __global__ void box_read(const __grid_constant__ CUtensorMap x, unsigned *y)
{
    SIMT_DYN_SHARED_AT(unsigned, tile, 1024);
    const unsigned at = simt_shared_address(tile), t = threadIdx.x;
    if (t == 0) {
        simt_mbar_init(at + BOX, 1);
        simt_mbar_publish();
        simt_mbar_expect(at + BOX, BOX);
        simt_tma_load(at, &x, at + BOX, 0, 0);
    }
    __syncthreads();
    if (!BAD) simt_mbar_wait(at + BOX, 0);
    for (unsigned i = t; i < BOX / 4; i += blockDim.x) y[i] = tile[i];
}

int defect_box_read_before_wait(int planted)
{
    static unsigned words[2][BOX / 4];
    unsigned *device;
    CUtensorMap map;
    int bad = 0;
    for (unsigned i = 0; i < BOX / 4; i++) words[0][i] = i;
    cudaMalloc((void **)&device, sizeof words);
    cudaMemcpy(device, words, BOX, cudaMemcpyHostToDevice);
    if (!map_make(&map, device, SIDE, 64)) return 1;
    if (planted)
        SIMT_LAUNCH(box_read<true>, dim3(1), dim3(128), BOX + 8, nullptr, map, device + BOX / 4);
    else
        SIMT_LAUNCH(box_read<false>, dim3(1), dim3(128), BOX + 8, nullptr, map, device + BOX / 4);
    cudaDeviceSynchronize();
    cudaMemcpy(words[1], device + BOX / 4, BOX, cudaMemcpyDeviceToHost);
    for (unsigned i = 0; i < BOX / 4; i++) bad |= words[1][i] != unswizzled(i);
    cudaFree(device);
    return bad;
}

// --- y (64, 64 bytes): threads write a tile, one stores it twice, the second time inverted ---

enum store_defect { S_RIGHT, S_FENCE, S_CHANGES };

template <int BAD>
static __global__ void stored_tile(const __grid_constant__ CUtensorMap y,
                                   const __grid_constant__ CUtensorMap inverse)
{
    SIMT_DYN_SHARED_AT(unsigned, tile, 1024);
    const unsigned t = threadIdx.x;
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = t; i < BOX / 4; i += blockDim.x) tile[i] = turn ? ~i : i;
        if (BAD != S_FENCE) simt_fence_async();
        __syncthreads();
        if (t == 0) {
            simt_tma_store(turn ? &inverse : &y, simt_shared_address(tile), 0, 0);
            simt_tma_store_commit();
            if (BAD != S_CHANGES) simt_tma_store_wait_read();
        }
        __syncthreads();
    }
    if (t == 0) simt_tma_store_wait();
}

template <int BAD> static int run_stored(int planted)
{
    static unsigned y[2][BOX / 4];
    char *device;
    CUtensorMap maps[2];
    int bad = 0;
    cudaMalloc((void **)&device, sizeof y);
    for (int i = 0; i < 2; i++)
        if (!map_make(&maps[i], device + i * BOX, SIDE, 64)) return 1;
    if (planted)
        SIMT_LAUNCH(stored_tile<BAD>, dim3(1), dim3(128), BOX, nullptr, maps[0], maps[1]);
    else
        SIMT_LAUNCH(stored_tile<S_RIGHT>, dim3(1), dim3(128), BOX, nullptr, maps[0], maps[1]);
    cudaDeviceSynchronize();
    cudaMemcpy(y, device, sizeof y, cudaMemcpyDeviceToHost);
    for (unsigned i = 0; i < BOX / 4; i++)
        bad |= y[0][i] != unswizzled(i) || y[1][i] != ~unswizzled(i);
    cudaFree(device);
    return bad;
}

int defect_store_without_fence(int planted) { return run_stored<S_FENCE>(planted); }
int defect_store_source_changes(int planted) { return run_stored<S_CHANGES>(planted); }

// --- y (64, 128) = a (64, 64, 2:4) b (128, 64)^T by four warps, operands as threads write them ---

enum { SP_COLUMNS = 128, SP_DEPTH = 64, SP_KEPT = SP_DEPTH / 2, SP_A = SIDE * 64 };
enum sparse_defect { SP_RIGHT, SP_NEXT_ROW, SP_DESCENDS, SP_FENCE };

template <int BAD>
static __global__ void sparse_product(const unsigned *a, const unsigned *b, const unsigned *meta,
                                      int *y)
{
    SIMT_DYN_SHARED_AT(unsigned, tile, 1024);
    const unsigned at = simt_shared_address(tile), t = threadIdx.x;
    unsigned mine = meta[BAD == SP_NEXT_ROW ? (t + 4) % 128 : t];
    if (BAD == SP_DESCENDS) mine = (mine & 0x33333333u) << 2 | (mine >> 2 & 0x33333333u);
    for (unsigned i = t; i < SP_A / 4; i += 128)
        tile[unswizzled(i)] = i % 16 < SP_KEPT / 4 ? a[i / 16 * (SP_KEPT / 4) + i % 16] : 0;
    for (unsigned i = t; i < SP_COLUMNS * SP_DEPTH / 4; i += 128)
        tile[SP_A / 4 + unswizzled(i)] = b[i];
    simt_fence_async();
    __syncthreads();
    int sums[SP_COLUMNS / 2];
    simt_wgmma_order(sums);
    if (BAD != SP_FENCE) simt_wgmma_fence();
    simt_wgmma_sp_k64<false>(sums, simt_wgmma_matrix<64>(at), simt_wgmma_matrix<64>(at + SP_A),
                             mine, 0);
    simt_wgmma_commit();
    simt_wgmma_wait<0>();
    simt_wgmma_order(sums);
    const unsigned lane = t % 32, row = t / 32 * 16 + lane / 4;
    for (unsigned i = 0; i < SP_COLUMNS / 2; i++)
        y[(row + i / 2 % 2 * 8) * SP_COLUMNS + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

// The places of a group's two numbers, one of six pairs.
static unsigned pair_of(int row, int group)
{
    static const unsigned char pairs[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    return pairs[(row * 5 + group * 3 + row / 8) % 6];
}

// What is kept of a, the words of the lanes, and a in full: PTX ISA, "Sparse wgmma.mma_async.sp
// with integer type".
static void sparse_make(int8_t (*kept)[SP_KEPT], unsigned *meta, int (*full)[SP_DEPTH])
{
    memset(full, 0, sizeof *full * SIDE);
    memset(meta, 0, 128 * sizeof *meta);
    for (int r = 0; r < SIDE; r++)
        for (int k = 0; k < SP_KEPT; k++) {
            const int group = k / 2;
            const unsigned pair = pair_of(r, group);
            kept[r][k] = (int8_t)((r * 31 + k * 7) % 251 - 125);
            full[r][group * 4 + (int)(pair >> k % 2 * 2 & 3)] = kept[r][k];
            if (k % 2 == 0)
                meta[r / 16 * 32 + r % 8 * 4 + group / 8 * 2 + r / 8 % 2] |= pair << group % 8 * 4;
        }
}

template <int BAD> static int run_sparse_product(int planted)
{
    static int8_t kept[SIDE][SP_KEPT], b[SP_COLUMNS][SP_DEPTH];
    static int full[SIDE][SP_DEPTH], y[SIDE][SP_COLUMNS];
    static unsigned meta[128];
    unsigned *device[3];
    const void *from[3] = {kept, b, meta};
    const size_t bytes[3] = {sizeof kept, sizeof b, sizeof meta}, room = SP_A + sizeof b;
    void *dy;
    int bad = 0;
    sparse_make(kept, meta, full);
    for (int c = 0; c < SP_COLUMNS; c++)
        for (int k = 0; k < SP_DEPTH; k++) b[c][k] = (int8_t)((c * 13 + k * 11) % 255 - 127);
    for (int i = 0; i < 3; i++) {
        cudaMalloc((void **)&device[i], bytes[i]);
        cudaMemcpy(device[i], from[i], bytes[i], cudaMemcpyHostToDevice);
    }
    cudaMalloc(&dy, sizeof y);
    if (planted)
        SIMT_LAUNCH(sparse_product<BAD>, dim3(1), dim3(128), room, nullptr, device[0], device[1],
                    device[2], (int *)dy);
    else
        SIMT_LAUNCH(sparse_product<SP_RIGHT>, dim3(1), dim3(128), room, nullptr, device[0],
                    device[1], device[2], (int *)dy);
    cudaDeviceSynchronize();
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SP_COLUMNS; c++) {
            int sum = 0;
            for (int k = 0; k < SP_DEPTH; k++) sum += full[r][k] * b[c][k];
            bad |= y[r][c] != sum;
        }
    for (int i = 0; i < 3; i++) cudaFree(device[i]);
    cudaFree(dy);
    return bad;
}

int defect_wgmma_sp_metadata_of_next_row(int planted)
{
    return run_sparse_product<SP_NEXT_ROW>(planted);
}
int defect_wgmma_sp_pair_descends(int planted) { return run_sparse_product<SP_DESCENDS>(planted); }
int defect_wgmma_sp_without_fence(int planted) { return run_sparse_product<SP_FENCE>(planted); }

// --- y (TILES, 128, 64) in tensor memory: of each tile 128 bytes of depth of x, twice below each
// other, and w; a thread fills one stage of 64 bytes, one multiplies, four warps read the sums ---

enum { TILES = STEPS / 2, ROOM = 3 * BOX };
enum tensor_defect {
    T_RIGHT,
    T_AFTER,
    T_BEFORE,
    T_MADE,
    T_TAKEN,
    T_STAGE,
    T_QUARTER,
    T_KEPT,
    T_KIND
};

template <int BAD>
SIMT_INLINE void tensor_fill(const CUtensorMap *x, const CUtensorMap *w, unsigned shared)
{
    const unsigned full = shared + ROOM, empty = full + 8;
    for (unsigned k = 0; k < STEPS; k++) {
        if (BAD != T_STAGE) simt_mbar_wait(empty, (k & 1) ^ 1);
        simt_mbar_expect(full, 3 * BOX);
        for (unsigned i = 0; i < 3; i++)
            simt_tma_load(shared + i * BOX, i < 2 ? x : w, full, (int)k * 64, 0);
        if (BAD == T_STAGE) simt_mbar_wait(full, k & 1);
    }
}

template <int BAD> SIMT_INLINE void tensor_multiply(unsigned shared, unsigned memory)
{
    constexpr unsigned what =
        simt_tcgen_descriptor(BAD == T_KIND ? SIMT_TCGEN_F16 : SIMT_TCGEN_S8, SIDE);
    const unsigned full = shared + ROOM, empty = full + 8, made = full + 16, taken = full + 24;
    for (unsigned k = 0; k < STEPS; k++) {
        if (BAD != T_TAKEN && BAD != T_MADE && k % 2 == 0) simt_mbar_wait(taken, (k / 2 & 1) ^ 1);
        simt_mbar_wait(full, k & 1);
        if (BAD != T_AFTER) simt_tcgen_fence_after();
        for (unsigned part = 0; part < 2; part++)
            simt_tcgen_multiply<SIMT_TCGEN_S8>(memory, simt_tcgen_matrix<64>(shared) + part * 2,
                                               simt_tcgen_matrix<64>(shared + 2 * BOX) + part * 2,
                                               what, k % 2 + part > 0);
        simt_tcgen_commit(empty);
        if (k % 2) simt_tcgen_commit(made);
    }
}

template <int BAD> SIMT_INLINE void tensor_read(unsigned shared, unsigned memory, int *y)
{
    const unsigned made = shared + ROOM + 16, taken = made + 8, t = threadIdx.x,
                   lanes = (t & ~31u) ^ (BAD == T_QUARTER ? 32 : 0);
    for (unsigned tile = 0; tile < TILES; tile++) {
        if (BAD != T_MADE) simt_mbar_wait(made, tile & 1);
        simt_tcgen_fence_after();
        for (unsigned c = 0; c < SIDE; c += 32) {
            int sums[32];
            simt_tmem_load(sums, memory + (lanes << 16) + c);
            for (unsigned i = 0; i < 32; i++) y[(tile * 2 * SIDE + t) * SIDE + c + i] = sums[i];
        }
        if (BAD != T_BEFORE) simt_tcgen_fence_before();
        __syncwarp();
        if (BAD != T_MADE && t % 32 == 0) simt_mbar_arrive(taken);
    }
    for (unsigned tile = 0; BAD == T_MADE && tile < TILES; tile++) // not before the products' end
        simt_mbar_wait(made, tile & 1);
}

template <int BAD>
static __global__ void tensor_product(const __grid_constant__ CUtensorMap x,
                                      const __grid_constant__ CUtensorMap w, int *y)
{
    SIMT_DYN_SHARED_AT(char, bytes, 1024);
    const unsigned shared = simt_shared_address(bytes), address = ROOM + 32,
                   warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < 4; i++) simt_mbar_init(shared + ROOM + i * 8, i < 3 ? 1 : 4);
        simt_mbar_publish();
    }
    __syncwarp();
    if (warp == 5) simt_tmem_allocate<SIDE>(shared + address);
    __syncthreads();
    const unsigned memory = *reinterpret_cast<const unsigned *>(bytes + address);
    if (warp < 4) tensor_read<BAD>(shared, memory, y);
    if (threadIdx.x == 128) tensor_fill<BAD>(&x, &w, shared);
    if (threadIdx.x == 160) tensor_multiply<BAD>(shared, memory);
    __syncwarp();
    __syncthreads();
    if (warp == 5 && BAD != T_KEPT) simt_tmem_free<SIDE>(memory);
}

template <int BAD> static int run_tensor(int planted)
{
    static int8_t x[SIDE][DEPTH], w[SIDE][DEPTH];
    static int y[TILES][2 * SIDE][SIDE];
    void *dx, *dw, *dy;
    CUtensorMap xm, wm;
    int bad = 0;
    operand_make(x, &dx, 7);
    operand_make(w, &dw, 11);
    cudaMalloc(&dy, sizeof y);
    if (!map_make(&xm, dx, SIDE, DEPTH) || !map_make(&wm, dw, SIDE, DEPTH)) return 1;
    if (planted)
        SIMT_LAUNCH(tensor_product<BAD>, dim3(1), dim3(192), ROOM + 40, nullptr, xm, wm, (int *)dy);
    else
        SIMT_LAUNCH(tensor_product<T_RIGHT>, dim3(1), dim3(192), ROOM + 40, nullptr, xm, wm,
                    (int *)dy);
    cudaDeviceSynchronize();
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    for (int t = 0; t < TILES; t++)
        for (int r = 0; r < 2 * SIDE; r++)
            for (int c = 0; c < SIDE; c++) {
                int sum = 0;
                for (int k = t * 128; k < (t + 1) * 128; k++) sum += x[r % SIDE][k] * w[c][k];
                bad |= y[t][r][c] != sum;
            }
    cudaFree(dx);
    cudaFree(dw);
    cudaFree(dy);
    return bad;
}

int defect_tensor_memory_without_fence(int planted) { return run_tensor<T_AFTER>(planted); }
int defect_tensor_memory_told_without_fence(int planted) { return run_tensor<T_BEFORE>(planted); }
int defect_tensor_sums_before_they_are_made(int planted) { return run_tensor<T_MADE>(planted); }
int defect_tensor_sums_overwritten(int planted) { return run_tensor<T_TAKEN>(planted); }
int defect_tensor_stage_overwritten(int planted) { return run_tensor<T_STAGE>(planted); }
int defect_tensor_lanes_of_another_warp(int planted) { return run_tensor<T_QUARTER>(planted); }
int defect_tensor_memory_not_freed(int planted) { return run_tensor<T_KEPT>(planted); }
int defect_tensor_descriptor_of_another_kind(int planted) { return run_tensor<T_KIND>(planted); }
