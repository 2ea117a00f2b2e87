/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/batchnorm.h"

bool pare_batchnorm_is_statistic(const pare_node *node, int input)
{
    return pare_node_is(node, "BatchNormalization") && (input == 3 || input == 4);
}
