// SPDX-License-Identifier: Apache-2.0
// Device memory: every allocation has exactly the size that was asked for (sanitizers see its end;
// without them the bytes around it are watched), begins as garbage, and is out of the host's reach
// but while a kernel, copy or library call runs. Freed memory is garbage too and is not reused
// soon.
#include "engine.h"
#include "simt_device.h"
#include <cstdlib>
#include <deque>
#include <map>
#include <sys/mman.h>

namespace simt
{

enum { EDGE = asan ? 0 : 256, EDGE_BYTE = 0xc7 };
static const size_t QUARANTINE = asan ? 0 : size_t(64) << 20;

// Tables that are never destroyed: calls may come after main has ended.
static std::map<uintptr_t, allocation> &table(void)
{
    static auto *t = new std::map<uintptr_t, allocation>;
    return *t;
}
static std::map<uintptr_t, size_t> &pinned(void)
{
    static auto *t = new std::map<uintptr_t, size_t>;
    return *t;
}
static std::deque<std::pair<char *, size_t>> &dead(void)
{
    static auto *t = new std::deque<std::pair<char *, size_t>>;
    return *t;
}
static size_t dead_bytes;
static std::map<int, size_t> &used(void) // by device
{
    static auto *t = new std::map<int, size_t>;
    return *t;
}

// Addresses that only allocations have, each once. Under AddressSanitizer its own heap serves,
// which knows the ends of what it gives.
static char *space, *space_top;
static const size_t SPACE = size_t(256) << 30;

bool in_device_space(const void *p)
{
    const char *at = static_cast<const char *>(p);
    return space && at >= space && at < space + SPACE;
}

static char *reserve(size_t bytes)
{
    if (asan) {
        void *p;
        return posix_memalign(&p, 256, bytes) ? nullptr : static_cast<char *>(p);
    }
    if (!space) {
        void *p = mmap(nullptr, SPACE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) simt_fault("%zu bytes of address space cannot be had", SPACE);
        space = space_top = static_cast<char *>(p);
    }
    size_t pages = (bytes + 4095) / 4096 * 4096;
    if (pages > static_cast<size_t>(space + SPACE - space_top)) return nullptr;
    space_top += pages;
    return space_top - pages;
}

static void give_back(char *block, size_t bytes)
{
    if (asan)
        free(block);
    else
        madvise(block, bytes + 2 * EDGE, MADV_DONTNEED);
}

static int open_depth, open_device = -1;

size_t device_used(int device) { return used()[device]; }

static allocation *find(uintptr_t p, uintptr_t *base)
{
    auto at = table().upper_bound(p);
    if (at == table().begin()) return nullptr;
    --at;
    if (p - at->first >= at->second.bytes) return nullptr;
    *base = at->first;
    return &at->second;
}

allocation *device_find(const void *p, char **base)
{
    uintptr_t at = 0;
    allocation *a = find(reinterpret_cast<uintptr_t>(p), &at);
    if (a && base) *base = reinterpret_cast<char *>(at);
    return a;
}

bool device_covers(const void *p, size_t n)
{
    uintptr_t at = 0, from = reinterpret_cast<uintptr_t>(p);
    const allocation *a = find(from, &at);
    if (!a || from - at + n > a->bytes) return false;
    return open_depth ? a->ready : !a->released; // when work runs; when a call is made
}

bool host_pinned(const void *p)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p);
    auto next = pinned().upper_bound(at);
    if (next == pinned().begin()) return false;
    --next;
    return at - next->first < next->second;
}

static bool reaches(int device, const allocation &a)
{
    return device < 0 || a.device == device || (a.from && pool_serves(a.from, device));
}

void device_open_on(int device)
{
    if (open_depth++) return;
    open_device = device;
    for (auto &entry : table())
        if (entry.second.ready && reaches(device, entry.second))
            permit(reinterpret_cast<void *>(entry.first), entry.second.bytes);
}

// In work that a host function has interrupted: as it was.
void device_open(void) { device_open_on(open_device); }

void device_close(void)
{
    if (--open_depth) return;
    for (auto &entry : table()) forbid(reinterpret_cast<void *>(entry.first), entry.second.bytes);
}

void device_each(const std::function<void(char *p, size_t n)> &f)
{
    for (auto &entry : table())
        if (entry.second.ready && reaches(open_device, entry.second))
            f(reinterpret_cast<char *>(entry.first), entry.second.bytes);
}

static bool edge_changed(const unsigned char *p)
{
    for (int i = 0; i < EDGE; i++)
        if (p[i] != EDGE_BYTE) return true;
    return false;
}

void device_check_edges(void)
{
    if (asan) return;
    for (const auto &entry : table()) {
        const unsigned char *p = reinterpret_cast<const unsigned char *>(entry.first);
        if (edge_changed(p - EDGE) || edge_changed(p + entry.second.bytes))
            simt_fault("bytes outside a device allocation of %zu bytes were written",
                       entry.second.bytes);
    }
}

void *device_new(size_t bytes, pool *from)
{
    int device = from ? pool_device(from) : -1;
    if (device < 0) device = device_current();
    if (used()[device] + bytes > simt_set.memory) return nullptr;
    char *block = reserve(bytes + 2 * EDGE);
    if (!block) return nullptr;
    char *p = block + EDGE;
    memset(block, EDGE_BYTE, bytes + 2 * EDGE);
    memset(p, 0xff, bytes);
    table()[reinterpret_cast<uintptr_t>(p)] = {bytes, from, from == nullptr, false, device, 0, 0};
    used()[device] += bytes;
    if (check) check->allocated(p, bytes);
    if (from || !open_depth) forbid(p, bytes);
    return p;
}

void device_delete(void *p)
{
    auto at = table().find(reinterpret_cast<uintptr_t>(p));
    size_t bytes = at->second.bytes;
    used()[at->second.device] -= bytes;
    table().erase(at);
    if (check) check->freed(p);
    permit(p, bytes);
    memset(p, 0xdb, bytes);
    dead().push_back({static_cast<char *>(p) - EDGE, bytes});
    dead_bytes += bytes;
    while (!dead().empty() && dead_bytes > QUARANTINE) {
        give_back(dead().front().first, dead().front().second);
        dead_bytes -= dead().front().second;
        dead().pop_front();
    }
}

static void *pinned_new(size_t bytes)
{
    void *p;
    if (posix_memalign(&p, 4096, bytes)) return nullptr;
    memset(p, 0xff, bytes);
    pinned()[reinterpret_cast<uintptr_t>(p)] = bytes;
    live_add("pinned allocations", 1);
    return p;
}

} // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    SIMT_CALL("cudaMalloc");
    if (cudaError_t e = capture_forbids()) return fail(e);
    if (!p) return fail(cudaErrorInvalidValue);
    *p = nullptr;
    if (!bytes) return cudaSuccess;
    *p = device_new(bytes, nullptr);
    if (!*p) return fail(cudaErrorMemoryAllocation);
    live_add("allocations", 1);
    return cudaSuccess;
}

// Waits for all work, as the real one does.
cudaError_t cudaFree(void *p)
{
    call here("cudaFree");
    if (p) {
        if (cudaError_t e = capture_forbids()) return fail(e);
        drain_all();
        char *base;
        const allocation *a = device_find(p, &base);
        if (!a || base != p || a->from) return fail(cudaErrorInvalidValue);
        if (a->opened) simt_fault("memory is freed that another process has opened");
        device_check_edges();
        device_delete(p);
        live_add("allocations", -1);
    }
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    SIMT_CALL("cudaHostAlloc");
    if (!p) return fail(cudaErrorInvalidValue);
    *p = nullptr;
    if (bytes && !(*p = pinned_new(bytes))) return fail(cudaErrorMemoryAllocation);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    SIMT_CALL("cudaMallocHost");
    if (!p) return fail(cudaErrorInvalidValue);
    *p = nullptr;
    if (bytes && !(*p = pinned_new(bytes))) return fail(cudaErrorMemoryAllocation);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    call here("cudaFreeHost");
    if (p && !pinned().erase(reinterpret_cast<uintptr_t>(p))) return fail(cudaErrorInvalidValue);
    if (p) live_add("pinned allocations", -1);
    free(p);
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    SIMT_CALL("cudaHostRegister");
    if (!p || !bytes || device_find(p, nullptr)) return fail(cudaErrorInvalidValue);
    if (host_pinned(p)) return fail(cudaErrorHostMemoryAlreadyRegistered);
    pinned()[reinterpret_cast<uintptr_t>(p)] = bytes;
    live_add("registered host ranges", 1);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    call here("cudaHostUnregister");
    if (!pinned().erase(reinterpret_cast<uintptr_t>(p)))
        return fail(cudaErrorHostMemoryNotRegistered);
    live_add("registered host ranges", -1);
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    SIMT_CALL("cudaMemGetInfo");
    *available = simt_set.memory - device_used(device_current());
    *total = simt_set.memory;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
    SIMT_CALL("cudaPointerGetAttributes");
    *attributes = {};
    const allocation *device = device_find(p, nullptr);
    attributes->type = device           ? cudaMemoryTypeDevice
                       : host_pinned(p) ? cudaMemoryTypeHost
                                        : cudaMemoryTypeUnregistered;
    if (device) attributes->device = device->device;
    if (device) attributes->devicePointer = const_cast<void *>(p);
    if (!device) attributes->hostPointer = const_cast<void *>(p);
    return cudaSuccess;
}
}
