/* SPDX-License-Identifier: Apache-2.0 */
/* Det (11, 22): [..., M, M] to [...]. */
#include "runtime/ops/infer.h"

pare_status pare_infer_det(pare_node *node)
{
    pare_value *x;
    char text[128];
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = x->shape;
    if (y.rank >= 0) {
        const int64_t m = y.rank > 1 ? y.dim[y.rank - 2] : -1,
                      n = y.rank > 1 ? y.dim[y.rank - 1] : 0;
        if (y.rank < 2 || (m >= 0 && n >= 0 && m != n))
            return PARE_FAIL_NODE(node, INPUT, "'%s' has shape %s, expected [...,M,M]", x->name,
                                  pare_shape_text(&y, text, sizeof text));
        y.rank -= 2;
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}
