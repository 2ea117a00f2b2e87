/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other processes, by CUDA's handles for interprocess communication. */
#include "runtime/cuda/device/error.h"
#include "runtime/cuda/device/stream.h"

#include <cuda.h>
#include <stdint.h>
#include <string.h>

_Static_assert(PARE_SHARING_HANDLE == sizeof(cudaIpcMemHandle_t), "a handle is CUDA's");

/* What is wrong with a handle is the fault of who told it. */
static pare_status fail_open(pare_ctx *ctx, const pare_device *device, cudaError_t error)
{
    switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorDeviceUninitialized: /* the memory is this process's own */
    case cudaErrorTooManyPeers:
        (void)cudaGetLastError();
        return PARE_FAIL(ctx, INPUT,
                         "the handle is of no memory that another process shares on GPU %d: %s",
                         device->index, pare_cuda_reason(error));
    case cudaErrorNotSupported:
        (void)cudaGetLastError();
        return PARE_FAIL(ctx, UNSUPPORTED, "GPU %d shares no memory between processes: %s",
                         device->index, pare_cuda_reason(error));
    default: return pare_cuda_fail(ctx, error, "cudaIpcOpenMemHandle");
    }
}

typedef CUresult range_function(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);

/* The runtime has no call for the bytes behind an address: it is the driver's. */
static pare_status bytes_behind(pare_ctx *ctx, const void *memory, size_t *out)
{
    static const char call[] = "cuMemGetAddressRange";
    void *found = NULL;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    enum cudaDriverEntryPointQueryResult how;
    range_function *range;
    PARE_CUDA_TRY(ctx,
                  cudaGetDriverEntryPointByVersion(call, &found, 12000, cudaEnableDefault, &how));
    if (how != cudaDriverEntryPointSuccess || !found)
        return PARE_FAIL(ctx, DEVICE, "%s: the driver has no such call", call);
    memcpy(&range, &found, sizeof range);
    const CUresult code = range(&base, &bytes, (CUdeviceptr)(uintptr_t)memory);
    if (code != CUDA_SUCCESS) return PARE_FAIL(ctx, DEVICE, "%s: error %d", call, (int)code);
    *out = bytes - (size_t)((uintptr_t)memory - (uintptr_t)base);
    return PARE_OK;
}

static pare_status check_opened(pare_ctx *ctx, const pare_device *device, const void *memory,
                                size_t *bytes)
{
    struct cudaPointerAttributes facts;
    PARE_CUDA_TRY(ctx, cudaPointerGetAttributes(&facts, memory));
    if (facts.device != device->index)
        return PARE_FAIL(ctx, INPUT, "the handle is of memory of GPU %d, expected GPU %d",
                         facts.device, device->index);
    return bytes_behind(ctx, memory, bytes);
}

static void sharing_close(pare_device *device, void *memory)
{
    if (!memory) return;
    (void)cudaSetDevice(device->index);
    (void)cudaIpcCloseMemHandle(memory);
    (void)cudaGetLastError();
}

static pare_status sharing_open(pare_ctx *ctx, pare_device *device, void **out, size_t *bytes,
                                const void *handle)
{
    cudaIpcMemHandle_t told;
    void *memory = NULL;
    memcpy(&told, handle, sizeof told);
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    const cudaError_t error = cudaIpcOpenMemHandle(&memory, told, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) return fail_open(ctx, device, error);
    const pare_status st = check_opened(ctx, device, memory, bytes);
    if (st == PARE_OK)
        *out = memory;
    else
        sharing_close(device, memory);
    return st;
}

static pare_status sharing_copy(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                                size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(stream->device->index));
    PARE_CUDA_TRY(
        ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, pare_cuda_stream(stream)));
    return PARE_OK;
}

const pare_sharing_table pare_cuda_sharing = {
    .open = sharing_open, .close = sharing_close, .copy = sharing_copy};
