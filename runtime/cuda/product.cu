/* SPDX-License-Identifier: Apache-2.0 */
/* Products on tensor cores, matrices and implicit convolutions alike. A block makes a tile of
   (16 TM WARPS_M) rows by (8 TN WARPS_N) columns; depth runs through shared memory 64 bytes at a time in
   three stages, filled by asynchronous copies two steps ahead; ldmatrix and mma.sync read bytes alike
   whether they hold 64 8-bit or 32 16-bit numbers. Rows in shared memory are 80 bytes apart, so that
   the eight rows of an ldmatrix fall into different banks. Each byte of X is read once a tile of
   columns, each of W once a tile of rows; Y is written once, finished. */
#include "runtime/cuda/product.cuh"

enum { STAGES = 3, CHUNKS = PARE_CUDA_STEP / PARE_CUDA_CHUNK, ROW = CHUNKS + 1 };

/* A type's elements in a chunk of 16 bytes, its sums, its multiply-add. */
template <int KIND> struct kind_of;
template <> struct kind_of<PARE_s8> {
    typedef int sum;
    typedef int8_t element;
};
template <> struct kind_of<PARE_u8> {
    typedef int sum;
    typedef uint8_t element;
};
template <> struct kind_of<PARE_f16> {
    typedef float sum;
    typedef uint16_t element;
};
template <> struct kind_of<PARE_bf16> {
    typedef float sum;
    typedef uint16_t element;
};

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

/* A chunk of a row of X, from byte kb of its depth, by one copy. */
template <int KIND>
SIMT_INLINE void chunk_copy(const pare_cuda_product &p, const row_place &r, int kb, uint4 *to)
{
    const int bytes = (int)sizeof(typename kind_of<KIND>::element);
    int left = r.present ? p.depth * bytes - kb : 0;
    const char *from = static_cast<const char *>(p.fill);
    if (left > 0) {
        int64_t at = element_find(p, r, kb / bytes);
        if (at >= 0) from = static_cast<const char *>(p.x) + at * bytes;
    }
    simt_cp_async16(to, from, left < 0 ? 0 : left > PARE_CUDA_CHUNK ? PARE_CUDA_CHUNK : left);
}

/* The same, gathered one element at a time. */
template <int KIND>
SIMT_INLINE void chunk_gather(const pare_cuda_product &p, const row_place &r, int kb, uint4 *to)
{
    typedef typename kind_of<KIND>::element element;
    enum { COUNT = PARE_CUDA_CHUNK / sizeof(element) };
    element e[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int k = kb / (int)sizeof(element) + i;
        e[i] = 0;
        if (!r.present || k >= p.depth) continue;
        int64_t at = element_find(p, r, k);
        e[i] = at < 0 ? *static_cast<const element *>(p.fill)
                      : static_cast<const element *>(p.x)[at];
    }
    memcpy(to, e, sizeof e);
}

template <int KIND, int WARPS_M, int WARPS_N, int TM, int TN, bool ALIGNED>
static __global__ void __launch_bounds__(WARPS_M *WARPS_N * 32) product_tile(pare_cuda_product p)
{
    enum {
        BM = WARPS_M * TM * 16,
        BN = WARPS_N * TN * 8,
        THREADS = WARPS_M * WARPS_N * 32,
        LINES = THREADS / CHUNKS, /* rows that the block's threads copy at once */
        MINE = BM / LINES
    };
    typedef typename kind_of<KIND>::sum sum;
    SIMT_SHARED(uint4, shared, [STAGES * (BM + BN) * ROW]);
    uint4(*xs)[BM][ROW] = reinterpret_cast<uint4(*)[BM][ROW]>(shared);
    uint4(*ws)[BN][ROW] = reinterpret_cast<uint4(*)[BN][ROW]>(shared + STAGES * BM * ROW);
    const int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int chunk = tid % CHUNKS, line = tid / CHUNKS;
    const int64_t m0 = (int64_t)blockIdx.x * BM;
    const int n0 = (int)blockIdx.y * BN;
    const int wm = warp / WARPS_N * TM * 16, wn = warp % WARPS_N * TN * 8;
    batch_enter(p, (int)blockIdx.z, (int)sizeof(typename kind_of<KIND>::element), bytes_of(p.y_type),
                bytes_of(p.epilogue.z_type));
    row_place place[MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) place[i] = row_find(p, m0 + line + i * LINES);
    sum acc[TM][TN][4];
    PARE_UNROLL for (int i = 0; i < TM; i++)
        PARE_UNROLL for (int j = 0; j < TN; j++)
            PARE_UNROLL for (int r = 0; r < 4; r++) acc[i][j][r] = 0;

    const int steps = p.depth_bytes / PARE_CUDA_STEP;
    auto fetch = [&](int step) {
        const int stage = step % STAGES, kb = step * PARE_CUDA_STEP + chunk * PARE_CUDA_CHUNK;
        PARE_UNROLL for (int i = 0; i < MINE; i++) {
            uint4 *to = &xs[stage][line + i * LINES][chunk];
            if (ALIGNED)
                chunk_copy<KIND>(p, place[i], kb, to);
            else
                chunk_gather<KIND>(p, place[i], kb, to);
        }
        for (int r = line; r < BN; r += LINES) {
            bool present = n0 + r < p.columns;
            int64_t at = present ? (int64_t)(n0 + r) * p.depth_bytes + kb : 0;
            simt_cp_async16(&ws[stage][r][chunk], static_cast<const char *>(p.w) + at,
                            present ? PARE_CUDA_CHUNK : 0);
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
        for (int part = 0; part < CHUNKS; part += 2) {
            unsigned a[TM][4], b[TN / 2][4];
            PARE_UNROLL for (int i = 0; i < TM; i++)
                simt_ldmatrix_x4(a[i], &xs[stage][wm + i * 16 + (lane & 15)][part + (lane >> 4)]);
            PARE_UNROLL for (int j = 0; j < TN / 2; j++)
                simt_ldmatrix_x4(b[j], &ws[stage][wn + j * 16 + (lane & 7) + (lane >> 4) * 8]
                                           [part + (lane >> 3 & 1)]);
            PARE_UNROLL for (int i = 0; i < TM; i++)
                PARE_UNROLL for (int j = 0; j < TN; j++) multiply<KIND>(acc[i][j], a[i], &b[j / 2][j % 2 * 2]);
        }
    }
    simt_cp_async_wait<0>();
    __syncthreads();
    /* sums go through shared memory, so that neighbours store neighbours */
    sum(*out)[BN + 8] = reinterpret_cast<sum(*)[BN + 8]>(shared);
    PARE_UNROLL for (int i = 0; i < TM; i++)
        PARE_UNROLL for (int j = 0; j < TN; j++)
            PARE_UNROLL for (int r = 0; r < 4; r++)
                out[wm + i * 16 + (lane >> 2) + r / 2 * 8][wn + j * 8 + (lane & 3) * 2 + r % 2] =
                    acc[i][j][r];
    __syncthreads();
    for (int i = tid; i < BM * BN; i += THREADS) {
        int64_t row = m0 + i / BN;
        int column = n0 + i % BN;
        if (row < p.rows && column < p.columns)
            sum_finish(p, out[i / BN][i % BN], column, row * p.y_row + column);
    }
}

/* --- launchers --- */

template <int KIND, int WARPS_M, int WARPS_N, int TM, int TN, bool ALIGNED>
static cudaError_t tile_launch(const pare_cuda_product *p, cudaStream_t stream)
{
    const int bm = WARPS_M * TM * 16, bn = WARPS_N * TN * 8;
    dim3 grid((unsigned)((p->rows + bm - 1) / bm), (unsigned)((p->columns + bn - 1) / bn),
              (unsigned)p->batches);
    SIMT_LAUNCH((product_tile<KIND, WARPS_M, WARPS_N, TM, TN, ALIGNED>), grid,
                dim3(WARPS_M * WARPS_N * 32), 0, stream, *p);
    return cudaGetLastError();
}

/* Large tiles where they fill the device; gathering needs their registers for addresses. */
template <int KIND> static cudaError_t kind_launch(const pare_cuda_product *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0 || p->batches == 0) return cudaSuccess;
    int64_t large = (p->rows + 127) / 128 * ((p->columns + 63) / 64) * p->batches;
    if (!p->aligned) return tile_launch<KIND, 2, 2, 2, 4, false>(p, stream);
    return large >= 132 ? tile_launch<KIND, 4, 1, 2, 8, true>(p, stream)
                        : tile_launch<KIND, 2, 2, 2, 4, true>(p, stream);
}

extern "C" cudaError_t pare_cuda_product_launch(const pare_cuda_product *p, cudaStream_t stream)
{
    switch (p->x_type) {
    case PARE_s8: return kind_launch<PARE_s8>(p, stream);
    case PARE_u8: return kind_launch<PARE_u8>(p, stream);
    case PARE_f16: return kind_launch<PARE_f16>(p, stream);
    case PARE_bf16: return kind_launch<PARE_bf16>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}
