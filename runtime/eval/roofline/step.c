/* SPDX-License-Identifier: Apache-2.0 */
/* From a node of the compiled graph to its time. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The CUDA column of ops.inc as words, which a build without CUDA has, too; "none": the host
   computes the node. */
static const char *const kernel_of[PARE_OP_COUNT] = {
#define PARE_OP(op, dom, first, last, layout, up, infer, cpu, cuda, grad, quant, prune)            \
    [PARE_OP_##op] = #cuda,
#include "runtime/ops/ops.inc"
#undef PARE_OP
};

/* Kernels whose time is not that of one pass over their tensors. */
static bool is_unknown(pare_op_id op)
{
    switch (op) {
    case PARE_OP_GRU:
    case PARE_OP_LSTM:
    case PARE_OP_RNN:
    case PARE_OP_TopK:
    case PARE_OP_CumSum:
    case PARE_OP_LRN: return true;
    default: return false;
    }
}

static bool view_of(const pare_value *v, pare_view *out)
{
    *out = (pare_view){0};
    if (!v) return true;
    if (!pare_shape_known(&v->shape) || !pare_type(v->dtype)->bits ||
        pare_shape_count(&v->shape) < 0)
        return false;
    pare_view_set(out, v->dtype, &v->shape, v->nhwc && !v->data);
    out->data = v->data ? (void *)v->data->data : NULL;
    return true;
}

/* *known: all shapes are. Those that are not have views without a type. */
static pare_status prep_of(const pare_roofline_maker *m, const pare_node *node, pare_prep *out,
                           bool *known)
{
    pare_view *in = pare_arena_alloc(m->arena, (size_t)node->in_count + 1, sizeof *in);
    pare_view *to = pare_arena_alloc(m->arena, (size_t)node->out_count + 1, sizeof *to);
    if (!in || !to) return PARE_MEMORY;
    *known = true;
    for (int i = 0; i < node->in_count; i++) *known = view_of(node->in[i], &in[i]) && *known;
    for (int i = 0; i < node->out_count; i++) *known = view_of(node->out[i], &to[i]) && *known;
    *out = (pare_prep){.ctx = m->ctx,
                       .node = node,
                       .in = in,
                       .out = to,
                       .in_count = node->in_count,
                       .out_count = node->out_count,
                       .threads = 1,
                       .arena = m->arena,
                       .share = -1};
    return PARE_OK;
}

double pare_prep_bytes(const pare_prep *prep)
{
    double bytes = 0;
    for (int i = 0; i < prep->in_count; i++)
        if (prep->in[i].dtype) bytes += (double)pare_view_bytes(&prep->in[i]);
    for (int i = 0; i < prep->out_count; i++)
        if (prep->out[i].dtype) bytes += (double)pare_view_bytes(&prep->out[i]);
    return bytes;
}

/* What a kernel that takes parts of its first input reads and writes: the parts; a Concat what is
   not where it belongs already. */
static double moved_bytes(const pare_roofline_maker *m, const pare_prep *prep, pare_op_id op)
{
    const bool parts =
        op == PARE_OP_Gather || op == PARE_OP_GatherElements || op == PARE_OP_GatherND;
    double bytes = pare_prep_bytes(prep);
    bytes -= 2 * (double)pare_parts_joined_bytes(m->parts, prep->node);
    if (op == PARE_OP_Slice && prep->out[0].dtype) /* bounds are the host's */
        return 2 * (double)pare_view_bytes(&prep->out[0]);
    if (parts && prep->out[0].dtype)
        bytes += (double)pare_view_bytes(&prep->out[0]) - (double)pare_view_bytes(&prep->in[0]);
    return bytes;
}

/* Down to the host, and up again. */
static void host_predict(const pare_roofline_maker *m, const pare_prep *prep,
                         pare_roofline_step *out)
{
    out->bytes = pare_prep_bytes(prep);
    out->bound = PARE_BOUND_HOST;
    out->seconds = out->bytes / m->spec->host;
    snprintf(out->kernel, sizeof out->kernel, m->late ? "interpreter" : "host");
}

static bool is_product(pare_op_id op)
{
    return op == PARE_OP_MatMul || op == PARE_OP_Gemm || op == PARE_OP_FusedMatMul;
}

/* May its weights be computed, beside an f32 bias at most? */
static bool is_trained(const pare_prep *prep, pare_op_id op)
{
    return op == PARE_OP_Conv ||
           (!prep->in[1].data && prep->in_count < 4 && !pare_node_attr(prep->node, "activation"));
}

/* With constant weights, or computed ones. */
static pare_status conv_predict(const pare_roofline_maker *m, const pare_prep *prep, pare_op_id op,
                                pare_roofline_step *out, bool *read)
{
    const pare_status st = pare_conv_predict(m, prep, out, read);
    if (*read || st == PARE_MEMORY || !is_trained(prep, op)) return st;
    pare_ctx_clear(m->ctx);
    *read = pare_conv_train_predict(m, prep, PARE_OP_Conv, out);
    return PARE_OK;
}

/* What a kernel's own model says; out->known stays false where there is none. */
static pare_status kernel_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                  pare_op_id op, pare_roofline_step *out)
{
    bool read = true;
    pare_status st = PARE_OK;
    if (op == PARE_OP_Conv || op == PARE_OP_FusedConv)
        st = conv_predict(m, prep, op, out, &read);
    else if (op == PARE_OP_FusedConvPool)
        st = pare_conv_pool_predict(m, prep, out, &read);
    else if (op == PARE_OP_FusedDepthwisePointwise)
        st = pare_depthwise_pointwise_predict(m, prep, out, &read);
    else if (is_product(op))
        st = pare_matmul_predict(m, prep, out, &read);
    else if (op == PARE_OP_FusedAttention)
        pare_attention_predict(m, prep, out);
    else if (op == PARE_OP_QAttention)
        pare_q_attention_predict(m, prep, out, &read);
    else if (op == PARE_OP_ConvGradInput || op == PARE_OP_ConvGradWeight ||
             op == PARE_OP_ConvTranspose)
        read = pare_conv_train_predict(m, prep, op, out);
    else if (!is_unknown(op)) {
        pare_bytes_add(m->spec, moved_bytes(m, prep, op), out);
        snprintf(out->kernel, sizeof out->kernel, "%s", kernel_of[op]);
        out->known = true;
    }
    if (st == PARE_MEMORY || read) return st;
    pare_ctx_clear(m->ctx); /* it cannot be read: the model of time does not know it */
    return PARE_OK;
}

static void name_step(const pare_node *node, pare_roofline_step *out)
{
    const pare_value *y = node->out_count ? node->out[0] : NULL;
    *out = (pare_roofline_step){.node = node->name,
                                .op_type = node->op_type,
                                .output = y ? y->name : "",
                                .dtype = y ? y->dtype : PARE_NOTYPE,
                                .macs = fmax(0, pare_node_macs(node))};
}

pare_status pare_step_predict(const pare_roofline_maker *m, const pare_node *node,
                              pare_roofline_step *out)
{
    pare_prep prep;
    bool shapes;
    const pare_op *op = pare_op_of(node);
    name_step(node, out);
    PARE_TRY(prep_of(m, node, &prep, &shapes));
    if (m->late || (op && shapes && !strcmp(kernel_of[op - pare_ops], "none")))
        host_predict(m, &prep, out);
    else if (op && shapes)
        PARE_TRY(kernel_predict(m, &prep, (pare_op_id)(op - pare_ops), out));
    if (out->kernel[0]) return PARE_OK;
    pare_bytes_add(m->spec, pare_prep_bytes(&prep), out);
    snprintf(out->kernel, sizeof out->kernel, "unknown");
    return PARE_OK;
}
