/* SPDX-License-Identifier: Apache-2.0 */
/* One product on cuBLASLt. The library reads columns: row-major Y (rows, columns) is its D
   (columns, rows), with W as its first factor and X as its second, so that output channels are D's
   rows, where a bias belongs. Constant weights are packed with depth contiguous: the form "TN" that
   Hopper's kernels are made for. Sums of f32 are of f32 products, or of TF32 ones where the
   device allows them, those of s8 are s32.
   Which algorithms serve is asked of the library once for a product and a device, and kept. */
#ifndef PARE_RUNTIME_CUDA_GEMM_BLAS_PRODUCT_H
#define PARE_RUNTIME_CUDA_GEMM_BLAS_PRODUCT_H

#include "runtime/cuda/gemm/blas_device.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tensors, packed weights and scratch of a device lie at multiples of, in bytes. */
enum { PARE_BLAS_ALIGNED = 256 };

/* D (m, n) = alpha op(W) op(X) + beta D, and an epilogue; op(W) is (m, k), op(X) (k, n), all in
   column order with ld elements from column to column; count of them, so many elements apart.
   Fields are of one size: products compare as bytes. */
typedef struct pare_blas_product {
    int64_t type, d_type; /* of W and X, of D and the bias: cudaDataType */
    int64_t compute;      /* cublasComputeType_t */
    int64_t trans_w, trans_x, epilogue;
    int64_t m, n, k, ld_w, ld_x, ld_d;
    int64_t count, w_batch, x_batch, d_batch;
    int64_t x_aligned; /* bytes */
} pare_blas_product;

/* A product that an algorithm was chosen for. */
typedef struct pare_lt_product {
    const pare_cuda_blas *blas;
    void *desc, *w, *x, *d;
    pare_lt_algo algo;
    size_t workspace, scratch; /* bytes, and where they are in scratch */
} pare_lt_product;

/* cudaDataType of f32, f16, bf16, s8. */
int pare_blas_type(pare_dtype type);
/* What products of these floats are computed in: f32, or TF32 of f32 where the device allows it. */
int pare_blas_compute(const pare_device *device, pare_dtype type);
/* The library's epilogue for an activation; 0: it has none. GELU is the tanh form. */
int pare_blas_epilogue_of(pare_act_kind act, bool biased);

/* Has it elements, no more than the library counts? */
bool pare_blas_product_fits(const pare_blas_product *p);
/* How many algorithms the library offers, at most PARE_LT_MOST; 0 where it is absent or refuses. */
int pare_lt_count(const pare_prep *prep, const pare_blas_product *p);
/* Describes the product and takes algorithm `rank` of the library's order; adds its workspace to
   the node's scratch. PARE_UNSUPPORTED: there are fewer; PARE_DEVICE, PARE_MEMORY of the library. A
   failure leaves nothing. */
PARE_NODISCARD pare_status pare_lt_open(pare_prep *prep, const pare_blas_product *p, int rank,
                                        pare_lt_product *out);
void pare_lt_close(pare_lt_product *s);
/* bias: (m) of D's type, on the device. */
PARE_NODISCARD pare_status pare_lt_bias_set(const pare_prep *prep, const pare_lt_product *s,
                                            const void *bias);
/* alpha, beta: floats, of s32 sums ints; c: laid out as D, and read where beta is not 0. */
PARE_NODISCARD pare_status pare_lt_run(const pare_call *call, const pare_lt_product *s,
                                       const void *alpha, const void *w, const void *x,
                                       const void *beta, const void *c, void *d);

#ifdef __cplusplus
}
#endif
#endif
