/* SPDX-License-Identifier: Apache-2.0 */
/* Products on tensor cores: which kernel, what gathers X, and what joins parts of depth. Rows of X
   that chunks of 16 bytes cannot bring, nor of integers pieces of 8 (channels that are fewer,
   transposed windows, many taps), are gathered in copies of 4, or element by element. Where depth
   is split, each part's sums go to memory and are added in order of depth. */
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/gemm/epilogue_f8.cuh"
#include "runtime/cuda/gemm/pieces.h"

/* The smallest tile, its steps not unrolled: what gathers is long. */
struct tile : tile_64x64 {
    enum { UNROLL = 1 };
};

/* A chunk of this thread's rows of X from byte kb of its depth on. */
template <int KIND>
SIMT_INLINE void rows_gather(const pare_cuda_gemm_args &p, const char *x, const row_place *places,
                             int kb, uint4 *to)
{
    typedef typename kind_of<KIND>::element element;
    enum { BYTES = sizeof(element) };
    const int piece = p.copy == 1 ? (int)BYTES : p.copy == PARE_CUDA_PIECE ? 4 : p.copy;
    PARE_ROLLED for (int at = 0; at < PARE_CUDA_CHUNK; at += piece)
    {
        const int left = p.depth * BYTES - kb - at;
        const int some = left > piece ? piece : left > 0 ? left : 0;
        const tap_place tap = tap_find(p, (kb + at) / BYTES);
        PARE_UNROLL for (int i = 0; i < tile::X_ROWS; i++)
        {
            char *near = reinterpret_cast<char *>(to + i * tile::LINES * ROW) + at;
            const int64_t offset = places[i].present && some ? element_find(p, places[i], tap) : -1;
            const char *from = x + (offset < 0 ? 0 : offset) * BYTES;
            if (piece == 16 && offset >= 0)
                simt_cp_async16(near, from, some);
            else if (piece == 16)
                *reinterpret_cast<uint4 *>(near) = make_uint4(p.fill, p.fill, p.fill, p.fill);
            else if (piece == 4 && offset >= 0)
                simt_cp_async4(near, from, some);
            else if (piece == 4)
                *reinterpret_cast<unsigned *>(near) = p.fill;
            else
                *reinterpret_cast<element *>(near) = offset >= 0
                                                         ? *reinterpret_cast<const element *>(from)
                                                         : static_cast<element>(p.fill);
        }
    }
}

template <int KIND>
static __global__ void __launch_bounds__(tile::THREADS, tile::BLOCKS)
    gemm_gather(pare_cuda_gemm_args p)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    SIMT_DYN_SHARED(uint4, shared);
    const int chunk = (int)threadIdx.x % CHUNKS, line = (int)threadIdx.x / CHUNKS;
    const tile_place t = tile_find<tile>(p, true);
    const operands o = operands_of(p, t.batch);
    const k_range part = k_range_of(p, BYTES, t.split, p.splits > 1);
    int at = part.first * CHUNKS + chunk;
    row_place places[tile::X_ROWS];
    const char *w[tile::W_ROWS];
    accumulators<KIND, tile> sums;
    PARE_UNROLL for (int i = 0; i < tile::X_ROWS; i++) places[i] =
        row_find(p, t.m0 + line + i * tile::LINES);
    columns_open<tile>(w, p, o.w, BYTES, t, line, at);
    uint4 *mine = shared + line * ROW + chunk;
    auto fetch = [&](int stage, int ahead) {
        uint4 *to = mine + stage * tile::STAGE;
        const int chunk_at = at + ahead * CHUNKS;
        rows_gather<KIND>(p, o.x, places, chunk_at * PARE_CUDA_CHUNK, to);
        columns_fetch<tile>(w, to + tile::BM * ROW, ahead, chunk_at < part.end);
    };
    simt_dependency_wait();
    stages_fill(part.steps, fetch);
    accumulators_clear(sums);
    mainloop<tile>(
        shared, part.steps, fetch,
        [&] {
            at += CHUNKS;
            columns_advance<tile>(w, 1);
        },
        [&](const uint4 *stage) { mma_stage(sums, stage); });
    simt_dependents_launch();
    if (p.splits > 1)
        partial_finish<KIND, tile>(p, sums, t.batch, t.split, t.m0, t.n0);
    else if constexpr (kind_is_f8<KIND>)
        f8_finish<KIND, tile>(p, o, sums, reinterpret_cast<char *>(shared), t.m0, t.n0);
    else
        any_finish<KIND, tile>(p, o, sums, reinterpret_cast<char *>(shared), t.m0, t.n0);
}

/* Adds the parts of split depths in their order. KIND: f8e4m3, f8e5m2, or another type of SUM. */
template <int KIND> static __global__ void gemm_join(pare_cuda_gemm_args p)
{
    typedef typename kind_of<KIND>::sum SUM;
    pare_dependent_begin();
    const int64_t all = p.rows * p.columns;
    const int batch = (int)blockIdx.y;
    const SUM *partial = static_cast<const SUM *>(p.partial) + batch * all;
    const operands o = operands_of(p, batch);
    PARE_CUDA_EACH (i, all) {
        SUM sum = 0;
        for (int s = 0; s < p.splits; s++) sum += partial[s * p.batches * all + i];
        const int64_t row = i / p.columns;
        const int column = (int)(i - row * p.columns);
        if constexpr (kind_is_f8<KIND>)
            f8_sum_finish<KIND>(p, o, sum, column, row * p.y_row + column);
        else
            sum_finish(p, o, sum, row, column, row * p.y_row + column);
    }
}

/* --- launchers --- */

template <int KIND>
static cudaError_t gather_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const int bytes = STAGES * tile::STAGE * (int)sizeof(uint4);
    auto kernel = gemm_gather<KIND>;
    dim3 grid(pare_cuda_blocks((p->rows + tile::BM - 1) / tile::BM),
              pare_cuda_blocks_beside((p->columns + tile::BN - 1) / tile::BN),
              pare_cuda_blocks_beside((int64_t)p->batches * p->splits));
    PARE_LAUNCH_DEPENDENT(kernel, grid, dim3(tile::THREADS), (size_t)bytes, stream, *p);
    return cudaGetLastError();
}

static cudaError_t type_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const bool int8 = pare_type_is_int8(p->x_type);
    if (pare_cuda_by_pieces(p)) return pare_cuda_gemm_pieces_launch(p, stream);
    if (pare_cuda_by_chunks(p) && pare_type_is_f8(p->x_type))
        return pare_cuda_gemm_f8_launch(p, stream);
    if (pare_cuda_by_chunks(p))
        return int8 ? pare_cuda_gemm_int8_launch(p, stream) : pare_cuda_gemm_half_launch(p, stream);
    switch (p->x_type) {
    case PARE_s8: return gather_launch<PARE_s8>(p, stream);
    case PARE_u8: return gather_launch<PARE_u8>(p, stream);
    case PARE_f8e4m3: return gather_launch<PARE_f8e4m3>(p, stream);
    case PARE_f8e5m2: return gather_launch<PARE_f8e5m2>(p, stream);
    case PARE_f16: return gather_launch<PARE_f16>(p, stream);
    case PARE_bf16: return gather_launch<PARE_bf16>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}

template <int KIND>
static cudaError_t join_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    dim3 grid = pare_cuda_grid(p->rows * p->columns);
    grid.y = pare_cuda_blocks_beside(p->batches);
    PARE_LAUNCH_DEPENDENT((gemm_join<KIND>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *p);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_gemm_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0 || p->batches == 0) return cudaSuccess;
    if (p->few) return pare_cuda_gemv_launch(p, stream);
    if (p->x_type == PARE_f32) return pare_cuda_gemm_f32_launch(p, stream);
    cudaError_t error = type_launch(p, stream);
    if (error != cudaSuccess || p->splits == 1) return error;
    switch (p->x_type) {
    case PARE_s8:
    case PARE_u8: return join_launch<PARE_s8>(p, stream);
    case PARE_f8e4m3: return join_launch<PARE_f8e4m3>(p, stream);
    case PARE_f8e5m2: return join_launch<PARE_f8e5m2>(p, stream);
    default: return join_launch<PARE_f16>(p, stream);
    }
}
