/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/ops/prune_bind.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

/* clang-format off */
/* The words of the quant and prune columns. */
#define QUANT_NONE {PARE_QUANT_NONE, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_WEIGHTED(fn) {PARE_QUANT_WEIGHTED, pare_weighted_##fn, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_OWN {PARE_QUANT_OWN, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_FIXED(low, high) {PARE_QUANT_FIXED, NULL, low, high, PARE_LOWP_YES, 0}
#define QUANT_PASS {PARE_QUANT_PASS, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_JOIN {PARE_QUANT_JOIN, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_CLAMP {PARE_QUANT_CLAMP, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_SUM {PARE_QUANT_SUM, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_PRODUCT {PARE_QUANT_PRODUCT, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_MEAN {PARE_QUANT_MEAN, NULL, 0, 0, PARE_LOWP_REDUCES, 0}
#define QUANT_WEIGHT_ONLY {PARE_QUANT_WEIGHT_ONLY, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_INTEGER {PARE_QUANT_INTEGER, NULL, 0, 0, PARE_LOWP_YES, 0}
#define QUANT_REDUCES {PARE_QUANT_NONE, NULL, 0, 0, PARE_LOWP_REDUCES, 0}
#define QUANT_STAYS_F32 {PARE_QUANT_NONE, NULL, 0, 0, PARE_LOWP_NEVER, 0}
#define QUANT_STAYS_F32_INPUTS(mask) {PARE_QUANT_NONE, NULL, 0, 0, PARE_LOWP_NEVER, mask}
#define QUANT_CASTS {PARE_QUANT_NONE, NULL, 0, 0, PARE_LOWP_CAST, 0}
#define QUANT_PASS_F32_INPUTS(mask) {PARE_QUANT_PASS, NULL, 0, 0, PARE_LOWP_YES, mask}
#define PRUNE_STOPS {PARE_PRUNE_STOPS, pare_prune_bind_stops, pare_prune_cut_none}
#define PRUNE_TIES {PARE_PRUNE_TIES, pare_prune_bind_ties, pare_prune_cut_none}
#define PRUNE_MAKES(bind, cut) {PARE_PRUNE_MAKES, pare_prune_bind_##bind, pare_prune_cut_##cut}
#define PRUNE_JOINS(bind, cut) {PARE_PRUNE_JOINS, pare_prune_bind_##bind, pare_prune_cut_##cut}
#define PRUNE_PASS {PARE_PRUNE_PASS, pare_prune_bind_same, pare_prune_cut_none}
#define PRUNE_MAPS(bind, cut) {PARE_PRUNE_PASS, pare_prune_bind_##bind, pare_prune_cut_##cut}
#define PRUNE_WORKS(bind, cut) {PARE_PRUNE_WORKS, pare_prune_bind_##bind, pare_prune_cut_##cut}
/* clang-format on */

#if defined PARE_CUDA && PARE_CUDA
#define CUDA_COLUMN(list) pare_cuda_##list
#else
#define CUDA_COLUMN(list) pare_cuda_none /* a build without CUDA */
#endif

const pare_op pare_ops[PARE_OP_COUNT] = {
#define PARE_OP(op, dom, first, last, layout, up, infer, cpu, cuda, grad, quant, prune)            \
    [PARE_OP_##op] = {#op,                                                                         \
                      dom,                                                                         \
                      first,                                                                       \
                      last,                                                                        \
                      PARE_##layout,                                                               \
                      pare_upgrade_##up,                                                           \
                      pare_infer_##infer,                                                          \
                      pare_cpu_##cpu,                                                              \
                      CUDA_COLUMN(cuda),                                                           \
                      pare_grad_##grad,                                                            \
                      QUANT_##quant,                                                               \
                      PRUNE_##prune},
#include "runtime/ops/ops.inc"
#undef PARE_OP
};

const pare_kernel *const pare_cpu_none[] = {NULL};
const pare_kernel *const pare_cuda_none[] = {NULL};

pare_status pare_upgrade_none(pare_node *node, int64_t version)
{
    (void)node, (void)version;
    return PARE_OK;
}

pare_status pare_grad_none(pare_grad *grad, const pare_node *node)
{
    (void)grad;
    return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule");
}

/* Rows by name: open addressing, filled at the first search. A net of 10,000 nodes searches a
   million times while it is planned. */
enum { SLOTS = 2048 };
static_assert(2 * PARE_OP_COUNT <= SLOTS, "half of the slots stay free");
static const pare_op *slot_of[SLOTS];

static unsigned slot_at(const char *op_type)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = op_type; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (hash ^ hash >> 16) % SLOTS;
}

static void fill_slots(void)
{
    for (int i = 0; i < PARE_OP_COUNT; i++) {
        unsigned at = slot_at(pare_ops[i].name);
        while (slot_of[at]) at = (at + 1) % SLOTS;
        slot_of[at] = &pare_ops[i];
    }
}

const pare_op *pare_op_find(const char *domain, const char *op_type)
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    pthread_once(&filled, fill_slots);
    for (unsigned at = slot_at(op_type); slot_of[at]; at = (at + 1) % SLOTS)
        if (!strcmp(slot_of[at]->name, op_type) && !strcmp(slot_of[at]->domain, domain))
            return slot_of[at];
    return NULL;
}

const pare_op *pare_op_of(const pare_node *node)
{
    return pare_op_find(node->domain, node->op_type);
}

bool pare_op_is_alias(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    return op && op->cpu[0] && op->cpu[0]->flags & PARE_KERNEL_ALIAS;
}

const pare_quant_role *pare_quant_role_of(const pare_node *node)
{
    const pare_op *op = node ? pare_op_of(node) : NULL;
    return op ? &op->quant : NULL;
}

pare_quant_kind pare_quant_kind_of(const pare_node *node)
{
    const pare_quant_role *role = pare_quant_role_of(node);
    if (node && pare_node_drops(node)) return PARE_QUANT_NONE; /* what it keeps, it scales */
    return role ? role->kind : PARE_QUANT_NONE;
}

/* What a node is to a pass that trains, where no column of the table says it. */

const pare_tensor *pare_node_constant(const pare_node *node)
{
    const pare_attr *a = pare_node_is(node, "Constant") ? pare_node_attr(node, "value") : NULL;
    return a && a->kind == PARE_ATTR_TENSOR ? a->tensor : NULL;
}

pare_value *pare_node_copied(const pare_node *node)
{
    return pare_node_is(node, "Identity") ? node->in[0] : NULL;
}

bool pare_node_is_softmax(const pare_node *node) { return pare_node_is(node, "Softmax"); }

bool pare_node_reads_statistic(const pare_node *node, int input)
{
    return pare_node_is(node, "BatchNormalization") && (input == 3 || input == 4);
}

bool pare_node_is_qdq(const pare_node *node)
{
    return !strcmp(node->op_type, "QuantizeLinear") || !strcmp(node->op_type, "DequantizeLinear");
}

/* Operators that ONNX redefined after the newest version of their row, and the opset that did, up
   to opset 28. Types of tensors that we do not read are no change. */
static const struct {
    const char *name;
    int opset;
} redefined[] = {
    {"Upsample", 10},     {"Range", 27},           {"Mod", 28},          {"Celu", 28},
    {"ReduceLogSum", 28}, {"ReduceLogSumExp", 28}, {"SpaceToDepth", 28},
};

bool pare_op_covers(const pare_op *op, int64_t opset)
{
    if (opset < op->first) return false;
    for (size_t i = 0; i < sizeof redefined / sizeof *redefined; i++)
        if (opset >= redefined[i].opset && op->last < redefined[i].opset &&
            !strcmp(op->name, redefined[i].name) && !op->domain[0])
            return false;
    return true;
}

pare_status pare_device_copy(pare_ctx *ctx, pare_device *device, void **out, const void *data,
                             size_t bytes)
{
    const pare_backend *b = device->backend;
    void *memory;
    PARE_TRY(b->alloc(ctx, device, &memory, bytes));
    pare_status st = b->upload(ctx, device->setup, memory, data, bytes);
    if (st == PARE_OK) st = b->sync(ctx, device->setup);
    if (st != PARE_OK) {
        b->free(device, memory);
        return st;
    }
    *out = memory;
    return PARE_OK;
}
