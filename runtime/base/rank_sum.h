/* SPDX-License-Identifier: Apache-2.0 */
/* Who sends what to whom where ranks, each of a process, add up an array of numbers in the order of
   a fixed tree: neighbours (rank 0 + rank 1), then pairs of neighbours, and so on; a rest joins at
   its level. Every rank ends with the sum, and with the same bytes however the numbers travel.

   Where the ranks are a power of two, neighbours swap halves and add, then pairs, and so on; what
   each then has of the sum goes the way back (recursive halving and doubling). Else arrays go to
   rank 0 along the tree, and the sum goes back. Adding is commutative: both orders of two numbers
   give the same bytes. */
#ifndef PARE_RUNTIME_BASE_RANK_SUM_H
#define PARE_RUNTIME_BASE_RANK_SUM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_RANK_SUM_STEPS = 64 }; /* most steps of a rank, for INT_MAX ranks */

/* What a rank does with one other at once, in numbers of the array; 0 of them: nothing. */
typedef struct pare_rank_sum_step {
    int other;            /* the rank that it sends to and receives from */
    size_t give_at, give; /* sent */
    size_t take_at, take; /* received: */
    bool add;             /* added to what is there; else in its place */
} pare_rank_sum_step;

/* The steps of this rank, in their order; returns how many. *adding: the first so many lead to the
   whole sum, in parts or in rank 0; the others spread it. */
int pare_rank_sum_plan(pare_rank_sum_step step[PARE_RANK_SUM_STEPS], int rank, int size,
                       size_t count, int *adding);

/* Numbers that a step adds at most: what a rank needs room for. */
size_t pare_rank_sum_room(int size, size_t count);

/* Is it by halves? */
bool pare_rank_sum_halves(int size);

#ifdef __cplusplus
}
#endif
#endif
