/* SPDX-License-Identifier: Apache-2.0 */
/* SliceSum (X...) -> (Y...): where microbatches run side by side (pare_replicas), Y is the sum of X
   over all of them, the same in each; in a plain run it is X. f32 or f64, any shapes. */
#include "runtime/ops/grad.h"

pare_status pare_infer_slice_sum(pare_node *node)
{
    if (node->out_count > node->in_count)
        return PARE_FAIL_NODE(node, INPUT, "it has %d inputs and %d outputs, expected as many",
                              node->in_count, node->out_count);
    for (int i = 0; i < node->out_count; i++) {
        pare_value *x;
        PARE_TRY(pare_infer_need(node, i, &x));
        if (x->dtype != PARE_NOTYPE && x->dtype != PARE_f32 && x->dtype != PARE_f64)
            return PARE_FAIL_NODE(node, INPUT, "its input %d has type %s, expected f32 or f64", i,
                                  pare_type(x->dtype)->name);
        pare_infer_out(node, i, x->dtype, &x->shape);
    }
    return PARE_OK;
}

/* Every slice's loss depends on each slice's X by way of the one sum: dX = SliceSum(dY), of the sum
   of all slices' losses. */
pare_status pare_grad_slice_sum(pare_grad *g, const pare_node *node)
{
    for (int i = 0; i < node->out_count; i++) {
        pare_value *dy = pare_grad_of(g, node->out[i]);
        if (dy) pare_grad_give(g, node->in[i], PARE_EMIT(g, "SliceSum", dy));
    }
    return g->status;
}
