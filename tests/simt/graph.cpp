// SPDX-License-Identifier: Apache-2.0
// Capture into graphs, their execution in any order that the dependencies allow, and updates that
// may change arguments but not the graph's form.
#include "stream.h"
#include "simt_device.h"
#include <algorithm>
#include <set>

namespace simt
{

static std::set<graph *> &graphs(void)
{
    static auto *t = new std::set<graph *>;
    return *t;
}
static std::set<executable *> &executables(void)
{
    static auto *t = new std::set<executable *>;
    return *t;
}
static graph *graph_of(cudaGraph_t handle)
{
    graph *g = reinterpret_cast<graph *>(handle);
    return graphs().count(g) ? g : nullptr;
}
static executable *executable_of(cudaGraphExec_t handle)
{
    executable *e = reinterpret_cast<executable *>(handle);
    return executables().count(e) ? e : nullptr;
}

static bool may_follow(const node &n, const std::vector<bool> &ran)
{
    for (int a : n.after)
        if (!ran[static_cast<size_t>(a)]) return false;
    return true;
}

std::vector<int> graph_order(const graph &g)
{
    size_t n = g.nodes.size();
    std::vector<bool> ran(n);
    std::vector<int> order;
    while (order.size() < n) {
        std::vector<int> can;
        for (size_t i = 0; i < n; i++)
            if (!ran[i] && may_follow(g.nodes[i], ran)) can.push_back(static_cast<int>(i));
        size_t at = simt_set.schedule == SIMT_RANDOM     ? random_number() % can.size()
                    : simt_set.schedule == SIMT_REVERSED ? can.size() - 1
                                                         : 0;
        order.push_back(can[at]);
        ran[static_cast<size_t>(can[at])] = true;
    }
    return order;
}

static bool leads_chain(const graph &g, size_t i)
{
    for (const node &n : g.nodes)
        if (n.w.dependent && !n.after.empty() && n.after[0] == static_cast<int>(i)) return true;
    return false;
}

static void choose_chain(const graph &g, size_t i, std::vector<chain_ref> *chains)
{
    const node &n = g.nodes[i];
    if (!is_kernel(n.w.kind)) return;
    if (n.w.dependent && !n.after.empty())
        (*chains)[i] = (*chains)[static_cast<size_t>(n.after[0])];
    if (!(*chains)[i]) (*chains)[i] = chain_new(leads_chain(g, i));
    if (n.w.kind == WORK_KERNEL) chain_choose((*chains)[i], n.w.dependent);
}

static void run_graph(const graph &g)
{
    std::vector<chain_ref> chains(g.nodes.size());
    for (int i : graph_order(g)) {
        const work &w = g.nodes[static_cast<size_t>(i)].w;
        choose_chain(g, static_cast<size_t>(i), &chains);
        if (w.kind == WORK_HOST) device_close();
        w.run();
        if (w.kind == WORK_HOST) device_open();
        clock_tick();
    }
}

// Do all nodes of the other streams of a capture come before the origin's end?
static bool joined(const capture &c)
{
    std::set<int> before;
    std::vector<int> open(c.origin->tails);
    while (!open.empty()) {
        int i = open.back();
        open.pop_back();
        if (!before.insert(i).second) continue;
        for (int a : c.g->nodes[static_cast<size_t>(i)].after) open.push_back(a);
    }
    for (const stream *s : all_streams())
        if (s->captured == &c)
            for (int t : s->tails)
                if (!before.count(t)) return false;
    return true;
}

static void leave_capture(const capture *c)
{
    for (stream *s : all_streams())
        if (s->captured == c) {
            s->captured = nullptr;
            s->tails.clear();
        }
}

static cudaStreamCaptureStatus status_of(const stream &s)
{
    return !s.captured           ? cudaStreamCaptureStatusNone
           : s.captured->spoiled ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
}

// What is said to be ahead where SIMT_DEPENDENT wants that.
static node some_kernel = {{WORK_KERNEL, "kernel", nullptr}, {}, nullptr};

// A node of a stream's capture.
static const node *node_of(cudaGraphNode_t handle)
{
    for (const stream *s : all_streams())
        if (s->captured)
            for (const node &n : s->captured->g->nodes)
                if (&n == reinterpret_cast<const node *>(handle)) return &n;
    return reinterpret_cast<const node *>(handle) == &some_kernel ? &some_kernel : nullptr;
}

static cudaGraphNode_t handle_of(node *n) { return reinterpret_cast<cudaGraphNode_t>(n); }

static cudaGraphEdgeData early_edge(void)
{
    cudaGraphEdgeData d = {};
    d.type = cudaGraphDependencyTypeProgrammatic;
    d.from_port = cudaGraphKernelNodePortProgrammatic;
    return d;
}

static cudaGraphNodeType type_of(work_kind kind)
{
    return is_kernel(kind)       ? cudaGraphNodeTypeKernel
           : kind == WORK_SET    ? cudaGraphNodeTypeMemset
           : kind == WORK_HOST   ? cudaGraphNodeTypeHost
           : kind == WORK_MEMORY ? cudaGraphNodeTypeMemAlloc
           : kind == WORK_GRAPH  ? cudaGraphNodeTypeGraph
                                 : cudaGraphNodeTypeMemcpy;
}

static cudaGraphExecUpdateResult difference(const graph &a, const graph &b)
{
    if (a.nodes.size() != b.nodes.size()) return cudaGraphExecUpdateErrorTopologyChanged;
    for (size_t i = 0; i < a.nodes.size(); i++) {
        const node &x = a.nodes[i], &y = b.nodes[i];
        if (x.w.kind != y.w.kind) return cudaGraphExecUpdateErrorNodeTypeChanged;
        if (x.after != y.after || x.w.dependent != y.w.dependent)
            return cudaGraphExecUpdateErrorTopologyChanged;
        if (x.w.shape != y.w.shape) return cudaGraphExecUpdateErrorParametersChanged;
    }
    return cudaGraphExecUpdateSuccess;
}

} // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    SIMT_CALL("cudaStreamBeginCapture");
    stream *s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s == stream_of(nullptr)) return fail(cudaErrorStreamCaptureUnsupported);
    if (s->captured) return fail(cudaErrorIllegalState);
    s->captured = new capture{mode, std::this_thread::get_id(), s, new graph, false};
    s->tails.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    call here("cudaStreamEndCapture");
    *out = nullptr;
    stream *s = stream_of(handle);
    if (!s || !s->captured) return fail(cudaErrorIllegalState);
    capture *c = s->captured;
    if (c->origin != s) return fail(cudaErrorStreamCaptureUnmatched);
    cudaError_t e = here.code    ? static_cast<cudaError_t>(here.code)
                    : c->spoiled ? cudaErrorStreamCaptureInvalidated
                    : joined(*c) ? cudaSuccess
                                 : cudaErrorStreamCaptureUnjoined;
    leave_capture(c);
    if (e)
        delete c->g;
    else {
        graphs().insert(c->g);
        live_add("graphs", 1);
        *out = reinterpret_cast<cudaGraph_t>(c->g);
    }
    delete c;
    return e ? fail(e) : e;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *out)
{
    SIMT_CALL("cudaStreamIsCapturing");
    stream *s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    *out = status_of(*s);
    return cudaSuccess;
}

// Ids and graphs are not told.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *out,
                                     const cudaGraphNode_t **after, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    SIMT_CALL("cudaStreamGetCaptureInfo");
    static std::vector<cudaGraphNode_t> nodes; // until the next call
    static std::vector<cudaGraphEdgeData> data;
    const stream *s = stream_of(handle);
    if (!s || id || out || !after != !count) return fail(cudaErrorInvalidValue);
    *status = status_of(*s);
    nodes.clear();
    for (int i : s->tails)
        nodes.push_back(handle_of(&s->captured->g->nodes[static_cast<size_t>(i)]));
    if (simt_set.dependent) {
        *status = cudaStreamCaptureStatusActive;
        nodes = {handle_of(&some_kernel)};
    }
    data.assign(nodes.size(), {});
    if (after) *after = nodes.data();
    if (edges) *edges = data.data();
    if (count) *count = nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, enum cudaGraphNodeType *out)
{
    SIMT_CALL("cudaGraphNodeGetType");
    const node *n = node_of(handle);
    if (!n) return fail(cudaErrorInvalidValue);
    *out = type_of(n->w.kind);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t handle, unsigned long long)
{
    SIMT_CALL("cudaGraphInstantiate");
    graph *g = graph_of(handle);
    if (!g) return fail(cudaErrorInvalidValue);
    executable *e = new executable{std::make_shared<graph>(*g)};
    executables().insert(e);
    live_add("executable graphs", 1);
    *out = reinterpret_cast<cudaGraphExec_t>(e);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t on)
{
    SIMT_CALL("cudaGraphUpload");
    if (!executable_of(handle) || !stream_known(on)) return fail(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t on)
{
    SIMT_CALL("cudaGraphLaunch");
    executable *e = executable_of(handle);
    if (!e) return fail(cudaErrorInvalidValue);
    std::shared_ptr<graph> g = e->g;
    cudaError_t code = enqueue(on, {WORK_GRAPH, "graph", [g]() { run_graph(*g); }});
    return code ? fail(code) : code;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t handle, cudaGraph_t with,
                                cudaGraphExecUpdateResultInfo *info)
{
    SIMT_CALL("cudaGraphExecUpdate");
    executable *e = executable_of(handle);
    graph *g = graph_of(with);
    if (!e || !g) return fail(cudaErrorInvalidValue);
    info->errorNode = info->errorFromNode = nullptr;
    info->result = difference(*e->g, *g);
    if (info->result) return fail(cudaErrorGraphExecUpdateFailure);
    e->g = std::make_shared<graph>(*g);
    return cudaSuccess;
}

// Counts only: nodes have no handles here.
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count)
{
    SIMT_CALL("cudaGraphGetNodes");
    graph *g = graph_of(handle);
    if (!g || nodes) return fail(cudaErrorInvalidValue);
    *count = g->nodes.size();
    return cudaSuccess;
}

// Edges of dependents alone have data: they leave the kernel ahead where it lets them begin.
cudaError_t cudaGraphGetEdges(cudaGraph_t handle, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *data, size_t *count)
{
    SIMT_CALL("cudaGraphGetEdges");
    graph *g = graph_of(handle);
    if (!g || !from != !to || (data && !from)) return fail(cudaErrorInvalidValue);
    size_t found = 0;
    const size_t room = from ? *count : 0;
    for (node &n : g->nodes)
        for (size_t i = 0; i < n.after.size(); i++, found++) {
            if (found >= room) continue;
            if (n.w.dependent && !data) return fail(cudaErrorLossyQuery);
            from[found] = handle_of(&g->nodes[static_cast<size_t>(n.after[i])]);
            to[found] = handle_of(&n);
            if (data) data[found] = n.w.dependent ? early_edge() : cudaGraphEdgeData{};
        }
    for (size_t i = found; i < room; i++) from[i] = to[i] = nullptr;
    *count = from ? std::min(found, room) : found;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    call here("cudaGraphDestroy");
    graph *g = graph_of(handle);
    if (!g) return fail(cudaErrorInvalidValue);
    graphs().erase(g);
    delete g;
    live_add("graphs", -1);
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    call here("cudaGraphExecDestroy");
    executable *e = executable_of(handle);
    if (!e) return fail(cudaErrorInvalidValue);
    executables().erase(e);
    delete e;
    live_add("executable graphs", -1);
    return here.code ? fail(static_cast<cudaError_t>(here.code)) : cudaSuccess;
}
}
