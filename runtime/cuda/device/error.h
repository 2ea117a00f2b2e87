/* SPDX-License-Identifier: Apache-2.0 */
/* From CUDA's codes to ours, on the line of the call. The sticky error is cleared there. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_ERROR_H
#define PARE_RUNTIME_CUDA_DEVICE_ERROR_H

#include "runtime/base/ctx.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the code means in words that serve a user: no driver, one that is too old, else CUDA's own.
 */
const char *pare_cuda_reason(cudaError_t error);

/* PARE_MEMORY where memory ran out, else PARE_DEVICE; the message names the call. */
PARE_NODISCARD pare_status pare_cuda_fail(pare_ctx *ctx, cudaError_t error, const char *call);

#define PARE_CUDA_TRY(ctx, call)                                                                   \
    do {                                                                                           \
        cudaError_t cuda_error_ = (call);                                                          \
        if (cuda_error_ != cudaSuccess) return pare_cuda_fail((ctx), cuda_error_, #call);          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
