/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors made from little: launchers of constant.cu. */
#ifndef PARE_RUNTIME_CUDA_CONSTANT_H
#define PARE_RUNTIME_CUDA_CONSTANT_H

#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Up to PARE_MAX_RANK numbers by value. */
typedef struct pare_cuda_numbers {
    int count;
    int64_t value[PARE_MAX_RANK];
} pare_cuda_numbers;

/* y: (count) of s64. */
cudaError_t pare_cuda_numbers_launch(int64_t *y, const pare_cuda_numbers *n, cudaStream_t stream);

/* y[i] = start + i * delta, floats in double; start and delta: one element on the device. */
cudaError_t pare_cuda_range_launch(void *y, int64_t count, pare_dtype dtype, const void *start,
                                   const void *delta, cudaStream_t stream);

/* Operands y, column - row (no data: offsets count): y = 1 where that is k, else 0. */
cudaError_t pare_cuda_eye_launch(const pare_cuda_walk *w, pare_dtype dtype, int64_t k,
                                 cudaStream_t stream);

/* Operands y, x, column - row (no data): y = x where that is at least k (upper) or at most k, else
   0; k: one element on the device, NULL is 0. */
cudaError_t pare_cuda_trilu_launch(const pare_cuda_walk *w, int bytes, bool upper, const void *k,
                                   pare_dtype k_type, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
