/* SPDX-License-Identifier: Apache-2.0 */
/* How a block of threads sums a tile of Y, on tensor cores but for f32. Depth runs through shared
   memory 64 bytes at a time in four stages, filled by asynchronous copies three steps ahead;
   ldmatrix and mma.sync read bytes alike whether they hold 64 8-bit or 32 16-bit numbers. Rows in
   shared memory are 80 bytes apart, so that the eight rows of an ldmatrix fall into different
   banks; W's are in an order that gives a thread sums of four neighbouring columns. Where a row's
   bytes are is found once a block; a step of depth adds to pointers, and of a picture tests one bit
   a row. Each byte of X is read once a tile of columns, each of W once a tile of rows. */
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
typedef tile_of<2, 2, 2, 8> tile_64x128;
typedef tile_of<2, 2, 2, 4> tile_64x64;

/* What a block makes: `rows` and `columns` of Y from m0 and n0 on, of one of several products, of a
   part of its depth. */
typedef struct tile_place {
    int64_t m0;
    int n0, rows, columns, batch, split;
} tile_place;

template <typename T> SIMT_INLINE tile_place tile_find(const pare_cuda_gemm_args &p, bool splits)
{
    tile_place t;
    t.m0 = (int64_t)blockIdx.x * T::BM;
    t.n0 = (int)blockIdx.y * T::BN;
    t.rows = (int)min(p.rows - t.m0, (int64_t)T::BM);
    t.columns = min(p.columns - t.n0, (int)T::BN);
    t.batch = splits ? (int)blockIdx.z / p.splits : (int)blockIdx.z;
    t.split = splits ? (int)blockIdx.z - t.batch * p.splits : 0;
    return t;
}

/* --- a thread's rows of X: prepared by the block in `room`, opened at a chunk of depth, from where
   each CHUNKS-th is fetched, `ahead` of them before the rows advance --- */

template <typename T> struct matrix_iterator {
    const char *at[T::X_ROWS];
};

template <typename T>
SIMT_INLINE void rows_prepare(matrix_iterator<T> &, const pare_cuda_gemm_args &, const char *, int,
                              const tile_place &, uint4 *)
{
}

/* Rows behind the last are copies of it: nothing is made of their sums. */
template <typename T>
SIMT_INLINE void rows_open(matrix_iterator<T> &r, const pare_cuda_gemm_args &p, const char *x,
                           int bytes, const tile_place &t, int line, int chunk, const uint4 *)
{
    const int64_t row = p.x_row * bytes;
    const char *first = x + t.m0 * row + chunk * PARE_CUDA_CHUNK;
    simt_opaque(first);
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++) r.at[i] =
        first + (unsigned)min(line + i * T::LINES, t.rows - 1) * row;
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

/* Of a row of patches: the window's first position, which may be outside of the picture, and the
   bits of taps that are not. */
typedef struct __attribute__((aligned(16))) im2col_row {
    const char *at;
    unsigned inside, unused;
} im2col_row;

template <typename T> struct im2col_iterator {
    const char *at[T::X_ROWS];
    unsigned inside[T::X_ROWS];
    const pare_cuda_im2col *patch; /* of the chunk */
    pare_cuda_im2col next;         /* of the one that is fetched next */
};

SIMT_INLINE im2col_row im2col_row_find(const pare_cuda_picture &in, const char *x, int bytes,
                                       int row)
{
    const int line = fast_divide(row, in.by_width), image = fast_divide(line, in.by_height);
    const int top = (line - image * in.out_height) * in.stride[0] - in.begin[0];
    const int left = (row - line * in.out_width) * in.stride[1] - in.begin[1];
    unsigned across = 0, inside = 0;
    PARE_ROLLED for (int t = 0; t < in.kernel_width; t++)
    {
        const unsigned there = (unsigned)(left + t * in.dilation[1]) < (unsigned)in.width;
        across |= there << t;
    }
    PARE_ROLLED for (int t = 0, tap = 0; tap < in.taps; t++, tap += in.kernel_width)
    {
        if ((unsigned)(top + t * in.dilation[0]) < (unsigned)in.height) inside |= across << tap;
    }
    return {x + (image * in.image + top * in.row + left * in.pixel) * bytes, inside, 0};
}

/* A row a thread, for the CHUNKS threads that copy of it. */
template <typename T>
SIMT_INLINE void rows_prepare(im2col_iterator<T> &, const pare_cuda_gemm_args &p, const char *x,
                              int bytes, const tile_place &t, uint4 *room)
{
    const int mine = (int)threadIdx.x; /* no tile has more rows than threads */
    if (mine < T::BM) {
        im2col_row row = im2col_row_find(p.in, x, bytes, (int)t.m0 + mine);
        if (mine >= t.rows) row.inside = 0;
        reinterpret_cast<im2col_row *>(room)[mine] = row;
    }
    __syncthreads();
}

template <typename T>
SIMT_INLINE void rows_open(im2col_iterator<T> &r, const pare_cuda_gemm_args &p, const char *, int,
                           const tile_place &, int line, int chunk, const uint4 *room)
{
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++)
    {
        const im2col_row row = reinterpret_cast<const im2col_row *>(room)[line + i * T::LINES];
        r.at[i] = row.at, r.inside[i] = row.inside;
    }
    r.patch = p.patch + chunk;
    r.next = *r.patch;
}

/* Where a tap is outside, or behind the depth, X is `fill`, which is stored: copies of one place by
   all blocks would wait for each other. */
template <typename T>
SIMT_INLINE void rows_fetch(im2col_iterator<T> &r, const pare_cuda_gemm_args &p, uint4 *to,
                            int ahead, bool)
{
    const pare_cuda_im2col now = r.next;
    r.next = r.patch[(ahead + 1) * CHUNKS];
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++)
    {
        uint4 *near = to + i * T::LINES * ROW;
        if (r.inside[i] & now.tap)
            simt_cp_async16_reused(near, r.at[i] + now.at, PARE_CUDA_CHUNK);
        else
            *near = make_uint4(p.fill, p.fill, p.fill, p.fill);
    }
}

template <typename T> SIMT_INLINE void rows_advance(im2col_iterator<T> &r, int steps)
{
    r.patch += steps * CHUNKS;
}

/* The column of W that line l of a tile holds: of 16, sums 2q, 2q + 1 of two neighbouring
   instructions are columns 4q to 4q + 3. */
SIMT_INLINE int line_column(int l) { return (l & ~15) | (l & 6) << 1 | (l & 8) >> 2 | (l & 1); }

/* The same of W as of X: columns behind the last are copies of it. */
template <typename T>
SIMT_INLINE void columns_open(const char *at[T::W_ROWS], const pare_cuda_gemm_args &p,
                              const char *w, int bytes, const tile_place &t, int line, int chunk)
{
    static_assert(T::LINES % 16 == 0, "lines of a thread are of one place in 16");
    const int64_t row = p.w_row * bytes;
    const char *first = w + t.n0 * row + chunk * PARE_CUDA_CHUNK;
    simt_opaque(first);
    const int column = line_column(line);
    PARE_UNROLL for (int i = 0; i < T::W_ROWS; i++) at[i] =
        first + (unsigned)min(column + i * T::LINES, t.columns - 1) * row;
}

template <typename T>
SIMT_INLINE void columns_fetch(const char *const at[T::W_ROWS], uint4 *to, int ahead, bool inside)
{
    PARE_UNROLL for (int i = 0; i < T::W_ROWS; i++) simt_cp_async16_reused(
        to + i * T::LINES * ROW, at[i] + ahead * PARE_CUDA_STEP, inside ? PARE_CUDA_CHUNK : 0);
}

template <typename T> SIMT_INLINE void columns_advance(const char *at[T::W_ROWS], int steps)
{
    PARE_UNROLL for (int i = 0; i < T::W_ROWS; i++) at[i] += steps * PARE_CUDA_STEP;
}

/* --- sums --- */

/* Of one instruction for 16 rows and 8 lines of W, lane l holds sums 0, 1 of row l / 4 and 2, 3 of
   row l / 4 + 8, lines 2 (l % 4) and the next. */
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

/* A thread's sums are FOURS fours of neighbours in each of ROWS_MINE rows. */
template <typename T> struct fours_of {
    enum { ROWS_MINE = T::TM * 2, FOURS = T::TN / 2 };
};

template <typename T> SIMT_INLINE int four_row(int i)
{
    return warp_row<T>() + i * 8 + ((int)threadIdx.x >> 2 & 7);
}
template <typename T> SIMT_INLINE int four_column(int j)
{
    return warp_column<T>() + j * 16 + ((int)threadIdx.x & 3) * 4;
}

template <int KIND, typename T, typename SUM>
SIMT_INLINE void four_read(const accumulators<KIND, T> &sums, int i, int j, SUM to[4])
{
    PARE_UNROLL for (int c = 0; c < 4; c++) to[c] =
        sums.at[i / 2][j * 2 + c / 2][i % 2 * 2 + c % 2];
}

template <int KIND, typename T> SIMT_INLINE void accumulators_clear(accumulators<KIND, T> &sums)
{
    PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) sums.at[i][j][r] = 0;
}

/* Sums begin at what their columns are given, a thread `mine` of one; `room` is for all columns. */
template <int KIND, typename T>
SIMT_INLINE void accumulators_start(accumulators<KIND, T> &sums, int mine, int *room)
{
    if ((int)threadIdx.x < T::BN) room[threadIdx.x] = mine;
    __syncthreads();
    PARE_UNROLL for (int j = 0; j < fours_of<T>::FOURS; j++)
    {
        const int4 s = *reinterpret_cast<const int4 *>(room + four_column<T>(j));
        PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int r = 0; r < 4; r += 2)
        {
            sums.at[i][j * 2][r] = s.x, sums.at[i][j * 2][r + 1] = s.y;
            sums.at[i][j * 2 + 1][r] = s.z, sums.at[i][j * 2 + 1][r + 1] = s.w;
        }
    }
}

SIMT_INLINE float4 floats_of(const uint4 &v)
{
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
}

/* f32 by plain multiply-adds: a thread's fours, each sum in order of depth. */
template <int KIND, typename T>
SIMT_INLINE void fma_stage(accumulators<KIND, T> &sums, const uint4 *stage)
{
    const int lane = (int)threadIdx.x & 31;
    const uint4 *xs = stage + (warp_row<T>() + (lane >> 2)) * ROW;
    const uint4 *ws = stage + (T::BM + warp_column<T>() + (lane & 3) * 2) * ROW;
    PARE_ROLLED for (int part = 0; part < CHUNKS; part++)
    {
        float4 a[T::TM * 2];
        PARE_UNROLL for (int i = 0; i < T::TM * 2; i++) a[i] = floats_of(xs[i * 8 * ROW + part]);
        PARE_UNROLL for (int j = 0; j < T::TN; j++) PARE_UNROLL for (int c = 0; c < 2; c++)
        {
            const float4 b = floats_of(ws[(j * 8 + c) * ROW + part]);
            PARE_UNROLL for (int i = 0; i < T::TM * 2; i++)
            {
                float &sum = sums.at[i / 2][j][i % 2 * 2 + c];
                sum = fmaf(a[i].x, b.x, sum);
                sum = fmaf(a[i].y, b.y, sum);
                sum = fmaf(a[i].z, b.z, sum);
                sum = fmaf(a[i].w, b.w, sum);
            }
        }
    }
}

/* Adds what a stage in shared memory holds of depth. Of TF32, W is rounded where it is packed. */
template <int KIND, typename T>
SIMT_INLINE void mma_stage(accumulators<KIND, T> &sums, const uint4 *stage)
{
    if constexpr (KIND == PARE_f32) return fma_stage(sums, stage);
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
        PARE_UNROLL for (int i = 0; i < T::TM; i++) factors_round<KIND>(a[i]);
        PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
            multiply<KIND>(sums.at[i][j], a[i], &b[j / 2][j % 2 * 2]);
    }
}

/* Steps of depth of one of the splits: from `first` on, and chunks up to `end`. */
typedef struct k_range {
    int first, steps, end;
} k_range;

SIMT_INLINE k_range k_range_of(const pare_cuda_gemm_args &p, int bytes, int split, bool splits)
{
    const int chunks = (p.depth * bytes + PARE_CUDA_CHUNK - 1) / PARE_CUDA_CHUNK;
    const unsigned all = (unsigned)(chunks + CHUNKS - 1) / CHUNKS, parts = (unsigned)p.splits;
    if (!splits) return {0, (int)all, chunks};
    const int first = (int)(all * (unsigned)split / parts);
    const int last = (int)(all * ((unsigned)split + 1) / parts);
    return {first, last - first, min(chunks, last * CHUNKS)};
}

/* Fills the first stages: fetch(stage, ahead) copies a step of depth to a stage, `ahead` of what
   advance() has passed, which passes T::UNROLL of them. */
template <typename FETCH> SIMT_INLINE void stages_fill(int steps, FETCH fetch)
{
    PARE_UNROLL for (int s = 0; s < STAGES - 1; s++)
    {
        if (s == 0 || s < steps) fetch(s, s);
        simt_cp_async_commit();
    }
}

/* Adds all steps by add(stage); the last stage is written behind a barrier. A depth of 0 is one
   step of zeros. No copy is in flight at the end, and all of shared memory may be written. */
template <typename T, typename FETCH, typename ADVANCE, typename ADD>
SIMT_INLINE void mainloop(const uint4 *shared, int steps, FETCH fetch, ADVANCE advance, ADD add)
{
    int step = 0;
    PARE_ROLLED do
    {
        PARE_UNROLL for (int u = 0; u < T::UNROLL; u++)
        {
            if (u > 0 && step + u >= steps) break;
            const int stage = T::UNROLL == 1 ? step & (STAGES - 1) : u;
            simt_cp_async_wait<STAGES - 2>();
            __syncthreads();
            fetch((stage + STAGES - 1) & (STAGES - 1), u + STAGES - 1); /* read a step ago */
            simt_cp_async_commit();
            add(shared + stage * T::STAGE);
        }
        advance();
        step += T::UNROLL;
    }
    while (step < steps)
        ;
    simt_cp_async_wait<0>();
    __syncthreads();
}

/* ROWS: matrix_iterator or im2col_iterator. STARTS: sums begin at `start`, a thread's own of one of
   the tile's columns. */
template <int KIND, typename T, template <typename> class ROWS, bool STARTS>
SIMT_INLINE void tile_mainloop(accumulators<KIND, T> &sums, const pare_cuda_gemm_args &p,
                               const operands &o, uint4 *shared, const tile_place &t,
                               const k_range &part, int start)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    const int chunk = (int)threadIdx.x % CHUNKS, line = (int)threadIdx.x / CHUNKS;
    uint4 *mine = shared + line * ROW + chunk, *room = shared + (STAGES - 1) * T::STAGE;
    int at = part.first * CHUNKS + chunk;
    ROWS<T> x;
    const char *w[T::W_ROWS];
    rows_prepare(x, p, o.x, BYTES, t, room);
    rows_open(x, p, o.x, BYTES, t, line, at, room);
    columns_open<T>(w, p, o.w, BYTES, t, line, at);
    auto fetch = [&](int stage, int ahead) {
        uint4 *to = mine + stage * T::STAGE;
        const bool inside = at + ahead * CHUNKS < part.end;
        rows_fetch(x, p, to, ahead, inside);
        columns_fetch<T>(w, to + T::BM * ROW, ahead, inside);
    };
    stages_fill(part.steps, fetch);
    if constexpr (STARTS)
        accumulators_start(sums, start, reinterpret_cast<int *>(room + T::BM));
    else
        accumulators_clear(sums);
    mainloop<T>(
        shared, part.steps, fetch,
        [&] {
            at += T::UNROLL * CHUNKS;
            rows_advance(x, T::UNROLL);
            columns_advance<T>(w, T::UNROLL);
        },
        [&](const uint4 *stage) { mma_stage(sums, stage); });
}

#endif
