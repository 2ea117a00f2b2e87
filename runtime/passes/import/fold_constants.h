/* SPDX-License-Identifier: Apache-2.0 */
/* Constant folding of one node; the inference pass walks the graph. */
#ifndef PARE_RUNTIME_PASSES_IMPORT_FOLD_CONSTANTS_H
#define PARE_RUNTIME_PASSES_IMPORT_FOLD_CONSTANTS_H

#include "runtime/passes/passes.h"

/* Where the node's results are known now, they become initializers, the node leaves the graph (and
   constants only it read), and *folded is true. Nodes that make a graph output stay;
   what reads their results reads new constants beside them. */
PARE_NODISCARD pare_status pare_fold_node(pare_node *node, const pare_infer_options *options,
                                          bool *folded);

#endif
