/* SPDX-License-Identifier: Apache-2.0 */
/* Eliminates the components of a group one after the other from the weights that read them. */
#ifndef PARE_PRUNE_ELIMINATE_H
#define PARE_PRUNE_ELIMINATE_H

#include "prune/unstructured.h"

typedef struct pare_elimination pare_elimination;

/* refits: the other columns make up for what goes; else they stay as they are. */
PARE_NODISCARD pare_status pare_elimination_new(pare_ctx *ctx, pare_elimination **out,
                                                const pare_groups *groups, int group, bool refits,
                                                int threads);
void pare_elimination_free(pare_elimination *elimination);

/* A reader: moments of its inputs, the slot of its input channels; centred: a bias takes up the
   means. Its error counts `weight` times. The elimination keeps nothing of the observer. */
PARE_NODISCARD pare_status pare_elimination_add(pare_elimination *elimination,
                                                const pare_prunable *single, int slot,
                                                const pare_observer *observer, bool centred,
                                                double weight);

/* What is after some eliminations. */
typedef struct pare_elimination_state {
    int gone;               /* components */
    double cost, level;     /* their scores, added up; the last one's */
    const double *const *w; /* of each reader added, of each of its groups: (outputs, columns) */
} pare_elimination_state;

/* score: (components of the group) what each costs when its turn comes; without readers infinite.
   before: (components) gone before the first; or NULL. stops (ascending, stop_count): after so many
   eliminations visit is called. */
typedef pare_status (*pare_elimination_visit)(void *user, int stop,
                                              const pare_elimination_state *state);
PARE_NODISCARD pare_status pare_elimination_run(pare_elimination *elimination, double *score,
                                                const bool *before, const int *stops,
                                                int stop_count, pare_elimination_visit visit,
                                                void *user);

#endif
