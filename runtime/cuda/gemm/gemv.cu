/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a few rows of f32 with weights of 4 or 8 bits, which read each weight once for up to
   eight rows: bytes moved are W's, its scales' (4 a group) and, from nearby, X's. A warp makes two
   columns of ROWS rows. Its lanes take neighbouring chunks of 16 bytes of a column, and fetch the
   next ones before they compute. X is in shared memory, 32 chunks' numbers at a time, each chunk's
   16 bytes farther than the one before, so that eight lanes that read 16 bytes each are in
   different banks. A lane adds the products of a chunk in order of depth, scales them once, and
   adds chunks in order; then lanes are added in pairs. Which lane has what depends on the format
   alone: a row's sum is the same whatever rows are beside it. Where groups end within chunks,
   numbers are scaled one by one. */
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/gemm/weights.cuh"

enum { WARPS = 4, THREADS = WARPS * 32, COLUMNS = 2, WORDS = 4 };

/* Depth from k0 on of ROWS rows of X, 0 beyond the last row and the end. */
template <int ROWS, int CHUNK>
SIMT_INLINE void rows_bring(const pare_cuda_gemm_args &p, const float *x, int64_t m0, int k0,
                            float4 (*xs)[32][CHUNK / 4 + 1])
{
    const int step = p.copy == 16 ? 4 : 1;
    for (int r = 0; r < ROWS; r++) {
        const float *from = x + (m0 + r) * p.x_row;
        const int end = m0 + r < p.rows ? p.depth : 0;
        for (int i = (int)threadIdx.x * step; i < 32 * CHUNK; i += THREADS * step) {
            float *to = reinterpret_cast<float *>(xs[r][i / CHUNK]) + i % CHUNK;
            if (step == 4)
                *reinterpret_cast<float4 *>(to) =
                    k0 + i < end ? *reinterpret_cast<const float4 *>(from + k0 + i)
                                 : make_float4(0, 0, 0, 0);
            else
                *to = k0 + i < end ? from[(k0 + i) * p.x_step] : 0;
        }
    }
}

/* The groups that depth k is in, of each column. */
SIMT_INLINE void groups_find(const pare_cuda_weights &w, const int64_t row[COLUMNS], int group,
                             weight_group to[COLUMNS])
{
    PARE_UNROLL for (int c = 0; c < COLUMNS; c++) to[c] = group_at(w, row[c] + group);
}

/* Adds to the sums what a chunk of each column makes of a lane's part of X, from depth k on. */
template <int W, int ROWS, bool WHOLE>
SIMT_INLINE void
chunk_add(const pare_cuda_gemm_args &p, const uint4 chunk[COLUMNS], const int64_t row[COLUMNS],
          int k, const float4 (*xs)[32][weight_of<W>::CHUNK / 4 + 1], float acc[COLUMNS][ROWS])
{
    enum { WORD = weight_of<W>::WORD, LOTS = WORD / 4 };
    const int lane = (int)threadIdx.x % 32;
    int group = k / p.weights.group, next = (group + 1) * p.weights.group;
    weight_group now[COLUMNS];
    float part[COLUMNS][ROWS];
    groups_find(p.weights, row, group, now);
    PARE_UNROLL for (int c = 0; c < COLUMNS; c++) PARE_UNROLL for (int r = 0; r < ROWS; r++)
        part[c][r] = 0;
    PARE_UNROLL for (int word = 0; word < WORDS; word++)
    {
        float level[COLUMNS][WORD];
        PARE_UNROLL for (int i = 0; i < WORD; i++)
        {
            const int at = k + word * WORD + i;
            if (!WHOLE && at == next && at < p.depth) {
                groups_find(p.weights, row, ++group, now);
                next += p.weights.group;
            }
            PARE_UNROLL for (int c = 0; c < COLUMNS; c++)
            {
                const unsigned words[WORDS] = {chunk[c].x, chunk[c].y, chunk[c].z, chunk[c].w};
                level[c][i] = level_at<W>(words[word], i, now[c].base);
                if (!WHOLE) level[c][i] *= now[c].scale;
            }
        }
        PARE_UNROLL for (int r = 0; r < ROWS; r++) PARE_UNROLL for (int lot = 0; lot < LOTS; lot++)
        {
            const float4 x = xs[r][lane][word * LOTS + lot];
            PARE_UNROLL for (int c = 0; c < COLUMNS; c++)
            {
                const float *w = &level[c][lot * 4];
                part[c][r] = fmaf(x.x, w[0], part[c][r]);
                part[c][r] = fmaf(x.y, w[1], part[c][r]);
                part[c][r] = fmaf(x.z, w[2], part[c][r]);
                part[c][r] = fmaf(x.w, w[3], part[c][r]);
            }
        }
    }
    PARE_UNROLL for (int c = 0; c < COLUMNS; c++) PARE_UNROLL for (int r = 0; r < ROWS; r++)
        acc[c][r] = WHOLE ? fmaf(part[c][r], now[c].scale, acc[c][r]) : acc[c][r] + part[c][r];
}

/* A lane's chunk of a column's piece; 0 beyond its end. */
SIMT_INLINE uint4 chunk_at(const char *column, int64_t at, int64_t end)
{
    return at < end ? *reinterpret_cast<const uint4 *>(column + at) : make_uint4(0, 0, 0, 0);
}

template <int W, int ROWS, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) gemv_rows(pare_cuda_gemm_args p)
{
    simt_dependency_wait();
    enum { CHUNK = weight_of<W>::CHUNK, PIECE = 32 * CHUNK, BYTES = 32 * PARE_CUDA_CHUNK };
    SIMT_SHARED(float4, xs, [ROWS][32][CHUNK / 4 + 1]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int n0 = ((int)blockIdx.x * WARPS + warp) * COLUMNS;
    const int64_t m0 = (int64_t)blockIdx.y * ROWS;
    const operands o = operands_of(p, 0);
    const char *column[COLUMNS];
    int64_t row[COLUMNS], at = lane * PARE_CUDA_CHUNK; /* row: of scales */
    float acc[COLUMNS][ROWS];
    uint4 next[COLUMNS];
    PARE_UNROLL for (int c = 0; c < COLUMNS; c++)
    {
        const int64_t n = min(n0 + c, p.columns - 1);
        column[c] = o.w + n * p.w_row;
        row[c] = n * p.weights.groups;
        next[c] = chunk_at(column[c], at, p.w_row);
        PARE_UNROLL for (int r = 0; r < ROWS; r++) acc[c][r] = 0;
    }
    for (int k0 = 0; k0 < p.depth; k0 += PIECE) {
        uint4 now[COLUMNS];
        at += BYTES;
        PARE_UNROLL for (int c = 0; c < COLUMNS; c++)
        {
            now[c] = next[c];
            next[c] = chunk_at(column[c], at, p.w_row);
        }
        __syncthreads(); /* the piece before is read */
        rows_bring<ROWS, CHUNK>(p, reinterpret_cast<const float *>(o.x), m0, k0, xs);
        __syncthreads();
        const int k = k0 + lane * CHUNK;
        if (k < p.depth) chunk_add<W, ROWS, WHOLE>(p, now, row, k, xs, acc);
    }
    simt_dependents_launch();
    float mine = 0;
    PARE_UNROLL for (int c = 0; c < COLUMNS; c++) PARE_UNROLL for (int r = 0; r < ROWS; r++)
    {
        const float sum = pare_lanes_sum(acc[c][r]);
        if (lane == c * ROWS + r) mine = sum;
    }
    const int64_t m = m0 + lane % ROWS;
    const int n = n0 + lane / ROWS;
    if (lane < COLUMNS * ROWS && m < p.rows && n < p.columns)
        sum_finish(p, o, mine, m, n, m * p.y_row + n);
}

/* W as f32, for products of a library: each word is read once, each number written once. */
template <int W> static __global__ void widen_words(pare_cuda_gemm_args p)
{
    enum { WORD = weight_of<W>::WORD };
    const int words = (p.depth + WORD - 1) / WORD;
    PARE_CUDA_EACH (i, (int64_t)p.columns * words) {
        const int64_t n = i / words;
        const int word = (int)(i - n * words), k = word * WORD, left = p.depth - k;
        const unsigned *row =
            reinterpret_cast<const unsigned *>(static_cast<const char *>(p.w) + n * p.w_row);
        float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(p.y) + n * p.y_row + k);
        float value[WORD];
        PARE_UNROLL for (int j = 0; j < WORD; j++) value[j] = 0;
        numbers_read<W, WORD>(p.weights, row[word], n, k, left, value);
        PARE_UNROLL for (int j = 0; j < WORD; j += 4) if (j < left) to[j / 4] =
            make_float4(value[j], value[j + 1], value[j + 2], value[j + 3]);
    }
}

/* --- launchers --- */

template <int W, int ROWS, bool WHOLE>
static cudaError_t rows_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    dim3 grid((unsigned)((p->columns + WARPS * COLUMNS - 1) / (WARPS * COLUMNS)),
              pare_cuda_blocks_beside((p->rows + ROWS - 1) / ROWS));
    PARE_LAUNCH_DEPENDENT((gemv_rows<W, ROWS, WHOLE>), grid, dim3(THREADS), 0, stream, *p);
    return cudaGetLastError();
}

template <int W> static cudaError_t type_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const bool whole = p->weights.groups <= 1 || p->weights.group % weight_of<W>::CHUNK == 0;
    if (!whole) return rows_launch<W, 4, false>(p, stream);
    if (p->rows == 1) return rows_launch<W, 1, true>(p, stream);
    if (p->rows == 2) return rows_launch<W, 2, true>(p, stream);
    return p->rows <= 4 ? rows_launch<W, 4, true>(p, stream) : rows_launch<W, 8, true>(p, stream);
}

extern "C" cudaError_t pare_cuda_gemv_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->weights.type) {
    case PARE_s4: return type_launch<PARE_s4>(p, stream);
    case PARE_s8: return type_launch<PARE_s8>(p, stream);
    case PARE_f4e2m1: return type_launch<PARE_f4e2m1>(p, stream);
    case PARE_f8e4m3: return type_launch<PARE_f8e4m3>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}

template <int W> static cudaError_t widen_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const int64_t words = (p->depth + weight_of<W>::WORD - 1) / weight_of<W>::WORD;
    PARE_CUDA_LAUNCH_EACH((widen_words<W>), p->columns * words, *p);
}

extern "C" cudaError_t pare_cuda_widen_weights_launch(const pare_cuda_gemm_args *p,
                                                      cudaStream_t stream)
{
    switch (p->weights.type) {
    case PARE_s4: return widen_launch<PARE_s4>(p, stream);
    case PARE_s8: return widen_launch<PARE_s8>(p, stream);
    case PARE_f4e2m1: return widen_launch<PARE_f4e2m1>(p, stream);
    case PARE_f8e4m3: return widen_launch<PARE_f8e4m3>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}
