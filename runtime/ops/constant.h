/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_OPS_CONSTANT_H
#define PARE_RUNTIME_OPS_CONSTANT_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tensor a Constant makes (any of its attributes), or the one element a ConstantOfShape
   repeats; borrowed from the node where it holds one, else made in arena. PARE_UNSUPPORTED: a
   sparse one. */
PARE_NODISCARD pare_status pare_constant_tensor(const pare_node *node, pare_arena *arena,
                                                const pare_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
