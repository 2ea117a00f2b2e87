/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of floats in a fixed binary tree over their terms: neighbours are added, then pairs of
   neighbours, and so on; what has no neighbour goes up as it is. Five terms give
   ((x0 + x1) + (x2 + x3)) + x4. Equal contiguous blocks of a power of two of terms are subtrees:
   whoever adds them apart and their sums in the same way gets the same bytes.

   Terms come in order. A sum that lacks its right neighbour waits at its level: 2^level terms. */
#ifndef PARE_RUNTIME_BASE_TREE_SUM_H
#define PARE_RUNTIME_BASE_TREE_SUM_H

#include "runtime/base/both.h"

#include <stdint.h>

enum { PARE_TREE_LEVELS = 31 }; /* enough for INT_MAX terms */

typedef struct pare_tree_term {
    uint64_t with; /* bit of a level: the sum that waits there is added to the term, the lowest
                      level first: x = waiting + x */
    int to;        /* the level at which the result waits; -1: it is the sum of all terms */
} pare_tree_term;

/* What is done with term i of count, 0 <= i < count. */
PARE_BOTH pare_tree_term pare_tree_term_of(int i, int count)
{
    const uint64_t n = (uint64_t)i;
    pare_tree_term t;
    t.with = n;
    t.to = -1;
    if (i == count - 1) return t;
    t.with = (n ^ (n + 1)) >> 1;
    for (uint64_t bits = t.with; bits; bits >>= 1) t.to++;
    t.to++;
    return t;
}

/* Levels at which sums of count terms wait: 0, 1, ... */
PARE_BOTH int pare_tree_levels(int count)
{
    int levels = 0;
    for (int last = count - 1; last > 0; last >>= 1) levels++;
    return levels;
}

/* A term of one number; waiting: (levels). Returns the sum so far, which is that of all terms where
   term.to is -1. */
PARE_BOTH double pare_tree_add(double *waiting, pare_tree_term term, double x)
{
    for (int level = 0; term.with >> level; level++)
        if (term.with >> level & 1) x = waiting[level] + x;
    if (term.to >= 0) waiting[term.to] = x;
    return x;
}

#endif
