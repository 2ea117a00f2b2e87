/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of matrix products. */
#ifndef PARE_RUNTIME_CUDA_MATMUL_H
#define PARE_RUNTIME_CUDA_MATMUL_H

#include "runtime/cuda/gemm/gemm.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/product.h"

/* The factors and the result of a product with at least two axes each (a vector on the left is a
   row, on the right a column), transposed where the node says so: A (batch..., rows, depth), B
   (batch..., depth, columns), Y (batch..., rows, columns). */
typedef struct pare_cuda_factors {
    pare_view a, b, y;
    int64_t rows, depth, columns;
} pare_cuda_factors;

void pare_cuda_factors_read(const pare_node *node, const pare_view *a, const pare_view *b,
                            const pare_view *y, pare_cuda_factors *out);
/* Can the device hold the product's shape? Rows, columns, depth, strides and batches of p. */
bool pare_cuda_factors_fit(const pare_prep *prep, const pare_cuda_factors *f);
void pare_cuda_factors_set(const pare_cuda_factors *f, pare_cuda_gemm_args *p);
/* Does the bias of floats at that input, if any, broadcast to (rows, columns)? What follows float
   sums, which read it and the residual where they are. */
bool pare_cuda_bias_spreads(const pare_prep *prep, int at, const pare_cuda_factors *f);
void pare_cuda_floats_set(const pare_prep *prep, const pare_matmul_args *a, pare_cuda_gemm_args *p);
/* The leading axes of matrices, of v stretched to those of `to`. */
pare_view pare_cuda_leading(const pare_view *v, const pare_view *to);

/* Reads a node whose weights can be packed while preparing. */
bool pare_cuda_matmul_read(const pare_prep *prep, pare_matmul_args *a, pare_cuda_gemm_args *p);

/* Reads a product of f32 with constant weights of 4 or 8 bits; false: it is none, or none that the
   device takes. Puts the weights into a block of the device, which is the caller's, and p's
   pointers on it. */
bool pare_cuda_weights_read(const pare_prep *prep, pare_matmul_args *a, pare_cuda_gemm_args *p);
PARE_NODISCARD pare_status pare_cuda_weights_make(pare_prep *prep, const pare_matmul_args *a,
                                                  pare_cuda_gemm_args *p, void **block);

extern const pare_kernel pare_cuda_matmul_dynamic;
/* f32 with weights of 4 or 8 bits: of few rows, of any number. */
extern const pare_kernel pare_cuda_matmul_weights_few, pare_cuda_matmul_weights;
/* cuBLASLt's answers in its order, cuBLAS's batches, and cuBLASLt with a pass behind it. */
extern const pare_kernel pare_cuda_matmul_lt_0, pare_cuda_matmul_lt_1, pare_cuda_matmul_lt_2,
    pare_cuda_matmul_lt_3, pare_cuda_matmul_lt_4, pare_cuda_matmul_lt_5, pare_cuda_matmul_lt_6,
    pare_cuda_matmul_lt_7, pare_cuda_matmul_batched, pare_cuda_matmul_lt_epilogue_0,
    pare_cuda_matmul_lt_epilogue_1, pare_cuda_matmul_lt_epilogue_2, pare_cuda_matmul_lt_epilogue_3;

#endif
