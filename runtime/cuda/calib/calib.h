/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of calibration (ops/samples.h): histograms, sums of channels, pixels, searches of ranges.
 */
#ifndef PARE_RUNTIME_CUDA_CALIB_CALIB_H
#define PARE_RUNTIME_CUDA_CALIB_CALIB_H

#include "runtime/device/range.h"
#include "runtime/device/samples.h"
#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- histogram.cu: the counts that calib/histogram.h keeps, equal to the last one for the same
 * values --- */

/* Makes `count` histograms, `step` bytes apart, empty. */
cudaError_t pare_cuda_histogram_clear(void *histograms, size_t step, int count,
                                      cudaStream_t stream);

/* Adds n values of type f32, f16, bf16 or f64 in device memory, aligned to their size; about
   `blocks` blocks work on it (two a multiprocessor fill the device). bins: the histogram is a
   pare_histogram_dev_bins. Allocates nothing. cudaErrorInvalidValue for other types. */
cudaError_t pare_cuda_histogram_add(pare_histogram_dev *histogram, bool bins, pare_dtype dtype,
                                    const void *values, int64_t n, int blocks, cudaStream_t stream);

/* --- channels.cu --- */

/* A tensor as its channels see it. Strides and steps in elements. */
typedef struct pare_cuda_channels {
    const float *x;
    int64_t step; /* from one channel to the next */
    int64_t samples, sample_step;
    int64_t n; /* values of a channel in a sample */
    int rank;  /* axes of a sample but the channels', in logical order, none of size 1 */
    int64_t dim[PARE_MAX_RANK], stride[PARE_MAX_RANK];
} pare_cuda_channels;

cudaError_t pare_cuda_channels_add(const pare_channel_sums *to, const pare_cuda_channels *view,
                                   cudaStream_t stream);

/* --- pixels.cu --- */

/* As pare_sample_table.pixels. */
cudaError_t pare_cuda_pixels_launch(float *y, const uint8_t *x, const pare_pixels *pixels,
                                    int64_t samples, cudaStream_t stream);

/* --- search.cu --- */

/* What the search of one rule's entropy works on. */
typedef struct pare_cuda_search_grid {
    unsigned long long grid[2][PARE_GRID_BINS];
    double bin[2 * PARE_GRID_BINS];
    double count[2 * PARE_GRID_BINS + 1], used[2 * PARE_GRID_BINS + 1], log[2 * PARE_GRID_BINS + 1];
} pare_cuda_search_grid;

/* Working memory of one tensor's search. */
typedef struct pare_cuda_work {
    double count[PARE_ERROR_SUMS], sum[PARE_ERROR_SUMS], square[PARE_ERROR_SUMS];
    pare_cuda_search_grid grid[2]; /* with a zero point, symmetric */
} pare_cuda_work;

enum { PARE_CUDA_SEARCH_BYTES = sizeof(pare_cuda_work) };

cudaError_t pare_cuda_search(const pare_search *search, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
