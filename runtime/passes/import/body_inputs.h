/* SPDX-License-Identifier: Apache-2.0 */
/* Types and shapes of the inputs of Loop's and Scan's bodies (internal to passes/import/). */
#ifndef PARE_RUNTIME_PASSES_IMPORT_BODY_INPUTS_H
#define PARE_RUNTIME_PASSES_IMPORT_BODY_INPUTS_H

#include "runtime/passes/passes.h"

/* Infers a graph whose inputs are given. */
typedef pare_status (*pare_infer_graph_fn)(pare_graph *graph, const pare_infer_options *options);

/* Where the file does not say them, the node's inputs do, as far as they hold for every turn. What
   the file says stays. *inferred: the body was inferred with them, without folding. */
PARE_NODISCARD pare_status pare_infer_body_inputs(pare_node *node, pare_infer_graph_fn infer,
                                                  const pare_infer_options *options,
                                                  bool *inferred);

#endif
