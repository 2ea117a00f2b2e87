/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of wgmma_swap.h. A tile is 64 rows of W by BN of X; a block has one group of four
   warps, and makes the sums of its cluster's tile over its share of depth: steps of 128 bytes,
   which its first thread brings to stages by tensor maps, those of W ahead of the wait for the
   kernel ahead. Sums then lie in shared memory, row of X by row of X, where each block reads its
   part of all blocks' ones, adds them in the blocks' order, finishes and stores four neighbours at
   a time. Bytes: a row of X is read once for 64 columns, one of W once for BN rows.

   Sums that pass through shared memory of a cluster cost two barriers, and 4 bytes each that other
   blocks read. Through device memory they would cost a fence, a counter and two trips to L2, which
   is farther (arXiv 2402.13499), and room in the plan's memory; and one block would finish what
   here all of them do.

   For files that are compiled for sm_90a only. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_SWAP_CUH
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_SWAP_CUH

#include "runtime/cuda/gemm/wgmma_swap.h"
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

/* What an instance is, as variant of wgmma_tiles.cuh has it. BN: rows of X. A step's boxes are as
   wide as the swizzle: half a step where a tap has 64 channels of bytes. */
template <int KIND_, int TO_, bool GELU_, int RESIDUAL_, bool PICTURE_, int BN_, int STAGES_>
struct swap_variant {
    typedef typename kind_of<KIND_>::sum sum;
    enum {
        KIND = KIND_,
        TO = TO_,
        GELU = GELU_,
        RESIDUAL = RESIDUAL_,
        PICTURE = PICTURE_,
        BM = PARE_SWAP_COLUMNS,
        BN = BN_,
        DEEP = STAGES_,
        THREADS = 128,
        INTEGER = bytes_of_type(KIND) == 1,
        END = !INTEGER || GELU || TO != PARE_s8 ? EPILOGUE_ANY
              : RESIDUAL != RESIDUAL_NONE       ? EPILOGUE_BOUNDS_RESIDUAL
                                                : EPILOGUE_BOUNDS,
        X_SIZE = bytes_of_type(KIND),
        Y_SIZE = bytes_of_type(TO),
        Z_SIZE = RESIDUAL == RESIDUAL_BYTES ? 1 : Y_SIZE,
        BOX = PICTURE && INTEGER ? 64 : PARE_SWAP_STEP,
        BOXES = PARE_SWAP_STEP / BOX,
        W_BYTES = BM * PARE_SWAP_STEP,
        STAGE = W_BYTES + BN * PARE_SWAP_STEP,
        PITCH = BM + 4, /* sums from one row of X to the next: lanes' are in different banks */
        FOURS = BM / 4,
        UNITS = BN * FOURS, /* of four sums */
        Z_AT = DEEP * STAGE,
        Z_BYTES = RESIDUAL == RESIDUAL_NONE ? 0 : UNITS * 4 * Z_SIZE,
        BARRIERS = Z_AT + Z_BYTES,
        SHARED = BARRIERS + 2 * DEEP * 8,
        BLOCKS = 2
    };
    static_assert(STAGE % 1024 == 0 && BN * BOX % 1024 == 0, "swizzles are of 1024 bytes");
    static_assert(BN * PITCH * 4 <= DEEP * STAGE, "sums lie where stages were");
    static_assert((SHARED + 1024) * BLOCKS <= 228 * 1024, "shared memory of a processor");
    static_assert(UNITS / PARE_SWAP_MOST_CLUSTER % FOURS == 0, "a thread's columns stay the same");
};

typedef struct swap_walk {
    int steps; /* of a tile */
    int tiles_m;
    int tap_boxes, tap_lines; /* of a tap; of a window */
    float inverse;            /* 1 / Y's scale */
} swap_walk;

/* --- one thread fills the stages --- */

/* Where a box of X is: of matrices m0 alone. */
typedef struct swap_source {
    int m0, w, h, image;
    int in_tap, right, down;
} swap_source;

template <typename V>
SIMT_INLINE swap_source source_of(const pare_cuda_gemm_args &p, const swap_walk &g, int m0,
                                  int step)
{
    swap_source s = {m0, 0, 0, 0, 0, 0, 0};
    if (V::PICTURE) {
        const int line = m0 / p.in.out_width, box = step * V::BOXES, tap = box / g.tap_boxes;
        s.image = line / p.in.out_height;
        s.w = (m0 - line * p.in.out_width) * p.in.stride[1] - p.in.begin[1];
        s.h = (line - s.image * p.in.out_height) * p.in.stride[0] - p.in.begin[0];
        s.in_tap = box - tap * g.tap_boxes;
        s.down = tap / p.in.kernel_width;
        s.right = tap - s.down * p.in.kernel_width;
    }
    return s;
}

template <typename V>
SIMT_INLINE void w_bring(const CUtensorMap *wm, unsigned stage, unsigned bar, int step, int n0)
{
    simt_mbar_expect(bar, V::STAGE);
    PARE_UNROLL for (int b = 0; b < V::BOXES; b++) simt_tma_load_constant(
        stage + b * V::BM * V::BOX, wm, bar, (step * V::BOXES + b) * V::BOX, n0);
}

/* Behind the depth W is 0, which any pixel of an integer may meet. */
template <typename V>
SIMT_INLINE void x_bring(const pare_cuda_gemm_args &p, const swap_walk &g, const CUtensorMap *xm,
                         unsigned stage, unsigned bar, int step, swap_source &s)
{
    PARE_UNROLL for (int b = 0; b < V::BOXES; b++)
    {
        const unsigned to = stage + V::W_BYTES + b * V::BN * V::BOX;
        if (!V::PICTURE) {
            simt_tma_load(to, xm, bar, (step * V::BOXES + b) * V::BOX, s.m0);
            continue;
        }
        simt_tma_load_im2col(to, xm, bar, s.in_tap * V::BOX, s.w, s.h, s.image,
                             s.right * p.in.dilation[1], s.down * p.in.dilation[0]);
        if (++s.in_tap < g.tap_boxes) continue;
        s.in_tap = 0;
        if (++s.right < p.in.kernel_width) continue;
        s.right = 0;
        if (++s.down == g.tap_lines) s.down = 0; /* behind the depth */
    }
}

/* --- products --- */

/* KIND: X's; of integers W is signed. */
template <int KIND, typename SUM, int COUNT>
SIMT_INLINE void columns_multiply(SUM (&d)[COUNT], uint64_t w, uint64_t x, int add)
{
    if constexpr (KIND == PARE_u8)
        simt_wgmma_k32_s8u8(d, w, x, add);
    else
        rows_multiply<KIND>(d, w, x, add);
}

template <typename V>
SIMT_INLINE void stage_multiply(typename V::sum (&acc)[V::BN / 2], unsigned stage, bool first)
{
    simt_wgmma_fence();
    PARE_UNROLL for (int b = 0; b < V::BOXES; b++)
    {
        const uint64_t w = simt_wgmma_matrix<V::BOX>(stage + b * V::BM * V::BOX);
        const uint64_t x = simt_wgmma_matrix<V::BOX>(stage + V::W_BYTES + b * V::BN * V::BOX);
        PARE_UNROLL for (int part = 0; part < V::BOX / 32; part++)
            columns_multiply<V::KIND>(acc, w + part * 2, x + part * 2, b + part > 0 || !first);
    }
    simt_wgmma_commit();
}

/* The block's steps: from step `first` on, those of the first stages were begun. */
template <typename V>
SIMT_INLINE void depth_sum(typename V::sum (&acc)[V::BN / 2], const pare_cuda_gemm_args &p,
                           const swap_walk &g, const CUtensorMap *xm, const CUtensorMap *wm,
                           unsigned shared, int first, int steps, int n0, swap_source &source)
{
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    const bool leads = threadIdx.x == 0, releases = (threadIdx.x & 31) == 0;
    int stage = 0, last = 0;
    unsigned parity = 0, freed = 0;
    PARE_UNROLL for (int i = 0; i < V::BN / 2; i++) acc[i] = 0;
    simt_wgmma_order(acc);
    PARE_ROLLED for (int k = 0; k < steps; k++)
    {
        simt_mbar_wait(full + stage * 8, parity);
        stage_multiply<V>(acc, shared + stage * V::STAGE, k == 0);
        simt_wgmma_wait<1>(); /* the step before was read */
        const int next = k - 1 + V::DEEP;
        if (k > 0 && next < steps) {
            if (releases) simt_mbar_arrive(empty + last * 8);
            if (leads) {
                const unsigned to = shared + last * V::STAGE, bar = full + last * 8;
                simt_mbar_wait(empty + last * 8, freed);
                w_bring<V>(wm, to, bar, first + next, n0);
                x_bring<V>(p, g, xm, to, bar, first + next, source);
            }
            __syncwarp();
            if (last == V::DEEP - 1) freed ^= 1;
        }
        last = stage;
        if (++stage == V::DEEP) stage = 0, parity ^= 1;
    }
    simt_wgmma_wait<0>();
    simt_wgmma_order(acc);
}

/* --- what follows sums: unit u is four columns of Y of one row --- */

/* Constants of four columns, a multiple of 4. */
template <typename V>
SIMT_INLINE four_constants swap_constants(const pare_cuda_gemm_args &p, int column)
{
    four_constants k;
    if constexpr (V::INTEGER) {
        vec_load<4>(p.shift, column, 1, k.shift);
        vec_load<4>(p.scale, column, 1, k.scale);
    }
    if (p.bias) {
        vec_load<4>(static_cast<const float *>(p.bias), column, 1, k.bias);
    } else {
        PARE_UNROLL for (int i = 0; i < 4; i++) k.bias[i] = -0.0f; /* changes no float */
    }
    return k;
}

/* A thread's units, all of the same columns. */
typedef struct swap_units {
    int first, end; /* a step is a block of threads */
    int column;
    int64_t m0;
    bool present; /* has Y the columns? */
} swap_units;

template <typename V> SIMT_INLINE swap_units units_of(const pare_cuda_gemm_args &p, int m0, int n0)
{
    const int share = V::UNITS / simt_cluster_size(), from = simt_cluster_rank() * share;
    const int column = n0 + (int)threadIdx.x % V::FOURS * 4;
    return {from + (int)threadIdx.x, from + share, column, m0, column < p.columns};
}

SIMT_INLINE int64_t unit_at(const pare_cuda_gemm_args &p, const swap_units &u, int64_t row)
{
    return row * p.y_row + u.column;
}

/* Begins to bring the thread's residuals, which no other thread reads. */
template <typename V>
SIMT_INLINE void units_bring(const pare_cuda_gemm_args &p, const swap_units &u, char *z)
{
    enum { BYTES = 4 * V::Z_SIZE };
    if (!u.present) return;
    PARE_ROLLED for (int i = u.first; i < u.end; i += V::THREADS)
    {
        const int64_t row = u.m0 + i / V::FOURS;
        if (row >= p.rows) break;
        const char *from = static_cast<const char *>(p.z) + unit_at(p, u, row) * V::Z_SIZE;
        if constexpr (BYTES == 4) simt_cp_async4(z + i * BYTES, from, BYTES);
        if constexpr (BYTES == 8) simt_cp_async8(z + i * BYTES, from, BYTES);
        if constexpr (BYTES == 16) simt_cp_async16(z + i * BYTES, from, BYTES);
    }
    simt_cp_async_commit();
}

/* The tile's sums of this block's depth, row of X by row of X. */
template <typename V>
SIMT_INLINE void sums_put(const typename V::sum (&acc)[V::BN / 2], typename V::sum *sums)
{
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    typename V::sum *mine = sums + (lane & 3) * 2 * V::PITCH + warp * 16 + (lane >> 2);
    PARE_UNROLL for (int i = 0; i < V::BN / 2; i++)
        mine[(i / 4 * 8 + i % 2) * V::PITCH + i / 2 % 2 * 8] = acc[i];
}

/* Four sums of all blocks, in their order. at: in any of them. */
template <typename V> SIMT_INLINE void blocks_add(typename V::sum sum[4], unsigned at)
{
    enum { MOST = PARE_SWAP_MOST_CLUSTER };
    typename V::sum part[MOST][4];
    const int size = simt_cluster_size();
    PARE_UNROLL for (int b = 0; b < MOST; b++) if (b < size) simt_cluster_load(part[b], at, b);
    PARE_UNROLL for (int i = 0; i < 4; i++) sum[i] = part[0][i];
    PARE_UNROLL for (int b = 1; b < MOST; b++) if (b < size) PARE_UNROLL for (int i = 0; i < 4; i++)
        sum[i] += part[b][i];
}

/* z: the unit's residual. */
template <typename V>
SIMT_INLINE void unit_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                             typename V::sum sum[4], const four_constants &k, const char *z,
                             char *y)
{
    enum { OF_Y = V::RESIDUAL == (int)RESIDUAL_OF_Y, WORDS = V::Y_SIZE };
    alignas(4 * WORDS) unsigned out[WORDS] = {0};
    unsigned codes = 0;
    if (OF_Y)
        PARE_UNROLL for (int i = 0; i < WORDS; i++) out[i] =
            reinterpret_cast<const unsigned *>(z)[i];
    if (V::RESIDUAL == (int)RESIDUAL_BYTES) codes = *reinterpret_cast<const unsigned *>(z);
    if constexpr (V::INTEGER)
        PARE_UNROLL for (int i = 0; i < 4; i++) sum[i] =
            (int)((unsigned)sum[i] - (unsigned)k.shift[i]);
    if constexpr (V::END == (int)EPILOGUE_ANY)
        four_real<V>(p, l, inverse, sum, k, codes, reinterpret_cast<char *>(out));
    else
        four_finish<V::END>(p, l, sum, k.scale, k.bias, reinterpret_cast<char *>(out));
    vec_store<WORDS>(reinterpret_cast<unsigned *>(y), 0, out);
}

template <typename V>
SIMT_INLINE void units_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                              const swap_units &u, const four_constants &k, const char *z,
                              unsigned sums)
{
    if (!u.present) return;
    PARE_ROLLED for (int i = u.first; i < u.end; i += V::THREADS)
    {
        typename V::sum sum[4];
        const int in = i / V::FOURS;
        const int64_t row = u.m0 + in;
        if (row >= p.rows) break;
        blocks_add<V>(sum, sums + (in * V::PITCH + i % V::FOURS * 4) * 4);
        unit_finish<V>(p, l, inverse, sum, k, z + i * 4 * V::Z_SIZE,
                       static_cast<char *>(p.y) + unit_at(p, u, row) * V::Y_SIZE);
    }
}

/* Sets the block's barriers, and begins to bring W, which no kernel ahead writes. */
template <typename V>
SIMT_INLINE void block_begin(const CUtensorMap *xm, const CUtensorMap *wm, unsigned shared,
                             int first, int steps, int n0)
{
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    if (shared & 1023) __trap(); /* swizzles count from there */
    simt_tma_prefetch(wm), simt_tma_prefetch(xm);
    for (int s = 0; s < V::DEEP; s++) {
        simt_mbar_init(full + s * 8, 1);
        simt_mbar_init(empty + s * 8, V::THREADS / 32);
    }
    simt_mbar_publish();
    PARE_ROLLED for (int s = 0; s < V::DEEP && s < steps; s++)
        w_bring<V>(wm, shared + s * V::STAGE, full + s * 8, first + s, n0);
}

template <typename V>
static __global__ void __launch_bounds__(V::THREADS, V::BLOCKS)
    wgmma_swap(const __grid_constant__ CUtensorMap xm, const __grid_constant__ CUtensorMap wm,
               const __grid_constant__ pare_cuda_gemm_args p,
               const __grid_constant__ tile_clamp clamp, const __grid_constant__ swap_walk walk)
{
    SIMT_DYN_SHARED_AT(char, bytes, 1024);
    const unsigned shared = simt_shared_address(bytes);
    const int rank = simt_cluster_rank(), size = simt_cluster_size();
    const int tile = (int)blockIdx.x / size, n = tile / walk.tiles_m;
    const int m0 = (tile - n * walk.tiles_m) * V::BN, n0 = n * V::BM;
    const int first = walk.steps * rank / size, steps = walk.steps * (rank + 1) / size - first;
    const bool leads = threadIdx.x == 0;
    if (leads) block_begin<V>(&xm, &wm, shared, first, steps, n0);
    simt_dependents_launch();
    simt_dependency_wait();
    swap_source source = source_of<V>(p, walk, m0, first);
    if (leads)
        PARE_ROLLED for (int s = 0; s < V::DEEP && s < steps; s++) x_bring<V>(
            p, walk, &xm, shared + s * V::STAGE, shared + V::BARRIERS + s * 8, first + s, source);
    __syncthreads(); /* barriers are set */
    const swap_units units = units_of<V>(p, m0, n0);
    const four_constants constants = swap_constants<V>(p, min(units.column, p.columns - 4));
    if (V::RESIDUAL != (int)RESIDUAL_NONE) units_bring<V>(p, units, bytes + V::Z_AT);
    typename V::sum acc[V::BN / 2];
    depth_sum<V>(acc, p, walk, &xm, &wm, shared, first, steps, n0, source);
    if (V::RESIDUAL != (int)RESIDUAL_NONE) simt_cp_async_wait<0>();
    __syncthreads(); /* all stages are read */
    sums_put<V>(acc, reinterpret_cast<typename V::sum *>(bytes));
    simt_cluster_arrive();
    simt_cluster_wait();
    units_finish<V>(p, clamp, walk.inverse, units, constants, bytes + V::Z_AT, shared);
    __syncwarp();
    simt_cluster_arrive(); /* sums are read */
    simt_cluster_wait();
}

/* --- launchers --- */

template <typename V> static swap_walk swap_walk_of(const pare_cuda_gemm_args &p)
{
    swap_walk g;
    const int64_t depth = (int64_t)p.depth * V::X_SIZE;
    g.steps = (int)((depth + PARE_SWAP_STEP - 1) / PARE_SWAP_STEP);
    g.tiles_m = (int)((p.rows + V::BN - 1) / V::BN);
    g.tap_boxes = V::PICTURE ? p.in.channels * V::X_SIZE / V::BOX : 1;
    g.tap_lines = V::PICTURE ? p.depth / p.in.channels / p.in.kernel_width : 1;
    g.inverse = 1 / p.epilogue.y_scale;
    return g;
}

template <typename V>
static bool swap_maps_make(const pare_cuda_gemm_args &p, CUtensorMap *x, CUtensorMap *w)
{
    const int64_t depth = (int64_t)p.depth * V::X_SIZE;
    return (V::PICTURE ? map_pixels(x, p, V::BN, V::BOX)
                       : map_rows(x, p.x, p.rows, depth, p.x_row * V::X_SIZE, V::BN, V::BOX)) &&
           map_rows(w, p.w, p.columns, depth, p.w_row * V::X_SIZE, V::BM, V::BOX);
}

template <typename V>
static cudaError_t swap_variant_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const swap_walk walk = swap_walk_of<V>(*p);
    const tile_clamp clamp =
        V::TO == (int)PARE_s8 ? integer_clamp(p->epilogue) : real_clamp(p->epilogue);
    const int64_t tiles = pare_swap_tiles(p, p->tile);
    const int cluster = pare_swap_cluster(tiles, (int64_t)p->depth * V::X_SIZE);
    CUtensorMap x, w;
    auto kernel = wgmma_swap<V>;
    const cudaError_t error = SIMT_ALLOW_SHARED(kernel, V::SHARED);
    if (error != cudaSuccess) return error;
    if (!swap_maps_make<V>(*p, &x, &w)) return cudaErrorInvalidValue;
    const bool early = pare_cuda_is_dependent(reinterpret_cast<const void *>(kernel), stream);
    SIMT_LAUNCH_CLUSTER(kernel, early, cluster, dim3((unsigned)tiles * (unsigned)cluster),
                        dim3(V::THREADS), (size_t)V::SHARED, stream, x, w, *p, clamp, walk);
    return cudaGetLastError();
}

#endif
