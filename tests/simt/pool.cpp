// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory pools. An address is given at once; the memory may be used from the point
// of its stream where it was allocated to the point where it is freed, and nowhere else.
#include "engine.h"
#include "simt_device.h"
#include <set>

namespace simt
{

struct pool {
    size_t most; /* bytes; 0: the device's */
    uint64_t keep, used, used_high, reserved, reserved_high;
    int device;           /* -1: the current one of who allocates */
    std::set<int> served; /* other devices that may reach its memory */
};

static std::set<pool *> &pools(void)
{
    static auto *t = new std::set<pool *>;
    return *t;
}

static pool *standard(void)
{
    static pool *p;
    if (!p) pools().insert(p = new pool{0, 0, 0, 0, 0, 0, -1, {}});
    return p;
}

int pool_device(const pool *p) { return p->device; }

bool pool_serves(const pool *p, int device) { return p->served.count(device) != 0; }

static pool *chosen;
static pool *known(cudaMemPool_t handle)
{
    pool *p = reinterpret_cast<pool *>(handle);
    return pools().count(p) ? p : nullptr;
}

static cudaError_t allocate(void **out, size_t bytes, pool *from, cudaStream_t stream)
{
    *out = nullptr;
    if (!stream_known(stream)) return cudaErrorInvalidResourceHandle;
    if (capturing(stream)) {
        say("cudaMallocAsync in a capture is not modelled: a run does not allocate");
        return cudaErrorStreamCaptureUnsupported;
    }
    if (!bytes) return cudaSuccess;
    if (from->most && from->used + bytes > from->most) return cudaErrorMemoryAllocation;
    void *p = device_new(bytes, from);
    if (!p) return cudaErrorMemoryAllocation;
    from->used += bytes;
    if (from->used > from->used_high) from->used_high = from->used;
    if (from->used > from->reserved) from->reserved = from->used;
    if (from->reserved > from->reserved_high) from->reserved_high = from->reserved;
    live_add("stream-ordered allocations", 1);
    *out = p;
    return enqueue(stream, {WORK_MEMORY, "allocate", [p, bytes]() {
                                device_find(p, nullptr)->ready = true;
                                permit(p, bytes);
                            }});
}

static cudaError_t release(void *p, cudaStream_t stream)
{
    char *base = nullptr;
    allocation *a = device_find(p, &base);
    if (!a || base != p || !a->from || a->released) return cudaErrorInvalidValue;
    if (!stream_known(stream)) return cudaErrorInvalidResourceHandle;
    a->released = true;
    live_add("stream-ordered allocations", -1);
    return enqueue(stream, {WORK_MEMORY, "free", [p]() {
                                allocation *gone = device_find(p, nullptr);
                                if (!gone->ready)
                                    simt_fault("stream-ordered memory is freed before the point of "
                                               "its allocation");
                                pool *from = gone->from;
                                from->used -= gone->bytes;
                                if (from->used >= from->keep) from->reserved = from->used;
                                device_delete(p);
                            }});
}

static uint64_t *attribute(pool *p, cudaMemPoolAttr which)
{
    switch (which) {
    case cudaMemPoolAttrReleaseThreshold: return &p->keep;
    case cudaMemPoolAttrReservedMemCurrent: return &p->reserved;
    case cudaMemPoolAttrReservedMemHigh: return &p->reserved_high;
    case cudaMemPoolAttrUsedMemCurrent: return &p->used;
    case cudaMemPoolAttrUsedMemHigh: return &p->used_high;
    default: return nullptr;
    }
}

} // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props)
{
    SIMT_CALL("cudaMemPoolCreate");
    if (props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice || props->location.id >= simt_set.devices)
        return fail(cudaErrorInvalidValue);
    pool *p = new pool{props->maxSize, 0, 0, 0, 0, 0, props->location.id, {}};
    pools().insert(p);
    live_add("pools", 1);
    *out = reinterpret_cast<cudaMemPool_t>(p);
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle)
{
    call here("cudaMemPoolDestroy");
    pool *p = known(handle);
    if (!p || p == standard()) return fail(cudaErrorInvalidValue);
    drain_all();
    if (p->used)
        simt_fault("a pool is destroyed with %llu bytes in use",
                   static_cast<unsigned long long>(p->used));
    if (chosen == p) chosen = nullptr;
    pools().erase(p);
    delete p;
    live_add("pools", -1);
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr which, void *value)
{
    SIMT_CALL("cudaMemPoolSetAttribute");
    pool *p = known(handle);
    uint64_t *at = p ? attribute(p, which) : nullptr, v = *static_cast<uint64_t *>(value);
    bool high = which == cudaMemPoolAttrReservedMemHigh || which == cudaMemPoolAttrUsedMemHigh;
    if (!at || (high && v) || (!high && which != cudaMemPoolAttrReleaseThreshold))
        return fail(cudaErrorInvalidValue);
    *at = v;
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr which, void *value)
{
    SIMT_CALL("cudaMemPoolGetAttribute");
    pool *p = known(handle);
    const uint64_t *at = p ? attribute(p, which) : nullptr;
    if (!at) return fail(cudaErrorInvalidValue);
    *static_cast<uint64_t *>(value) = *at;
    return cudaSuccess;
}

// Work of the named devices may reach the pool's memory from now on.
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const struct cudaMemAccessDesc *list,
                                 size_t count)
{
    SIMT_CALL("cudaMemPoolSetAccess");
    pool *p = known(handle);
    if (!p || p->device < 0 || !list || !count) return fail(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++) {
        const cudaMemLocation &at = list[i].location;
        bool device =
            at.type == cudaMemLocationTypeDevice && at.id >= 0 && at.id < simt_set.devices;
        if (!device || list[i].flags != cudaMemAccessFlagsProtReadWrite)
            return fail(cudaErrorInvalidValue);
        if (at.id != p->device && !simt_set.peers) {
            say("pool of device %d: device %d has no way to its memory", p->device, at.id);
            return fail(cudaErrorInvalidDevice);
        }
        p->served.insert(at.id);
    }
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t)
{
    SIMT_CALL("cudaMemPoolTrimTo");
    pool *p = known(handle);
    if (!p) return fail(cudaErrorInvalidValue);
    p->reserved = p->used;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device)
{
    SIMT_CALL("cudaDeviceGetDefaultMemPool");
    if (device < 0 || device >= simt_set.devices) return fail(cudaErrorInvalidDevice);
    *out = reinterpret_cast<cudaMemPool_t>(standard());
    return cudaSuccess;
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle)
{
    SIMT_CALL("cudaDeviceSetMemPool");
    if (device < 0 || device >= simt_set.devices) return fail(cudaErrorInvalidDevice);
    if (!known(handle)) return fail(cudaErrorInvalidValue);
    chosen = known(handle);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)
{
    SIMT_CALL("cudaMallocAsync");
    cudaError_t e = allocate(p, bytes, chosen ? chosen : standard(), stream);
    return e ? fail(e) : e;
}

cudaError_t cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t handle,
                                    cudaStream_t stream)
{
    SIMT_CALL("cudaMallocFromPoolAsync");
    if (!known(handle)) return fail(cudaErrorInvalidValue);
    cudaError_t e = allocate(p, bytes, known(handle), stream);
    return e ? fail(e) : e;
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    call here("cudaFreeAsync");
    cudaError_t e = p ? release(p, stream) : cudaSuccess;
    if (!e && here.code) e = static_cast<cudaError_t>(here.code);
    return e ? fail(e) : e;
}
}
