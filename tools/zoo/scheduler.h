/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is among the nodes of a plan. */
#ifndef PARE_TOOLS_ZOO_SCHEDULER_H
#define PARE_TOOLS_ZOO_SCHEDULER_H

#include "tools/zoo/plan.h"

typedef struct pare_zoo_scheduler {
    const pare_zoo_plan *plan;
    unsigned char *state; /* of each node */
    int jobs, running;
    int first;     /* no node before it waits */
    bool alone;    /* what runs may have nothing beside it */
    bool draining; /* nodes that run alone come next, all that wait */
} pare_zoo_scheduler;

PARE_NODISCARD pare_status pare_zoo_scheduler_init(pare_arena *arena, pare_zoo_scheduler *turns,
                                                   const pare_zoo_plan *plan, int jobs);

/* The node to begin now, -1: none before another one has ended, or at all. Nodes come in the plan's
   order, so that tasks end early; but those that may have nothing beside them, which let the other
   jobs idle, come several after each other. */
int pare_zoo_scheduler_next(pare_zoo_scheduler *turns);

void pare_zoo_scheduler_begin(pare_zoo_scheduler *turns, int node);
/* It ended, or had before; where it is not done, nodes after it never have their turn. */
void pare_zoo_scheduler_end(pare_zoo_scheduler *turns, int node, bool done);
/* It is not to be done at all, though others may be that need it. */
void pare_zoo_scheduler_leave(pare_zoo_scheduler *turns, int node);
/* It ended and has its turn again; false where it had not ended. */
bool pare_zoo_scheduler_again(pare_zoo_scheduler *turns, int node);
/* It ended, done or not. */
bool pare_zoo_scheduler_ended(const pare_zoo_scheduler *turns, int node);
#endif
