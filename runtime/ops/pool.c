/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of MaxPool, AveragePool, LpPool, their global forms, and LRN. */
#include "runtime/ops/infer.h"
#include "runtime/ops/window.h"

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
    pare_infer_out(node, 0, x->dtype, &y);
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
