/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/device/error.h"

#include <string.h>

/* CUDA answers a missing driver with the code of an old one. */
const char *pare_cuda_reason(cudaError_t error)
{
    int driver = 0;
    if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    (void)cudaGetLastError();
    return driver ? "the GPU's driver is older than CUDA 13, which this program needs"
                  : "there is no NVIDIA driver";
}

/* What the user can do about it. */
static const char *cure(cudaError_t error)
{
    switch (error) {
    case cudaErrorNoDevice:
        return "; is one visible (CUDA_VISIBLE_DEVICES)? Or compute on the CPU (--device cpu)";
    case cudaErrorInsufficientDriver:
        return "; install one of version 580 or later, or compute on the CPU (--device cpu)";
    case cudaErrorInvalidDevice: return "; `pare doctor` lists the GPUs there are";
    case cudaErrorInvalidConfiguration:
        return "; its tensors are larger than a grid of CUDA's: compute on the CPU (--device cpu)";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
        return "; this build has no code for this GPU: build it with its architecture in "
               "PARE_CUDA_ARCHITECTURES";
    case cudaErrorDevicesUnavailable:
        return "; another process holds the GPU for itself (its compute mode): wait for it, or use "
               "another --device";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
        return "; the GPU is lost to this process: try again, or compute on the CPU (--device cpu)";
    default: return "";
    }
}

pare_status pare_cuda_fail(pare_ctx *ctx, cudaError_t error, const char *call)
{
    (void)cudaGetLastError();
    size_t name = strcspn(call, "(");
    if (error == cudaErrorMemoryAllocation)
        return PARE_FAIL(ctx, MEMORY, "%.*s: out of GPU memory", (int)name, call);
    return PARE_FAIL(ctx, DEVICE, "%.*s: %s (%s)%s", (int)name, call, pare_cuda_reason(error),
                     cudaGetErrorName(error), cure(error));
}
