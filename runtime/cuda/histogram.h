/* SPDX-License-Identifier: Apache-2.0 */
/* The exact histogram of calibration on the device (samples.h): the counts that calib/histogram.h
   keeps, equal to the last one for the same values. */
#ifndef PARE_RUNTIME_CUDA_HISTOGRAM_H
#define PARE_RUNTIME_CUDA_HISTOGRAM_H

#include "runtime/ops/samples.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes `count` tallies, `step` bytes apart, empty. */
cudaError_t pare_cuda_tally_clear(void *tallies, size_t step, int count, cudaStream_t stream);

/* Adds n values of type f32, f16, bf16 or f64 in device memory, aligned to their size; about
   `blocks` blocks work on it (two a multiprocessor fill the device). bins: the tally is a
   pare_tally_bins. Allocates nothing. cudaErrorInvalidValue for other types. */
cudaError_t pare_cuda_tally_add(pare_tally *tally, bool bins, pare_dtype dtype, const void *values,
                                int64_t n, int blocks, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
