/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels that the emulation's own tests launch. */
#ifndef PARE_SIMT_KERNELS_H
#define PARE_SIMT_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* vector.cu */
cudaError_t simt_test_fill(float *y, int n, float value, cudaStream_t stream);
/* y = a x + y */
cudaError_t simt_test_axpy(float *y, const float *x, int n, float a, cudaStream_t stream);
/* shared bytes beyond what a kernel may use without asking: asks where allow is 1 */
cudaError_t simt_test_wide(int *y, int words, int allow, cudaStream_t stream);
cudaError_t simt_test_shape(int *y, dim3 grid, dim3 block, cudaStream_t stream);
/* sum of x by blocks, the last of which adds the parts; counter and parts (blocks) are zeroed */
cudaError_t simt_test_last_block(const int *x, int n, int blocks, int *parts, unsigned *counter,
                                 int *sum, cudaStream_t stream);

/* warp.cu: out has the number of results that each kernel's comment says */
enum { SIMT_TEST_RESULTS = 16 };
cudaError_t simt_test_collectives(int *out, int threads, cudaStream_t stream);
cudaError_t simt_test_votes(int *out, int threads, int threshold, cudaStream_t stream);
cudaError_t simt_test_atomics(int *out, unsigned long long *wide, float *real, cudaStream_t stream);
cudaError_t simt_test_scalar(int *out, cudaStream_t stream);
cudaError_t simt_test_exchange(int *out, cudaStream_t stream);

/* tensor.cu: d (16, 8) += a (16, k) b (8, k): operands as rows of 32 (s8, u8) or 16 (f16, bf16) */
cudaError_t simt_test_mma_s8(int32_t *d, const void *a, const void *b, int is_unsigned,
                             cudaStream_t stream);
cudaError_t simt_test_mma_float(float *d, const void *a, const void *b, int kind,
                                cudaStream_t stream);
/* a: rows of 8 words that hold what is kept; b: rows of 16 words of full depth; meta: a word a
   lane. is_unsigned, is_bf16: b, or both. */
cudaError_t simt_test_mma_sp_s8(int32_t *d, const void *a, const void *b, const unsigned *meta,
                                int is_unsigned, cudaStream_t stream);
cudaError_t simt_test_mma_sp_f16(float *d, const void *a, const void *b, const unsigned *meta,
                                 int is_bf16, cudaStream_t stream);
/* r (32, 4): registers of ldmatrix of n matrices of tile (32 rows of 8 halves) */
cudaError_t simt_test_ldmatrix(unsigned *r, const void *tile, int n, int transposed,
                               cudaStream_t stream);
/* to (3, 32): sums of the first 4, 8, 16 bytes of rows of from (32, 4), `present` bytes of each */
cudaError_t simt_test_cp_async(int *to, const int *from, int present, cudaStream_t stream);
/* c (m, n) = a (m, k) b (n, k), s8 to s32; k a multiple of 64 */
cudaError_t simt_test_gemm_s8(int32_t *c, const int8_t *a, const int8_t *b, int m, int n, int k,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
