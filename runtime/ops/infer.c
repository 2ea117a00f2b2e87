/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/infer.h"

void pare_infer_out(pare_node *node, int i, pare_dtype dtype, const pare_shape *shape)
{
    if (i >= node->out_count || !node->out[i]) return;
    node->out[i]->dtype = dtype;
    node->out[i]->shape = *shape;
}

pare_status pare_infer_need(const pare_node *node, int i, pare_value **out)
{
    *out = pare_node_in(node, i);
    return *out ? PARE_OK : PARE_FAIL_NODE(node, INPUT, "input %d is missing", i);
}
