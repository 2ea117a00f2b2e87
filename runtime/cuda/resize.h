/* SPDX-License-Identifier: Apache-2.0 */
/* Resize by weighted taps: launcher of resize.cu. */
#ifndef PARE_RUNTIME_CUDA_RESIZE_H
#define PARE_RUNTIME_CUDA_RESIZE_H

#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An axis that changes; lists of its output positions, on the device. */
typedef struct pare_cuda_taps {
    int axis, count;        /* taps of one output */
    int64_t n;              /* of the axis in x: a tap outside reads its border */
    const int64_t *first;   /* (out) of the first tap, may be negative */
    const double *weight;   /* (out, count) */
    const uint8_t *outside; /* (out) the value is the extrapolated one */
} pare_cuda_taps;

typedef struct pare_cuda_resizing {
    const void *x;
    void *y;
    pare_dtype dtype; /* a float, s8 or u8 */
    int rank, taps_count;
    int64_t count, dim[PARE_MAX_RANK], y_stride[PARE_MAX_RANK], x_stride[PARE_MAX_RANK];
    pare_cuda_taps taps[PARE_MAX_RANK]; /* first axis first */
    double extrapolation;
} pare_cuda_resizing;

cudaError_t pare_cuda_resize_launch(const pare_cuda_resizing *r, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
