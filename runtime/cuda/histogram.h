/* SPDX-License-Identifier: Apache-2.0 */
/* The exact histogram of calibration on the device: the counts that calib/histogram.h keeps, equal
   to the last one for the same values. A bin is the top 19 bits of the number, kept for the 12
   highest octaves seen; what is smaller is counted in one `below` per sign. */
#ifndef PARE_CUDA_HISTOGRAM_H
#define PARE_CUDA_HISTOGRAM_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "runtime/base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_CUDA_OCTAVES = 12,
    PARE_CUDA_OCTAVE_BINS = 1024,
    PARE_CUDA_BINS = PARE_CUDA_OCTAVES * PARE_CUDA_OCTAVE_BINS
};

/* Lies in device memory. */
typedef struct pare_cuda_histogram {
    unsigned long long count, zero, nan, inf;
    int low, high; /* finite extremes; a negative number's bits below the sign are inverted, so that
                      integers order as numbers do; low > high: none */
    int largest;   /* bits of the largest finite magnitude */
    int first, top; /* octave of bin 0, highest octave seen (-1: none) */
    int unused;
    unsigned long long slot[2][1 + PARE_CUDA_BINS]; /* a sign (positive first): below, bins */
} pare_cuda_histogram;

/* Makes it empty. */
cudaError_t pare_cuda_histogram_clear(pare_cuda_histogram *histogram, cudaStream_t stream);

/* Adds n values of type f32, f16 or bf16 in device memory, aligned to their size; about `blocks`
   blocks work on it (two a multiprocessor fill the device). Queued on the stream; allocates
   nothing. cudaErrorInvalidValue for other types. */
cudaError_t pare_cuda_histogram_add(pare_cuda_histogram *histogram, pare_dtype dtype,
                                    const void *values, int64_t n, int blocks, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
