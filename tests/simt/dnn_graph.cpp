// SPDX-License-Identifier: Apache-2.0
// What cuDNN's descriptors may hold, and what is judged when they are finalized.
#include "dnn_descriptor.h"
#include "simt_device.h"
#include <cstdio>

namespace simt
{
namespace dnn
{

// --- descriptors ---

std::set<descriptor *> &all(void)
{
    static auto *t = new std::set<descriptor *>;
    return *t;
}
std::set<dnn_handle *> &handles(void)
{
    static auto *t = new std::set<dnn_handle *>;
    return *t;
}

static thread_local char last[256];

int no(int status, const char *why)
{
    snprintf(last, sizeof last, "%s", why);
    say("cuDNN: %s", why);
    return status;
}

const char *last_words(void) { return last; }

descriptor *known(void *p)
{
    descriptor *d = static_cast<descriptor *>(p);
    return all().count(d) ? d : nullptr;
}

// A finalized descriptor of that type, which d has under that name.
static descriptor *part(const descriptor &d, int name, int type)
{
    descriptor *p = known(value<void *>(d, name));
    return p && p->finalized && (type < 0 || p->type == type) ? p : nullptr;
}

// --- what may be set ---

static const dnn_rule rules[] = {
    {PARE_DNN_TENSOR, PARE_DNN_TENSOR_ID, PARE_DNN_T_INT64, 1, 1, true},
    {PARE_DNN_TENSOR, PARE_DNN_TENSOR_TYPE, PARE_DNN_T_DATA_TYPE, 1, 1, true},
    {PARE_DNN_TENSOR, PARE_DNN_TENSOR_DIMS, PARE_DNN_T_INT64, 4, 5, true},
    {PARE_DNN_TENSOR, PARE_DNN_TENSOR_STRIDES, PARE_DNN_T_INT64, 4, 5, true},
    {PARE_DNN_TENSOR, PARE_DNN_TENSOR_ALIGNMENT, PARE_DNN_T_INT64, 1, 1, true},
    {PARE_DNN_TENSOR, PARE_DNN_TENSOR_VIRTUAL, PARE_DNN_T_BOOL, 1, 1, false},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_AXES, PARE_DNN_T_INT64, 1, 1, true},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_COMPUTE, PARE_DNN_T_DATA_TYPE, 1, 1, true},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_MODE, PARE_DNN_T_CONVOLUTION_MODE, 1, 1, true},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_PRE_PADDINGS, PARE_DNN_T_INT64, 2, 3, true},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_POST_PADDINGS, PARE_DNN_T_INT64, 2, 3, true},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_STRIDES, PARE_DNN_T_INT64, 2, 3, true},
    {PARE_DNN_CONVOLUTION, PARE_DNN_CONVOLUTION_DILATIONS, PARE_DNN_T_INT64, 2, 3, true},
    {PARE_DNN_POINTWISE, PARE_DNN_POINTWISE_MODE, PARE_DNN_T_POINTWISE_MODE, 1, 1, true},
    {PARE_DNN_POINTWISE, PARE_DNN_POINTWISE_MATH, PARE_DNN_T_DATA_TYPE, 1, 1, true},
    {PARE_DNN_POINTWISE, PARE_DNN_POINTWISE_NAN, PARE_DNN_T_NAN_PROPAGATION, 1, 1, false},
    {PARE_DNN_POINTWISE, PARE_DNN_POINTWISE_LOWER, PARE_DNN_T_DOUBLE, 1, 1, false},
    {PARE_DNN_POINTWISE, PARE_DNN_POINTWISE_UPPER, PARE_DNN_T_DOUBLE, 1, 1, false},
    {PARE_DNN_OP_POINTWISE, PARE_DNN_OP_POINTWISE_OF, PARE_DNN_T_DESCRIPTOR, 1, 1, true},
    {PARE_DNN_OP_POINTWISE, PARE_DNN_OP_POINTWISE_X, PARE_DNN_T_DESCRIPTOR, 1, 1, true},
    {PARE_DNN_OP_POINTWISE, PARE_DNN_OP_POINTWISE_B, PARE_DNN_T_DESCRIPTOR, 1, 1, false},
    {PARE_DNN_OP_POINTWISE, PARE_DNN_OP_POINTWISE_Y, PARE_DNN_T_DESCRIPTOR, 1, 1, true},
    {PARE_DNN_GRAPH, PARE_DNN_GRAPH_HANDLE, PARE_DNN_T_HANDLE, 1, 1, true},
    {PARE_DNN_GRAPH, PARE_DNN_GRAPH_OPS, PARE_DNN_T_DESCRIPTOR, 1, 8, true},
    {PARE_DNN_HEURISTICS, PARE_DNN_HEURISTICS_GRAPH, PARE_DNN_T_DESCRIPTOR, 1, 1, true},
    {PARE_DNN_HEURISTICS, PARE_DNN_HEURISTICS_MODE, PARE_DNN_T_HEURISTICS_MODE, 1, 1, true},
    {PARE_DNN_PLAN, PARE_DNN_PLAN_HANDLE, PARE_DNN_T_HANDLE, 1, 1, true},
    {PARE_DNN_PLAN, PARE_DNN_PLAN_CONFIG, PARE_DNN_T_DESCRIPTOR, 1, 1, true},
    {PARE_DNN_VARIANT_PACK, PARE_DNN_PACK_IDS, PARE_DNN_T_INT64, 1, 16, true},
    {PARE_DNN_VARIANT_PACK, PARE_DNN_PACK_POINTERS, PARE_DNN_T_POINTER, 1, 16, true},
    {PARE_DNN_VARIANT_PACK, PARE_DNN_PACK_WORKSPACE, PARE_DNN_T_POINTER, 1, 1, true},
};

bool is_convolution(int type)
{
    return type >= PARE_DNN_OP_FORWARD && type <= PARE_DNN_OP_BACKWARD_DATA;
}

static int base_of(int type)
{
    return type == PARE_DNN_OP_FORWARD         ? PARE_DNN_FORWARD
           : type == PARE_DNN_OP_BACKWARD_DATA ? PARE_DNN_BACKWARD_DATA
                                               : PARE_DNN_BACKWARD_FILTER;
}

// Those of convolutions have other numbers for each direction.
std::vector<dnn_rule> rules_of(int type)
{
    std::vector<dnn_rule> out;
    for (const dnn_rule &r : rules)
        if (r.descriptor == type) out.push_back(r);
    for (int i = PARE_DNN_OF_ALPHA; is_convolution(type) && i <= PARE_DNN_OF_Y; i++)
        out.push_back({type, base_of(type) + i,
                       i <= PARE_DNN_OF_BETA ? PARE_DNN_T_FLOAT : PARE_DNN_T_DESCRIPTOR, 1, 1,
                       true});
    return out;
}

size_t element_bytes(int type)
{
    switch (type) {
    case PARE_DNN_T_BOOL:
    case PARE_DNN_T_CHAR: return 1;
    case PARE_DNN_T_HANDLE:
    case PARE_DNN_T_INT64:
    case PARE_DNN_T_DOUBLE:
    case PARE_DNN_T_POINTER:
    case PARE_DNN_T_DESCRIPTOR: return 8;
    default: return 4;
    }
}

// --- finalize ---

static dnn_tensor tensor_of(const descriptor &d)
{
    const std::vector<char> is_virtual = values<char>(d, PARE_DNN_TENSOR_VIRTUAL);
    return {
        value<int>(d, PARE_DNN_TENSOR_TYPE),          value<int64_t>(d, PARE_DNN_TENSOR_ID),
        value<int64_t>(d, PARE_DNN_TENSOR_ALIGNMENT), !is_virtual.empty() && is_virtual[0],
        values<int64_t>(d, PARE_DNN_TENSOR_DIMS),     values<int64_t>(d, PARE_DNN_TENSOR_STRIDES)};
}

static int tensor_end(const descriptor &d)
{
    const dnn_tensor t = tensor_of(d);
    if (t.dim.size() != t.stride.size()) return no(PARE_DNN_BAD_PARAM, "as many strides as axes");
    for (size_t i = 0; i < t.dim.size(); i++)
        if (t.dim[i] < 1 || t.stride[i] < 1) return no(PARE_DNN_BAD_PARAM, "an axis of 0 elements");
    if (!dnn_type_bytes(t.type)) return no(PARE_DNN_NOT_SUPPORTED, "a type that is not modelled");
    if (t.aligned < 1 || t.aligned & (t.aligned - 1) ||
        t.aligned < static_cast<int64_t>(dnn_type_bytes(t.type)))
        return no(PARE_DNN_BAD_PARAM, "an alignment that is no power of two, or too small");
    return PARE_DNN_SUCCESS;
}

static dnn_window window_of(const descriptor &d)
{
    return {value<int>(d, PARE_DNN_CONVOLUTION_COMPUTE),
            values<int64_t>(d, PARE_DNN_CONVOLUTION_PRE_PADDINGS),
            values<int64_t>(d, PARE_DNN_CONVOLUTION_POST_PADDINGS),
            values<int64_t>(d, PARE_DNN_CONVOLUTION_STRIDES),
            values<int64_t>(d, PARE_DNN_CONVOLUTION_DILATIONS)};
}

static int window_end(const descriptor &d)
{
    const dnn_window w = window_of(d);
    const size_t axes = static_cast<size_t>(value<int64_t>(d, PARE_DNN_CONVOLUTION_AXES));
    if (w.begin.size() != axes || w.end.size() != axes || w.stride.size() != axes ||
        w.dilation.size() != axes)
        return no(PARE_DNN_BAD_PARAM, "as many paddings, strides and dilations as axes");
    for (size_t i = 0; i < axes; i++)
        if (w.begin[i] < 0 || w.end[i] < 0 || w.stride[i] < 1 || w.dilation[i] < 1)
            return no(PARE_DNN_BAD_PARAM, "a padding, stride or dilation out of range");
    if (value<int>(d, PARE_DNN_CONVOLUTION_MODE) != PARE_DNN_CROSS_CORRELATION)
        return no(PARE_DNN_NOT_SUPPORTED, "turned filters are not modelled");
    return PARE_DNN_SUCCESS;
}

static int convolution_end(descriptor *d)
{
    const int base = base_of(d->type);
    const descriptor *w = part(*d, base + PARE_DNN_OF_W, PARE_DNN_TENSOR),
                     *x = part(*d, base + PARE_DNN_OF_X, PARE_DNN_TENSOR),
                     *y = part(*d, base + PARE_DNN_OF_Y, PARE_DNN_TENSOR),
                     *v = part(*d, base + PARE_DNN_OF_CONVOLUTION, PARE_DNN_CONVOLUTION);
    if (!w || !x || !y || !v) return no(PARE_DNN_NOT_FINALIZED, "a part is not finalized");
    if (value<float>(*d, base + PARE_DNN_OF_ALPHA) != 1 ||
        value<float>(*d, base + PARE_DNN_OF_BETA) != 0)
        return no(PARE_DNN_NOT_SUPPORTED, "factors are not modelled");
    dnn_work &g = d->work;
    g.kind = d->type;
    g.x = tensor_of(*x), g.w = tensor_of(*w), g.y = tensor_of(*y), g.window = window_of(*v);
    const bool whole = g.x.type == PARE_DNN_S8;
    const dnn_tensor &first = g.kind == PARE_DNN_OP_BACKWARD_DATA ? g.y : g.x,
                     &second = g.kind == PARE_DNN_OP_BACKWARD_FILTER ? g.y : g.w;
    if (first.type != second.type || first.is_virtual || second.is_virtual)
        return no(PARE_DNN_BAD_PARAM, "both factors are of one type, and in memory");
    if (g.window.compute != (whole ? PARE_DNN_S32 : PARE_DNN_F32))
        return no(PARE_DNN_NOT_SUPPORTED, "sums of floats are f32, of s8 s32");
    const char *fault = dnn_shape_fault(g);
    return fault ? no(PARE_DNN_BAD_PARAM, fault) : PARE_DNN_SUCCESS;
}

static int pointwise_end(const descriptor &d)
{
    const descriptor *of = part(d, PARE_DNN_OP_POINTWISE_OF, PARE_DNN_POINTWISE),
                     *x = part(d, PARE_DNN_OP_POINTWISE_X, PARE_DNN_TENSOR),
                     *y = part(d, PARE_DNN_OP_POINTWISE_Y, PARE_DNN_TENSOR),
                     *b = part(d, PARE_DNN_OP_POINTWISE_B, PARE_DNN_TENSOR);
    if (!of || !x || !y || (!b && d.set.count(PARE_DNN_OP_POINTWISE_B)))
        return no(PARE_DNN_NOT_FINALIZED, "a part is not finalized");
    const int mode = value<int>(*of, PARE_DNN_POINTWISE_MODE);
    if (mode != PARE_DNN_POINTWISE_ADD && mode != PARE_DNN_POINTWISE_RELU)
        return no(PARE_DNN_NOT_SUPPORTED, "a pointwise operation that is not modelled");
    if ((mode == PARE_DNN_POINTWISE_ADD) != !!b)
        return no(PARE_DNN_BAD_PARAM, "an addition has a second operand, ReLU none");
    if (tensor_of(*x).dim != tensor_of(*y).dim)
        return no(PARE_DNN_BAD_PARAM, "X and Y have other dimensions");
    for (size_t i = 0; b && i < tensor_of(*b).dim.size(); i++)
        if (tensor_of(*b).dim[i] != 1 && tensor_of(*b).dim[i] != tensor_of(*x).dim[i])
            return no(PARE_DNN_BAD_PARAM, "B does not go into X");
    return PARE_DNN_SUCCESS;
}

static int graph_memory(descriptor *d, const dnn_tensor &t)
{
    if (t.is_virtual) return PARE_DNN_SUCCESS;
    if (!d->names.insert(t.id).second) return no(PARE_DNN_BAD_PARAM, "two tensors of one name");
    d->in_memory.push_back(t);
    return PARE_DNN_SUCCESS;
}

// A step that reads what the one before it made, which is nowhere else.
static int step_add(descriptor *d, const descriptor &op)
{
    const descriptor *of = part(op, PARE_DNN_OP_POINTWISE_OF, PARE_DNN_POINTWISE),
                     *b = part(op, PARE_DNN_OP_POINTWISE_B, PARE_DNN_TENSOR);
    const dnn_tensor x = tensor_of(*part(op, PARE_DNN_OP_POINTWISE_X, PARE_DNN_TENSOR)),
                     y = tensor_of(*part(op, PARE_DNN_OP_POINTWISE_Y, PARE_DNN_TENSOR));
    if (!x.is_virtual || x.id != d->work.out.id || y.id == x.id)
        return no(PARE_DNN_BAD_PARAM, "steps follow each other");
    const dnn_pointwise p = {value<int>(*of, PARE_DNN_POINTWISE_MODE),
                             value<int>(*of, PARE_DNN_POINTWISE_NAN) == PARE_DNN_PROPAGATE_NAN,
                             of->set.count(PARE_DNN_POINTWISE_LOWER) != 0,
                             of->set.count(PARE_DNN_POINTWISE_UPPER) != 0,
                             value<double>(*of, PARE_DNN_POINTWISE_LOWER),
                             value<double>(*of, PARE_DNN_POINTWISE_UPPER)};
    d->work.steps.push_back({p, b ? tensor_of(*b) : dnn_tensor{}});
    d->work.out = y;
    return b ? graph_memory(d, tensor_of(*b)) : PARE_DNN_SUCCESS;
}

static int graph_end(descriptor *d)
{
    if (!handles().count(value<dnn_handle *>(*d, PARE_DNN_GRAPH_HANDLE)))
        return no(PARE_DNN_BAD_PARAM, "the handle was destroyed, or never was");
    const std::vector<void *> ops = values<void *>(*d, PARE_DNN_GRAPH_OPS);
    for (void *p : ops) {
        descriptor *op = known(p);
        if (!op || !op->finalized)
            return no(PARE_DNN_NOT_FINALIZED, "an operation is not finalized");
        d->needs.push_back(op);
        for (auto &a : op->set)
            for (size_t i = 0; i + 8 <= a.second.bytes.size(); i += 8) {
                void *q;
                memcpy(&q, a.second.bytes.data() + i, sizeof q);
                if (known(q)) d->needs.push_back(known(q));
            }
    }
    if (!is_convolution(d->needs[0]->type))
        return no(PARE_DNN_NOT_SUPPORTED, "graphs begin with a convolution");
    d->work = d->needs[0]->work;
    d->work.out = d->work.y;
    for (size_t i = 1; i < ops.size(); i++) {
        if (known(ops[i])->type != PARE_DNN_OP_POINTWISE || d->work.kind != PARE_DNN_OP_FORWARD)
            return no(PARE_DNN_NOT_SUPPORTED, "only a forward convolution has steps behind it");
        if (int status = step_add(d, *known(ops[i]))) return status;
    }
    const dnn_work &g = d->work;
    const dnn_tensor &y = g.kind == PARE_DNN_OP_FORWARD ? g.out : g.y;
    if (y.is_virtual || g.x.is_virtual || g.w.is_virtual)
        return no(PARE_DNN_BAD_PARAM, "what is read or made is not in memory");
    for (const dnn_tensor *t : {&g.x, &g.w, &y})
        if (int status = graph_memory(d, *t)) return status;
    return PARE_DNN_SUCCESS;
}

static int finalized_part(descriptor *d, int name, int type)
{
    descriptor *p = part(*d, name, type);
    if (!p) return no(PARE_DNN_NOT_FINALIZED, "a part is not finalized");
    d->needs = p->needs;
    d->needs.push_back(p);
    d->work = p->work, d->names = p->names, d->in_memory = p->in_memory, d->config = p->config;
    return PARE_DNN_SUCCESS;
}

static int plan_end(descriptor *d)
{
    if (capture_forbids() != cudaSuccess)
        return no(PARE_DNN_EXECUTION_FAILED, "plans are not made while a stream records");
    if (!handles().count(value<dnn_handle *>(*d, PARE_DNN_PLAN_HANDLE)))
        return no(PARE_DNN_BAD_PARAM, "the handle was destroyed, or never was");
    return finalized_part(d, PARE_DNN_PLAN_CONFIG, PARE_DNN_ENGINE_CONFIG);
}

static int pack_end(const descriptor &d)
{
    const std::vector<int64_t> ids = values<int64_t>(d, PARE_DNN_PACK_IDS);
    if (ids.size() != values<void *>(d, PARE_DNN_PACK_POINTERS).size() ||
        std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size())
        return no(PARE_DNN_BAD_PARAM, "as many names as addresses, each once");
    return PARE_DNN_SUCCESS;
}

int end_of(descriptor *d)
{
    switch (d->type) {
    case PARE_DNN_TENSOR: return tensor_end(*d);
    case PARE_DNN_CONVOLUTION: return window_end(*d);
    case PARE_DNN_POINTWISE: return PARE_DNN_SUCCESS;
    case PARE_DNN_OP_POINTWISE: return pointwise_end(*d);
    case PARE_DNN_GRAPH: return graph_end(d);
    case PARE_DNN_HEURISTICS: return finalized_part(d, PARE_DNN_HEURISTICS_GRAPH, PARE_DNN_GRAPH);
    case PARE_DNN_PLAN: return plan_end(d);
    case PARE_DNN_VARIANT_PACK: return pack_end(*d);
    default:
        return is_convolution(d->type) ? convolution_end(d)
                                       : no(PARE_DNN_BAD_PARAM, "configs come of heuristics");
    }
}

} // namespace dnn
} // namespace simt
