/* SPDX-License-Identifier: Apache-2.0 */
/* What a node is to a pass that trains, where no column of the table says it. */
#include "runtime/ops/ops.h"

#include <string.h>

const pare_tensor *pare_node_constant(const pare_node *node)
{
    const pare_attr *a = pare_node_is(node, "Constant") ? pare_node_attr(node, "value") : NULL;
    return a && a->kind == PARE_ATTR_TENSOR ? a->tensor : NULL;
}

pare_value *pare_node_copied(const pare_node *node)
{
    return pare_node_is(node, "Identity") ? node->in[0] : NULL;
}

bool pare_node_is_softmax(const pare_node *node) { return pare_node_is(node, "Softmax"); }

bool pare_node_reads_statistic(const pare_node *node, int input)
{
    return pare_node_is(node, "BatchNormalization") && (input == 3 || input == 4);
}

bool pare_node_is_qdq(const pare_node *node)
{
    return !strcmp(node->op_type, "QuantizeLinear") || !strcmp(node->op_type, "DequantizeLinear");
}
