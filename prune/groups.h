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
    pare_channel_sets sets;
    pare_model *sized, *larger;   /* larger: NULL where the model has no open dims */
    pare_groups_options *options; /* a copy: shapes and outputs */
    int32_t *coupled;             /* (channels): of each channel, or -1 */
    pare_cost_term *term;
    int term_count;
    int32_t *term_of,
        *first_term; /* terms of slot s: term_of[first_term[s] .. first_term[s + 1]) */
} pare_groups_inner;

/* groups.c: finds which groups have parts, and turns questions whose evenness cannot be said
   per group to their next way; *again: some were. part: (channel_count) of each set's part;
   signature: which sets have the same slots; count: (signatures) parts of each. */
typedef struct pare_even_parts {
    int32_t *signature; /* (channel_count): of roots; -1: blocked, or of no weight */
    int32_t signatures;
    int32_t *part;  /* (channel_count): of roots */
    int32_t *parts; /* (signatures) */
} pare_even_parts;

PARE_NODISCARD pare_status pare_even_find(pare_channel_sets *sets, pare_even_parts *out);

/* costs.c */
PARE_NODISCARD pare_status pare_costs_init(pare_groups *groups);

/* The prepared model's value and node for those of the sized model; NULL where it has none. */
pare_value *pare_groups_own_value(const pare_groups *groups, const pare_value *sized);
pare_node *pare_groups_own_node(const pare_groups *groups, const pare_node *sized);

/* The parts of a surgery: constants sliced or masked, nodes rewritten, the result checked. */

/* Does channel stay? */
static inline bool pare_prune_plan_keeps(const pare_prune_plan *removal, int slot, int64_t channel)
{
    int coupled = pare_groups_coupled(removal->groups, slot, channel);
    return coupled < 0 || !removal->removed[coupled];
}

/* surgery.c: constants of `model`, a clone of the prepared model, lose what is removed (or, masked,
   have 0 where a product reads it). */
PARE_NODISCARD pare_status pare_cut_slice(pare_model *model, const pare_prune_plan *removal);
PARE_NODISCARD pare_status pare_cut_mask(pare_model *model, const pare_prune_plan *removal);

/* The content of a constant of the smaller model back into the prepared model's, which is 0 where a
   product reads what is removed. */
PARE_NODISCARD pare_status pare_cut_put_back(pare_value *value, const pare_tensor *small,
                                             const pare_prune_plan *removal);

/* rewrite.c: what nodes say about extents. */
PARE_NODISCARD pare_status pare_cut_rewrite(pare_model *model, const pare_prune_plan *removal);

/* surgery.c: shapes inferred again must be the kept counts; numbers that the model computed from
   extents and that no shape needs stay what they were. */
PARE_NODISCARD pare_status pare_cut_verify(pare_model *model, const pare_prune_plan *removal);

#endif
