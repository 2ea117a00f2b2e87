/* SPDX-License-Identifier: Apache-2.0 */
/* What follows a product of a library where the library has no such epilogue, as a pass over its
   sums: activations of floats, in place, and all of ops/epilogue.h for integers. */
#ifndef PARE_RUNTIME_CUDA_GEMM_BLAS_EPILOGUE_H
#define PARE_RUNTIME_CUDA_GEMM_BLAS_EPILOGUE_H

#include "runtime/ops/epilogue.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Y (rows, columns), rows y_row elements apart. A thread takes 16 bytes of a row of Y; 4 of 8-bit
   numbers behind a curved activation. */
typedef struct pare_blas_epilogue {
    const int32_t *sums; /* (rows, columns); NULL: y holds floats, of which it becomes act */
    const void *z;       /* residual, laid out as y; NULL: none; integer sums only, as the next */
    const float *scale, *bias; /* (columns) */
    const int32_t *shift;      /* (columns) less of the sums */
    void *y;
    int64_t rows, y_row;
    int columns;
    pare_dtype y_type; /* f32, f16, bf16; of integer sums: s8, u8, f32 */
    pare_epilogue epilogue;
} pare_blas_epilogue;

/* Are columns and rows whole vectors? */
bool pare_blas_epilogue_fits(pare_dtype y_type, int64_t columns, int64_t y_row);
cudaError_t pare_blas_epilogue_launch(const pare_blas_epilogue *e, cudaStream_t stream);

/* u8 as s8, 128 less of each. to: (rows, depth) dense; from: rows from_row bytes apart; depth and
   from_row are multiples of 16. */
typedef struct pare_blas_signs {
    const void *from;
    void *to;
    int64_t rows, from_row;
    int depth;
} pare_blas_signs;
cudaError_t pare_blas_signs_launch(const pare_blas_signs *s, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
