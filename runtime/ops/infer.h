/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers that shape rules share. */
#ifndef PARE_RUNTIME_OPS_INFER_H
#define PARE_RUNTIME_OPS_INFER_H

#include "runtime/ops/ops.h"

/* Sets output i (if the node has it); its name and place in the graph stay. */
void pare_infer_out(pare_node *node, int i, pare_dtype dtype, const pare_shape *shape);

/* Fails where input i is absent; *out is the input. */
pare_status pare_infer_need(const pare_node *node, int i, pare_value **out);

#endif
