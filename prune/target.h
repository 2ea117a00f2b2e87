/* SPDX-License-Identifier: Apache-2.0 */
/* Which coupled sets go so that a model reaches a size: greedy, the least score for what it saves
   first. */
#ifndef PARE_PRUNE_TARGET_H
#define PARE_PRUNE_TARGET_H

#include "prune/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_prune_target {
    /* What is to be made small, at the removal's kept counts: the four functions below, or one's
       own. It must not grow where a coupled set goes. */
    double (*cost)(void *user, const pare_prune_plan *removal);
    void *user;
    double goal;    /* cost to reach */
    bool per_layer; /* equal fractions of every group; else all groups compete */
    bool by_score;  /* the least score first, whatever it saves; else the least score per cost */
    int64_t floor;  /* fewest coupled sets of a group, at least 1 */
    double keep_at_least; /* fraction of a group's coupled sets that stays in any case */
    int64_t round;        /* channels that stay are a multiple of it (1: any), where a group has as
                             many; what was no multiple before may stay so */
    int64_t (*round_of)(int64_t channels); /* in place of round, of a group's channels; or NULL */
    /* What goes together saves at least this part of what so many coupled sets save on average;
       where fewer save less, more go. 0: anything. */
    double least;
} pare_prune_target;

double pare_target_macs(void *user, const pare_prune_plan *removal);
double pare_target_params(void *user, const pare_prune_plan *removal);
/* user: double[1], bytes that stay whatever is removed (the file less its payloads); or NULL. */
double pare_target_bytes(void *user, const pare_prune_plan *removal);

/* Adds coupled sets to the removal until its cost is at most the goal, then gives back what fits
   again; what was removed before stays removed. score: (coupled_count), as pare_score_... gives
   them. *reached: the cost it came to; above the goal where floors and roundings allow no less. */
PARE_NODISCARD pare_status pare_target_reach(pare_ctx *ctx, pare_prune_plan *removal,
                                             const double *score, const pare_prune_target *target,
                                             double *reached);

#ifdef __cplusplus
}
#endif
#endif
