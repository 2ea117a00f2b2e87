// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface: descriptors that are strict about what is set, of which type, how often
// and when (dnn_graph.cpp); heuristics that offer engines of every kind; plans that compute
// (dnn_conv.cpp).
#include "dnn_descriptor.h"
#include "dnn_table.h"
#include "simt_device.h"
#include <cstdio>

using namespace simt;
using namespace simt::dnn;

extern "C" {
#define DECLARE(returns, name, symbol, parameters) returns symbol parameters;
PARE_DNN_FUNCTIONS(DECLARE)
#undef DECLARE
}

namespace
{

int on_demand(int code)
{
    return code == cudaErrorMemoryAllocation ? PARE_DNN_HOST_ALLOCATION_FAILED
                                             : PARE_DNN_EXECUTION_FAILED;
}

// --- heuristics ---

enum { TENSOR_CORE = 1 << PARE_DNN_NOTE_TENSOR_CORE, STRICT_NAN = 1 << 9, GIB = 1 << 30 };

// Has the library code for it: nothing behind the convolution, or [+ residual] + bias, of X's type,
// and perhaps ReLU without an upper bound?
bool is_prepared(const dnn_work &g)
{
    size_t n = g.steps.size();
    if (!n) return true;
    if (g.steps[n - 1].of.mode == PARE_DNN_POINTWISE_RELU && (g.steps[--n].of.high_set || !n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (g.steps[i].of.mode != PARE_DNN_POINTWISE_ADD || g.steps[i].b.type != g.x.type ||
            g.steps[i].b.dim[0] * g.steps[i].b.dim[2] != (i + 1 < n ? g.x.dim[0] * g.y.dim[2] : 1))
            return false;
    return n < 3;
}

// Good ones, and each kind that may not be taken: sums of another order each time, of products that
// are not the convolution's, reordered filters, more workspace than there is.
std::vector<engine_config> offers(const dnn_work &g, int mode)
{
    const bool whole = g.x.type == PARE_DNN_S8, prepared = is_prepared(g);
    std::vector<engine_config> out;
    if (mode == PARE_DNN_HEURISTICS_FALLBACK) {
        if (prepared) out.push_back({0, STRICT_NAN, 0, 0});
        if (prepared) out.push_back({25, 1 << PARE_DNN_NOTE_NONDETERMINISTIC, 0, 64});
        out.push_back({71, TENSOR_CORE, 1 << PARE_DNN_BEHAVIOR_RUNTIME_COMPILATION, 256});
        return out;
    }
    if (prepared && !whole) {
        out.push_back({20, TENSOR_CORE | 1 << PARE_DNN_NOTE_NONDETERMINISTIC, 0, 0});
        out.push_back({21, 1 << PARE_DNN_NOTE_WINOGRAD, 0, 0});
        out.push_back({22, TENSOR_CORE, 1 << PARE_DNN_BEHAVIOR_FILTER_REORDER, 0});
        out.push_back({10, TENSOR_CORE, 0, 0});
        out.push_back({11, TENSOR_CORE, 0, GIB});
        out.push_back({10, TENSOR_CORE, 0, 1000});
    }
    if (!prepared) out.push_back({7, TENSOR_CORE, 1 << PARE_DNN_BEHAVIOR_RUNTIME_COMPILATION, 0});
    return out;
}

int results_get(descriptor *d, int64_t asked, int64_t *count, void *array)
{
    const std::vector<engine_config> found =
        offers(d->work, value<int>(*d, PARE_DNN_HEURISTICS_MODE));
    *count =
        static_cast<int64_t>(found.size()) + (array ? 0 : 1); // one that turns out not to serve
    if (!array) return PARE_DNN_SUCCESS;
    if (asked < *count) *count = asked;
    for (int64_t i = 0; i < *count; i++) {
        descriptor *c = known(static_cast<void **>(array)[i]);
        if (!c || c->type != PARE_DNN_ENGINE_CONFIG || c->finalized)
            return no(PARE_DNN_BAD_PARAM, "the array holds new configs");
        c->work = d->work, c->names = d->names, c->in_memory = d->in_memory, c->needs = d->needs;
        c->config = found[static_cast<size_t>(i)];
        c->finalized = true;
    }
    return PARE_DNN_SUCCESS;
}

int notes_get(unsigned bits, int64_t asked, int64_t *count, void *array)
{
    *count = 0;
    for (int i = 0; i < 32; i++)
        if (bits >> i & 1 && *count < asked) static_cast<int *>(array)[(*count)++] = i;
    return PARE_DNN_SUCCESS;
}

int engine_get(descriptor *config, int64_t asked, int64_t *count, void *array)
{
    descriptor *e = asked == 1 ? known(*static_cast<void **>(array)) : nullptr;
    if (!e || e->type != PARE_DNN_ENGINE)
        return no(PARE_DNN_BAD_PARAM, "the array holds an engine");
    e->config = config->config;
    e->finalized = true;
    *count = 1;
    return PARE_DNN_SUCCESS;
}

// --- plans ---

int execute(dnn_handle *h, descriptor *plan, descriptor *pack)
{
    for (descriptor *d : plan->needs)
        if (!all().count(d)) simt_fault("cuDNN: a plan runs whose descriptors were destroyed");
    const std::vector<int64_t> ids = values<int64_t>(*pack, PARE_DNN_PACK_IDS);
    const std::vector<void *> pointers = values<void *>(*pack, PARE_DNN_PACK_POINTERS);
    if (plan->ran && plan->ran != h) call moves("cuDNN plans that moved"); // counted
    plan->ran = h;
    if (std::set<int64_t>(ids.begin(), ids.end()) != plan->names)
        return no(PARE_DNN_BAD_PARAM, "the pack names other tensors than the graph");
    std::map<int64_t, void *> address;
    for (size_t i = 0; i < ids.size(); i++) address[ids[i]] = pointers[i];
    for (const dnn_tensor &t : plan->in_memory) {
        if (reinterpret_cast<uintptr_t>(address[t.id]) % static_cast<uintptr_t>(t.aligned))
            return no(PARE_DNN_BAD_PARAM, "an address that is not aligned as was said");
        need_device(address[t.id], dnn_tensor_bytes(t), "a tensor");
    }
    void *workspace = value<void *>(*pack, PARE_DNN_PACK_WORKSPACE);
    const size_t bytes = plan->config.workspace;
    need_device(workspace, bytes, "the workspace");
    dnn_work g = plan->work;
    g.wrong = plan->config.numbers & 1 << PARE_DNN_NOTE_NONDETERMINISTIC;
    g.tf32 = plan->config.numbers & TENSOR_CORE;
    auto run = [g, address, workspace, bytes]() {
        if (bytes) memset(workspace, 0xa5, bytes);
        if (bytes && check) check->written(workspace, bytes);
        dnn_run(g, address);
    };
    return enqueue(h->stream, {WORK_LIBRARY, "convolution", run}) ? PARE_DNN_EXECUTION_FAILED
                                                                  : PARE_DNN_SUCCESS;
}

} // namespace

#define DNN_CALL(name)                                                                             \
    call here(name);                                                                               \
    if (here.code) return no(on_demand(here.code), "a failure on demand")

extern "C" {

int cudnnGetProperty(int which, int *value)
{
    const int part[] = {simt_set.dnn / 10000, simt_set.dnn / 100 % 100, simt_set.dnn % 100};
    if (which < 0 || which > 2) return PARE_DNN_BAD_PARAM;
    *value = part[which];
    return PARE_DNN_SUCCESS;
}

const char *cudnnGetErrorString(int status)
{
    return status == PARE_DNN_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS";
}

void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "%s", last_words()); }

int cudnnCreate(void **out)
{
    DNN_CALL("cudnnCreate");
    if (capture_forbids() != cudaSuccess)
        return no(PARE_DNN_EXECUTION_FAILED, "handles are not made while a stream records");
    dnn_handle *h = new dnn_handle{device_current(), nullptr};
    handles().insert(h);
    live_add("cuDNN handles", 1);
    *out = h;
    return PARE_DNN_SUCCESS;
}

int cudnnDestroy(void *p)
{
    call here("cudnnDestroy");
    if (!handles().erase(static_cast<dnn_handle *>(p))) return PARE_DNN_NOT_INITIALIZED;
    delete static_cast<dnn_handle *>(p);
    live_add("cuDNN handles", -1);
    return PARE_DNN_SUCCESS;
}

int cudnnSetStream(void *p, void *stream)
{
    DNN_CALL("cudnnSetStream");
    dnn_handle *h = static_cast<dnn_handle *>(p);
    if (!handles().count(h) || !stream_known(static_cast<cudaStream_t>(stream)))
        return no(PARE_DNN_BAD_PARAM, "no such handle or stream");
    const int at = stream_device(static_cast<cudaStream_t>(stream));
    if (at >= 0 && at != h->device)
        return no(PARE_DNN_BAD_PARAM, "the stream is of another device than the handle");
    h->stream = static_cast<cudaStream_t>(stream);
    return PARE_DNN_SUCCESS;
}

int cudnnBackendCreateDescriptor(int type, void **out)
{
    DNN_CALL("cudnnBackendCreateDescriptor");
    descriptor *d = new descriptor{};
    d->type = type;
    all().insert(d);
    live_add("cuDNN descriptors", 1);
    *out = d;
    return PARE_DNN_SUCCESS;
}

int cudnnBackendDestroyDescriptor(void *p)
{
    call here("cudnnBackendDestroyDescriptor");
    descriptor *d = known(p);
    if (!d) simt_fault("cuDNN: a descriptor is destroyed twice");
    all().erase(d);
    delete d;
    live_add("cuDNN descriptors", -1);
    return PARE_DNN_SUCCESS;
}

int cudnnBackendSetAttribute(void *p, int name, int type, int64_t count, const void *array)
{
    DNN_CALL("cudnnBackendSetAttribute");
    descriptor *d = known(p);
    if (!d || d->finalized || !array)
        return no(PARE_DNN_BAD_PARAM, "attributes are set before a descriptor is finalized");
    for (const dnn_rule &r : rules_of(d->type)) {
        if (r.name != name) continue;
        if (r.type != type) return no(PARE_DNN_BAD_PARAM, "an attribute of another type");
        if (count < r.least || count > r.most)
            return no(PARE_DNN_BAD_PARAM, "an attribute of another number of elements");
        const char *bytes = static_cast<const char *>(array);
        d->set[name] = {count, std::vector<char>(bytes, bytes + static_cast<size_t>(count) *
                                                                    element_bytes(type))};
        return PARE_DNN_SUCCESS;
    }
    return no(PARE_DNN_BAD_PARAM, "an attribute that the descriptor does not have");
}

int cudnnBackendGetAttribute(void *p, int name, int type, int64_t asked, int64_t *count,
                             void *array)
{
    DNN_CALL("cudnnBackendGetAttribute");
    descriptor *d = known(p);
    if (!d || !d->finalized || !count)
        return no(PARE_DNN_NOT_FINALIZED, "attributes are read of what is finalized");
    if (d->type == PARE_DNN_HEURISTICS && name == PARE_DNN_HEURISTICS_RESULTS &&
        type == PARE_DNN_T_DESCRIPTOR)
        return results_get(d, asked, count, array);
    if (d->type == PARE_DNN_ENGINE_CONFIG && name == PARE_DNN_CONFIG_ENGINE &&
        type == PARE_DNN_T_DESCRIPTOR)
        return engine_get(d, asked, count, array);
    if (d->type == PARE_DNN_ENGINE && name == PARE_DNN_ENGINE_NUMERICAL_NOTE &&
        type == PARE_DNN_T_NUMERICAL_NOTE)
        return notes_get(d->config.numbers, asked, count, array);
    if (d->type == PARE_DNN_ENGINE && name == PARE_DNN_ENGINE_BEHAVIOR_NOTE &&
        type == PARE_DNN_T_BEHAVIOR_NOTE)
        return notes_get(d->config.behavior, asked, count, array);
    if (d->type != PARE_DNN_PLAN || name != PARE_DNN_PLAN_WORKSPACE || type != PARE_DNN_T_INT64 ||
        asked != 1)
        return no(PARE_DNN_BAD_PARAM, "nothing that can be read");
    *static_cast<int64_t *>(array) = static_cast<int64_t>(d->config.workspace);
    *count = 1;
    return PARE_DNN_SUCCESS;
}

int cudnnBackendFinalize(void *p)
{
    DNN_CALL("cudnnBackendFinalize");
    descriptor *d = known(p);
    if (!d || d->finalized) return no(PARE_DNN_BAD_PARAM, "what is finalized stays as it is");
    for (const dnn_rule &r : rules_of(d->type))
        if (r.needed && !d->set.count(r.name))
            return no(PARE_DNN_BAD_PARAM, "an attribute was not set");
    const int status = end_of(d);
    d->finalized = !status;
    return status;
}

int cudnnBackendExecute(void *p, void *plan, void *pack)
{
    DNN_CALL("cudnnBackendExecute");
    dnn_handle *h = static_cast<dnn_handle *>(p);
    descriptor *d = known(plan), *v = known(pack);
    if (!handles().count(h) || !d || d->type != PARE_DNN_PLAN || !d->finalized || !v ||
        v->type != PARE_DNN_VARIANT_PACK || !v->finalized)
        return no(PARE_DNN_NOT_FINALIZED, "a handle, a plan and a pack");
    return execute(h, d, v);
}

void simt_dnn_api(pare_dnn_api *out)
{
#define FILL(returns, name, symbol, parameters) out->name = symbol;
    PARE_DNN_FUNCTIONS(FILL)
#undef FILL
}
}
