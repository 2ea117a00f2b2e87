/* SPDX-License-Identifier: Apache-2.0 */
/* An Einsum (12) equation: which label each axis of inputs and output has. The axes of an ellipsis
   have labels of their own. */
#ifndef PARE_RUNTIME_OPS_EINSUM_H
#define PARE_RUNTIME_OPS_EINSUM_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_EINSUM_INPUTS = 16, PARE_EINSUM_LABELS = 52 + PARE_MAX_RANK };

/* The axes of an input or the output, as labels. */
typedef struct pare_einsum_term {
    int rank;
    int label[PARE_MAX_RANK];
} pare_einsum_term;

typedef struct pare_einsum {
    int inputs, labels;
    pare_einsum_term in[PARE_EINSUM_INPUTS], out;
    int64_t dim[PARE_EINSUM_LABELS]; /* -1: not known, with the symbol or NULL */
    const char *name[PARE_EINSUM_LABELS];
} pare_einsum;

/* Fails where the equation is wrong or does not fit the inputs. *known is false where the rank of
   an input with an ellipsis is not known. */
PARE_NODISCARD pare_status pare_einsum_of(const pare_node *node, pare_einsum *out, bool *known);

/* Where a label is in a term, or -1. */
int pare_einsum_find(const pare_einsum_term *term, int label);

#ifdef __cplusplus
}
#endif
#endif
