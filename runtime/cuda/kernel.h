/* SPDX-License-Identifier: Apache-2.0 */
/* What the C halves of kernel families share: types they take, and how a launch ends. A family is
   STEM.cu (kernels and launchers), STEM.h (the launchers) and STEM.c (pare_kernel tables). */
#ifndef PARE_RUNTIME_CUDA_KERNEL_H
#define PARE_RUNTIME_CUDA_KERNEL_H

#include "runtime/cuda/error.h"
#include "runtime/cuda/queue.h"
#include "runtime/ops/ops.h"

/* Types that compute in float. */
static inline bool pare_cuda_is_float(pare_dtype dtype)
{
    return dtype == PARE_f32 || dtype == PARE_f16 || dtype == PARE_bf16;
}

/* can(): input 0 is such a type, and so are the other `inputs - 1`. */
bool pare_cuda_can_float(const pare_prep *prep, int inputs);

/* Bytes of one element; 0 for types of less than a byte and strings. */
int pare_cuda_bytes(pare_dtype dtype);

/* The status of a launch; a failure names the node and the launcher. */
PARE_NODISCARD pare_status pare_cuda_launched(const pare_call *call, cudaError_t error,
                                              const char *launcher);

#define PARE_CUDA_LAUNCH(call, launcher, ...)                                                      \
    pare_cuda_launched((call), launcher(__VA_ARGS__, pare_cuda_stream((call)->queue)), #launcher)

#endif
