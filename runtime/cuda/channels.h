/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of channels on the device; the launcher of channels.cu. */
#ifndef PARE_RUNTIME_CUDA_CHANNELS_H
#define PARE_RUNTIME_CUDA_CHANNELS_H

#include "runtime/ops/samples.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor as its channels see it. Strides and steps in elements. */
typedef struct pare_cuda_channels {
    const float *x;
    int64_t step; /* from one channel to the next */
    int64_t samples, sample_step;
    int64_t n; /* values of a channel in a sample */
    int rank;  /* axes of a sample but the channels', in logical order, none of size 1 */
    int64_t dim[PARE_MAX_RANK], stride[PARE_MAX_RANK];
    bool in_lanes; /* a channel's values lie in a row: rank 2, the second axis dense */
} pare_cuda_channels;

cudaError_t pare_cuda_channels_add(const pare_channel_sums *to, const pare_cuda_channels *view,
                                   cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
