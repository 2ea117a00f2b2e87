/* SPDX-License-Identifier: Apache-2.0 */
/* Which extents of a compiled step's tensors follow which kept counts. */
#ifndef PARE_PRUNE_LATENCY_STEPS_H
#define PARE_PRUNE_LATENCY_STEPS_H

#include "prune/groups.h"

enum { PARE_LATENCY_VARIABLES = 3 };

/* An extent of a tensor: kept count of a slot over `parts`. */
typedef struct pare_latency_axis {
    int tensor, axis; /* inputs first, then outputs */
    int slot;
    int64_t parts;
    int variable; /* extent is count * times / parts */
    int64_t times;
} pare_latency_axis;

typedef struct pare_latency_step {
    const pare_node *node;  /* compiled */
    const pare_node *model; /* of the prepared model, the one its weight belongs to; or NULL */
    bool known;             /* the shapes of all inputs are */
    pare_latency_axis *axis;
    int axis_count;
    int slot[PARE_LATENCY_VARIABLES]; /* whose kept count is the variable */
    int64_t dense[PARE_LATENCY_VARIABLES], unit[PARE_LATENCY_VARIABLES];
    int variables; /* those of inputs; more than there is room for: not known */
} pare_latency_step;

/* Fills in what a node of the compiled dense model works on. */
PARE_NODISCARD pare_status pare_latency_map(const pare_groups *groups, const pare_node *compiled,
                                            pare_arena *arena, pare_latency_step *out);

#endif
