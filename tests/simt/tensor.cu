// SPDX-License-Identifier: Apache-2.0
// Kernels around mma.sync, ldmatrix and cp.async.
#include "kernels.h"
#include "runtime/cuda/device/simt.h"

// Fragments straight from memory, as the PTX ISA draws them.
static __global__ void mma_s8(int *d, const unsigned *a, const unsigned *b, int is_unsigned)
{
    int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4; // a row is 8 words
    unsigned fa[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
    unsigned fb[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
    int fd[4];
    for (int i = 0; i < 4; i++) fd[i] = d[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
    if (is_unsigned)
        simt_mma_m16n8k32_u8s8(fd, fa, fb);
    else
        simt_mma_m16n8k32_s8s8(fd, fa, fb);
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = fd[i];
}

// kind: 0 f16, 1 bf16, 2 TF32
static __global__ void mma_float(float *d, const unsigned *a, const unsigned *b, int kind)
{
    int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
    unsigned fa[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
    unsigned fb[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
    float fd[4];
    for (int i = 0; i < 4; i++) fd[i] = d[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
    if (kind == 2)
        simt_mma_m16n8k8_tf32(fd, fa, fb);
    else if (kind)
        simt_mma_m16n8k16_bf16(fd, fa, fb);
    else
        simt_mma_m16n8k16_f16(fd, fa, fb);
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = fd[i];
}

// What sparse products take: kept numbers in rows of 8 words, b in rows of 16, metadata by lane.
struct sparse_fragments {
    unsigned a[4], b[4], meta;
};

SIMT_INLINE sparse_fragments sparse_read(const unsigned *a, const unsigned *b, const unsigned *meta)
{
    const int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
    return {{a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]},
            {b[g * 16 + t], b[g * 16 + t + 4], b[g * 16 + t + 8], b[g * 16 + t + 12]},
            meta[lane]};
}

static __global__ void mma_sp_s8(int *d, const unsigned *a, const unsigned *b, const unsigned *meta,
                                 int is_unsigned)
{
    const sparse_fragments f = sparse_read(a, b, meta);
    int *mine = d + threadIdx.x / 4 * 8 + threadIdx.x % 4 * 2;
    int fd[4] = {mine[0], mine[1], mine[64], mine[65]};
    if (is_unsigned)
        simt_mma_sp_m16n8k64_s8u8(fd, f.a, f.b, f.meta);
    else
        simt_mma_sp_m16n8k64_s8s8(fd, f.a, f.b, f.meta);
    mine[0] = fd[0], mine[1] = fd[1], mine[64] = fd[2], mine[65] = fd[3];
}

static __global__ void mma_sp_f16(float *d, const unsigned *a, const unsigned *b,
                                  const unsigned *meta, int is_bf16)
{
    const sparse_fragments f = sparse_read(a, b, meta);
    float *mine = d + threadIdx.x / 4 * 8 + threadIdx.x % 4 * 2;
    float fd[4] = {mine[0], mine[1], mine[64], mine[65]};
    if (is_bf16)
        simt_mma_sp_m16n8k32_bf16(fd, f.a, f.b, f.meta);
    else
        simt_mma_sp_m16n8k32_f16(fd, f.a, f.b, f.meta);
    mine[0] = fd[0], mine[1] = fd[1], mine[64] = fd[2], mine[65] = fd[3];
}

static __global__ void ldmatrix(unsigned *r, const uint4 *tile, int n, int transposed)
{
    SIMT_SHARED(uint4, rows, [32]);
    int lane = (int)threadIdx.x;
    unsigned f[4] = {0, 0, 0, 0};
    rows[lane] = tile[lane];
    __syncwarp();
    const void *row = &rows[lane];
    if (n == 1 && transposed) simt_ldmatrix_x1_trans(f, row);
    if (n == 1 && !transposed) simt_ldmatrix_x1(f, row);
    if (n == 2 && transposed) simt_ldmatrix_x2_trans(f, row);
    if (n == 2 && !transposed) simt_ldmatrix_x2(f, row);
    if (n == 4 && transposed) simt_ldmatrix_x4_trans(f, row);
    if (n == 4 && !transposed) simt_ldmatrix_x4(f, row);
    for (int i = 0; i < 4; i++) r[lane * 4 + i] = f[i];
}

// Every thread copies 4, 8 and 16 bytes, of which at most `present` are there, in a group each, and
// adds up the words of each. to (3, 32), from (32, 4)
static __global__ void cp_async(int *to, const int *from, int present)
{
    SIMT_SHARED(uint4, room, [3][32]);
    int t = (int)threadIdx.x;
    simt_cp_async4(&room[0][t], from + t * 4, present < 4 ? present : 4);
    simt_cp_async_commit();
    simt_cp_async8(&room[1][t], from + t * 4, present < 8 ? present : 8);
    simt_cp_async_commit();
    simt_cp_async16(&room[2][t], from + t * 4, present);
    simt_cp_async_commit();
    simt_cp_async_wait<2>();
    to[t] = (int)room[0][t].x;
    simt_cp_async_wait<1>();
    to[32 + t] = (int)(room[1][t].x + room[1][t].y);
    simt_cp_async_wait<0>();
    uint4 v = room[2][t];
    to[64 + t] = (int)(v.x + v.y + v.z + v.w);
}

// c = a b: a block makes 32 x 32 with two warps of 16 x 32; two stages of 64 columns in flight.
enum { TILE = 32, DEPTH = 64, PITCH = DEPTH + 16 };

SIMT_INLINE void load(int8_t (*to)[PITCH], const int8_t *from, int row0, int rows, int k, int k0)
{
    for (int c = (int)threadIdx.x; c < TILE * DEPTH / 16; c += (int)blockDim.x) {
        int r = c / (DEPTH / 16), at = c % (DEPTH / 16) * 16, there = row0 + r < rows;
        simt_cp_async16(&to[r][at], from + (int64_t)(there ? row0 + r : 0) * k + k0 + at,
                        there ? 16 : 0);
    }
}

static __global__ void __launch_bounds__(64)
    gemm_s8(int *c, const int8_t *a, const int8_t *b, int m, int n, int k)
{
    SIMT_SHARED(int8_t, sa, [2][TILE][PITCH]);
    SIMT_SHARED(int8_t, sb, [2][TILE][PITCH]);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int m0 = (int)blockIdx.y * TILE, n0 = (int)blockIdx.x * TILE;
    int acc[4][4] = {};
    load(sa[0], a, m0, m, k, 0);
    load(sb[0], b, n0, n, k, 0);
    simt_cp_async_commit();
    for (int k0 = 0, s = 0; k0 < k; k0 += DEPTH, s ^= 1) {
        if (k0 + DEPTH < k) {
            load(sa[s ^ 1], a, m0, m, k, k0 + DEPTH);
            load(sb[s ^ 1], b, n0, n, k, k0 + DEPTH);
            simt_cp_async_commit();
            simt_cp_async_wait<1>();
        } else
            simt_cp_async_wait<0>();
        __syncthreads();
        for (int kk = 0; kk < DEPTH; kk += 32) {
            unsigned fa[4], fb[4];
            simt_ldmatrix_x4(fa, &sa[s][warp * 16 + lane % 16][kk + lane / 16 * 16]);
            for (int j = 0; j < 4; j += 2) { // two tiles of 8 columns a load
                simt_ldmatrix_x4(fb,
                                 &sb[s][j * 8 + lane % 8 + lane / 16 * 8][kk + lane / 8 % 2 * 16]);
                simt_mma_m16n8k32_s8s8(acc[j], fa, fb);
                simt_mma_m16n8k32_s8s8(acc[j + 1], fa, fb + 2);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            int row = m0 + warp * 16 + lane / 4 + i / 2 * 8,
                col = n0 + j * 8 + lane % 4 * 2 + i % 2;
            if (row < m && col < n) c[(int64_t)row * n + col] = acc[j][i];
        }
}

extern "C" cudaError_t simt_test_mma_s8(int32_t *d, const void *a, const void *b, int is_unsigned,
                                        cudaStream_t stream)
{
    SIMT_LAUNCH(mma_s8, dim3(1), dim3(32), 0, stream, d, (const unsigned *)a, (const unsigned *)b,
                is_unsigned);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_mma_float(float *d, const void *a, const void *b, int kind,
                                           cudaStream_t stream)
{
    SIMT_LAUNCH(mma_float, dim3(1), dim3(32), 0, stream, d, (const unsigned *)a,
                (const unsigned *)b, kind);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_mma_sp_s8(int32_t *d, const void *a, const void *b,
                                           const unsigned *meta, int is_unsigned,
                                           cudaStream_t stream)
{
    SIMT_LAUNCH(mma_sp_s8, dim3(1), dim3(32), 0, stream, d, (const unsigned *)a,
                (const unsigned *)b, meta, is_unsigned);
    return cudaGetLastError();
}

extern "C" cudaError_t simt_test_mma_sp_f16(float *d, const void *a, const void *b,
                                            const unsigned *meta, int is_bf16, cudaStream_t stream)
{
    SIMT_LAUNCH(mma_sp_f16, dim3(1), dim3(32), 0, stream, d, (const unsigned *)a,
                (const unsigned *)b, meta, is_bf16);
    return cudaGetLastError();
}

extern "C" cudaError_t simt_test_ldmatrix(unsigned *r, const void *tile, int n, int transposed,
                                          cudaStream_t stream)
{
    SIMT_LAUNCH(ldmatrix, dim3(1), dim3(32), 0, stream, r, (const uint4 *)tile, n, transposed);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_cp_async(int *to, const int *from, int present,
                                          cudaStream_t stream)
{
    SIMT_LAUNCH(cp_async, dim3(1), dim3(32), 0, stream, to, from, present);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_gemm_s8(int32_t *c, const int8_t *a, const int8_t *b, int m, int n,
                                         int k, cudaStream_t stream)
{
    dim3 grid((unsigned)(n + TILE - 1) / TILE, (unsigned)(m + TILE - 1) / TILE);
    SIMT_LAUNCH(gemm_s8, grid, dim3(64), 0, stream, c, a, b, m, n, k);
    return cudaGetLastError();
}
