/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons, logic and tests: bool outputs. */
#include "runtime/ops/infer.h"

pare_status pare_infer_compare(pare_node *node)
{
    return pare_infer_broadcast_to(node, PARE_bool, true);
}

pare_status pare_infer_test(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_infer_out(node, 0, PARE_bool, &x->shape);
    return PARE_OK;
}
