/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of 2:4 on tensor cores. mma.sp takes the sparse factor from the left, so a
   tile is computed across: W's rows are the instruction's rows, X's its columns, and a warp makes
   (16 TN) columns of (8 TM) rows of Y. A step of depth is 64 bytes of X, of which W keeps 32 with
   one word of metadata a lane; all three come by asynchronous copies three steps ahead, as
   tile.cuh has it. Rows of W are 48 bytes apart in shared memory, so that the eight rows of an
   ldmatrix fall into different banks. Large warps: what is read from shared memory, not the tensor
   cores, would bound small ones. */
#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/epilogue.cuh"

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

/* Rows and columns of a tile as tile_of has them, of instructions that make 16 columns of 8 rows. A
   thread copies one chunk of X_ROWS rows of X, one of KEPT_ROWS of W, LINES and KEPT_LINES apart,
   and one of the metadata where there are that many. */
template <int WARPS_M, int WARPS_N_, int TM_, int TN_, int BYTES> struct sparse_of {
    enum {
        WARPS_N = WARPS_N_,
        TM = TM_,
        TN = TN_,
        BM = WARPS_M * TM * 8,
        BN = WARPS_N * TN * 16,
        THREADS = WARPS_M * WARPS_N * 32,
        LINES = THREADS / CHUNKS,
        X_ROWS = BM / LINES,
        KEPT_LINES = THREADS / KEPT,
        KEPT_ROWS = BN / KEPT_LINES,
        WORDS = 32 / BYTES, /* of metadata for 16 rows of W */
        NOTES = BN / 16 * WORDS / 4,
        W_AT = BM * ROW,
        NOTES_AT = W_AT + BN * KEPT_ROW,
        STAGE = NOTES_AT + NOTES
    };
};

/* A thread's part of W and of the metadata. */
template <typename T> struct kept_rows {
    const char *at[T::KEPT_ROWS], *note;
};

template <typename T>
SIMT_INLINE void kept_open(kept_rows<T> &r, const pare_cuda_gemm_args &p, const char *w,
                           const uint4 *meta, int bytes, int n0, int steps)
{
    const int tid = (int)threadIdx.x, words = T::WORDS / 4;
    PARE_UNROLL for (int i = 0; i < T::KEPT_ROWS; i++)
    {
        const int64_t column = min(n0 + tid / KEPT + i * T::KEPT_LINES, p.columns - 1);
        r.at[i] = w + column * p.w_row * bytes + tid % KEPT * PARE_CUDA_CHUNK;
    }
    const int row = (steps + PARE_SPARSE_STEPS - 1) / PARE_SPARSE_STEPS * PARE_SPARSE_STEPS * words;
    r.note =
        reinterpret_cast<const char *>(meta + (int64_t)(n0 / 16 + tid / words) * row + tid % words);
}

template <typename T>
SIMT_INLINE void kept_fetch(const kept_rows<T> &r, uint4 *stage, int ahead, bool inside)
{
    const int tid = (int)threadIdx.x, present = inside ? PARE_CUDA_CHUNK : 0;
    uint4 *to = stage + T::W_AT + tid / KEPT * KEPT_ROW + tid % KEPT;
    PARE_UNROLL for (int i = 0; i < T::KEPT_ROWS; i++) simt_cp_async16(
        to + i * T::KEPT_LINES * KEPT_ROW, r.at[i] + ahead * KEPT * PARE_CUDA_CHUNK, present);
    if (tid < T::NOTES)
        simt_cp_async16(stage + T::NOTES_AT + tid, r.note + ahead * T::WORDS * 4, present);
}

template <typename T> SIMT_INLINE void kept_advance(kept_rows<T> &r)
{
    PARE_UNROLL for (int i = 0; i < T::KEPT_ROWS; i++) r.at[i] += KEPT * PARE_CUDA_CHUNK;
    r.note += T::WORDS * 4;
}

template <int KIND, typename T, template <typename> class ROWS>
static __global__ void __launch_bounds__(T::THREADS, 2)
    sparse_tile(pare_cuda_gemm_args p, const uint4 *meta)
{
    typedef typename kind_of<KIND>::sum sum;
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    SIMT_DYN_SHARED(uint4, shared);
    const int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5, line = tid / CHUNKS;
    const tile_place t = tile_find<T>(p, false);
    uint4 *room = shared + (STAGES - 1) * T::STAGE;
    const int wm = warp / T::WARPS_N * T::TM * 8, wn = warp % T::WARPS_N * T::TN * 16;
    const operands o = operands_of(p, 0);
    const k_range part = k_range_of(p, BYTES, 0, false);
    int at = tid % CHUNKS;
    ROWS<T> x;
    kept_rows<T> w;
    sum acc[T::TM][T::TN][4];
    rows_prepare(x, p, o.x, BYTES, t, room);
    rows_open(x, p, o.x, BYTES, t, line, at, room);
    kept_open(w, p, o.w, meta, BYTES, t.n0, part.steps);
    PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) acc[i][j][r] = 0;
    auto fetch = [&](int stage, int ahead, bool inside) {
        uint4 *to = shared + stage * T::STAGE;
        rows_fetch(x, p, to + line * ROW + tid % CHUNKS, ahead, at + ahead * CHUNKS < part.end);
        kept_fetch(w, to, ahead, inside);
        simt_cp_async_commit();
    };
    PARE_UNROLL for (int s = 0; s < STAGES - 1; s++) fetch(s, s, s < part.steps);
    const int mine = BYTES == 1 ? lane : (lane >> 2) * 2 + (lane & 1);
    PARE_ROLLED for (int step = 0; step < part.steps; step++)
    {
        simt_cp_async_wait<STAGES - 2>();
        __syncthreads();
        fetch((step + STAGES - 1) & (STAGES - 1), STAGES - 1, step + STAGES - 1 < part.steps);
        const uint4 *stage = shared + (step & (STAGES - 1)) * T::STAGE;
        const unsigned *words = reinterpret_cast<const unsigned *>(stage + T::NOTES_AT);
        unsigned a[T::TN][4], note[T::TN];
        PARE_UNROLL for (int j = 0; j < T::TN; j++)
        {
            simt_ldmatrix_x4(a[j], stage + T::W_AT + (wn + j * 16 + (lane & 15)) * KEPT_ROW +
                                       (lane >> 4));
            note[j] = words[(wn / 16 + j) * T::WORDS + mine];
        }
        PARE_UNROLL for (int i = 0; i < T::TM; i++)
        {
            unsigned b[4];
            simt_ldmatrix_x4(b, stage + (wm + i * 8 + (lane & 7)) * ROW + (lane >> 3));
            PARE_UNROLL for (int j = 0; j < T::TN; j++) multiply<KIND>(acc[i][j], a[j], b, note[j]);
        }
        at += CHUNKS;
        rows_advance(x, 1);
        kept_advance(w);
    }
    simt_cp_async_wait<0>();
    __syncthreads();
    sum(*out)[T::BN + 8] = reinterpret_cast<sum(*)[T::BN + 8]>(shared);
    PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++)
            out[wm + i * 8 + (lane & 3) * 2 + r % 2][wn + j * 16 + (lane >> 2) + r / 2 * 8] =
                acc[i][j][r];
    vec4_finish<T, sum>(p, o, out, reinterpret_cast<tile_columns<T::BN> *>(out + T::BM), t.m0,
                        t.n0);
}

/* --- launchers --- */

template <int KIND, typename T, template <typename> class ROWS>
static cudaError_t tile_launch(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    const int bytes = STAGES * T::STAGE * (int)sizeof(uint4);
    const int sums = T::BM * (T::BN + 8) * 4 + (int)sizeof(tile_columns<T::BN>);
    const int shared = bytes > sums ? bytes : sums;
    auto kernel = sparse_tile<KIND, T, ROWS>;
    dim3 grid(pare_cuda_blocks((p->rows + T::BM - 1) / T::BM),
              pare_cuda_blocks_beside((p->columns + T::BN - 1) / T::BN), 1);
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, shared);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, grid, dim3(T::THREADS), (size_t)shared, stream, *p,
                static_cast<const uint4 *>(meta));
    return cudaGetLastError();
}

template <int KIND, typename T>
static cudaError_t rows_launch(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    return p->picture ? tile_launch<KIND, T, im2col_iterator>(p, meta, stream)
                      : tile_launch<KIND, T, matrix_iterator>(p, meta, stream);
}

template <int KIND>
static cudaError_t kind_launch(const pare_cuda_gemm_args *p, const void *meta, cudaStream_t stream)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    if (p->tile == PARE_CUDA_128X128)
        return rows_launch<KIND, sparse_of<2, 2, 8, 4, BYTES>>(p, meta, stream);
    return rows_launch<KIND, sparse_of<2, 2, 4, 2, BYTES>>(p, meta, stream);
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

/* The same as metadata has them. */
static int64_t meta_steps_of(int64_t depth, int bytes)
{
    return (steps_of(depth, bytes) + PARE_SPARSE_STEPS - 1) / PARE_SPARSE_STEPS * PARE_SPARSE_STEPS;
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
    return (size_t)(tiles * meta_steps_of(depth, bytes)) * (size_t)words_of(bytes) * 4;
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
    int64_t word = (r / TILE_ROWS * meta_steps_of(depth, bytes) + group / groups) * words_of(bytes);
    *shift = bytes == 1 ? 4 * (at % 8) : 4 * (at % 4 + 4 * upper);
    return word + (bytes == 1 ? g * 4 + at / 8 * 2 + upper : g * 2 + at / 4);
}

/* Two places of four that hold all that is not 0. */
static void places_find(const void *row, int bytes, int64_t first, int64_t depth, int place[2])
{
    int kept = 0;
    for (int i = 0; i < GROUP && first + i < depth; i++)
        if (kept < 2 && !pare_sparse_is_zero(row, bytes, first + i)) place[kept++] = i;
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
