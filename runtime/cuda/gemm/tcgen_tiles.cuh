/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of products on compute capability 10.0, of 8-bit integers, FP8 and halves. A block of
   six warps stays for many tiles of 128 rows: a thread of the fifth fills stages by tensor maps as
   wgmma_tiles.cuh has it, one of the sixth multiplies them into tensor memory, and the first four
   finish a tile's sums, a row a thread, while the next tile's are made beside them. Y goes by
   tensor maps through shared memory, in which a residual was brought the same way.

   For files that are compiled for sm_100a only. */
#ifndef PARE_RUNTIME_CUDA_GEMM_TCGEN_TILES_CUH
#define PARE_RUNTIME_CUDA_GEMM_TCGEN_TILES_CUH

#include "runtime/cuda/device/simt_sm100.cuh"
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

/* What an instance is, as variant has it: one group of 128 rows. Integers of both signs are one
   instance, whose descriptor is told which. */
template <int KIND, int TO, bool GELU, int RESIDUAL, bool PICTURE, int BN, int KB, int STAGES>
struct tcgen_variant : variant<KIND, TO, GELU, RESIDUAL, PICTURE, 2, BN, KB, STAGES, 1, 1> {
    typedef variant<KIND, TO, GELU, RESIDUAL, PICTURE, 2, BN, KB, STAGES, 1, 1> base;
    enum {
        SUMS = base::SHARED,    /* barriers of two tiles' sums: whole, and free again */
        ADDRESS = SUMS + 4 * 8, /* of tensor memory */
        SHARED = ADDRESS + 8,
        THREADS = 192,
        FILLS = 4, /* the warp that fills stages */
        MULTIPLIES = 5
    };
    static constexpr simt_tcgen_kind FACTORS = KIND == PARE_s8       ? SIMT_TCGEN_S8
                                               : KIND == PARE_f16    ? SIMT_TCGEN_F16
                                               : KIND == PARE_bf16   ? SIMT_TCGEN_BF16
                                               : KIND == PARE_f8e4m3 ? SIMT_TCGEN_E4M3
                                                                     : SIMT_TCGEN_E5M2;
    static_assert(SHARED <= 227 * 1024, "shared memory of a block");
    static_assert(2 * BN <= 512 && (BN & (BN - 1)) == 0, "tensor memory");
};

/* --- one thread multiplies --- */

template <typename V>
SIMT_INLINE void stages_multiply(const wgmma_walk &g, unsigned what, unsigned shared,
                                 unsigned memory)
{
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8, made = shared + V::SUMS,
                   taken = made + 2 * 8;
    const int tiles = g.tiles_m * g.tiles_n;
    unsigned stage = 0, parity = 0, turn = 0, free_parity = 1;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        simt_mbar_wait(taken + turn * 8, free_parity);
        for (int k = 0; k < g.steps; k++) {
            const unsigned at = shared + stage * V::STAGE;
            const uint64_t x = simt_tcgen_matrix<V::KB>(at),
                           w = simt_tcgen_matrix<V::KB>(at + V::X_BYTES);
            simt_mbar_wait(full + stage * 8, parity);
            simt_tcgen_fence_after();
            PARE_UNROLL for (int part = 0; part < V::KB / 32; part++)
                simt_tcgen_multiply<V::FACTORS>(memory + turn * V::BN, x + part * 2, w + part * 2,
                                                what, k + part > 0);
            simt_tcgen_commit(empty + stage * 8);
            if (++stage == V::DEEP) stage = 0, parity ^= 1;
        }
        simt_tcgen_commit(made + turn * 8);
        turn ^= 1;
        free_parity ^= turn == 0;
    }
}

/* --- four warps finish --- */

/* A row of sums, 32 columns at a time, becomes chunks of 16 bytes of Y in `out`, swizzled as the
   map of Y has them. residual: bytes beside floats. */
template <typename V>
SIMT_INLINE void row_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                            unsigned sums, char *out, const char *residual, int n0)
{
    enum { EACH = 16 / V::Y_SIZE };
    const int row = (int)threadIdx.x & 63, upper = (int)threadIdx.x >> 6;
    const int turn = V::SLICE == 128 ? row & 7 : row >> 1 & 3,
              z_turn = V::Z_SLICE == 128 ? row & 7 : row >> 1 & 3;
    char *line = out + upper * V::SLICES * V::SLICE_BYTES + row * V::SLICE;
    const char *z_line = residual + upper * V::Z_ROWS + row * V::Z_SLICE;
    PARE_ROLLED for (int c = 0; c < V::BN; c += 32)
    {
        typename V::sum sum[32];
        simt_tmem_load(sum, sums + c);
        PARE_UNROLL for (int i = 0; i < 32; i += EACH)
        {
            const int byte = (c + i) * V::Y_SIZE, chunk = byte % V::SLICE >> 4;
            uint4 *to = reinterpret_cast<uint4 *>(line + byte / V::SLICE * V::SLICE_BYTES +
                                                  ((turn ^ chunk) << 4));
            uint4 piece = {0, 0, 0, 0};
            if (V::RESIDUAL == (int)RESIDUAL_OF_Y) piece = *to;
            PARE_UNROLL for (int f = 0; f < EACH; f += 4)
            {
                const int column = c + i + f, z_in = column % V::Z_SLICE;
                char *place = reinterpret_cast<char *>(&piece) + f * V::Y_SIZE;
                const four_constants k = constants_of<V>(p, n0 + c, i + f);
                typename V::sum four[4];
                unsigned z = 0;
                PARE_UNROLL for (int n = 0; n < 4; n++)
                {
                    four[n] = sum[i + f + n];
                    if constexpr (V::INTEGER)
                        four[n] = (int)((unsigned)four[n] - (unsigned)k.shift[n]);
                }
                if constexpr (V::RESIDUAL == (int)RESIDUAL_BYTES)
                    z = *reinterpret_cast<const unsigned *>(
                        z_line + column / V::Z_SLICE * V::Z_SLICE_BYTES +
                        ((z_turn ^ z_in >> 4) << 4) + (z_in & 15));
                if constexpr (V::F8)
                    four_f8<V>(p, l, inverse, four, k, z, place);
                else if constexpr (V::END == (int)EPILOGUE_ANY)
                    four_real<V>(p, l, inverse, four, k, z, place);
                else
                    four_finish<V::END>(p, l, four, k.scale, k.bias, place);
            }
            *to = piece;
        }
    }
}

template <typename V>
SIMT_INLINE void tiles_finish(const pare_cuda_gemm_args &p, const tile_clamp &l,
                              const wgmma_walk &g, const CUtensorMap *ym, const CUtensorMap *zm,
                              char *bytes, unsigned shared, unsigned memory)
{
    const int tiles = g.tiles_m * g.tiles_n, out = V::DEEP * V::STAGE, z = out + V::OUT;
    const unsigned made = shared + V::SUMS, taken = made + 2 * 8,
                   lanes = memory + ((threadIdx.x & ~31u) << 16);
    const sum_group mine = {threadIdx.x == 0, shared + out, shared + z,
                            shared + V::BARRIERS + 2 * V::DEEP * 8};
    unsigned turn = 0, parity = 0, z_parity = 0;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        const tile_at t = tile_of_index(g, index);
        const int m0 = t.m * V::BM, n0 = t.n * V::BN;
        if (V::RESIDUAL != (int)RESIDUAL_NONE) {
            if (mine.leads) residual_bring<V>(mine, zm, m0, n0);
            __syncwarp();
            simt_mbar_wait(mine.z_bar, z_parity);
            z_parity ^= 1;
        } else { /* what was stored last was read */
            if (mine.leads) simt_tma_store_wait_read();
            simt_sync_group(1);
        }
        simt_mbar_wait(made + turn * 8, parity);
        simt_tcgen_fence_after();
        row_finish<V>(p, l, g.inverse, lanes + turn * V::BN, bytes + out, bytes + z, n0);
        simt_tcgen_fence_before();
        __syncwarp();
        if ((threadIdx.x & 31) == 0) simt_mbar_arrive(taken + turn * 8);
        turn ^= 1;
        parity ^= turn == 0;
        simt_fence_async();
        simt_sync_group(1);
        if (mine.leads) tile_put<V>(p, mine, ym, m0, n0);
        __syncwarp();
    }
    if (mine.leads) simt_tma_store_wait();
    __syncwarp();
}

/* Barriers of a block; a barrier of the block must follow. */
template <typename V> SIMT_INLINE void tcgen_barriers_set(unsigned shared)
{
    const unsigned full = shared + V::BARRIERS, made = shared + V::SUMS;
    if (threadIdx.x != 0) return;
    if (shared & 1023) __trap(); /* swizzles count from there */
    for (int i = 0; i < 2 * V::DEEP + 1; i++) simt_mbar_init(full + i * 8, 1);
    for (int i = 0; i < 2; i++) {
        simt_mbar_init(made + i * 8, 1);
        simt_mbar_init(made + (2 + i) * 8, 4); /* warps that finish */
    }
    simt_mbar_publish();
}

template <typename V>
static __global__ void __launch_bounds__(V::THREADS, 1)
    tcgen_tiles(const __grid_constant__ CUtensorMap xm, const __grid_constant__ CUtensorMap wm,
                const __grid_constant__ CUtensorMap ym, const __grid_constant__ CUtensorMap zm,
                const __grid_constant__ pare_cuda_gemm_args p,
                const __grid_constant__ tile_clamp clamp, const __grid_constant__ wgmma_walk walk,
                const unsigned what)
{
    SIMT_DYN_SHARED_AT(char, bytes, 1024);
    const unsigned shared = simt_shared_address(bytes);
    const int warp = (int)threadIdx.x >> 5;
    tcgen_barriers_set<V>(shared);
    if (threadIdx.x == 0) simt_tma_prefetch(&xm), simt_tma_prefetch(&wm), simt_tma_prefetch(&ym);
    __syncwarp();
    if (warp == V::MULTIPLIES) simt_tmem_allocate<2 * V::BN>(shared + V::ADDRESS);
    simt_tcgen_fence_before();
    simt_dependency_wait();
    __syncthreads();
    simt_tcgen_fence_after();
    const unsigned memory = *reinterpret_cast<const unsigned *>(bytes + V::ADDRESS);
    if (warp < V::FILLS) {
        tiles_finish<V>(p, clamp, walk, &ym, &zm, bytes, shared, memory);
    } else if ((threadIdx.x & 31) == 0) {
        if (warp == V::FILLS) {
            stages_produce<V>(p, walk, &xm, &wm, shared);
            simt_dependents_launch();
        } else {
            stages_multiply<V>(walk, what, shared, memory);
        }
    }
    __syncwarp();
    __syncthreads();
    if (warp == V::MULTIPLIES) simt_tmem_free<2 * V::BN>(memory);
}

template <typename V>
static cudaError_t tcgen_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const wgmma_walk walk = walk_of<V>(*p);
    const tile_clamp clamp =
        V::TO == (int)PARE_s8 ? integer_clamp(p->epilogue) : real_clamp(p->epilogue);
    const unsigned what =
        simt_tcgen_descriptor(p->x_type == PARE_u8 ? SIMT_TCGEN_U8 : V::FACTORS, V::BN);
    CUtensorMap x, w, y, z;
    dim3 grid;
    auto kernel = tcgen_tiles<V>;
    cudaError_t error = grid_of<V>(walk, &grid);
    if (error == cudaSuccess) error = SIMT_ALLOW_SHARED(kernel, V::SHARED);
    if (error != cudaSuccess) return error;
    if (!maps_make<V>(*p, &x, &w, &y, &z)) return cudaErrorInvalidValue;
    PARE_LAUNCH_DEPENDENT(kernel, grid, dim3(V::THREADS), (size_t)V::SHARED, stream, x, w, y, z, *p,
                          clamp, walk, what);
    return cudaGetLastError();
}

/* Launches this instance of KIND, which the caller has beside p and stream. */
#define PARE_TCGEN_LAUNCH(TO, GELU, RESIDUAL, PICTURE, BN, KB, DEEP)                               \
    tcgen_launch<tcgen_variant<KIND, TO, GELU, RESIDUAL, PICTURE, BN, KB, DEEP>>(p, stream)

#endif
