/* SPDX-License-Identifier: Apache-2.0 */
/* Products on tensor cores, matrices and implicit convolutions alike. A block makes a tile of (16
   TM WARPS_M) rows by (8 TN WARPS_N) columns; depth runs through shared memory 64 bytes at a time
   in four stages, filled by asynchronous copies three steps ahead; ldmatrix and mma.sync read bytes
   alike whether they hold 64 8-bit or 32 16-bit numbers. Rows in shared memory are 80 bytes apart,
   so that the eight rows of an ldmatrix fall into different banks. X comes in copies of 16 bytes,
   of 4 where its channels are fewer, or element by element. Each byte of X is read once a tile of
   columns, each of W once a tile of rows; sums go through shared memory and Y is written once,
   finished, 16 bytes a thread where they are well. Where depth is split, each part's sums go to
   memory and are added in order of depth. */
#include "runtime/cuda/gemm/tile.cuh"
#include "runtime/cuda/gemm/weights.cuh"

template <int KIND> SIMT_INLINE void multiply(int d[4], const unsigned a[4], const unsigned b[2])
{
    if (KIND == PARE_s8)
        simt_mma_m16n8k32_s8s8(d, a, b);
    else
        simt_mma_m16n8k32_u8s8(d, a, b);
}

template <int KIND> SIMT_INLINE void multiply(float d[4], const unsigned a[4], const unsigned b[2])
{
    if (KIND == PARE_f16)
        simt_mma_m16n8k16_f16(d, a, b);
    else
        simt_mma_m16n8k16_bf16(d, a, b);
}

template <int KIND, int WARPS_M, int WARPS_N, int TM, int TN, int COPY>
static __global__ void __launch_bounds__(WARPS_M *WARPS_N * 32, 1) gemm_tile(pare_cuda_gemm_args p)
{
    enum {
        BM = WARPS_M * TM * 16,
        BN = WARPS_N * TN * 8,
        THREADS = WARPS_M * WARPS_N * 32,
        LINES = THREADS / CHUNKS, /* rows that the block's threads copy at once */
        MINE = BM / LINES
    };
    typedef typename kind_of<KIND>::sum sum;
    typedef typename kind_of<KIND>::element element;
    SIMT_DYN_SHARED(uint4, shared);
    uint4(*xs)[BM][ROW] = reinterpret_cast<uint4(*)[BM][ROW]>(shared);
    uint4(*ws)[BN][ROW] = reinterpret_cast<uint4(*)[BN][ROW]>(shared + STAGES * BM * ROW);
    const int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int chunk = tid % CHUNKS, line = tid / CHUNKS;
    const int64_t m0 = (int64_t)blockIdx.x * BM;
    const int n0 = (int)blockIdx.y * BN;
    const int wm = warp / WARPS_N * TM * 16, wn = warp % WARPS_N * TN * 8;
    const int batch = (int)blockIdx.z / p.splits, split = (int)blockIdx.z - batch * p.splits;
    const operands o = operands_of(p, batch);
    row_place place[MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) place[i] = row_find(p, m0 + line + i * LINES);
    sum acc[TM][TN][4];
    PARE_UNROLL for (int i = 0; i < TM; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) acc[i][j][r] = 0;

    const int depth_bytes = p.depth * (int)sizeof(element);
    const int all = (depth_bytes + PARE_CUDA_STEP - 1) / PARE_CUDA_STEP;
    const int first = (int)((int64_t)all * split / p.splits);
    const int steps = (int)((int64_t)all * (split + 1) / p.splits) - first;
    auto fetch = [&](int step) {
        const int stage = step % STAGES;
        const int kb = (first + step) * PARE_CUDA_STEP + chunk * PARE_CUDA_CHUNK;
        x_fetch<KIND, COPY, MINE>(p, o.x, place, kb, &xs[stage][line][chunk], LINES * ROW);
        const int left = depth_bytes - kb;
        const int some = left > PARE_CUDA_CHUNK ? PARE_CUDA_CHUNK : left > 0 ? left : 0;
        for (int r = line; r < BN; r += LINES) {
            const int present = n0 + r < p.columns ? some : 0;
            const int64_t at = present ? (n0 + r) * p.w_row * (int)sizeof(element) + kb : 0;
            simt_cp_async16(&ws[stage][r][chunk], o.w + at, present);
        }
    };
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) fetch(s);
        simt_cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
        simt_cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
        simt_cp_async_commit();
        const int stage = step % STAGES;
        PARE_UNROLL for (int part = 0; part < CHUNKS; part += 2)
        {
            unsigned a[TM][4], b[TN / 2][4];
            PARE_UNROLL for (int i = 0; i < TM; i++)
                simt_ldmatrix_x4(a[i], &xs[stage][wm + i * 16 + (lane & 15)][part + (lane >> 4)]);
            PARE_UNROLL for (int j = 0; j < TN / 2; j++) simt_ldmatrix_x4(
                b[j],
                &ws[stage][wn + j * 16 + (lane & 7) + (lane >> 4) * 8][part + (lane >> 3 & 1)]);
            PARE_UNROLL for (int i = 0; i < TM; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
                multiply<KIND>(acc[i][j], a[i], &b[j / 2][j % 2 * 2]);
        }
    }
    simt_cp_async_wait<0>();
    __syncthreads();
    /* sums go through shared memory, so that neighbours store neighbours */
    sum(*out)[BN + 8] = reinterpret_cast<sum(*)[BN + 8]>(shared);
    PARE_UNROLL for (int i = 0; i < TM; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++)
            out[wm + i * 16 + (lane >> 2) + r / 2 * 8][wn + j * 8 + (lane & 3) * 2 + r % 2] =
                acc[i][j][r];
    __syncthreads();
    sum *partial =
        static_cast<sum *>(p.partial) + ((int64_t)split * p.batches + batch) * p.rows * p.columns;
    tile_finish<BM, BN, THREADS, sum>(p, o, out, m0, n0, partial);
}

/* Adds the parts of split depths in their order. */
template <typename SUM> static __global__ void gemm_join(pare_cuda_gemm_args p)
{
    const int64_t all = p.rows * p.columns;
    const int batch = (int)blockIdx.y;
    const SUM *partial = static_cast<const SUM *>(p.partial) + batch * all;
    const operands o = operands_of(p, batch);
    PARE_CUDA_EACH (i, all) {
        SUM sum = 0;
        for (int s = 0; s < p.splits; s++) sum += partial[s * p.batches * all + i];
        const int64_t row = i / p.columns;
        const int column = (int)(i - row * p.columns);
        sum_finish(p, o, sum, row, column, row * p.y_row + column);
    }
}

/* --- launchers --- */

template <int KIND, int WARPS_M, int WARPS_N, int TM, int TN, int COPY>
static cudaError_t tile_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { BM = WARPS_M * TM * 16, BN = WARPS_N * TN * 8 };
    const int bytes = STAGES * (BM + BN) * ROW * (int)sizeof(uint4);
    const int sums = BM * (BN + 8) * 4, shared = bytes > sums ? bytes : sums;
    auto kernel = gemm_tile<KIND, WARPS_M, WARPS_N, TM, TN, COPY>;
    dim3 grid((unsigned)((p->rows + BM - 1) / BM), (unsigned)((p->columns + BN - 1) / BN),
              (unsigned)(p->batches * p->splits));
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, shared);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, grid, dim3(WARPS_M * WARPS_N * 32), (size_t)shared, stream, *p);
    return cudaGetLastError();
}

/* Large tiles take chunks only: others need their registers for addresses. */
template <int KIND>
static cudaError_t kind_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->copy == 1) return tile_launch<KIND, 2, 2, 2, 4, 1>(p, stream);
    if (p->copy == 4) return tile_launch<KIND, 2, 2, 2, 4, 4>(p, stream);
    switch (p->tile) {
    case PARE_CUDA_128X128: return tile_launch<KIND, 4, 2, 2, 8, 16>(p, stream);
    case PARE_CUDA_128X64: return tile_launch<KIND, 4, 1, 2, 8, 16>(p, stream);
    default: return tile_launch<KIND, 2, 2, 2, 4, 16>(p, stream);
    }
}

template <typename SUM>
static cudaError_t join_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    dim3 grid = pare_cuda_grid(p->rows * p->columns);
    grid.y = (unsigned)p->batches;
    SIMT_LAUNCH((gemm_join<SUM>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *p);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_gemm_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    cudaError_t error = cudaErrorInvalidValue;
    if (p->rows == 0 || p->columns == 0 || p->batches == 0) return cudaSuccess;
    if (p->few) return pare_cuda_gemv_launch(p, stream);
    switch (p->x_type) {
    case PARE_s8: error = kind_launch<PARE_s8>(p, stream); break;
    case PARE_u8: error = kind_launch<PARE_u8>(p, stream); break;
    case PARE_f16: error = kind_launch<PARE_f16>(p, stream); break;
    case PARE_bf16: error = kind_launch<PARE_bf16>(p, stream); break;
    case PARE_f32: return pare_cuda_gemm_f32_launch(p, stream);
    default: break;
    }
    if (error != cudaSuccess || p->splits == 1) return error;
    return pare_type_is_int8(p->x_type) ? join_launch<int>(p, stream)
                                        : join_launch<float>(p, stream);
}

/* Products of 32-bit floats by plain multiply-adds: a block of 256 threads makes 64 x 64 sums, 4 x
   4 a thread; 16 steps of depth at a time are in shared memory, depth outermost, so that a thread
   reads neighbours. Sums are folded in order of depth, each step one fused multiply-add. Threads
   whose sums all are outside the product only bring: of few rows, as of one sample, a part works.
   Weights of 4 or 8 bits become f32 on the way to shared memory: sums are those of W as f32. */

enum { TILE = 64, DEPTH = 16, MINE = 4, THREADS = 256, PITCH = TILE + 4 };

/* Four neighbours by one load. */
SIMT_INLINE void four_read(float to[MINE], const float *from)
{
    const float4 v = *reinterpret_cast<const float4 *>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* A thread's part of a step of W goes to shared memory: of weights of 4 or 8 bits, four neighbours
   of a column. */
template <int W>
SIMT_INLINE void weights_bring(const pare_cuda_gemm_args &p, const char *w, int n0, int k0,
                               float (*ws)[PITCH])
{
    const int first = (int)threadIdx.x % MINE * MINE, across = (int)threadIdx.x / MINE;
    const int k = k0 + first, n = n0 + across, left = n < p.columns ? p.depth - k : 0;
    float value[MINE] = {0, 0, 0, 0};
    if (left > 0) {
        const char *at = w + n * p.w_row + k / (8 / weight_of<W>::BITS);
        const unsigned word = weight_of<W>::BITS == 4 ? *reinterpret_cast<const uint16_t *>(at)
                                                      : *reinterpret_cast<const unsigned *>(at);
        numbers_read<W, MINE>(p.weights, word, n, k, left, value);
    }
    PARE_UNROLL for (int i = 0; i < MINE; i++) ws[first + i][across] = value[i];
}

/* The same of f32: four columns of one k, as rows of X. */
SIMT_INLINE void floats_bring(const pare_cuda_gemm_args &p, const char *w, int n0, int k0,
                              float (*ws)[PITCH])
{
    const int at = (int)threadIdx.x % DEPTH, line = (int)threadIdx.x / DEPTH, k = k0 + at;
    const float *from = reinterpret_cast<const float *>(w);
    PARE_UNROLL for (int i = 0; i < MINE; i++)
    {
        const int row = line + 16 * i;
        ws[at][row] =
            n0 + row < p.columns && k < p.depth ? from[(n0 + row) * p.w_row + k * p.w_step] : 0;
    }
}

template <int W>
static __global__ void __launch_bounds__(THREADS, 2) gemm_f32_tile(pare_cuda_gemm_args p)
{
    SIMT_SHARED(float4, xs4, [DEPTH * PITCH / 4]);
    SIMT_SHARED(float4, ws4, [DEPTH * PITCH / 4]);
    float(*xs)[PITCH] = reinterpret_cast<float(*)[PITCH]>(xs4);
    float(*ws)[PITCH] = reinterpret_cast<float(*)[PITCH]>(ws4);
    const int tid = (int)threadIdx.x, across = tid % 16 * MINE, down = tid / 16 * MINE;
    const int64_t m0 = (int64_t)blockIdx.x * TILE;
    const int n0 = (int)blockIdx.y * TILE;
    const operands o = operands_of(p, (int)blockIdx.z);
    const float *x = reinterpret_cast<const float *>(o.x);
    const int k_mine = tid % DEPTH, line = tid / DEPTH; /* what this thread brings: 4 rows, one k */
    const bool works = m0 + down < p.rows && n0 + across < p.columns;
    row_place place[MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) place[i] = row_find(p, m0 + line + 16 * i);
    float acc[MINE][MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
        acc[i][j] = 0;
    for (int k0 = 0; k0 < p.depth; k0 += DEPTH) {
        const int k = k0 + k_mine;
        const tap_place tap = tap_find(p, k);
        PARE_UNROLL for (int i = 0; i < MINE; i++)
        {
            const int row = line + 16 * i;
            int64_t at = place[i].present && k < p.depth ? element_find(p, place[i], tap) : -1;
            xs[k_mine][row] = at < 0 ? 0 : x[at];
        }
        if constexpr (W == PARE_f32)
            floats_bring(p, o.w, n0, k0, ws);
        else
            weights_bring<W>(p, o.w, n0, k0, ws);
        __syncthreads();
        for (int d = 0; works && d < DEPTH; d++) {
            float a[MINE], b[MINE];
            four_read(a, &xs[d][down]);
            four_read(b, &ws[d][across]);
            PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
                acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }
        __syncthreads();
    }
    PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
    {
        int64_t row = m0 + down + i;
        int column = n0 + across + j;
        if (row < p.rows && column < p.columns)
            sum_finish(p, o, acc[i][j], row, column, row * p.y_row + column);
    }
}

template <int W> static cudaError_t f32_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    dim3 grid((unsigned)((p->rows + TILE - 1) / TILE), (unsigned)((p->columns + TILE - 1) / TILE),
              (unsigned)p->batches);
    SIMT_LAUNCH((gemm_f32_tile<W>), grid, dim3(THREADS), 0, stream, *p);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_gemm_f32_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->weights.type) {
    case PARE_NOTYPE: return f32_launch<PARE_f32>(p, stream);
    case PARE_s4: return f32_launch<PARE_s4>(p, stream);
    case PARE_s8: return f32_launch<PARE_s8>(p, stream);
    case PARE_f4e2m1: return f32_launch<PARE_f4e2m1>(p, stream);
    case PARE_f8e4m3: return f32_launch<PARE_f8e4m3>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}
