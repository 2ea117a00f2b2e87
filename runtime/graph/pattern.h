/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns that choose nodes: a glob on node names, or op:TYPE. */
#ifndef PARE_RUNTIME_GRAPH_PATTERN_H
#define PARE_RUNTIME_GRAPH_PATTERN_H

#include "runtime/graph/graph.h"

/* The name that patterns see: the node's, else its first output's. */
const char *pare_pattern_name(const pare_node *node);

/* Sets chosen[i] of each node i of the list that one of the patterns matches, by its name or, in a
   body, by its path (pare_node_path). option ("--skip") is for the message: a pattern that matches
   nothing is PARE_USAGE with the names near it. */
PARE_NODISCARD pare_status pare_pattern_mark(const pare_model *model, pare_node *const *node,
                                             int node_count, const char *option,
                                             const char *const *pattern, int count, bool value,
                                             bool *chosen);
#endif
