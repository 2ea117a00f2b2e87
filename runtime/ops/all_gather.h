/* SPDX-License-Identifier: Apache-2.0 */
/* AllGather (X) -> Y: processes that share a run (exec/shards.h) have a part of a tensor each, cut
   along an axis. X is this process' part, Y the whole tensor. Attributes: `axis`, `parts`, the size
   of every part along it, and `part`, which of them X is. In a run of one process alone the other
   parts are zeros. */
#ifndef PARE_RUNTIME_OPS_ALL_GATHER_H
#define PARE_RUNTIME_OPS_ALL_GATHER_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_gather_args {
    int axis, part, parts;
    const int64_t *size; /* (parts) along the axis; the node's */
    int64_t first, all;  /* where X begins there; their sum */
} pare_gather_args;

/* rank: X's. PARE_INPUT: an attribute is missing or out of range. */
PARE_NODISCARD pare_status pare_gather_args_read(const pare_node *node, int rank,
                                                 pare_gather_args *out);

#ifdef __cplusplus
}
#endif
#endif
