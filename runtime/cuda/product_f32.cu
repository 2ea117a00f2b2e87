/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 32-bit floats by plain multiply-adds: a block of 256 threads makes 64 x 64 sums, 4 x 4 a
   thread; 16 steps of depth at a time lie in shared memory, depth outermost, so that a thread reads
   neighbours. Sums are folded in order of depth, each step one fused multiply-add. */
#include "runtime/cuda/product.cuh"

enum { TILE = 64, DEPTH = 16, MINE = 4, THREADS = 256 };

SIMT_INLINE float x_at(const pare_cuda_product &p, const row_place &r, int k)
{
    if (!r.present || k >= p.depth) return 0;
    int64_t at = element_find(p, r, k);
    return at < 0 ? 0 : static_cast<const float *>(p.x)[at];
}

static __global__ void __launch_bounds__(THREADS) product_f32_tile(pare_cuda_product p)
{
    SIMT_SHARED(float, xs, [DEPTH][TILE + 4]);
    SIMT_SHARED(float, ws, [DEPTH][TILE + 4]);
    const int tid = (int)threadIdx.x, across = tid % 16, down = tid / 16;
    const int64_t m0 = (int64_t)blockIdx.x * TILE;
    const int n0 = (int)blockIdx.y * TILE;
    batch_enter(p, (int)blockIdx.z, 4, bytes_of(p.y_type), bytes_of(p.epilogue.z_type));
    const int k_mine = tid % DEPTH, line = tid / DEPTH; /* what this thread brings: 4 rows, one k */
    row_place place[MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) place[i] = row_find(p, m0 + line + 16 * i);
    float acc[MINE][MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++)
        PARE_UNROLL for (int j = 0; j < MINE; j++) acc[i][j] = 0;
    for (int k0 = 0; k0 < p.depth; k0 += DEPTH) {
        PARE_UNROLL for (int i = 0; i < MINE; i++) {
            int row = line + 16 * i, k = k0 + k_mine;
            xs[k_mine][row] = x_at(p, place[i], k);
            ws[k_mine][row] = n0 + row < p.columns && k < p.depth
                                  ? static_cast<const float *>(
                                        p.w)[(int64_t)(n0 + row) * (p.depth_bytes / 4) + k]
                                  : 0;
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; k++)
            PARE_UNROLL for (int i = 0; i < MINE; i++)
                PARE_UNROLL for (int j = 0; j < MINE; j++)
                    acc[i][j] = fmaf(xs[k][down + 16 * i], ws[k][across + 16 * j], acc[i][j]);
        __syncthreads();
    }
    PARE_UNROLL for (int i = 0; i < MINE; i++)
        PARE_UNROLL for (int j = 0; j < MINE; j++) {
            int64_t row = m0 + down + 16 * i;
            int column = n0 + across + 16 * j;
            if (row < p.rows && column < p.columns)
                sum_finish(p, acc[i][j], column, row * p.y_row + column);
        }
}

extern "C" cudaError_t pare_cuda_product_f32_launch(const pare_cuda_product *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0 || p->batches == 0) return cudaSuccess;
    dim3 grid((unsigned)((p->rows + TILE - 1) / TILE), (unsigned)((p->columns + TILE - 1) / TILE),
              (unsigned)p->batches);
    SIMT_LAUNCH(product_f32_tile, grid, dim3(THREADS), 0, stream, *p);
    return cudaGetLastError();
}
