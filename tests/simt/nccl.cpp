// SPDX-License-Identifier: Apache-2.0
// NCCL: the few functions that pare calls. What its documentation asks for is checked: calls that
// do not block are waited for, groups are closed, a communicator's groups run in the order of their
// calls, messages are inside device memory of its device, nothing is called after destroy.
#include "engine.h"
#include "nccl_table.h"
#include "nccl_wire.h"
#include "simt_device.h"
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <unistd.h>

using namespace simt;

extern "C" {
#define DECLARE(returns, name, symbol, parameters) returns symbol parameters;
PARE_NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
}

namespace
{

const char NAME[] = "simt-nccl-";

struct communicator {
    wire *w;
    int rank, size, device;
    int status; // as ncclCommGetAsyncError tells it
    bool joined, finalized;
    uint64_t called, ran; // groups
};
typedef std::shared_ptr<communicator> communicator_ref;

struct message {
    communicator_ref of;
    cudaStream_t stream;
    wire_message m;
};

std::map<void *, communicator_ref> &all(void)
{
    static auto *t = new std::map<void *, communicator_ref>;
    return *t;
}

thread_local int depth;
thread_local std::vector<message> group;

int injected(int code)
{
    return code == cudaErrorMemoryAllocation ? PARE_NCCL_SYSTEM_ERROR : PARE_NCCL_CUDA_ERROR;
}

int no(int status, const char *why)
{
    say("NCCL: %s", why);
    return status;
}

communicator_ref known(void *comm, const char *call)
{
    auto found = all().find(comm);
    if (found == all().end()) simt_fault("%s: the communicator was destroyed, or never was", call);
    return found->second;
}

// Of functions on a communicator as a whole.
communicator_ref known_outside(void *comm, const char *call)
{
    if (depth) simt_fault("%s: within a group that was not closed", call);
    return known(comm, call);
}

// --- joining ---

int judge(const communicator &c)
{
    for (int a = 0; a < c.size; a++)
        for (int b = 0; b < a; b++) {
            const wire_hello &x = wire_peer(c.w, a), &y = wire_peer(c.w, b);
            if (x.version != y.version)
                return no(PARE_NCCL_INVALID_USAGE, "ranks have different versions");
            if (!strcmp(x.device, y.device))
                return no(PARE_NCCL_INVALID_USAGE, "two ranks are on one device");
        }
    return PARE_NCCL_SUCCESS;
}

void join(communicator *c)
{
    if (c->joined || c->status != PARE_NCCL_IN_PROGRESS) return;
    if (wire_join(c->w) != WIRE_DONE) return;
    c->joined = true;
    c->status = judge(*c);
}

bool is_config(const pare_nccl_config *c)
{
    return c && c->size == sizeof *c && c->magic == PARE_NCCL_CONFIG_MAGIC &&
           c->version >= PARE_NCCL_OLDEST && !c->blocking && // blocking calls are not modelled
           c->later == INT_MIN;
}

// --- groups ---

std::string words_of(uint64_t number, const std::vector<wire_message> &messages)
{
    std::string text = "group " + std::to_string(number) + ":";
    for (const wire_message &m : messages)
        text += std::string(m.send ? " sends " : " receives ") + wire_count_text(m.count, m.type) +
                (m.send ? " to rank " : " from rank ") + std::to_string(m.other) + ",";
    text.pop_back();
    return text;
}

typedef std::shared_ptr<wire_group> group_ref;

// As long as a rank that is gone is not given up, the stream stands.
bool group_ready(communicator *c, uint64_t number, wire_group *g)
{
    if (number != c->ran + 1)
        simt_fault("NCCL: group %llu of rank %d runs before group %llu: they are in different "
                   "streams",
                   static_cast<unsigned long long>(number), c->rank,
                   static_cast<unsigned long long>(c->ran + 1));
    if (c->status != PARE_NCCL_SUCCESS) return c->status != PARE_NCCL_REMOTE_ERROR;
    device_open_on(-1);
    for (const wire_message &m : g->messages)
        if (!device_covers(m.data, m.bytes))
            simt_fault("NCCL: a message runs when its device memory is gone");
    const wire_state state = wire_go_on(c->w, g);
    device_close();
    if (state == WIRE_GONE) c->status = PARE_NCCL_REMOTE_ERROR;
    return state == WIRE_DONE;
}

void end_group(communicator *c, const wire_group &g)
{
    c->ran++;
    for (const wire_message &m : g.messages)
        if (check && !m.send) check->written(m.data, m.bytes);
}

void check_overlaps(const std::vector<wire_message> &messages)
{
    for (const wire_message &a : messages)
        for (const wire_message &b : messages)
            if (&a != &b && !a.send && a.data < b.data + b.bytes && b.data < a.data + a.bytes)
                simt_fault("NCCL: a group receives into memory that it sends from or receives "
                           "into");
}

int close_group(void)
{
    std::vector<message> mine;
    mine.swap(group);
    if (mine.empty()) return PARE_NCCL_SUCCESS;
    const communicator_ref c = mine[0].of;
    std::vector<wire_message> messages;
    for (const message &m : mine) {
        if (m.of != c || m.stream != mine[0].stream)
            simt_fault("NCCL: a group of several communicators or streams is not modelled");
        messages.push_back(m.m);
    }
    check_overlaps(messages);
    const uint64_t number = ++c->called;
    const group_ref g =
        std::make_shared<wire_group>(wire_group{messages, words_of(number, messages), false, 0});
    const cudaError_t e = enqueue(
        mine[0].stream, {WORK_LIBRARY, "NCCL", [c, g]() { end_group(c.get(), *g); },
                         [c, g, number]() { return group_ready(c.get(), number, g.get()); }});
    if (e) return PARE_NCCL_CUDA_ERROR;
    return PARE_NCCL_IN_PROGRESS;
}

int add_message(const char *call, void *comm, void *at, const wire_message &m)
{
    const communicator_ref c = known(comm, call);
    const cudaStream_t stream = static_cast<cudaStream_t>(at);
    if (!c->joined || c->finalized)
        return no(PARE_NCCL_INVALID_USAGE, "the communicator is not open");
    if (c->status != PARE_NCCL_SUCCESS) return c->status;
    if (m.other < 0 || m.other >= c->size) return no(PARE_NCCL_INVALID_ARGUMENT, "no such rank");
    if (m.other == c->rank) return no(PARE_NCCL_INVALID_USAGE, "a rank's own is not modelled");
    if (!m.bytes) return no(PARE_NCCL_INVALID_ARGUMENT, "a type, or no numbers, not modelled");
    if (!stream_known(stream)) return no(PARE_NCCL_INVALID_ARGUMENT, "no such stream");
    if (capturing(stream)) return no(PARE_NCCL_INVALID_USAGE, "a capture is not modelled");
    const allocation *a = device_find(m.data, nullptr);
    if (!device_covers(m.data, m.bytes) || !a || a->device != c->device)
        return no(PARE_NCCL_INVALID_ARGUMENT, "not memory of the communicator's device");
    group.push_back({c, stream, m});
    return depth ? PARE_NCCL_SUCCESS : close_group();
}

wire_message message_of(bool send, const void *data, size_t count, int type, int other)
{
    const size_t each = type == PARE_NCCL_F32 ? 4 : type == PARE_NCCL_F64 ? 8 : 0;
    return {send,  other,        type, const_cast<char *>(static_cast<const char *>(data)),
            count, count * each, false};
}

void forget(void *comm)
{
    const communicator_ref c = all()[comm];
    wire_free(c->w);
    all().erase(comm);
    live_add("NCCL communicators", -1);
}

} // namespace

#define NCCL_CALL(name)                                                                            \
    call here(name);                                                                               \
    if (here.code) return injected(here.code)

extern "C" {

int ncclGetVersion(int *version)
{
    NCCL_CALL("ncclGetVersion");
    *version = simt_set.nccl;
    return PARE_NCCL_SUCCESS;
}

int ncclGetUniqueId(pare_nccl_id *id)
{
    static int serial;
    NCCL_CALL("ncclGetUniqueId");
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "%s%d-%d", NAME, static_cast<int>(getpid()), ++serial);
    return PARE_NCCL_SUCCESS;
}

int ncclCommInitRankConfig(void **out, int size, pare_nccl_id id, int rank,
                           pare_nccl_config *config)
{
    NCCL_CALL("ncclCommInitRankConfig");
    if (strncmp(id.bytes, NAME, strlen(NAME)) || !is_config(config) || size < 1 || rank < 0 ||
        rank >= size)
        return no(PARE_NCCL_INVALID_ARGUMENT, "no id, configuration or rank");
    wire_hello mine = {rank, size, simt_set.nccl, {}};
    snprintf(mine.device, sizeof mine.device, "%d", device_current());
    const communicator_ref c = std::make_shared<communicator>(
        communicator{wire_new(id.bytes, mine), rank, size, device_current(), PARE_NCCL_IN_PROGRESS,
                     false, false, 0, 0});
    all()[c.get()] = c;
    live_add("NCCL communicators", 1);
    *out = c.get();
    return PARE_NCCL_IN_PROGRESS;
}

int ncclCommFinalize(void *comm)
{
    NCCL_CALL("ncclCommFinalize");
    const communicator_ref c = known_outside(comm, "ncclCommFinalize");
    if (!c->joined || c->finalized) return no(PARE_NCCL_INVALID_USAGE, "it is not open");
    drain_all();
    c->finalized = true;
    return PARE_NCCL_IN_PROGRESS;
}

int ncclCommDestroy(void *comm)
{
    call here("ncclCommDestroy");
    const communicator_ref c = known_outside(comm, "ncclCommDestroy");
    if (c->called != c->ran)
        simt_fault("ncclCommDestroy: %llu groups have not run",
                   static_cast<unsigned long long>(c->called - c->ran));
    forget(comm);
    return here.code ? injected(here.code) : PARE_NCCL_SUCCESS;
}

int ncclCommAbort(void *comm)
{
    call here("ncclCommAbort");
    const communicator_ref c = known_outside(comm, "ncclCommAbort");
    c->status = PARE_NCCL_INVALID_USAGE; // what is queued does nothing any more
    forget(comm);
    return here.code ? injected(here.code) : PARE_NCCL_SUCCESS;
}

int ncclCommGetAsyncError(void *comm, int *status)
{
    NCCL_CALL("ncclCommGetAsyncError");
    const communicator_ref c = known_outside(comm, "ncclCommGetAsyncError");
    join(c.get());
    *status = c->status;
    return PARE_NCCL_SUCCESS;
}

const char *ncclGetErrorString(int status)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return status >= 0 && status <= PARE_NCCL_IN_PROGRESS ? texts[status] : "unknown result code";
}

int ncclGroupStart(void)
{
    NCCL_CALL("ncclGroupStart");
    if (!depth++) live_add("open NCCL groups", 1);
    return PARE_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    call here("ncclGroupEnd");
    if (!depth) return no(PARE_NCCL_INVALID_USAGE, "a group ends that did not start");
    if (--depth) return PARE_NCCL_SUCCESS;
    live_add("open NCCL groups", -1);
    if (!here.code) return close_group();
    group.clear();
    return injected(here.code);
}

int ncclSend(const void *data, size_t count, int type, int to, void *comm, void *stream)
{
    NCCL_CALL("ncclSend");
    return add_message("ncclSend", comm, stream, message_of(true, data, count, type, to));
}

int ncclRecv(void *data, size_t count, int type, int from, void *comm, void *stream)
{
    NCCL_CALL("ncclRecv");
    return add_message("ncclRecv", comm, stream, message_of(false, data, count, type, from));
}

void simt_nccl_api(pare_nccl_api *out)
{
#define SET(returns, name, symbol, parameters) out->name = symbol;
    PARE_NCCL_FUNCTIONS(SET)
#undef SET
}
}
