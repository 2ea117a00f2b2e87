// SPDX-License-Identifier: Apache-2.0
// Streams stream work and really defer it; what may run when is the setting SIMT_STREAMS. Work runs
// when all that its stream, the events it waits for and the default stream's rule ask for has run.
#include "stream.h"
#include "simt_device.h"
#include <algorithm>
#include <set>
#include <unistd.h>

namespace simt
{

static stream standard = {-1, true, {}, nullptr, nullptr, {}, WORK_EVENT, nullptr};
static bool in_host_function;
static double now_ms;
static uint64_t launches;

bool in_host_work(void) { return in_host_function; }

std::vector<stream *> &all_streams(void)
{
    static auto *list = new std::vector<stream *>;
    return *list;
}
static std::set<event *> &all_events(void)
{
    static auto *list = new std::set<event *>;
    return *list;
}

stream *stream_of(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy) return &standard;
    for (stream *s : all_streams())
        if (reinterpret_cast<cudaStream_t>(s) == handle) return s;
    return nullptr;
}
static event *event_of(cudaEvent_t handle)
{
    event *e = reinterpret_cast<event *>(handle);
    return all_events().count(e) ? e : nullptr;
}
bool stream_known(cudaStream_t handle) { return stream_of(handle) != nullptr; }

int stream_device(cudaStream_t handle) { return stream_of(handle)->device; }

bool capturing(cudaStream_t handle)
{
    const stream *s = stream_of(handle);
    return s && s->captured;
}
// A global capture forbids unsafe calls of every thread, a thread-local one those of its own.
cudaError_t capture_forbids(void)
{
    cudaError_t e = cudaSuccess;
    for (stream *s : all_streams()) {
        capture *c = s->captured;
        if (!c || c->mode == cudaStreamCaptureModeRelaxed) continue;
        if (c->mode == cudaStreamCaptureModeThreadLocal && c->thread != std::this_thread::get_id())
            continue;
        c->spoiled = true;
        e = cudaErrorStreamCaptureUnsupported;
    }
    return e;
}

// A device encompasses its streams: to wait for it, by whatever thread, ends their captures.
static cudaError_t capture_forbids_device(int device)
{
    cudaError_t e = cudaSuccess;
    for (stream *s : all_streams())
        if (s->captured && s->device == device) {
            s->captured->spoiled = true;
            e = cudaErrorStreamCaptureUnsupported;
        }
    return e;
}

// The device's own clock counts pieces of work, those of a graph too: 1 us each.
void clock_tick(void) { now_ms += 0.001; }

// --- running ---

static bool may_run(const stream *s)
{
    if (s->stream.empty()) return false;
    for (const point_ref &p : s->stream.front().after)
        if (!p->reached) return false;
    const work &w = s->stream.front().w;
    return !w.ready || device_lost() || w.ready();
}

bool is_kernel(work_kind kind) { return kind == WORK_KERNEL || kind == WORK_LIBRARY; }

static void choose_chain(stream *s, const work &w)
{
    if (!is_kernel(w.kind)) return;
    if (!w.dependent || !s->chain)
        s->chain = chain_new(!s->stream.empty() && s->stream.front().w.dependent);
    if (w.kind == WORK_KERNEL) chain_choose(s->chain, w.dependent);
}

static void run_first(stream *s)
{
    operation o = std::move(s->stream.front());
    s->stream.pop_front();
    if (o.w.kind != WORK_HOST) device_open_on(o.w.kind == WORK_COPY ? -1 : s->device);
    in_host_function = o.w.kind == WORK_HOST;
    choose_chain(s, o.w);
    if (o.w.run && (o.w.kind == WORK_MEMORY || !device_lost())) o.w.run();
    in_host_function = false;
    if (o.w.kind != WORK_HOST) device_close();
    clock_tick();
    o.done->reached = true;
    o.done->at = now_ms;
}

static stream *nth_stream(size_t i) { return i ? all_streams()[i - 1] : &standard; }

// Runs one operation of some stream but `not_this`, the first that can from a random start.
static bool step_any(const stream *not_this)
{
    size_t n = all_streams().size() + 1;
    const bool random = simt_set.streams == SIMT_SHUFFLED || simt_set.streams == SIMT_OTHERS;
    size_t start = random ? random_number() % n : 0;
    for (size_t i = 0; i < n; i++) {
        stream *s = nth_stream((start + i) % n);
        if (s == not_this || !may_run(s)) continue;
        run_first(s);
        return true;
    }
    return false;
}

// Nothing can run: is that because work waits for another process?
static bool waits_outside(void)
{
    for (size_t i = 0; i <= all_streams().size(); i++) {
        const stream *s = nth_stream(i);
        if (!s->stream.empty() && s->stream.front().w.ready) return true;
    }
    return false;
}

static void wait_outside(void)
{
    if (!waits_outside()) simt_fault("streams wait for each other");
    usleep(200);
}

// The next operation of a stream that is waited for, and what runs before it.
static void step_waited(stream *s)
{
    if (simt_set.streams == SIMT_SHUFFLED && random_number() % 2) step_any(s);
    while (simt_set.streams == SIMT_OTHERS && step_any(s)) {
    }
    if (may_run(s))
        run_first(s);
    else if (!step_any(s))
        wait_outside();
}

void drain(stream *s)
{
    while (!s->stream.empty()) step_waited(s);
}

void drain_all(void)
{
    for (;;) {
        while (step_any(nullptr)) {
        }
        if (!waits_outside()) return;
        wait_outside();
    }
}

static void progress(void)
{
    while (simt_set.streams == SIMT_EAGER && step_any(nullptr)) {
    }
    if (simt_set.streams == SIMT_SHUFFLED)
        for (unsigned i = random_number() % 4; i; i--) step_any(nullptr);
}

// --- queueing ---

static void push(stream *s, work w, point_ref also, point_ref done)
{
    operation o = {std::move(w), {}, done};
    if (also) o.after.push_back(also);
    if (s == &standard) {
        for (const stream *other : all_streams())
            if (other->blocking && other->tail) o.after.push_back(other->tail);
    } else if (s->blocking && standard.tail)
        o.after.push_back(standard.tail);
    s->tail = done;
    s->last = o.w.kind;
    s->stream.push_back(std::move(o));
}

// The default stream may not be used while a stream that waits for it is captured.
static cudaError_t implicit_capture(void)
{
    cudaError_t e = cudaSuccess;
    for (stream *s : all_streams())
        if (s->captured && s->blocking) {
            s->captured->spoiled = true;
            e = cudaErrorStreamCaptureImplicit;
        }
    return e;
}

// What computes is put into streams of the current device alone; copies into any.
static bool computes_here(const stream *s, work_kind kind)
{
    bool computes = kind == WORK_KERNEL || kind == WORK_SET || kind == WORK_LIBRARY;
    if (!computes || s->device < 0 || s->device == device_current()) return true;
    say("a stream of device %d is given work while device %d is the current one", s->device,
        device_current());
    return false;
}

// A dependent's one predecessor is a kernel: of copies, fills and joined streams nothing is promised.
static void need_kernel_ahead(const stream *s)
{
    bool well = is_kernel(s->last);
    if (s->captured) {
        well = s->tails.size() == 1;
        const node &n = s->captured->g->nodes[static_cast<size_t>(well ? s->tails[0] : 0)];
        well = well && is_kernel(n.w.kind) && n.by == s;
    }
    if (!well) simt_fault("a kernel is launched as a dependent of what is no kernel of its stream");
}

cudaError_t enqueue(cudaStream_t handle, work w)
{
    stream *s = stream_of(handle);
    if (!s || !computes_here(s, w.kind)) return cudaErrorInvalidResourceHandle;
    if (w.dependent && !simt_set.dependent) need_kernel_ahead(s);
    if (s->captured) {
        std::deque<node> &nodes = s->captured->g->nodes;
        nodes.push_back({std::move(w), s->tails, s});
        s->tails = {static_cast<int>(nodes.size()) - 1};
        return cudaSuccess;
    }
    if (s == &standard)
        if (cudaError_t e = implicit_capture()) return e;
    push(s, std::move(w), nullptr, std::make_shared<point>());
    progress();
    return cudaSuccess;
}

static cudaError_t ended(const call &here)
{
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}

static cudaError_t new_stream(cudaStream_t *out, bool blocking)
{
    stream *s = new stream{device_current(), blocking, {}, nullptr, nullptr, {}, WORK_EVENT, nullptr};
    all_streams().push_back(s);
    live_add("streams", 1);
    *out = reinterpret_cast<cudaStream_t>(s);
    return cudaSuccess;
}

static cudaError_t new_event(cudaEvent_t *out, bool timed)
{
    event *e = new event{device_current(), timed, nullptr, nullptr, {}};
    all_events().insert(e);
    live_add("events", 1);
    *out = reinterpret_cast<cudaEvent_t>(e);
    return cudaSuccess;
}

static cudaError_t wait_captured(stream *s, const event *e)
{
    if (!s->captured) {
        s->captured = e->captured; // it joins the capture
        s->tails = e->tails;
        return cudaSuccess;
    }
    if (s->captured != e->captured) return cudaErrorStreamCaptureMerge;
    for (int t : e->tails)
        if (std::find(s->tails.begin(), s->tails.end(), t) == s->tails.end()) s->tails.push_back(t);
    return cudaSuccess;
}

static void launch_checked(const launch &k)
{
    launches++;
    run_kernel(k);
}

void queue_launch(launch k, cudaStream_t s, cudaError_t *e)
{
    char shape[64];
    snprintf(shape, sizeof shape, "kernel");
    const bool dependent = k.dependent;
    work w = {WORK_KERNEL, shape, [k = std::move(k)]() { launch_checked(k); }};
    w.dependent = dependent;
    *e = enqueue(s, std::move(w));
}

} // namespace simt

using namespace simt;

uint64_t simt_launches(void) { return launches; }

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    SIMT_CALL("cudaStreamCreate");
    return new_stream(out, true);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    SIMT_CALL("cudaStreamCreateWithFlags");
    if (flags > cudaStreamNonBlocking) return fail(cudaErrorInvalidValue);
    return new_stream(out, flags == cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    SIMT_CALL("cudaStreamCreateWithPriority");
    if (flags > cudaStreamNonBlocking) return fail(cudaErrorInvalidValue);
    return new_stream(out, flags == cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    call here("cudaStreamDestroy");
    stream *s = stream_of(handle);
    if (!s || s == &standard) return fail(cudaErrorInvalidResourceHandle);
    drain(s);
    std::vector<stream *> &list = all_streams();
    list.erase(std::find(list.begin(), list.end(), s));
    delete s;
    live_add("streams", -1);
    return ended(here);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    SIMT_CALL("cudaStreamSynchronize");
    stream *s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->captured) {
        s->captured->spoiled = true;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    drain(s);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    SIMT_CALL("cudaStreamQuery");
    stream *s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->captured) {
        s->captured->spoiled = true;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    step_any(nullptr); // time passes, so that a loop of queries ends
    return s->stream.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    SIMT_CALL("cudaDeviceSynchronize");
    const int device = device_current();
    if (cudaError_t e = capture_forbids_device(device)) return fail(e);
    drain(&standard);
    for (stream *s : all_streams())
        if (s->device == device) drain(s);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *data)
{
    SIMT_CALL("cudaLaunchHostFunc");
    cudaError_t e = enqueue(handle, {WORK_HOST, "host", [fn, data]() { fn(data); }});
    return e ? fail(e) : e;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    SIMT_CALL("cudaEventCreate");
    return new_event(out, true);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    SIMT_CALL("cudaEventCreateWithFlags");
    if (flags & ~static_cast<unsigned>(cudaEventBlockingSync | cudaEventDisableTiming))
        return fail(cudaErrorInvalidValue);
    return new_event(out, !(flags & cudaEventDisableTiming));
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    call here("cudaEventDestroy");
    event *e = event_of(handle);
    if (!e) return fail(cudaErrorInvalidResourceHandle);
    all_events().erase(e);
    delete e;
    live_add("events", -1);
    return ended(here);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on)
{
    SIMT_CALL("cudaEventRecord");
    event *e = event_of(handle);
    stream *s = stream_of(on);
    if (!e || !s) return fail(cudaErrorInvalidResourceHandle);
    if (s->device >= 0 && s->device != e->device) return fail(cudaErrorInvalidResourceHandle);
    e->captured = s->captured;
    e->tails = s->tails;
    if (s->captured) return cudaSuccess;
    if (s == &standard)
        if (cudaError_t code = implicit_capture()) return fail(code);
    e->mark = std::make_shared<point>();
    push(s, {WORK_EVENT, "event", nullptr}, nullptr, e->mark);
    progress();
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t on, unsigned)
{
    return cudaEventRecord(handle, on);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t handle, unsigned)
{
    SIMT_CALL("cudaStreamWaitEvent");
    event *e = event_of(handle);
    stream *s = stream_of(on);
    if (!e || !s) return fail(cudaErrorInvalidResourceHandle);
    if (e->captured) {
        cudaError_t code = wait_captured(s, e);
        return code ? fail(code) : code;
    }
    if (s->captured) {
        s->captured->spoiled = true; // it would wait for something outside
        return fail(cudaErrorStreamCaptureIsolation);
    }
    if (!e->mark) return cudaSuccess;
    push(s, {WORK_EVENT, "wait", nullptr}, e->mark, std::make_shared<point>());
    progress();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    SIMT_CALL("cudaEventSynchronize");
    event *e = event_of(handle);
    if (!e) return fail(cudaErrorInvalidResourceHandle);
    if (e->captured) return fail(cudaErrorCapturedEvent);
    while (e->mark && !e->mark->reached) {
        for (size_t i = 0; i <= all_streams().size(); i++) {
            stream *s = nth_stream(i);
            bool holds = false;
            for (const operation &o : s->stream) holds |= o.done == e->mark;
            while (holds && !e->mark->reached) step_waited(s);
        }
    }
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    SIMT_CALL("cudaEventQuery");
    event *e = event_of(handle);
    if (!e) return fail(cudaErrorInvalidResourceHandle);
    if (e->captured) return fail(cudaErrorCapturedEvent);
    step_any(nullptr);
    return !e->mark || e->mark->reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    SIMT_CALL("cudaEventElapsedTime");
    event *a = event_of(from), *b = event_of(to);
    if (!a || !b || !a->timed || !b->timed || !a->mark || !b->mark || a->device != b->device)
        return fail(cudaErrorInvalidResourceHandle);
    if (!a->mark->reached || !b->mark->reached) return cudaErrorNotReady;
    *ms = static_cast<float>(b->mark->at - a->mark->at);
    return cudaSuccess;
}
}
