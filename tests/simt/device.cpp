// SPDX-License-Identifier: Apache-2.0
// The device's properties, launches with their limits, error state. The numbers are an H200's but
// for the count of multiprocessors and the L2, which SIMT settings choose.
#include "engine.h"
#include "simt_sm90.h"
#include <cstdlib>
#include <map>

namespace simt
{

const checker *check;
static cudaError_t last;
static thread_local int chosen_device;

int device_current(void) { return chosen_device; }

cudaError_t fail(cudaError_t code)
{
    last = code;
    return code;
}

// Bytes of dynamic shared memory, by kernel and device.
static std::map<std::pair<const void *, int>, int> &allowed(void)
{
    static auto *t = new std::map<std::pair<const void *, int>, int>;
    return *t;
}

void queue_launch(launch k, cudaStream_t s, cudaError_t *e);

// Larger ones than 8 are not portable; the emulation runs those of whole groups of four warps.
static bool cluster_fits(const launch &k)
{
    const size_t threads = static_cast<size_t>(k.block.x) * k.block.y * k.block.z;
    if (simt_set.major < 9)
        simt_fault("%s is launched in clusters on compute capability %d.%d", k.name.c_str(),
                   simt_set.major, simt_set.minor);
    if (k.cluster < 1 || k.cluster > MOST_CLUSTER || k.grid.x % k.cluster) {
        say("launch of %s: a grid of %u is not made of clusters of %u", k.name.c_str(), k.grid.x,
            k.cluster);
        return false;
    }
    if (threads % 128 || threads * k.cluster > MAX_THREADS)
        simt_fault("%s: clusters of %u blocks of %zu threads are not emulated", k.name.c_str(),
                   k.cluster, threads);
    return true;
}

static cudaError_t check_launch(const launch &k, const void *function)
{
    const dim3 &g = k.grid, &b = k.block;
    bool grid = g.x && g.y && g.z && g.x <= INT32_MAX && g.y <= 65535 && g.z <= 65535;
    bool block = b.x && b.y && b.z && b.z <= 64 && b.x <= 1024 && b.y <= 1024 &&
                 static_cast<size_t>(b.x) * b.y * b.z <= MAX_THREADS;
    if (!grid || !block) {
        say("launch of %s: grid (%u,%u,%u), block (%u,%u,%u) is beyond the limits", k.name.c_str(),
            g.x, g.y, g.z, b.x, b.y, b.z);
        return cudaErrorInvalidConfiguration;
    }
    if (k.cluster != 1 && !cluster_fits(k)) return cudaErrorInvalidClusterSize;
    const auto own = allowed().find({function, chosen_device});
    size_t most = static_cast<size_t>(own == allowed().end() ? int{SHARED_STATIC} : own->second);
    if (k.dependent && simt_set.major < 9)
        simt_fault("%s is launched as a dependent on compute capability %d.%d", k.name.c_str(),
                   simt_set.major, simt_set.minor);
    if (k.shared <= most) return cudaSuccess;
    say("launch of %s: %zu bytes of dynamic shared memory, %zu are allowed", k.name.c_str(),
        k.shared, most);
    return cudaErrorInvalidValue;
}

static cudaError_t no_device(void)
{
    if (simt_set.driver < 13000) return cudaErrorInsufficientDriver;
    return simt_set.devices < 1 ? cudaErrorNoDevice : cudaSuccess;
}

static int attribute(cudaDeviceAttr which, bool *found)
{
    *found = true;
    switch (which) {
    case cudaDevAttrMultiProcessorCount: return simt_set.multiprocessors;
    case cudaDevAttrComputeCapabilityMajor: return simt_set.major;
    case cudaDevAttrComputeCapabilityMinor: return simt_set.minor;
    case cudaDevAttrMaxThreadsPerBlock: return MAX_THREADS;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxSharedMemoryPerBlock: return SHARED_STATIC;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return simt_set.shared;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return simt_set.shared + 1024;
    case cudaDevAttrMemoryPoolsSupported: return simt_set.pools;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrL2CacheSize: return simt_set.cache;
    default: *found = false; return 0;
    }
}

} // namespace simt

using namespace simt;

void simt_launch(const char *name, const void *function, dim3 grid, dim3 block, size_t shared,
                 cudaStream_t stream, const void *arguments, size_t bytes,
                 void (*run)(const void *arguments), bool dependent)
{
    simt_launch_clusters(name, function, 1, grid, block, shared, stream, arguments, bytes, run,
                         dependent);
}

void simt_launch_clusters(const char *name, const void *function, unsigned cluster, dim3 grid,
                          dim3 block, size_t shared, cudaStream_t stream, const void *arguments,
                          size_t bytes, void (*run)(const void *arguments), bool dependent)
{
    call here("launch");
    if (here.code) {
        fail(static_cast<cudaError_t>(here.code));
        return;
    }
    std::shared_ptr<void> copy(aligned_alloc(128, (bytes + 127) / 128 * 128), free);
    memcpy(copy.get(), arguments, bytes);
    launch k = {name, grid, block, shared, copy, bytes, run, dependent, cluster};
    cudaError_t e = no_device();
    if (!e) e = check_launch(k, function);
    if (!e) queue_launch(std::move(k), stream, &e);
    if (e) fail(e);
}

extern "C" {

cudaError_t cudaGetLastError(void)
{
    call here("cudaGetLastError");
    cudaError_t e = last;
    last = cudaSuccess;
    return e ? e : static_cast<cudaError_t>(here.code);
}

cudaError_t cudaPeekAtLastError(void) { return last; }

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed",
     "mapping of buffer object failed"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorLossyQuery, "cudaErrorLossyQuery", "an edge has data that were not asked for"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(cudaError_t code)
{
    for (const auto &e : errors)
        if (e.code == code) return e.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code)
{
    for (const auto &e : errors)
        if (e.code == code) return e.text;
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version)
{
    SIMT_CALL("cudaDriverGetVersion");
    *version = simt_set.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    SIMT_CALL("cudaRuntimeGetVersion");
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    SIMT_CALL("cudaGetDeviceCount");
    *count = 0;
    if (cudaError_t e = no_device()) return fail(e);
    *count = simt_set.devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    SIMT_CALL("cudaSetDevice");
    if (cudaError_t e = no_device()) return fail(e);
    if (device < 0 || device >= simt_set.devices) return fail(cudaErrorInvalidDevice);
    chosen_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    SIMT_CALL("cudaGetDevice");
    if (cudaError_t e = no_device()) return fail(e);
    *device = chosen_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    SIMT_CALL("cudaDeviceGetAttribute");
    if (cudaError_t e = no_device()) return fail(e);
    if (device < 0 || device >= simt_set.devices) return fail(cudaErrorInvalidDevice);
    bool found;
    *value = attribute(which, &found);
    return found ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    SIMT_CALL("cudaGetDeviceProperties");
    if (cudaError_t e = no_device()) return fail(e);
    if (device < 0 || device >= simt_set.devices) return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated device%s",
             simt_set.mixed && device % 2 ? " B" : "");
    p->totalGlobalMem = simt_set.memory;
    p->sharedMemPerBlock = SHARED_STATIC;
    p->sharedMemPerBlockOptin = static_cast<size_t>(simt_set.shared);
    p->sharedMemPerMultiprocessor = static_cast<size_t>(simt_set.shared) + 1024;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = MAX_THREADS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->major = simt_set.major;
    p->minor = simt_set.minor;
    p->multiProcessorCount = simt_set.multiprocessors;
    p->l2CacheSize = simt_set.cache;
    p->memoryPoolsSupported = simt_set.pools;
    p->pciBusID = device + 1;
    p->asyncEngineCount = 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    SIMT_CALL("cudaDeviceCanAccessPeer");
    for (int d : {device, peer})
        if (d < 0 || d >= simt_set.devices) return fail(cudaErrorInvalidDevice);
    *out = simt_set.peers && device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    SIMT_CALL("cudaDeviceReset");
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute which, int value)
{
    SIMT_CALL("cudaFuncSetAttribute");
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize &&
        which != cudaFuncAttributePreferredSharedMemoryCarveout)
        return fail(cudaErrorInvalidValue);
    if (which == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > simt_set.shared) return fail(cudaErrorInvalidValue);
        allowed()[{function, chosen_device}] = value;
    }
    return cudaSuccess;
}

// The emulated device's own code: of what compiles for it, nothing is missing.
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    SIMT_CALL("cudaFuncGetAttributes");
    if (!function) return fail(cudaErrorInvalidDeviceFunction);
    *out = {};
    out->maxThreadsPerBlock = MAX_THREADS;
    out->ptxVersion = out->binaryVersion = 10 * simt_set.major + simt_set.minor;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t shared)
{
    SIMT_CALL("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (threads < 1 || threads > MAX_THREADS) return fail(cudaErrorInvalidValue);
    size_t by_threads = 2048 / static_cast<size_t>(threads);
    size_t by_shared = (static_cast<size_t>(simt_set.shared) + 1024) / (shared + 1024);
    *blocks = static_cast<int>(by_threads < by_shared ? by_threads : by_shared);
    return cudaSuccess;
}
}
