/* SPDX-License-Identifier: Apache-2.0 */
/* What is after a pare_groups: shared by groups, removals and surgery. */
#ifndef PARE_PRUNE_GROUPS_H
#define PARE_PRUNE_GROUPS_H

#include "prune/channels.h"

/* A product of kept counts: macs, params and bytes of one node or tensor for each of it. */
typedef struct pare_cost_term {
    const pare_node *node; /* of the prepared model; NULL: a tensor's */
    double macs, params, bytes;
    int slot[PARE_MAX_RANK + 1], count;
} pare_cost_term;

typedef struct pare_groups_inner {
    pare_arena arena;
    pare_units units;
    pare_model *sized, *larger;   /* larger: NULL where the model has no open dims */
    pare_groups_options *options; /* a copy: shapes and outputs */
    int32_t *component;           /* (units): of each unit, or -1 */
    pare_cost_term *term;
    int term_count;
    int32_t *term_of,
        *first_term; /* terms of slot s: term_of[first_term[s] .. first_term[s + 1]) */
} pare_groups_inner;

/* group_parts.c: finds which groups have parts, and turns questions whose evenness cannot be said
   per group to their next way; *again: some were. part: (unit_count) of each set's part; signature:
   which sets have the same slots; count: (signatures) parts of each. */
typedef struct pare_even_parts {
    int32_t *signature; /* (unit_count): of roots; -1: blocked, or of no weight */
    int32_t signatures;
    int32_t *part;  /* (unit_count): of roots */
    int32_t *parts; /* (signatures) */
} pare_even_parts;

PARE_NODISCARD pare_status pare_even_find(pare_units *units, pare_even_parts *out);

/* costs.c */
PARE_NODISCARD pare_status pare_costs_init(pare_groups *groups);

/* The prepared model's value and node for those of the sized model; NULL where it has none. */
pare_value *pare_groups_own_value(const pare_groups *groups, const pare_value *sized);
pare_node *pare_groups_own_node(const pare_groups *groups, const pare_node *sized);

#endif
