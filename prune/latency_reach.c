/* SPDX-License-Identifier: Apache-2.0 */
/* Search, measure, correct. The forecast knows single steps. What it does not know (memory that
   other steps left warm, launches, how far a search ends below what it was asked for) is taken as a
   function of what was asked for, straight between the pairs (asked, measured) nearest the goal,
   the dense model's (1, 1) among them. */
#include "prune/latency.h"

#include <math.h>
#include <string.h>

enum { MOST_ROUNDS = 16 };

typedef struct pair {
    double asked, measured;
} pair;

typedef struct attempt {
    pare_ctx *ctx;
    pare_removal *removal;
    const pare_latency_goal *goal;
    pair pair[MOST_ROUNDS + 1];
    int pairs;
    bool *first, *best; /* (components) removed as given, and in the nearest attempt */
} attempt;

static void restore(attempt *a, const bool *removed)
{
    const int n = a->removal->groups->component_count;
    for (int c = 0; c < n; c++)
        if (a->removal->removed[c] && !removed[c]) pare_removal_drop(a->removal, c);
    for (int c = 0; c < n; c++)
        if (!a->removal->removed[c] && removed[c]) pare_removal_add(a->removal, c, 0);
}

/* What to ask for, so that the goal should be measured. */
static double next_asked(const attempt *a)
{
    enum { LEAST_PERCENT = 1 };
    const double goal = a->goal->ratio;
    const pair *below = NULL, *above = NULL;
    for (int i = 0; i < a->pairs; i++) {
        const pair *p = &a->pair[i];
        if (p->measured <= goal && (!below || p->measured > below->measured)) below = p;
        if (p->measured > goal && (!above || p->measured < above->measured)) above = p;
    }
    if (!above) above = &a->pair[0];
    double slope = 1, from = above->measured, at = above->asked;
    const pair *other = below ? below : &a->pair[0];
    if (fabs(above->asked - other->asked) > 1e-3)
        slope = (above->measured - other->measured) / (above->asked - other->asked);
    /* a slope that noise made flat, or turned, asks for no more than it would at its steepest */
    slope = fmax(slope, 0.25);
    return fmax(at - (from - goal) / slope, LEAST_PERCENT / 100.0);
}

static pare_status rounds(attempt *a, const double *score, const pare_target *given,
                          pare_latency_facts *facts)
{
    pare_target target = *given;
    const pare_latency_goal *goal = a->goal;
    const size_t bytes = (size_t)a->removal->groups->component_count * sizeof *a->best;
    const int most = goal->rounds < MOST_ROUNDS ? goal->rounds : MOST_ROUNDS;
    double nearest = INFINITY, wanted = goal->ratio, reached;
    a->pair[a->pairs++] = (pair){1, 1};
    for (int round = 1; round <= most; round++) {
        pair now = {.asked = wanted};
        target.goal = wanted * goal->dense;
        restore(a, a->first);
        PARE_TRY(pare_target_reach(a->ctx, a->removal, score, &target, &reached));
        const double forecast = goal->dense > 0 ? reached / goal->dense : 1;
        PARE_TRY(goal->measure(goal->user, a->removal, &now.measured));
        a->pair[a->pairs++] = now;
        facts->rounds = round;
        double off = now.measured - goal->ratio;
        if (fabs(off) < nearest) {
            nearest = fabs(off);
            facts->forecast = forecast;
            facts->measured = now.measured;
            memcpy(a->best, a->removal->removed, bytes);
        }
        if (reached > target.goal) facts->lowest = forecast;
        if (nearest <= goal->tolerance || (reached > target.goal && off > 0)) break;
        wanted = next_asked(a);
    }
    restore(a, a->best);
    return PARE_OK;
}

pare_status pare_latency_reach(pare_ctx *ctx, pare_removal *removal, const double *score,
                               const pare_target *target, const pare_latency_goal *goal,
                               pare_latency_facts *facts)
{
    const size_t n = (size_t)removal->groups->component_count;
    attempt a = {.ctx = ctx, .removal = removal, .goal = goal};
    *facts = (pare_latency_facts){0};
    a.first = pare_alloc(ctx, n, sizeof *a.first);
    a.best = pare_alloc(ctx, n, sizeof *a.best);
    pare_status st = a.first && a.best ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        memcpy(a.first, removal->removed, n * sizeof *a.first);
        memcpy(a.best, removal->removed, n * sizeof *a.best);
        st = rounds(&a, score, target, facts);
    }
    pare_free(a.first);
    pare_free(a.best);
    return st;
}
