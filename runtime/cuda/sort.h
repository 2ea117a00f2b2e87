/* SPDX-License-Identifier: Apache-2.0 */
/* TopK and CumSum along one axis: launchers of sort.cu. */
#ifndef PARE_RUNTIME_CUDA_SORT_H
#define PARE_RUNTIME_CUDA_SORT_H

#include "runtime/ops/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums of floats run in double, those of integers wrap around. */
typedef struct pare_cuda_scan {
    const void *x;
    void *y;
    pare_walk lanes; /* operands y, x: where lanes begin */
    pare_dtype dtype;
    int64_t n, x_step, y_step; /* of a lane */
    bool exclusive, reverse;
    bool columns; /* neighbouring lanes are neighbours in memory, and there are many */
    int warps;    /* that one lane is computed by where not columns: 1 or 8 */
} pare_cuda_scan;

cudaError_t pare_cuda_scan_launch(const pare_cuda_scan *s, cudaStream_t stream);

enum { PARE_CUDA_SORT_SHARED = 2048 }; /* keys that one block sorts in shared memory */

/* Equal values keep their order; NaN counts as larger than all. */
typedef struct pare_cuda_top {
    const void *x;
    void *y;
    int64_t *index;  /* or NULL */
    void *keys;      /* (lanes, padded) of 16 bytes where padded is above SORT_SHARED */
    pare_walk lanes; /* operands y, x, index */
    pare_dtype dtype;
    int64_t n, k, padded; /* elements of a lane, taken, and the next power of two: 1 << bits */
    int bits;
    int64_t x_step, y_step, index_step;
    bool largest;
} pare_cuda_top;

cudaError_t pare_cuda_top_launch(const pare_cuda_top *t, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
