/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_COMM_RANK_SUM_H
#define PARE_RUNTIME_CUDA_COMM_RANK_SUM_H

#include "runtime/base/types.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] += from[i], (count) f32 or f64 of the device: rounded once, to the nearest. */
cudaError_t pare_cuda_rank_add(pare_dtype dtype, void *to, const void *from, int64_t count,
                               cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
