/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization while training (internal to distill/). */
#ifndef PARE_DISTILL_BATCHNORM_H
#define PARE_DISTILL_BATCHNORM_H

#include "runtime/graph/graph.h"

/* Is this input of the node a statistic (running mean or variance), which no gradient trains? */
bool pare_batchnorm_is_statistic(const pare_node *node, int input);

#endif
