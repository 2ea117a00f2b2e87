/* SPDX-License-Identifier: Apache-2.0 */
/* Cast, CastLike: type of the output, gradient. */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

pare_status pare_infer_cast(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    int64_t to = pare_node_int(node, "to", 0);
    if (to <= 0 || to >= PARE_DTYPE_COUNT)
        return PARE_FAIL_NODE(node, INPUT, "attribute 'to' must name a type");
    pare_infer_out(node, 0, (pare_dtype)to, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_cast_like(pare_node *node)
{
    pare_value *x, *like;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &like));
    pare_infer_out(node, 0, like->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_grad_cast(pare_grad *g, const pare_node *node)
{
    pare_node *made =
        pare_grad_begin(g, "Cast", (pare_value *[]){pare_grad_of(g, node->out[0])}, 1, 1);
    pare_grad_int(g, made, "to", (int64_t)node->in[0]->dtype);
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}
