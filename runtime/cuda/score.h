/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of channels by their weights on the device; the launchers of score.cu. */
#ifndef PARE_RUNTIME_CUDA_SCORE_H
#define PARE_RUNTIME_CUDA_SCORE_H

#include "runtime/ops/scores.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_CUDA_SCORE_ROWS = 256 }; /* whose distances are made at a time */

cudaError_t pare_cuda_units_launch(double *sum, const float *x, const pare_score_units *units,
                                   cudaStream_t stream);
/* distance: room for PARE_CUDA_SCORE_ROWS * count numbers. */
cudaError_t pare_cuda_distances_launch(double *sum, const float *rows, const int *part, int count,
                                       int64_t width, double *distance, cudaStream_t stream);

extern const pare_score_table pare_cuda_scores;

#ifdef __cplusplus
}
#endif
#endif
