/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of 2:4 on tensor cores. mma.sp takes the sparse factor from the left, so a
   tile is computed across: W's rows are the instruction's rows, X's its columns, and a warp makes
   (16 TN) columns of (8 TM) rows of Y. A step of depth is 64 bytes of X, of which W keeps 32 with
   one word of metadata a lane; all three come by asynchronous copies three steps ahead, as
   gemm.cu has it. Rows of W are 48 bytes apart in shared memory, so that the eight rows of an
   ldmatrix fall into different banks. Large warps: what is read from shared memory, not the tensor
   cores, would bound small ones. */
#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/tile.cuh"

#include <string.h>

enum { KEPT = CHUNKS / 2, KEPT_ROW = KEPT + 1 };

template <int KIND>
SIMT_INLINE void multiply(int d[4], const unsigned a[4], const unsigned b[4], unsigned meta)
{
    if (KIND == PARE_s8)
        simt_mma_sp_m16n8k64_s8s8(d, a, b, meta);
    else
        simt_mma_sp_m16n8k64_s8u8(d, a, b, meta);
}

template <int KIND>
SIMT_INLINE void multiply(float d[4], const unsigned a[4], const unsigned b[4], unsigned meta)
{
    if (KIND == PARE_f16)
        simt_mma_sp_m16n8k32_f16(d, a, b, meta);
    else
        simt_mma_sp_m16n8k32_bf16(d, a, b, meta);
}

template <int KIND, int WARPS_M, int WARPS_N, int TM, int TN>
static __global__ void __launch_bounds__(WARPS_M *WARPS_N * 32, 2)
    sparse_tile(pare_cuda_gemm_args p, const uint4 *meta)
{
    typedef typename kind_of<KIND>::sum sum;
    typedef typename kind_of<KIND>::element element;
    enum {
        BYTES = sizeof(element),
        BM = WARPS_M * TM * 8,
        BN = WARPS_N * TN * 16,
        THREADS = WARPS_M * WARPS_N * 32,
        LINES = THREADS / CHUNKS,
        MINE = BM / LINES,
        WORDS = 32 / BYTES, /* of metadata for 16 rows of W */
        NOTES = BN / 16 * WORDS / 4
    };
    SIMT_DYN_SHARED(uint4, shared);
    uint4(*xs)[BM][ROW] = reinterpret_cast<uint4(*)[BM][ROW]>(shared);
    uint4(*ws)[BN][KEPT_ROW] = reinterpret_cast<uint4(*)[BN][KEPT_ROW]>(shared + STAGES * BM * ROW);
    uint4(*notes)[NOTES] =
        reinterpret_cast<uint4(*)[NOTES]>(shared + STAGES * (BM * ROW + BN * KEPT_ROW));
    const int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int64_t m0 = (int64_t)blockIdx.x * BM;
    const int n0 = (int)blockIdx.y * BN;
    const int wm = warp / WARPS_N * TM * 8, wn = warp % WARPS_N * TN * 16;
    const operands o = operands_of(p, 0);
    row_place place[MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) place[i] =
        row_find(p, m0 + tid / CHUNKS + i * LINES);
    sum acc[TM][TN][4];
    PARE_UNROLL for (int i = 0; i < TM; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) acc[i][j][r] = 0;

    const int steps = (p.depth * BYTES + PARE_CUDA_STEP - 1) / PARE_CUDA_STEP;
    auto fetch = [&](int step) {
        const int stage = step % STAGES, chunk = tid % CHUNKS;
        x_fetch<KIND, 16, MINE>(p, o.x, place, step * PARE_CUDA_STEP + chunk * PARE_CUDA_CHUNK,
                                &xs[stage][tid / CHUNKS][chunk], LINES * ROW);
        for (int i = tid; i < BN * KEPT; i += THREADS) {
            const int r = i / KEPT, piece = i % KEPT, present = n0 + r < p.columns;
            const int64_t at = (int64_t)(n0 + r) * p.w_row * BYTES +
                               (step * KEPT + piece) * (int64_t)PARE_CUDA_CHUNK;
            simt_cp_async16(&ws[stage][r][piece], o.w + (present ? at : 0),
                            present ? PARE_CUDA_CHUNK : 0);
        }
        if (tid < NOTES) {
            const int tile = n0 / 16 + tid / (WORDS / 4);
            const int64_t at = ((int64_t)tile * steps + step) * (WORDS / 4) + tid % (WORDS / 4);
            simt_cp_async16(&notes[stage][tid], meta + at, PARE_CUDA_CHUNK);
        }
    };
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) fetch(s);
        simt_cp_async_commit();
    }
    const int mine = BYTES == 1 ? lane : (lane >> 2) * 2 + (lane & 1);
    for (int step = 0; step < steps; step++) {
        simt_cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
        simt_cp_async_commit();
        const int stage = step % STAGES;
        const unsigned *words = reinterpret_cast<const unsigned *>(notes[stage]);
        unsigned a[TN][4], note[TN];
        PARE_UNROLL for (int j = 0; j < TN; j++)
        {
            simt_ldmatrix_x4(a[j], &ws[stage][wn + j * 16 + (lane & 15)][lane >> 4]);
            note[j] = words[(wn / 16 + j) * WORDS + mine];
        }
        PARE_UNROLL for (int i = 0; i < TM; i++)
        {
            unsigned b[4];
            simt_ldmatrix_x4(b, &xs[stage][wm + i * 8 + (lane & 7)][lane >> 3]);
            PARE_UNROLL for (int j = 0; j < TN; j++) multiply<KIND>(acc[i][j], a[j], b, note[j]);
        }
    }
    simt_cp_async_wait<0>();
    __syncthreads();
    sum(*out)[BN + 8] = reinterpret_cast<sum(*)[BN + 8]>(shared);
    PARE_UNROLL for (int i = 0; i < TM; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++)
            out[wm + i * 8 + (lane & 3) * 2 + r % 2][wn + j * 16 + (lane >> 2) + r / 2 * 8] =
                acc[i][j][r];
    __syncthreads();
    tile_finish<BM, BN, THREADS, sum>(p, o, out, m0, n0, static_cast<sum *>(NULL));
}

/* --- launchers --- */

template <int KIND, int WARPS_M, int WARPS_N, int TM, int TN>
static cudaError_t tile_launch(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    enum {
        BM = WARPS_M * TM * 8,
        BN = WARPS_N * TN * 16,
        NOTES = BN / 16 * 8 / sizeof(typename kind_of<KIND>::element)
    };
    const int bytes = STAGES * (BM * ROW + BN * KEPT_ROW + NOTES) * (int)sizeof(uint4);
    const int sums = BM * (BN + 8) * 4, shared = bytes > sums ? bytes : sums;
    auto kernel = sparse_tile<KIND, WARPS_M, WARPS_N, TM, TN>;
    dim3 grid((unsigned)((p->rows + BM - 1) / BM), (unsigned)((p->columns + BN - 1) / BN), 1);
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, shared);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, grid, dim3(WARPS_M * WARPS_N * 32), (size_t)shared, stream, *p,
                static_cast<const uint4 *>(meta));
    return cudaGetLastError();
}

template <int KIND>
static cudaError_t kind_launch(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    if (p->tile == PARE_CUDA_128X128) return tile_launch<KIND, 2, 2, 8, 4>(p, meta, stream);
    return tile_launch<KIND, 2, 2, 4, 2>(p, meta, stream);
}

extern "C" cudaError_t pare_cuda_sparse_launch(const pare_cuda_gemm_args *p, const void *meta,
                                               cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0) return cudaSuccess;
    switch (p->x_type) {
    case PARE_s8: return kind_launch<PARE_s8>(p, meta, stream);
    case PARE_u8: return kind_launch<PARE_u8>(p, meta, stream);
    case PARE_f16: return kind_launch<PARE_f16>(p, meta, stream);
    case PARE_bf16: return kind_launch<PARE_bf16>(p, meta, stream);
    default: return cudaErrorInvalidValue;
    }
}

/* --- packing, on the host --- */

enum { TILE_ROWS = 16, GROUP = 4 };
#define NONE_KEPT 0x44444444u /* places 0 and 1 of each four */

static int64_t steps_of(int64_t depth, int bytes)
{
    return (depth * bytes + PARE_SPARSE_STEP - 1) / PARE_SPARSE_STEP;
}

/* Words of a tile's step: one a lane, or one a lane of each pair that hands over. */
static int words_of(int bytes) { return bytes == 1 ? 32 : 16; }

size_t pare_sparse_kept_bytes(int64_t depth, int bytes)
{
    return (size_t)steps_of(depth, bytes) * PARE_SPARSE_STEP / 2;
}

size_t pare_sparse_meta_bytes(int64_t rows, int64_t depth, int bytes)
{
    int64_t tiles =
        (rows + PARE_SPARSE_ROWS - 1) / PARE_SPARSE_ROWS * (PARE_SPARSE_ROWS / TILE_ROWS);
    return (size_t)(tiles * steps_of(depth, bytes)) * (size_t)words_of(bytes) * 4;
}

static bool is_zero(const void *from, int bytes, int64_t i)
{
    if (bytes == 1) return ((const uint8_t *)from)[i] == 0;
    uint16_t v;
    memcpy(&v, (const char *)from + i * 2, sizeof v);
    return (v & 0x7fff) == 0;
}

bool pare_sparse_fits(const void *from, int bytes, int64_t step, int64_t count)
{
    for (int64_t i = 0; i < count; i += GROUP) {
        int kept = 0;
        for (int64_t j = i; j < i + GROUP && j < count; j++)
            kept += !is_zero(from, bytes, j * step);
        if (kept > 2) return false;
    }
    return true;
}

void pare_sparse_meta_clear(uint32_t *meta, size_t meta_bytes)
{
    for (size_t i = 0; i < meta_bytes / 4; i++) meta[i] = NONE_KEPT;
}

/* The word with the places of row r's group of four, and how far up they are in it: PTX ISA,
   "Matrix fragments for sparse mma.m16n8k64" and "... m16n8k32", figures of the metadata. */
static int64_t word_find(int bytes, int64_t r, int64_t depth, int64_t group, int *shift)
{
    const int groups = PARE_SPARSE_STEP / GROUP / bytes, row = (int)(r % TILE_ROWS);
    const int at = (int)(group % groups), g = row % 8, upper = row / 8;
    int64_t word = (r / TILE_ROWS * steps_of(depth, bytes) + group / groups) * words_of(bytes);
    *shift = bytes == 1 ? 4 * (at % 8) : 4 * (at % 4 + 4 * upper);
    return word + (bytes == 1 ? g * 4 + at / 8 * 2 + upper : g * 2 + at / 4);
}

/* Two places of four that hold all that is not 0. */
static void places_find(const void *row, int bytes, int64_t first, int64_t depth, int place[2])
{
    int kept = 0;
    for (int i = 0; i < GROUP && first + i < depth; i++)
        if (kept < 2 && !is_zero(row, bytes, first + i)) place[kept++] = i;
    if (kept == 0) place[0] = 0;
    if (kept < 2) {
        if (place[0] == GROUP - 1) place[0]--;
        place[1] = place[0] + 1;
    }
}

void pare_sparse_row_pack(const void *row, int bytes, int64_t r, int64_t depth, void *kept,
                          uint32_t *meta)
{
    memset(kept, 0, pare_sparse_kept_bytes(depth, bytes));
    for (int64_t group = 0; group * GROUP < depth; group++) {
        int place[2], shift;
        places_find(row, bytes, group * GROUP, depth, place);
        uint32_t *word = meta + word_find(bytes, r, depth, group, &shift);
        *word &= ~(0xfu << shift);
        *word |= (uint32_t)(place[0] | place[1] << 2) << shift;
        for (int i = 0; i < 2; i++) {
            int64_t from = group * GROUP + place[i];
            if (from < depth)
                memcpy((char *)kept + (group * 2 + i) * bytes, (const char *)row + from * bytes,
                       (size_t)bytes);
        }
    }
}

void pare_sparse_row_unpack(const void *kept, const uint32_t *meta, int bytes, int64_t r,
                            int64_t depth, void *row)
{
    memset(row, 0, (size_t)(depth * bytes));
    for (int64_t group = 0; group * GROUP < depth; group++) {
        int shift;
        const uint32_t *from = meta + word_find(bytes, r, depth, group, &shift);
        uint32_t word = *from >> shift;
        for (int i = 0; i < 2; i++) {
            int64_t to = group * GROUP + (word >> 2 * i & 3);
            if (to < depth)
                memcpy((char *)row + to * bytes, (const char *)kept + (group * 2 + i) * bytes,
                       (size_t)bytes);
        }
    }
}
