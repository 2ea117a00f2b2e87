/* SPDX-License-Identifier: Apache-2.0 */
/* A node that is one product of cuBLASLt's: matrix products and convolutions of one pixel. Bias,
   ReLU and GELU (tanh) are the library's epilogues, a residual is its C with a factor of 1; every
   other activation of floats, and all that follows integer sums, is a pass of blas_epilogue.h.
   Integer sums are made for as many rows at once as stay in the device's L2 cache. */
#ifndef PARE_RUNTIME_CUDA_GEMM_BLAS_NODE_H
#define PARE_RUNTIME_CUDA_GEMM_BLAS_NODE_H

#include "runtime/cuda/gemm/blas_epilogue.h"
#include "runtime/cuda/gemm/blas_product.h"
#include "runtime/cuda/gemm/gemm.h"
#include "runtime/ops/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a reader found of a node. */
typedef struct pare_blas_node {
    pare_blas_product p; /* of integers: of the rows that are computed at once */
    pare_act act;
    float alpha;
    int bias, residual;     /* input positions; -1: none */
    bool packs;             /* W is constant and gets copied, depth contiguous ... */
    int64_t k_step, m_step; /* ... from these strides in elements */
    bool follows;           /* the epilogue is a pass */
    int64_t rows, y_row;
    bool int8; /* as the rest */
    int64_t x_row;
    int32_t x_zero;
    const float *scale, *bias_values; /* (m); NULL: none */
    pare_epilogue epilogue;
} pare_blas_node;

typedef struct pare_blas_prepared {
    pare_lt_product lt;
    pare_device *device;
    void *block;   /* constants */
    const void *w; /* in it; NULL: input 1 */
    int residual;
    float alpha;
    bool follows, int8, flips;
    pare_blas_epilogue epilogue; /* all but its data */
    int64_t rows, at_once, x_row;
    int depth;
    size_t sums, signs; /* in scratch */
} pare_blas_prepared;

/* Floats whose p is set: chooses the epilogue. False where bias, residual or vectors do not fit. */
bool pare_blas_node_floats(const pare_prep *prep, pare_blas_node *n);
/* Integers of a product with constant weights: rows, columns, depth and strides of p. n:
   bias_values, scale, x_zero, epilogue, residual, strides of W are set. False of small products, on
   which a pass is not worth its time, and where the library's kernels want other sizes. */
bool pare_blas_node_integers(const pare_prep *prep, const pare_cuda_gemm_args *p,
                             pare_blas_node *n);

PARE_NODISCARD pare_status pare_blas_node_open(pare_prep *prep, const pare_blas_node *n, int rank,
                                               pare_blas_prepared *out);
void pare_blas_node_close(pare_blas_prepared *s);
/* w: the weights where they are neither packed nor input 1, else NULL. */
PARE_NODISCARD pare_status pare_blas_node_run(const pare_call *call, const pare_blas_prepared *s,
                                              const void *w);

#ifdef __cplusplus
}
#endif
#endif
