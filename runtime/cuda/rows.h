/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of whole rows: softmax and layer normalization; launchers of rows.cu. */
#ifndef PARE_RUNTIME_CUDA_ROWS_H
#define PARE_RUNTIME_CUDA_ROWS_H

#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of n elements, `step` elements apart inside a row; row r starts at r / inner * outer_step +
   r % inner (in and out alike). f32, f16 or bf16, computed in float. */
typedef struct pare_cuda_rows {
    const void *x;
    void *y;
    int64_t rows, n, step, inner, outer_step;
    pare_dtype dtype;
} pare_cuda_rows;

/* The rows of x along an axis; false unless all axes before it are one stride apart and all behind
   it lie together. */
bool pare_cuda_rows_along(const pare_view *x, int axis, pare_cuda_rows *out);

/* Softmax (13) or LogSoftmax (13), the maximum subtracted. */
cudaError_t pare_cuda_softmax_launch(const pare_cuda_rows *r, bool log_form, cudaStream_t stream);

/* LayerNormalization (17) of dense rows: scale (n), bias (n) or NULL; mean and inverse (rows), f32,
   or NULL: the optional outputs. */
cudaError_t pare_cuda_layer_norm_launch(const pare_cuda_rows *r, const void *scale,
                                        const void *bias, float epsilon, float *mean,
                                        float *inverse, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
