/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of products with weights of 2:4 on compute capability 9.0. wgmma.sp takes the sparse
   operand from the left alone, so W's rows are the instruction's rows and X's are its columns
   (wgmma_swapped.cuh). Blocks and stages are those of wgmma_tiles.cuh: a step is 128 bytes of X's
   depth, of which W keeps 64, and the metadata, which a tensor map brings, too.

   An instruction reads 64 x 32 bytes of W and ROWS x 64 of X from shared memory, whose 128 bytes a
   cycle bound it: with 256 rows 144 cycles, 128 of which the tensor cores multiply; 80 and 64 with
   128 rows. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_SPARSE_CUH
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_SPARSE_CUH

#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/wgmma_swapped.cuh"

/* What an instance is, as variant says. TAP: bytes of a tap's channels that one copy brings, 128 or
   64; 0: X is a matrix. Each group has 64 of the tile's COLUMNS columns of Y, and ROWS of its rows:
   groups beyond the columns have further rows. */
template <int KIND_, int TO_, bool GELU_, int RESIDUAL_, int TAP_, int ROWS_, int COLUMNS_,
          int STAGES_, int BLOCKS_, int GROUPS_ = 2>
struct sparse_variant {
    typedef typename kind_of<KIND_>::sum sum;
    enum {
        KIND = KIND_,
        TO = TO_,
        GELU = GELU_,
        RESIDUAL = RESIDUAL_,
        PICTURE = TAP_ > 0,
        ROWS = ROWS_,
        DEEP = STAGES_, /* stages */
        BLOCKS = BLOCKS_,
        GROUPS = GROUPS_, /* that multiply */
        MI = 1,
        BN = COLUMNS_,
        BESIDE = BN / 64, /* groups that share rows of X */
        BM = GROUPS / BESIDE * ROWS,
        INTEGER = bytes_of_type(KIND) == 1,
        END = !INTEGER || GELU || TO != PARE_s8 ? EPILOGUE_ANY
              : RESIDUAL != RESIDUAL_NONE       ? EPILOGUE_BOUNDS_RESIDUAL
                                                : EPILOGUE_BOUNDS,
        X_SIZE = bytes_of_type(KIND), /* bytes of a number */
        Y_SIZE = bytes_of_type(TO),
        KB = 128, /* bytes of X's depth a step, and of W's that are kept */
        KEPT = KB / 2,
        PANEL = TAP_ ? TAP_ : KB, /* bytes of depth that rows of X in a stage have together */
        WORDS = 32 / X_SIZE,      /* of metadata for 16 rows of W and 64 bytes of depth */
        META_ROW = WORDS * 4 * KB / PARE_SPARSE_STEP,
        X_BYTES = BM * KB,
        W_BYTES = BN * KEPT,
        LOADED = X_BYTES + W_BYTES + BN / 16 * META_ROW,
        STAGE = (LOADED + 1023) / 1024 * 1024,
        BOX_ROWS = ROWS,
        SLICE = Y_SIZE == 1 ? 64 : 128, /* bytes of a row that one copy has */
        SLICES = 64 * Y_SIZE / SLICE,
        SLICE_BYTES = ROWS * SLICE,
        OUT = SLICES * SLICE_BYTES, /* of a group's part of Y */
        Z_SLICE = 64,               /* the same of a residual of bytes */
        Z_SLICES = 1,
        Z_OUT = RESIDUAL == RESIDUAL_BYTES ? ROWS * Z_SLICE : 0,
        BARRIERS = DEEP * STAGE + GROUPS * (OUT + Z_OUT),
        SHARED = BARRIERS + (2 * DEEP + GROUPS) * 8,
        SUM_THREADS = GROUPS * 128,
        THREADS = SUM_THREADS + 128,
        REGISTERS_FILL = GROUPS > 2 ? 32 : 40,
        REGISTERS_SUM = GROUPS > 2 ? 112 : 232
    };
    static_assert(SHARED <= 227 * 1024, "shared memory of a block");
    static_assert((REGISTERS_SUM * GROUPS + REGISTERS_FILL) * 128 <=
                      65536 / (THREADS * BLOCKS) / 8 * 8 * THREADS,
                  "registers that a block was given");
    static_assert(SHARED * BLOCKS + BLOCKS * 1024 <= 228 * 1024, "shared memory of a processor");
};

/* --- one thread fills the stages --- */

/* A window's next lot of channels; `left` of them are not brought yet. */
typedef struct patch_place {
    int w, h, image; /* the first position's first tap */
    int channel, right, down;
    int left;
} patch_place;

template <typename V> SIMT_INLINE patch_place patch_begin(const pare_cuda_gemm_args &p, int m0)
{
    const int line = fast_divide(m0, p.in.by_width), image = fast_divide(line, p.in.by_height);
    return {(m0 - line * p.in.out_width) * p.in.stride[1] - p.in.begin[1],
            (line - image * p.in.out_height) * p.in.stride[0] - p.in.begin[0],
            image,
            0,
            0,
            0,
            p.depth * V::X_SIZE / V::PANEL};
}

/* Brings one; behind the last again the last, which zeros of W meet. */
template <typename V>
SIMT_INLINE void patch_bring(const pare_cuda_gemm_args &p, const wgmma_walk &g,
                             const CUtensorMap *xm, unsigned to, unsigned bar, patch_place &x)
{
    simt_tma_load_im2col(to, xm, bar, x.channel * V::PANEL, x.w, x.h, x.image,
                         x.right * p.in.dilation[1], x.down * p.in.dilation[0]);
    if (--x.left < 1) return;
    if (++x.channel == g.tap_steps) {
        x.channel = 0;
        if (++x.right == p.in.kernel_width) x.right = 0, x.down++;
    }
}

template <typename V>
SIMT_INLINE void sparse_produce(const pare_cuda_gemm_args &p, const wgmma_walk &g,
                                const CUtensorMap *xm, const CUtensorMap *wm, const CUtensorMap *nm,
                                unsigned shared)
{
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    const int tiles = g.tiles_m * g.tiles_n;
    int stage = 0;
    unsigned parity = 1;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        const tile_at t = tile_of_index(g, index);
        const int m0 = t.m * V::BM, n0 = t.n * V::BN;
        patch_place x = {0, 0, 0, 0, 0, 0, 0};
        if (V::PICTURE) x = patch_begin<V>(p, m0);
        for (int k = 0; k < g.steps; k++) {
            const unsigned bar = full + stage * 8, at = shared + stage * V::STAGE;
            simt_mbar_wait(empty + stage * 8, parity);
            simt_mbar_expect(bar, V::LOADED);
            if (V::PICTURE)
                PARE_UNROLL for (int panel = 0; panel < V::KB / V::PANEL; panel++)
                    patch_bring<V>(p, g, xm, at + panel * V::BM * V::PANEL, bar, x);
            else
                simt_tma_load(at, xm, bar, k * V::KB, m0);
            simt_tma_load(at + V::X_BYTES, wm, bar, k * V::KEPT, n0);
            simt_tma_load(at + V::X_BYTES + V::W_BYTES, nm, bar, k * V::META_ROW, n0 / 16);
            if (++stage == V::DEEP) stage = 0, parity ^= 1;
        }
    }
}

/* --- the other groups multiply --- */

template <int KIND, int COUNT>
SIMT_INLINE void sparse_multiply(int (&d)[COUNT], uint64_t w, uint64_t x, unsigned meta, int add)
{
    simt_wgmma_sp_k64<KIND == PARE_u8>(d, w, x, meta, add);
}
template <int KIND, int COUNT>
SIMT_INLINE void sparse_multiply(float (&d)[COUNT], uint64_t w, uint64_t x, unsigned meta, int add)
{
    simt_wgmma_sp_k32<KIND == PARE_bf16>(d, w, x, meta, add);
}

/* One step of depth. at, bytes: of the stage; beside: which 64 columns; behind: which rows. */
template <typename V>
SIMT_INLINE void sparse_step(typename V::sum (&acc)[V::ROWS / 2], unsigned at, const char *bytes,
                             int beside, int behind, int step)
{
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5 & 3;
    const int mine = V::X_SIZE == 1 ? lane : (lane >> 2) * 2 + (lane & 1);
    const char *notes = bytes + V::X_BYTES + V::W_BYTES + (beside * 4 + warp) * V::META_ROW;
    const uint64_t x = simt_wgmma_matrix<V::PANEL>(at + behind * V::ROWS * V::PANEL);
    const uint64_t w = simt_wgmma_matrix<V::KEPT>(at + V::X_BYTES + beside * 64 * V::KEPT);
    unsigned meta[2];
    PARE_UNROLL for (int part = 0; part < 2; part++) meta[part] =
        reinterpret_cast<const unsigned *>(notes)[part * V::WORDS + mine];
    __syncwarp(); /* all lanes have read before the first one releases the stage */
    simt_wgmma_fence();
    PARE_UNROLL for (int part = 0; part < 2; part++) sparse_multiply<V::KIND>(
        acc, w + part * 2, x + part * (V::PANEL == V::KB ? 4 : V::BM * V::PANEL >> 4), meta[part],
        part > 0 ? 1 : step);
    simt_wgmma_commit();
}

template <typename V>
SIMT_INLINE void sparse_consume(const pare_cuda_gemm_args &p, const tile_clamp &l,
                                const wgmma_walk &g, const CUtensorMap *ym, const CUtensorMap *zm,
                                char *bytes, unsigned shared)
{
    const int group = (int)threadIdx.x >> 7, tiles = g.tiles_m * g.tiles_n;
    const int beside = group % V::BESIDE, behind = group / V::BESIDE;
    const bool releases = (threadIdx.x & 31) == 0;
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    const int out = V::DEEP * V::STAGE + group * V::OUT,
              z = V::DEEP * V::STAGE + V::GROUPS * V::OUT + group * V::Z_OUT;
    const sum_group mine = {(threadIdx.x & 127) == 0, shared + out, shared + z,
                            empty + V::DEEP * 8 + group * 8};
    unsigned stage = 0, parity = 0, z_parity = 0;
    typename V::sum acc[V::ROWS / 2];
    PARE_UNROLL for (int i = 0; i < V::ROWS / 2; i++) acc[i] = 0;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        const tile_at t = tile_of_index(g, index);
        const int m0 = t.m * V::BM + behind * V::ROWS, n0 = t.n * V::BN + beside * 64;
        unsigned last = 0;
        simt_wgmma_order(acc);
        for (int k = 0; k < g.steps; k++) {
            simt_mbar_wait(full + stage * 8, parity);
            sparse_step<V>(acc, shared + stage * V::STAGE, bytes + stage * V::STAGE, beside, behind,
                           k);
            if (V::RESIDUAL != (int)RESIDUAL_NONE && k == 0) {
                if (mine.leads) residual_bring<V>(mine, zm, m0, n0);
                __syncwarp();
            }
            simt_wgmma_wait<1>(); /* the step before was read */
            if (k > 0 && releases) simt_mbar_arrive(empty + last * 8);
            last = stage;
            if (++stage == V::DEEP) stage = 0, parity ^= 1;
        }
        simt_wgmma_wait<0>();
        simt_wgmma_order(acc);
        if (releases) simt_mbar_arrive(empty + last * 8);
        if (V::RESIDUAL != (int)RESIDUAL_NONE) {
            simt_mbar_wait(mine.z_bar, z_parity);
            z_parity ^= 1;
        } else { /* what was stored last was read */
            if (mine.leads) simt_tma_store_wait_read();
            simt_sync_group(group + 1);
        }
        swapped_finish<V>(p, l, g, acc, bytes + out, bytes + z, n0);
        simt_fence_async();
        simt_sync_group(group + 1);
        if (mine.leads) tile_put<V>(p, mine, ym, m0, n0);
        __syncwarp();
    }
    if (mine.leads) simt_tma_store_wait();
    __syncwarp();
}

/* nm: of the metadata. */
template <typename V>
static __global__ void __launch_bounds__(V::THREADS, V::BLOCKS) wgmma_sparse_tiles(
    const __grid_constant__ CUtensorMap xm, const __grid_constant__ CUtensorMap wm,
    const __grid_constant__ CUtensorMap nm, const __grid_constant__ CUtensorMap ym,
    const __grid_constant__ CUtensorMap zm, const __grid_constant__ pare_cuda_gemm_args p,
    const __grid_constant__ tile_clamp clamp, const __grid_constant__ wgmma_walk walk)
{
    SIMT_DYN_SHARED_AT(char, bytes, 1024);
    const unsigned shared = simt_shared_address(bytes);
    barriers_set<V>(shared);
    if (threadIdx.x == 0)
        simt_tma_prefetch(&xm), simt_tma_prefetch(&wm), simt_tma_prefetch(&nm),
            simt_tma_prefetch(&ym);
    simt_dependency_wait();
    __syncthreads();
    if (threadIdx.x >= V::SUM_THREADS) {
        simt_registers_give<V::REGISTERS_FILL>();
        if (threadIdx.x == V::SUM_THREADS) {
            sparse_produce<V>(p, walk, &xm, &wm, &nm, shared);
            simt_dependents_launch();
        }
        __syncwarp();
    } else {
        simt_registers_take<V::REGISTERS_SUM>();
        sparse_consume<V>(p, clamp, walk, &ym, &zm, bytes, shared);
    }
}

/* --- launchers --- */

/* Metadata: a row for each 16 rows of W, steps one after the other (sparse.h). */
template <typename V>
static bool map_metadata(CUtensorMap *map, const pare_cuda_gemm_args &p, const void *meta)
{
    const int64_t row = (int64_t)pare_sparse_meta_bytes(1, p.depth, V::X_SIZE) /
                        (PARE_SPARSE_ROWS / 16),
                  rows = (int64_t)pare_sparse_meta_bytes(p.columns, p.depth, V::X_SIZE) / row;
    return map_boxes(map, meta, rows, row, row, V::BN / 16, V::META_ROW,
                     CU_TENSOR_MAP_SWIZZLE_NONE);
}

template <typename V>
static bool sparse_maps_make(const pare_cuda_gemm_args &p, const void *meta, CUtensorMap *x,
                             CUtensorMap *w, CUtensorMap *n, CUtensorMap *y, CUtensorMap *z)
{
    const void *residual = p.z ? p.z : p.y;
    const int64_t y_columns = (int64_t)p.columns * V::Y_SIZE, y_row = p.y_row * V::Y_SIZE,
                  kept = (int64_t)pare_sparse_kept_bytes(p.depth, V::X_SIZE);
    return (V::PICTURE ? map_pixels(x, p, V::BM, V::PANEL)
                       : map_rows(x, p.x, p.rows, (int64_t)p.depth * V::X_SIZE, p.x_row * V::X_SIZE,
                                  V::BM, V::KB)) &&
           map_rows(w, p.w, pare_wgmma_sparse_rows(p.columns), kept, kept, V::BN, V::KEPT) &&
           map_metadata<V>(n, p, meta) &&
           map_rows(y, p.y, p.rows, y_columns, y_row, V::ROWS, V::SLICE) &&
           (V::RESIDUAL == (int)RESIDUAL_BYTES
                ? map_rows(z, residual, p.rows, p.columns, p.y_row, V::ROWS, V::Z_SLICE)
                : map_rows(z, residual, p.rows, y_columns, y_row, V::ROWS, V::SLICE));
}

template <typename V>
static cudaError_t sparse_launch(const pare_cuda_gemm_args *p, const void *meta,
                                 cudaStream_t stream)
{
    wgmma_walk walk = walk_of<V>(*p);
    const tile_clamp clamp =
        V::TO == (int)PARE_s8 ? integer_clamp(p->epilogue) : real_clamp(p->epilogue);
    CUtensorMap x, w, n, y, z;
    dim3 grid;
    auto kernel = wgmma_sparse_tiles<V>;
    if (p->picture) walk.tap_steps = p->in.channels * V::X_SIZE / V::PANEL;
    cudaError_t error = grid_of<V>(walk, &grid);
    if (error == cudaSuccess) error = SIMT_ALLOW_SHARED(kernel, V::SHARED);
    if (error != cudaSuccess) return error;
    if (!sparse_maps_make<V>(*p, meta, &x, &w, &n, &y, &z)) return cudaErrorInvalidValue;
    PARE_LAUNCH_DEPENDENT(kernel, grid, dim3(V::THREADS), (size_t)V::SHARED, stream, x, w, n, y, z,
                          *p, clamp, walk);
    return cudaGetLastError();
}

#endif
