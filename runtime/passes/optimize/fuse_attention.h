/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes that find attention share: float (fuse_attention.c) and of 8 bits
   (int8/attention.c). */
#ifndef PARE_RUNTIME_PASSES_OPTIMIZE_FUSE_ATTENTION_H
#define PARE_RUNTIME_PASSES_OPTIMIZE_FUSE_ATTENTION_H

#include "runtime/passes/optimize/fuse.h"

typedef struct pare_attention_found {
    pare_value *q, *k_transposed, *v, *mask; /* mask NULL: none */
    pare_node *last;                         /* makes Y */
    double scale;                            /* of floats: that goes into the node */
    int64_t head_axes[4], parts[3];          /* of Q, K, V and Y, Q, K and V: ops/attention.h */
} pare_attention_found;

/* The found attention becomes a node of this operator in place of `last`: Q, K and V are read in
   front of the Transposes, Splits, Slices and Gathers that made them, Y is what a Transpose behind
   it made; K^T is undone in the Transpose that made it. */
PARE_NODISCARD pare_status pare_attention_replace(pare_fuse *f, pare_attention_found *a,
                                                  const char *op_type, pare_node **out);

#endif
