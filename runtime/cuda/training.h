/* SPDX-License-Identifier: Apache-2.0 */
/* Training beside the graph on the device; the launchers of training.cu. */
#ifndef PARE_RUNTIME_CUDA_TRAINING_H
#define PARE_RUNTIME_CUDA_TRAINING_H

#include "runtime/ops/training.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_CUDA_SLICES = 16 }; /* of one launch */

/* The next of the terms of a sum, and where it goes. */
typedef struct pare_cuda_slices {
    const void *before; /* the sum so far; NULL: it begins with x[0] */
    const void *x[PARE_CUDA_SLICES];
    void *y[PARE_CUDA_SLICES];
    int x_count, y_count;
    pare_dtype dtype;
    int64_t count;
} pare_cuda_slices;

cudaError_t pare_cuda_slices_launch(const pare_cuda_slices *s, cudaStream_t stream);
cudaError_t pare_cuda_gather_gradients_launch(const pare_train_blocks *b, const float *const *from,
                                              bool set, cudaStream_t stream);
cudaError_t pare_cuda_squares_launch(const pare_train_blocks *b, cudaStream_t stream);
cudaError_t pare_cuda_step_launch(const pare_train_blocks *b, const pare_train_rule *rule,
                                  float part, cudaStream_t stream);

extern const pare_training_table pare_cuda_training;

#ifdef __cplusplus
}
#endif
#endif
