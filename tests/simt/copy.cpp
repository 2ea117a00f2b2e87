// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Ranges and directions are checked when the call is made, and that the device
// memory still exists when the work runs. Host memory is read or written when the work runs,
// pageable or not: later than the real library may, never earlier than it might.
#include "engine.h"
#include "simt_device.h"
#include <map>

using namespace simt;

namespace
{

struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    cudaMemcpyKind kind;
};

size_t extent(size_t pitch, const copy &c)
{
    return c.height ? pitch * (c.height - 1) + c.width : 0;
}

bool side_fits(const void *p, size_t n, bool device)
{
    if (device) return device_covers(p, n);
    return !device_find(p, nullptr) && !device_find(static_cast<const char *>(p) + n - 1, nullptr);
}

bool to_device(cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}
bool from_device(cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}

bool of_two_devices(const copy &c)
{
    const allocation *to = device_find(c.to, nullptr), *from = device_find(c.from, nullptr);
    return to && from && to->device != from->device;
}

cudaError_t check_copy(copy *c)
{
    if (c->kind == cudaMemcpyDefault) {
        bool to = device_find(c->to, nullptr), from = device_find(c->from, nullptr);
        c->kind = to ? (from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    }
    if (c->kind < cudaMemcpyHostToHost || c->kind > cudaMemcpyDeviceToDevice)
        return cudaErrorInvalidMemcpyDirection;
    if (c->width > c->to_pitch || c->width > c->from_pitch) return cudaErrorInvalidPitchValue;
    if (c->kind == cudaMemcpyDeviceToDevice && of_two_devices(*c)) {
        say("copy of %zu bytes: from a device to another, which only peer copies do", c->width);
        return cudaErrorInvalidValue;
    }
    bool to = side_fits(c->to, extent(c->to_pitch, *c), to_device(c->kind));
    bool from = side_fits(c->from, extent(c->from_pitch, *c), from_device(c->kind));
    if (to && from) return cudaSuccess;
    say("copy of %zu bytes: its %s is not %s memory of that size", extent(c->to_pitch, *c),
        to ? "source" : "destination",
        (to ? from_device(c->kind) : to_device(c->kind)) ? "device" : "host");
    return cudaErrorInvalidValue;
}

void run_copy(const copy &c)
{
    copy again = c;
    if (check_copy(&again)) simt_fault("a copy runs when its device memory is gone");
    for (size_t y = 0; y < c.height; y++) {
        memmove(c.to + y * c.to_pitch, c.from + y * c.from_pitch, c.width);
        if (check && to_device(c.kind)) check->written(c.to + y * c.to_pitch, c.width);
    }
}

cudaError_t queue_copy(copy c, cudaStream_t stream)
{
    if (!c.width || !c.height) return cudaSuccess;
    if (cudaError_t e = check_copy(&c)) return e;
    char shape[64];
    snprintf(shape, sizeof shape, "copy kind %d", static_cast<int>(c.kind));
    return enqueue(stream, {WORK_COPY, shape, [c]() { run_copy(c); }});
}

cudaError_t queue_fill(char *p, size_t pitch, int value, size_t width, size_t height,
                       cudaStream_t stream)
{
    if (!width || !height) return cudaSuccess;
    size_t all = pitch * (height - 1) + width;
    if (width > pitch) return cudaErrorInvalidPitchValue;
    if (!device_covers(p, all)) {
        say("fill of %zu bytes: not device memory of that size", all);
        return cudaErrorInvalidValue;
    }
    return enqueue(stream, {WORK_SET, "fill", [=]() {
                                if (!device_covers(p, all))
                                    simt_fault("a fill runs when its device memory is gone");
                                for (size_t y = 0; y < height; y++) {
                                    memset(p + y * pitch, value, width);
                                    if (check) check->written(p + y * pitch, width);
                                }
                            }});
}

// A call that waits for its own work.
cudaError_t finish(cudaError_t queued)
{
    if (!queued) queued = cudaStreamSynchronize(nullptr);
    return queued ? fail(queued) : cudaSuccess;
}

bool is_on(const void *p, size_t n, int device)
{
    const allocation *a = device_find(p, nullptr);
    return a && a->device == device && device_covers(p, n);
}

// From memory of one device to memory of one, which may be the same, in a stream of either.
cudaError_t queue_peer_copy(char *to, int to_device, const char *from, int from_device, size_t n,
                            cudaStream_t stream)
{
    for (int device : {to_device, from_device})
        if (device < 0 || device >= simt_set.devices) return cudaErrorInvalidDevice;
    if (!n) return cudaSuccess;
    if (!is_on(to, n, to_device) || !is_on(from, n, from_device)) {
        say("peer copy of %zu bytes: not memory of devices %d and %d", n, to_device, from_device);
        return cudaErrorInvalidValue;
    }
    if (!stream_known(stream)) return cudaErrorInvalidResourceHandle;
    const int at = stream_device(stream);
    if (at >= 0 && at != to_device && at != from_device) return cudaErrorInvalidResourceHandle;
    return enqueue(stream, {WORK_COPY, "peer copy", [=]() {
                                if (!device_covers(to, n) || !device_covers(from, n))
                                    simt_fault("a copy runs when its device memory is gone");
                                memmove(to, from, n);
                                if (check) check->written(to, n);
                            }});
}

std::map<int, uint64_t> &copies(void)
{
    static auto *table = new std::map<int, uint64_t>;
    return *table;
}

copy flat(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    return {static_cast<char *>(to), static_cast<const char *>(from), n, n, n, 1, kind};
}

} // namespace

uint64_t simt_copies_on(int device) { return copies()[device]; }

extern "C" {

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    SIMT_CALL("cudaMemcpyAsync");
    if (stream_known(stream)) copies()[stream_device(stream)]++;
    cudaError_t e = queue_copy(flat(to, from, n, kind), stream);
    return e ? fail(e) : e;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t n, cudaStream_t stream)
{
    SIMT_CALL("cudaMemcpyPeerAsync");
    cudaError_t e = queue_peer_copy(static_cast<char *>(to), to_device,
                                    static_cast<const char *>(from), from_device, n, stream);
    return e ? fail(e) : e;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    SIMT_CALL("cudaMemcpy");
    if (cudaError_t e = capture_forbids()) return fail(e);
    return finish(queue_copy(flat(to, from, n, kind), nullptr));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    SIMT_CALL("cudaMemcpy2DAsync");
    copy c = {static_cast<char *>(to),
              static_cast<const char *>(from),
              to_pitch,
              from_pitch,
              width,
              height,
              kind};
    cudaError_t e = queue_copy(c, stream);
    return e ? fail(e) : e;
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind)
{
    SIMT_CALL("cudaMemcpy2D");
    if (cudaError_t e = capture_forbids()) return fail(e);
    copy c = {static_cast<char *>(to),
              static_cast<const char *>(from),
              to_pitch,
              from_pitch,
              width,
              height,
              kind};
    return finish(queue_copy(c, nullptr));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t stream)
{
    SIMT_CALL("cudaMemsetAsync");
    cudaError_t e = queue_fill(static_cast<char *>(p), n, value, n, 1, stream);
    return e ? fail(e) : e;
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
    SIMT_CALL("cudaMemset");
    if (cudaError_t e = capture_forbids()) return fail(e);
    cudaError_t e = queue_fill(static_cast<char *>(p), n, value, n, 1, nullptr);
    return e ? fail(e) : e;
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    SIMT_CALL("cudaMemset2DAsync");
    cudaError_t e = queue_fill(static_cast<char *>(p), pitch, value, width, height, stream);
    return e ? fail(e) : e;
}
}
