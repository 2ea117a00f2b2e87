/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 32-bit floats by plain multiply-adds, but for large ones whose factors chunks bring
   (gemm_f32_tiles.cu): a block of 256 threads makes 64 x 64 sums, 4 x 4 a thread; 16 steps of depth
   at a time are in shared memory, depth outermost, so that a thread reads neighbours. Sums are
   folded in order of depth, each step one fused multiply-add. Threads whose sums all are outside
   the product only bring: of few rows, as of one sample, a part works. Weights of 4 or 8 bits
   become f32 on the way to shared memory: sums are those of W as f32. */
#include "runtime/cuda/gemm/gemm_f32_tiles.h"
#include "runtime/cuda/gemm/weights.cuh"

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
    dim3 grid(pare_cuda_blocks((p->rows + TILE - 1) / TILE),
              pare_cuda_blocks_beside((p->columns + TILE - 1) / TILE),
              pare_cuda_blocks_beside(p->batches));
    SIMT_LAUNCH((gemm_f32_tile<W>), grid, dim3(THREADS), 0, stream, *p);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_gemm_f32_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (pare_cuda_f32_tiles_take(p)) return pare_cuda_gemm_f32_tiles_launch(p, stream);
    switch (p->weights.type) {
    case PARE_NOTYPE: return f32_launch<PARE_f32>(p, stream);
    case PARE_s4: return f32_launch<PARE_s4>(p, stream);
    case PARE_s8: return f32_launch<PARE_s8>(p, stream);
    case PARE_f4e2m1: return f32_launch<PARE_f4e2m1>(p, stream);
    case PARE_f8e4m3: return f32_launch<PARE_f8e4m3>(p, stream);
    default: return cudaErrorInvalidValue;
    }
}
