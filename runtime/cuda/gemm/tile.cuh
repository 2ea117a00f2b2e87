/* SPDX-License-Identifier: Apache-2.0 */
/* How a block of threads sums a tile of Y on tensor cores. Depth runs through shared memory 64
   bytes at a time in four stages, filled by asynchronous copies three steps ahead; ldmatrix and
   mma.sync read bytes alike whether they hold 64 8-bit or 32 16-bit numbers. Rows in shared memory
   are 80 bytes apart, so that the eight rows of an ldmatrix fall into different banks. What a
   thread copies of each row is found once, by divisions; a step of depth adds to pointers, and of a
   picture tests one bit a row. Each byte of X is read once a tile of columns, each of W once a tile
   of rows. */
#ifndef PARE_RUNTIME_CUDA_GEMM_TILE_CUH
#define PARE_RUNTIME_CUDA_GEMM_TILE_CUH

#include "runtime/cuda/device/mma.cuh"
#include "runtime/cuda/gemm/gemm.cuh"

enum { STAGES = 4, CHUNKS = PARE_CUDA_STEP / PARE_CUDA_CHUNK, ROW = CHUNKS + 1 };

/* Rows and columns of a tile, of warps by instructions of 16 x 8 sums each. A thread copies one
   chunk of X_ROWS rows of X and of W_ROWS of W, LINES apart. Short steps are unrolled over the
   stages. */
template <int WARPS_M, int WARPS_N_, int TM_, int TN_> struct tile_of {
    enum {
        WARPS_N = WARPS_N_,
        TM = TM_,
        TN = TN_,
        BM = WARPS_M * TM * 16,
        BN = WARPS_N * TN * 8,
        THREADS = WARPS_M * WARPS_N * 32,
        LINES = THREADS / CHUNKS,
        X_ROWS = BM / LINES,
        W_ROWS = BN / LINES,
        STAGE = (BM + BN) * ROW,
        UNROLL = TM * TN < 16 ? STAGES : 1,
        BLOCKS = TM * TN > 16   ? 2
                 : TM *TN == 16 ? 3
                                : 4 /* that an SM should hold */
    };
};
typedef tile_of<2, 2, 4, 8> tile_128x128;
typedef tile_of<2, 2, 4, 4> tile_128x64;
typedef tile_of<2, 2, 2, 4> tile_64x64;

/* --- a thread's rows of X: opened at a chunk of depth, from where each CHUNKS-th is fetched,
   `ahead` of them before the rows advance --- */

template <typename T> struct matrix_iterator {
    const char *at[T::X_ROWS];
};

/* Rows behind the last are copies of it: nothing is made of their sums. */
template <typename T>
SIMT_INLINE void rows_open(matrix_iterator<T> &r, const pare_cuda_gemm_args &p, const char *x,
                           int bytes, int64_t row0, int chunk)
{
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++)
    {
        const int64_t row = min(row0 + i * T::LINES, p.rows - 1);
        r.at[i] = x + row * p.x_row * bytes + chunk * PARE_CUDA_CHUNK;
    }
}

template <typename T>
SIMT_INLINE void rows_fetch(matrix_iterator<T> &r, const pare_cuda_gemm_args &, uint4 *to,
                            int ahead, bool inside)
{
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++) simt_cp_async16(
        to + i * T::LINES * ROW, r.at[i] + ahead * PARE_CUDA_STEP, inside ? PARE_CUDA_CHUNK : 0);
}

template <typename T> SIMT_INLINE void rows_advance(matrix_iterator<T> &r, int steps)
{
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++) r.at[i] += steps * PARE_CUDA_STEP;
}

template <typename T> struct im2col_iterator {
    const char *at[T::X_ROWS];     /* the window's first position; may be outside of the picture */
    unsigned inside[T::X_ROWS];    /* the bits of taps that are not */
    const pare_cuda_im2col *patch; /* of the chunk */
    pare_cuda_im2col next;         /* of the one that is fetched next */
};

template <typename T>
SIMT_INLINE void rows_open(im2col_iterator<T> &r, const pare_cuda_gemm_args &p, const char *x,
                           int bytes, int64_t row0, int chunk)
{
    const pare_cuda_picture &in = p.in;
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++)
    {
        const int row = (int)row0 + i * T::LINES;
        const int line = fast_divide(row, in.by_width), image = fast_divide(line, in.by_height);
        const int top = (line - image * in.out_height) * in.stride[0] - in.begin[0];
        const int left = (row - line * in.out_width) * in.stride[1] - in.begin[1];
        unsigned across = 0, inside = 0;
        PARE_ROLLED for (int t = 0; t < in.kernel_width; t++)
        {
            const unsigned there = (unsigned)(left + t * in.dilation[1]) < (unsigned)in.width;
            across |= there << t;
        }
        PARE_ROLLED for (int t = 0, tap = 0; tap < in.taps;
                         t++, tap += in.kernel_width) if ((unsigned)(top + t * in.dilation[0]) <
                                                          (unsigned)in.height) inside |= across
                                                                                         << tap;
        r.inside[i] = row < p.rows ? inside : 0;
        r.at[i] = x + (image * in.image + top * in.row + left * in.pixel) * bytes;
        simt_opaque(r.at[i]);
    }
    r.patch = p.patch + chunk;
    r.next = *r.patch;
}

/* Where a tap is outside, or behind the depth, X is `fill`. */
template <typename T>
SIMT_INLINE void rows_fetch(im2col_iterator<T> &r, const pare_cuda_gemm_args &p, uint4 *to,
                            int ahead, bool)
{
    const pare_cuda_im2col now = r.next;
    r.next = r.patch[(ahead + 1) * CHUNKS];
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++)
    {
        const char *from =
            r.inside[i] & now.tap ? r.at[i] + now.at : static_cast<const char *>(p.fill);
        simt_cp_async16(to + i * T::LINES * ROW, from, PARE_CUDA_CHUNK);
    }
}

template <typename T> SIMT_INLINE void rows_advance(im2col_iterator<T> &r, int steps)
{
    r.patch += steps * CHUNKS;
}

/* The same of W: columns behind the last are copies of it. */
template <typename T>
SIMT_INLINE void columns_open(const char *at[T::W_ROWS], const pare_cuda_gemm_args &p,
                              const char *w, int bytes, int column0, int chunk)
{
    PARE_UNROLL for (int i = 0; i < T::W_ROWS; i++)
    {
        const int64_t column = min(column0 + i * T::LINES, p.columns - 1);
        at[i] = w + column * p.w_row * bytes + chunk * PARE_CUDA_CHUNK;
    }
}

template <typename T>
SIMT_INLINE void columns_fetch(const char *const at[T::W_ROWS], uint4 *to, int ahead, bool inside)
{
    PARE_UNROLL for (int i = 0; i < T::W_ROWS; i++) simt_cp_async16(
        to + i * T::LINES * ROW, at[i] + ahead * PARE_CUDA_STEP, inside ? PARE_CUDA_CHUNK : 0);
}

template <typename T> SIMT_INLINE void columns_advance(const char *at[T::W_ROWS], int steps)
{
    PARE_UNROLL for (int i = 0; i < T::W_ROWS; i++) at[i] += steps * PARE_CUDA_STEP;
}

/* --- sums --- */

/* Of one instruction for 16 rows and 8 columns, lane l holds sums 0, 1 of row l / 4 and 2, 3 of row
   l / 4 + 8, columns 2 (l % 4) and the next. */
template <int KIND, typename T> struct accumulators {
    typename kind_of<KIND>::sum at[T::TM][T::TN][4];
};

/* Where a warp's sums begin in its tile. */
template <typename T> SIMT_INLINE int warp_row(void)
{
    return (int)threadIdx.x / 32 / T::WARPS_N * T::TM * 16;
}
template <typename T> SIMT_INLINE int warp_column(void)
{
    return (int)threadIdx.x / 32 % T::WARPS_N * T::TN * 8;
}

template <int KIND, typename T> SIMT_INLINE void accumulators_clear(accumulators<KIND, T> &sums)
{
    PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) sums.at[i][j][r] = 0;
}

/* Adds what a stage in shared memory holds of depth. */
template <int KIND, typename T>
SIMT_INLINE void mma_stage(accumulators<KIND, T> &sums, const uint4 *stage)
{
    const int lane = (int)threadIdx.x & 31;
    const uint4 *xs = stage + (warp_row<T>() + (lane & 15)) * ROW + (lane >> 4);
    const uint4 *ws =
        stage + (T::BM + warp_column<T>() + (lane & 7) + (lane >> 4) * 8) * ROW + (lane >> 3 & 1);
    PARE_UNROLL for (int part = 0; part < CHUNKS; part += 2)
    {
        unsigned a[T::TM][4], b[T::TN / 2][4];
        PARE_UNROLL for (int i = 0; i < T::TM; i++)
            simt_ldmatrix_x4(a[i], xs + i * 16 * ROW + part);
        PARE_UNROLL for (int j = 0; j < T::TN / 2; j++)
            simt_ldmatrix_x4(b[j], ws + j * 16 * ROW + part);
        PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
            multiply<KIND>(sums.at[i][j], a[i], &b[j / 2][j % 2 * 2]);
    }
}

/* Steps of depth of one of the splits: from `first` on, and chunks up to `end`. */
typedef struct k_range {
    int first, steps, end;
} k_range;

SIMT_INLINE k_range k_range_of(const pare_cuda_gemm_args &p, int bytes, int split)
{
    const int chunks = (p.depth * bytes + PARE_CUDA_CHUNK - 1) / PARE_CUDA_CHUNK;
    const unsigned all = (unsigned)(chunks + CHUNKS - 1) / CHUNKS, splits = (unsigned)p.splits;
    if (splits == 1) return {0, (int)all, chunks};
    const int first = (int)(all * (unsigned)split / splits);
    const int last = (int)(all * ((unsigned)split + 1) / splits);
    return {first, last - first, min(chunks, last * CHUNKS)};
}

/* fetch(stage, ahead) copies a step of depth to a stage, `ahead` of what advance() has passed,
   which passes T::UNROLL of them. No copy is in flight at the end, and all of shared memory may be
   written.
 */
template <int KIND, typename T, typename FETCH, typename ADVANCE>
SIMT_INLINE void mainloop(accumulators<KIND, T> &sums, const uint4 *shared, int steps, FETCH fetch,
                          ADVANCE advance)
{
    PARE_UNROLL for (int s = 0; s < STAGES - 1; s++)
    {
        fetch(s, s);
        simt_cp_async_commit();
    }
    PARE_ROLLED for (int step = 0; step < steps; step += T::UNROLL)
    {
        PARE_UNROLL for (int u = 0; u < T::UNROLL; u++)
        {
            if (u > 0 && step + u >= steps) break;
            const int stage = T::UNROLL == 1 ? step & (STAGES - 1) : u;
            simt_cp_async_wait<STAGES - 2>();
            __syncthreads();
            fetch((stage + STAGES - 1) & (STAGES - 1), u + STAGES - 1); /* read a step ago */
            simt_cp_async_commit();
            mma_stage<KIND, T>(sums, shared + stage * T::STAGE);
        }
        advance();
    }
    simt_cp_async_wait<0>();
    __syncthreads();
}

/* ROWS: matrix_iterator or im2col_iterator. */
template <int KIND, typename T, template <typename> class ROWS>
SIMT_INLINE void tile_mainloop(accumulators<KIND, T> &sums, const pare_cuda_gemm_args &p,
                               const operands &o, uint4 *shared, int split)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    const int chunk = (int)threadIdx.x % CHUNKS, line = (int)threadIdx.x / CHUNKS;
    const k_range part = k_range_of(p, BYTES, split);
    int at = part.first * CHUNKS + chunk;
    ROWS<T> x;
    const char *w[T::W_ROWS];
    rows_open(x, p, o.x, BYTES, (int64_t)blockIdx.x * T::BM + line, at);
    columns_open<T>(w, p, o.w, BYTES, (int)blockIdx.y * T::BN + line, at);
    uint4 *mine = shared + line * ROW + chunk;
    accumulators_clear(sums);
    mainloop<KIND, T>(
        sums, shared, part.steps,
        [&](int stage, int ahead) {
            uint4 *to = mine + stage * T::STAGE;
            const bool inside = at + ahead * CHUNKS < part.end;
            rows_fetch(x, p, to, ahead, inside);
            columns_fetch<T>(w, to + T::BM * ROW, ahead, inside);
        },
        [&] {
            at += T::UNROLL * CHUNKS;
            rows_advance(x, T::UNROLL);
            columns_advance<T>(w, T::UNROLL);
        });
}

#endif
