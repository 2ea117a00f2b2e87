/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend (device.h): stream-ordered memory from one pool, pinned staging, streams, graphs. */
#ifndef PARE_RUNTIME_CUDA_CUDA_H
#define PARE_RUNTIME_CUDA_CUDA_H

#include "runtime/ops/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens GPU `index`. memory_limit: bytes its pool may grow to; 0: all of the GPU's.
   PARE_DEVICE where there is no driver, no such GPU, or no code for it, with what to do. */
PARE_NODISCARD pare_status pare_cuda_open(pare_ctx *ctx, pare_device **out, int index,
                                          size_t memory_limit);

/* GPUs this process sees; 0 without a driver, and the reason where why (bytes long) is given. */
int pare_cuda_count(char *why, size_t bytes);

extern const pare_backend pare_cuda_backend;

#ifdef __cplusplus
}
#endif
#endif
