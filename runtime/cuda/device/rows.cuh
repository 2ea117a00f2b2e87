/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of whole rows share: the rows, and which warp has which. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_ROWS_CUH
#define PARE_RUNTIME_CUDA_DEVICE_ROWS_CUH

#include "runtime/cuda/device/common.cuh"

enum { WARPS = 4 };

/* Rows of n elements, `step` elements apart inside a row; row r starts at r / inner * outer_step +
   r % inner (in and out alike). f32, f16 or bf16, computed in float. */
typedef struct pare_cuda_rows {
    const void *x;
    void *y;
    int64_t rows, n, step, inner, outer_step;
    pare_dtype dtype;
} pare_cuda_rows;

SIMT_INLINE int64_t row_start(const pare_cuda_rows &r, int64_t row)
{
    int64_t outer = row / r.inner;
    return outer * r.outer_step + (row - outer * r.inner);
}

/* The warp's row, or -1 after the last: a whole warp then has nothing to do. */
SIMT_INLINE int64_t row_of(int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    return row < rows ? row : -1;
}

static inline dim3 rows_grid(int64_t rows) { return dim3((unsigned)((rows + WARPS - 1) / WARPS)); }

#endif
