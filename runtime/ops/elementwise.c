/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of operators that work element by element. */
#include "runtime/ops/infer.h"

pare_status pare_infer_same(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    return PARE_OK;
}
