/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels of the GPU backend have PARE_KERNEL_PARTS (ops/kernel.h), by their operators: a
   build without CUDA has no table of them. A test compares what is copied with a plan's. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/ops/unary.h"

enum { ALIGN = 256 /* bytes of which a tensor of its own begins at a multiple */ };

/* Are all pixels equally far apart (conv.c, pare_cuda_places_fit)? */
static bool pixels_are_even(const pare_view *y)
{
    const int64_t pixel = y->rank > 0 ? y->stride[y->rank - 1] : 0;
    int64_t apart = pixel;
    for (int i = y->rank - 1; i >= 2; i--) {
        if (y->dim[i] > 1 && y->stride[i] != apart) return false;
        apart *= y->dim[i];
    }
    return y->rank < 3 || y->dim[0] == 1 || y->stride[0] == apart;
}

/* A residual must lie as the output does. */
static bool conv_takes(const pare_node *n, const pare_parts *parts)
{
    pare_view y, z;
    const pare_value *residual = pare_node_in(n, 3);
    if (!n->in[1] || !n->in[1]->data) return false;
    pare_parts_view(parts, n->out[0], &y);
    if (n->out[0]->nhwc && !pixels_are_even(&y)) return false;
    if (!residual) return true;
    pare_parts_view(parts, residual, &z);
    return pare_view_same_order(&y, &z);
}

static bool takes(void *user, const pare_node *n, const pare_parts *parts)
{
    (void)user;
    const pare_op *op = pare_op_of(n);
    switch (op ? (pare_op_id)(op - pare_ops) : PARE_OP_COUNT) {
    case PARE_OP_Conv:
    case PARE_OP_FusedConvPool:
    case PARE_OP_FusedDepthwisePointwise:
    case PARE_OP_FusedConv: return conv_takes(n, parts);
    case PARE_OP_GlobalAveragePool: return n->in[0]->nhwc;
    case PARE_OP_MaxPool: return n->out_count < 2 || !n->out[1];
    case PARE_OP_QuantizeLinear: return n->in[0]->nhwc == n->out[0]->nhwc;
    case PARE_OP_AveragePool:
    case PARE_OP_QAveragePool:
    case PARE_OP_QGlobalAveragePool:
    case PARE_OP_DequantizeLinear:
    case PARE_OP_Cast:
    case PARE_OP_Requantize:
    case PARE_OP_Table:
    case PARE_OP_Add:
    case PARE_OP_Sub:
    case PARE_OP_Mul:
    case PARE_OP_Div:
    case PARE_OP_PRelu:
    case PARE_OP_QAdd:
    case PARE_OP_QMul:
    case PARE_OP_Clip:
    case PARE_OP_BatchNormalization:
    case PARE_OP_Transpose:
    case PARE_OP_Concat:
    case PARE_OP_QConcat:
    case PARE_OP_Split:
    case PARE_OP_Slice:
    case PARE_OP_Expand:
    case PARE_OP_Tile:
    case PARE_OP_DepthToSpace:
    case PARE_OP_SpaceToDepth:
    case PARE_OP_Reorder: return true;
    case PARE_OP_Resize: return !strcmp(pare_node_string(n, "mode", "nearest"), "nearest");
    default: return pare_unary_of(n) < PARE_UNARY_COUNT;
    }
}

pare_status pare_roofline_parts(pare_ctx *ctx, pare_parts *out, pare_arena *arena,
                                const pare_graph *graph)
{
    const pare_parts_rules rules = {.align = ALIGN, .takes = takes};
    return pare_parts_choose(ctx, out, arena, graph, &rules);
}
