/* SPDX-License-Identifier: Apache-2.0 */
/* Searches of ranges on the device; the launcher of search.cu. */
#ifndef PARE_RUNTIME_CUDA_SEARCH_H
#define PARE_RUNTIME_CUDA_SEARCH_H

#include "runtime/ops/range.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the search of one rule's entropy works on. */
typedef struct pare_cuda_grid {
    unsigned long long grid[2][PARE_GRID_BINS];
    double bin[2 * PARE_GRID_BINS];
    double count[2 * PARE_GRID_BINS + 1], used[2 * PARE_GRID_BINS + 1], log[2 * PARE_GRID_BINS + 1];
} pare_cuda_grid;

/* Working memory of one tensor's search. */
typedef struct pare_cuda_work {
    double count[PARE_ERROR_SUMS], sum[PARE_ERROR_SUMS], square[PARE_ERROR_SUMS];
    pare_cuda_grid grid[2]; /* with a zero point, symmetric */
} pare_cuda_work;

enum { PARE_CUDA_SEARCH_BYTES = sizeof(pare_cuda_work) };

cudaError_t pare_cuda_search(const pare_search *search, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
