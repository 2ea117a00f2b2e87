/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and LRN: shapes, gradients, prune rules. The gradient rules emit
     MaxPoolGrad (dY, X) -> dX       attributes of the MaxPool, `shape` of X; the first maximum
     AveragePoolGrad (dY) -> dX      attributes of the AveragePool, `shape` of X */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/prune_bind.h"
#include "runtime/ops/reduce.h"
#include "runtime/ops/window.h"

/* LpPool, GlobalLpPool (1): p is a float; (2): an int. */
pare_status pare_upgrade_lp_pool(pare_node *node, int64_t version)
{
    const pare_attr *p = pare_node_attr(node, "p");
    if (version >= 2 || !p || p->kind != PARE_ATTR_FLOAT) return PARE_OK;
    float f = pare_node_float(node, "p", 2);
    if (!(f >= 1 && f <= 1024 && f == (float)(int)f))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "p is %g, it must be a whole number from 1 on",
                              (double)f);
    return pare_node_set_int(node, "p", (int64_t)f);
}

/* Outputs: y, and (MaxPool) the indices. */
pare_status pare_infer_pool(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = pare_shape_unknown(-1);
    if (x->shape.rank >= 0) {
        pare_window window;
        PARE_TRY(pare_window_read(node, &x->shape, NULL, &window));
        y = x->shape;
        for (int i = 0; i < window.nd; i++) {
            y.dim[2 + i] = window.out[3 - window.nd + i];
            y.name[2 + i] = NULL;
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    pare_infer_out(node, 1, PARE_s64, &y);
    return PARE_OK;
}

/* [N, C, spatial] to [N, C, 1, ...]. */
pare_status pare_infer_global_pool(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = x->shape;
    if (y.rank >= 0 && y.rank < 2)
        return PARE_FAIL_NODE(node, INPUT, "its input has rank %d, expected N, C and spatial axes",
                              y.rank);
    for (int i = 2; i < y.rank; i++) {
        y.dim[i] = 1;
        y.name[i] = NULL;
    }
    pare_infer_out(node, 0, pare_reduce_output_type(node, x), &y);
    return PARE_OK;
}

pare_status pare_infer_lrn(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (pare_node_int(node, "size", 0) < 1)
        return PARE_FAIL_NODE(node, INPUT, "attribute size is missing or below 1");
    if (x->shape.rank >= 0 && x->shape.rank < 2)
        return PARE_FAIL_NODE(node, INPUT, "its input has rank %d, expected N, C and more axes",
                              x->shape.rank);
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_grad_max_pool(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0];
    if (!dy) return g->status; /* only the indices are read */
    pare_grad_give(g, x, pare_grad_windowed(g, node, "MaxPoolGrad", dy, x, &x->shape));
    return g->status;
}

pare_status pare_grad_average_pool(pare_grad *g, const pare_node *node)
{
    pare_value *dy = pare_grad_of(g, node->out[0]), *x = node->in[0];
    pare_grad_give(g, x, pare_grad_windowed(g, node, "AveragePoolGrad", dy, NULL, &x->shape));
    return g->status;
}

/* One window that is the whole image. */
static pare_status global_pool(pare_grad *g, const pare_node *node, const char *op, bool reads)
{
    pare_value *in[] = {pare_grad_of(g, node->out[0]), node->in[0]}, *x = node->in[0];
    pare_node *made = pare_grad_begin(g, op, in, reads ? 2 : 1, 1);
    pare_grad_int_list(g, made, "kernel_shape", x->shape.dim + 2, x->shape.rank - 2);
    pare_grad_shape(g, made, &x->shape);
    pare_grad_give(g, x, pare_grad_end(g, made));
    return g->status;
}

pare_status pare_grad_global_max_pool(pare_grad *g, const pare_node *node)
{
    return global_pool(g, node, "MaxPoolGrad", true);
}

pare_status pare_grad_global_average_pool(pare_grad *g, const pare_node *node)
{
    return global_pool(g, node, "AveragePoolGrad", false);
}

/* LRN (1 .. 13) sums over neighbouring channels. */
pare_status pare_prune_bind_lrn(const pare_node *node, const pare_prune_binder *binder)
{
    return pare_pass_beside(node, binder, 1);
}

/* Pools: samples and channels pass. Indices of MaxPool count through the whole tensor. */
pare_status pare_prune_bind_pool(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *x = node->in[0], *y = node->out[0];
    if (node->out_count > 1 && node->out[1])
        return pare_block_all(binder, node, "makes indices into the whole tensor");
    PARE_TRY(pare_bind_range(binder, node, x, 0, 2, y, 0));
    PARE_TRY(pare_block_from(binder, node, x, 2, "slides its window over it"));
    return pare_block_from(binder, node, y, 2, "slides its window over it");
}
