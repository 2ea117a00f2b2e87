/* SPDX-License-Identifier: Apache-2.0 */
/* What the attention operators of ONNX Runtime share. Q is (batch, heads, length, head size), K and
   V (batch, heads, total length, head size); a mask is added to the scores. */
#ifndef PARE_RUNTIME_PASSES_IMPORT_CONTRIB_ATTENTION_H
#define PARE_RUNTIME_PASSES_IMPORT_CONTRIB_ATTENTION_H

#include "runtime/passes/import/contrib.h"

/* Of softmax(softcap(scale Q K^T) + mask) V. A sink takes part in the softmax as one more key whose
   value is 0. */
typedef struct pare_contrib_scores {
    pare_value *mask; /* or NULL */
    pare_value *sink; /* (1, heads or 1, 1, 1), or NULL */
    float scale;      /* 0: one over the root of the head size */
    int64_t size;     /* of a head; 0: unknown */
    float softcap;    /* 0: none */
} pare_contrib_scores;

/* (batch, length, hidden) as (batch, heads, length, size), and output 0 from it back. */
pare_value *pare_contrib_split_heads(pare_contrib *c, pare_value *x, int64_t heads);

/* Output 0, (batch, length, hidden), from Q, K and V. */
void pare_contrib_attend(pare_contrib *c, pare_value *q, pare_value *k, pare_value *v,
                         const pare_contrib_scores *scores);

/* The length of an axis as a number; 0, 1, .. below a number. */
pare_value *pare_contrib_length(pare_contrib *c, pare_value *x, int64_t axis);
pare_value *pare_contrib_range(pare_contrib *c, pare_value *count);
/* 0 where a condition holds, else `filter`, in the type of input 0. */
pare_value *pare_contrib_mask(pare_contrib *c, pare_value *allowed, double filter);
/* The attribute num_heads (or another), which must be positive. */
int64_t pare_contrib_heads(pare_contrib *c, const char *attr);
/* x + y; x where y is NULL, and the other way. */
pare_value *pare_contrib_sum(pare_contrib *c, pare_value *x, pare_value *y);

#endif
