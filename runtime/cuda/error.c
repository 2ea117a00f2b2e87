/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/error.h"

#include <string.h>

/* What the user can do about it. */
static const char *cure(cudaError_t error)
{
    switch (error) {
    case cudaErrorNoDevice: return "; no GPU is visible (CUDA_VISIBLE_DEVICES?): use --device cpu";
    case cudaErrorInsufficientDriver:
        return "; the driver is missing or older than this program needs: install a newer one, or "
               "use --device cpu";
    case cudaErrorInvalidDevice: return "; `pare doctor` lists the GPUs there are";
    case cudaErrorNoKernelImageForDevice:
        return "; this build has no code for this GPU: build it with its architecture in "
               "CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorMemoryAllocation: return "; a smaller --batch needs less memory";
    case cudaErrorDevicesUnavailable: return "; another process holds the GPU exclusively";
    default: return "";
    }
}

pare_status pare_cuda_fail(pare_ctx *ctx, cudaError_t error, const char *call)
{
    (void)cudaGetLastError();
    size_t name = strcspn(call, "(");
    return pare_fail(ctx, error == cudaErrorMemoryAllocation ? PARE_MEMORY : PARE_DEVICE,
                     "%.*s: %s (%s)%s", (int)name, call, cudaGetErrorString(error),
                     cudaGetErrorName(error), cure(error));
}
