// SPDX-License-Identifier: Apache-2.0
// Memory that processes share by handles, here within one process, which CUDA refuses: what is
// opened has the owner's address, and can be used after it was closed. It may be opened several
// times, and is closed as often.
#include "engine.h"
#include <cstring>
#include <cuda.h>

using namespace simt;

namespace
{

struct handle {
    uint64_t mark, serial;
    char *base;
};
static_assert(sizeof(handle) <= sizeof(cudaIpcMemHandle_t));
const uint64_t MARK = 0x5348415245444d45u;
uint64_t last_serial;

bool read_handle(const cudaIpcMemHandle_t &from, handle *out)
{
    memcpy(out, &from, sizeof *out);
    return out->mark == MARK && out->serial && out->serial <= last_serial;
}

CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    call here("cuMemGetAddressRange");
    if (here.code) return static_cast<CUresult>(here.code);
    char *first;
    const allocation *a = device_find(reinterpret_cast<void *>(at), &first);
    if (!a) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = reinterpret_cast<CUdeviceptr>(first);
    if (bytes) *bytes = a->bytes;
    return CUDA_SUCCESS;
}

} // namespace

void *simt::address_range_entry(void) { return reinterpret_cast<void *>(address_range); }

extern "C" {

// Of memory of cudaMalloc: that of pools has other handles.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p)
{
    SIMT_CALL("cudaIpcGetMemHandle");
    char *base;
    allocation *a = device_find(p, &base);
    if (!out || !a || base != p || a->from) return fail(cudaErrorInvalidValue);
    if (!a->handle) a->handle = ++last_serial;
    const handle h = {MARK, a->handle, base};
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t from, unsigned flags)
{
    SIMT_CALL("cudaIpcOpenMemHandle");
    handle h;
    if (!p || flags != cudaIpcMemLazyEnablePeerAccess) return fail(cudaErrorInvalidValue);
    if (!read_handle(from, &h)) return fail(cudaErrorInvalidResourceHandle);
    allocation *a = device_find(h.base, nullptr);
    if (!a || a->handle != h.serial) return fail(cudaErrorMapBufferObjectFailed); // it was freed
    a->opened++;
    live_add("opened memory handles", 1);
    *p = h.base;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    call here("cudaIpcCloseMemHandle");
    char *base;
    allocation *a = device_find(p, &base);
    if (!a || base != p || !a->opened) return fail(cudaErrorInvalidValue);
    a->opened--;
    live_add("opened memory handles", -1);
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}
}
