/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a surgery: constants sliced or masked, nodes rewritten, the result checked. */
#ifndef PARE_PRUNE_CUT_H
#define PARE_PRUNE_CUT_H

#include "prune/groups.h"

/* Does unit stay? */
static inline bool pare_prune_plan_keeps(const pare_prune_plan *removal, int slot, int64_t unit)
{
    int component = pare_groups_component(removal->groups, slot, unit);
    return component < 0 || !removal->removed[component];
}

/* slice.c: constants of `model`, a clone of the prepared model, lose what is removed (or, masked,
   have 0 where a product reads it). */
PARE_NODISCARD pare_status pare_cut_slice(pare_model *model, const pare_prune_plan *removal);
PARE_NODISCARD pare_status pare_cut_mask(pare_model *model, const pare_prune_plan *removal);

/* The content of a constant of the smaller model back into the prepared model's, which is 0 where a
   product reads what is removed. */
PARE_NODISCARD pare_status pare_cut_put_back(pare_value *value, const pare_tensor *small,
                                             const pare_prune_plan *removal);

/* rewrite.c: what nodes say about extents. */
PARE_NODISCARD pare_status pare_cut_rewrite(pare_model *model, const pare_prune_plan *removal);

/* verify.c: shapes inferred again must be the kept counts; numbers that the model computed from
   extents and that no shape needs stay what they were. */
PARE_NODISCARD pare_status pare_cut_verify(pare_model *model, const pare_prune_plan *removal);

#endif
