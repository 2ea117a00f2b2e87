/* SPDX-License-Identifier: Apache-2.0 */
/* Both gradients of a convolution are products whose operands are read where they lie:
     dX  rows: positions of X, columns: channels, depth: taps and filters (filters fastest)
     dW  rows: filters, columns: channels and taps (taps fastest), depth: positions of Y
   A block of 256 threads makes 64 x 64 sums, 4 x 4 a thread; 16 steps of depth at a time lie in
   shared memory. The long depth of dW is cut into splits, whose sums are added in order: nothing
   is atomic. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/grad_conv.h"

enum { TILE = 64, DEPTH = 16, MINE = 4, THREADS = 256, PITCH = TILE + 4 };

SIMT_INLINE int taps_of(const pare_cuda_conv_grad &g)
{
    return g.kernel[0] * g.kernel[1] * g.kernel[2];
}

/* at: the three positions of number i in a box. */
SIMT_INLINE void unroll(int64_t i, const int box[3], int at[3])
{
    for (int a = 2; a >= 0; a--) {
        at[a] = (int)(i % box[a]);
        i /= box[a];
    }
}

/* dY of group z at filter m where tap meets position x of image n, 0 where it meets none. */
SIMT_INLINE float dy_met(const pare_cuda_conv_grad &g, int64_t z, int64_t n, const int x[3],
                         const int tap[3], int64_t m)
{
    int64_t at = n * g.dy_stride[0] + (z * g.filters + m) * g.dy_stride[1];
    for (int a = 0; a < 3; a++) {
        const int place = x[a] + g.begin[a] - tap[a] * g.dilation[a], o = place / g.stride[a];
        if (place < 0 || o >= g.out[a] || o * g.stride[a] != place) return 0;
        at += o * g.dy_stride[2 + a];
    }
    return pare_number_at(g.dy, g.dtype, at);
}

/* X of group z at channel c under tap of window y of image n, 0 in the padding. */
SIMT_INLINE float x_under(const pare_cuda_conv_grad &g, int64_t z, int64_t n, const int y[3],
                          const int tap[3], int64_t c)
{
    int64_t at = n * g.x_stride[0] + (z * g.channels + c) * g.x_stride[1];
    for (int a = 0; a < 3; a++) {
        const int place = y[a] * g.stride[a] - g.begin[a] + tap[a] * g.dilation[a];
        if (place < 0 || place >= g.in[a]) return 0;
        at += place * g.x_stride[2 + a];
    }
    return pare_number_at(g.with, g.dtype, at);
}

SIMT_INLINE int64_t w_place(const pare_cuda_conv_grad &g, int64_t z, int64_t m, int64_t c,
                            const int tap[3])
{
    return (z * g.filters + m) * g.w_stride[0] + c * g.w_stride[1] + tap[0] * g.w_stride[2] +
           tap[1] * g.w_stride[3] + tap[2] * g.w_stride[4];
}

/* Sizes of the product. */
typedef struct product {
    int64_t rows, columns, depth;
} product;

static __host__ __device__ inline product product_of(const pare_cuda_conv_grad &g)
{
    const int64_t taps = (int64_t)g.kernel[0] * g.kernel[1] * g.kernel[2];
    product p;
    p.rows = g.weight ? g.filters : (int64_t)g.n * g.in[0] * g.in[1] * g.in[2];
    p.columns = g.weight ? g.channels * taps : g.channels;
    p.depth = g.weight ? (int64_t)g.n * g.out[0] * g.out[1] * g.out[2] : g.filters * taps;
    return p;
}

/* The left operand: row r, depth k. */
SIMT_INLINE float left_at(const pare_cuda_conv_grad &g, int64_t z, int64_t r, int64_t k)
{
    int at[3], tap[3];
    if (g.weight) {
        const int64_t plane = (int64_t)g.out[0] * g.out[1] * g.out[2];
        unroll(k, g.out, at);
        return pare_number_at(g.dy, g.dtype,
                              k / plane * g.dy_stride[0] + (z * g.filters + r) * g.dy_stride[1] +
                                  at[0] * g.dy_stride[2] + at[1] * g.dy_stride[3] +
                                  at[2] * g.dy_stride[4]);
    }
    unroll(r, g.in, at);
    unroll(k / g.filters, g.kernel, tap);
    return dy_met(g, z, r / ((int64_t)g.in[0] * g.in[1] * g.in[2]), at, tap, k % g.filters);
}

/* The right operand: depth k, column c. */
SIMT_INLINE float right_at(const pare_cuda_conv_grad &g, int64_t z, int64_t k, int64_t c)
{
    int at[3], tap[3];
    if (g.weight) {
        unroll(k, g.out, at);
        unroll(c, g.kernel, tap);
        return x_under(g, z, k / ((int64_t)g.out[0] * g.out[1] * g.out[2]), at, tap,
                       c / taps_of(g));
    }
    unroll(k / g.filters, g.kernel, tap);
    return pare_number_at(g.with, g.dtype, w_place(g, z, k % g.filters, c, tap));
}

SIMT_INLINE void give(const pare_cuda_conv_grad &g, int64_t z, int64_t r, int64_t c, float v)
{
    int at[3];
    if (g.weight) {
        unroll(c, g.kernel, at);
        pare_number_store(g.to, g.dtype, w_place(g, z, r, c / taps_of(g), at), v);
        return;
    }
    unroll(r, g.in, at);
    pare_number_store(g.to, g.dtype,
                      r / ((int64_t)g.in[0] * g.in[1] * g.in[2]) * g.x_stride[0] +
                          (z * g.channels + c) * g.x_stride[1] + at[0] * g.x_stride[2] +
                          at[1] * g.x_stride[3] + at[2] * g.x_stride[4],
                      v);
}

static __global__ void __launch_bounds__(THREADS, 2) conv_grad_tile(pare_cuda_conv_grad g)
{
    SIMT_SHARED(float, left, [DEPTH][PITCH]);
    SIMT_SHARED(float, right, [DEPTH][PITCH]);
    const product p = product_of(g);
    const int tid = (int)threadIdx.x, across = tid % 16 * MINE, down = tid / 16 * MINE;
    const int k_mine = tid % DEPTH, line = tid / DEPTH;
    const int64_t m0 = (int64_t)blockIdx.x * TILE, n0 = (int64_t)blockIdx.y * TILE;
    const int64_t z = blockIdx.z / g.splits, split = blockIdx.z % g.splits;
    const int64_t first = p.depth * split / g.splits, end = p.depth * (split + 1) / g.splits;
    float acc[MINE][MINE];
    PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
        acc[i][j] = 0;
    for (int64_t k0 = first; k0 < end; k0 += DEPTH) {
        const int64_t k = k0 + k_mine;
        for (int i = 0; i < MINE; i++) {
            const int row = line + 16 * i;
            left[k_mine][row] = k < end && m0 + row < p.rows ? left_at(g, z, m0 + row, k) : 0;
            right[k_mine][row] = k < end && n0 + row < p.columns ? right_at(g, z, k, n0 + row) : 0;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d++)
            PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
                acc[i][j] = fmaf(left[d][down + i], right[d][across + j], acc[i][j]);
        __syncthreads();
    }
    PARE_UNROLL for (int i = 0; i < MINE; i++) PARE_UNROLL for (int j = 0; j < MINE; j++)
    {
        const int64_t r = m0 + down + i, c = n0 + across + j;
        if (r >= p.rows || c >= p.columns) continue;
        if (g.splits > 1)
            g.part[(blockIdx.z * p.rows + r) * p.columns + c] = acc[i][j];
        else
            give(g, z, r, c, acc[i][j]);
    }
}

/* The splits of dW, one after the other. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) join_splits(pare_cuda_conv_grad g)
{
    const product p = product_of(g);
    const int64_t one = p.rows * p.columns;
    PARE_CUDA_EACH (i, g.groups * one) {
        const int64_t z = i / one, at = i - z * one;
        float sum = 0;
        for (int s = 0; s < g.splits; s++) sum += g.part[(z * g.splits + s) * one + at];
        give(g, z, at / p.columns, at % p.columns, sum);
    }
}

extern "C" cudaError_t pare_cuda_conv_grad_launch(const pare_cuda_conv_grad *g, cudaStream_t stream)
{
    const product p = product_of(*g);
    if (p.rows == 0 || p.columns == 0 || g->groups == 0) return cudaSuccess;
    const dim3 grid((unsigned)((p.rows + TILE - 1) / TILE),
                    (unsigned)((p.columns + TILE - 1) / TILE), (unsigned)(g->groups * g->splits));
    SIMT_LAUNCH(conv_grad_tile, grid, dim3(THREADS), 0, stream, *g);
    if (g->splits == 1) return cudaGetLastError();
    SIMT_LAUNCH(join_splits, pare_cuda_grid(g->groups * p.rows * p.columns), dim3(PARE_CUDA_BLOCK),
                0, stream, *g);
    return cudaGetLastError();
}
