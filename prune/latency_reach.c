/* SPDX-License-Identifier: Apache-2.0 */
/* Search, measure, correct. The forecast knows single steps. What it does not know (memory that
   other steps left warm, caches that a whole net fits or does not fit, how far a search ends below
   what it was asked for) is taken as a function of what was asked for, straight between the pairs
   (asked, measured) nearest the goal, the dense model's (1, 1) among them. A search that ends where
   an earlier one did is not measured again: the next asks halfway to the other side of the goal. */
#include "prune/latency.h"

#include <math.h>
#include <string.h>

enum { MOST_ROUNDS = 16, MOST_SEARCHES = 3 * MOST_ROUNDS };

typedef struct pair {
    double asked, forecast, measured;
} pair;

typedef struct attempt {
    pare_ctx *ctx;
    pare_prune_plan *removal;
    const pare_latency_goal *goal;
    pair pair[MOST_SEARCHES + 1];
    int pairs;
    bool *first, *best; /* (components) removed as given, and in the nearest attempt */
} attempt;

static void restore(attempt *a, const bool *removed)
{
    const int n = a->removal->groups->component_count;
    for (int c = 0; c < n; c++)
        if (a->removal->removed[c] && !removed[c]) pare_prune_plan_drop(a->removal, c);
    for (int c = 0; c < n; c++)
        if (!a->removal->removed[c] && removed[c]) pare_prune_plan_add(a->removal, c, 0);
}

/* Of pairs on one side of the goal: the nearer one, of equals the one that asked nearer to it. */
static bool is_nearer(const pair *p, const pair *than, bool above)
{
    if (!than || p->measured != than->measured)
        return !than || (p->measured < than->measured) == above;
    return p->asked != than->asked && (p->asked < than->asked) == above;
}

/* The pairs nearest the goal: at or below it, and above; NULL: none yet. */
static void nearest_pairs(const attempt *a, const pair **below, const pair **above)
{
    *below = *above = NULL;
    for (int i = 0; i < a->pairs; i++) {
        const bool is_above = a->pair[i].measured > a->goal->ratio;
        const pair **side = is_above ? above : below;
        if (is_nearer(&a->pair[i], *side, is_above)) *side = &a->pair[i];
    }
}

/* What to ask for, so that the goal should be measured. */
static double next_asked(const attempt *a, bool repeated)
{
    const double goal = a->goal->ratio, least = 0.01;
    const pair *below, *above;
    nearest_pairs(a, &below, &above);
    if (!above) above = &a->pair[0];
    const pair *other = below ? below : &a->pair[0];
    if (repeated && below) return (below->asked + above->asked) / 2;
    double slope = 1;
    if (fabs(above->asked - other->asked) > 1e-3)
        slope = (above->measured - other->measured) / (above->asked - other->asked);
    /* a slope that noise made flat, or turned, asks for no more than it would at its steepest */
    slope = fmax(slope, 0.25);
    return fmax(above->asked - (above->measured - goal) / slope, least);
}

/* Measures what the removal leaves, unless an earlier search left the same. */
static pare_status measure(attempt *a, pair *now, bool *repeated)
{
    *repeated = false;
    for (int i = 1; i < a->pairs && !*repeated; i++) {
        *repeated = a->pair[i].forecast == now->forecast;
        if (*repeated) now->measured = a->pair[i].measured;
    }
    if (!*repeated) PARE_TRY(a->goal->measure(a->goal->user, a->removal, &now->measured));
    a->pair[a->pairs++] = *now;
    return PARE_OK;
}

static pare_status rounds(attempt *a, const double *score, const pare_prune_target *given,
                          pare_latency_facts *facts)
{
    pare_prune_target target = *given;
    const pare_latency_goal *goal = a->goal;
    const size_t bytes = (size_t)a->removal->groups->component_count * sizeof *a->best;
    const int most = goal->rounds < MOST_ROUNDS ? goal->rounds : MOST_ROUNDS;
    double nearest = INFINITY, wanted = goal->ratio, reached;
    bool repeated;
    a->pair[a->pairs++] = (pair){1, 1, 1};
    for (int search = 0; search < 3 * most && facts->rounds < most; search++) {
        pair now = {.asked = wanted};
        target.goal = wanted * goal->dense;
        restore(a, a->first);
        PARE_TRY(pare_target_reach(a->ctx, a->removal, score, &target, &reached));
        now.forecast = goal->dense > 0 ? reached / goal->dense : 1;
        PARE_TRY(measure(a, &now, &repeated));
        facts->rounds += !repeated;
        double off = now.measured - goal->ratio;
        if (fabs(off) < nearest) {
            nearest = fabs(off);
            facts->forecast = now.forecast;
            facts->measured = now.measured;
            memcpy(a->best, a->removal->removed, bytes);
        }
        if (reached > target.goal) facts->lowest = now.forecast;
        if (nearest <= goal->tolerance || (reached > target.goal && off > 0)) break;
        const double last = wanted;
        wanted = next_asked(a, repeated);
        if (fabs(wanted - last) < 1e-4) break; /* nothing is between the two sides */
    }
    restore(a, a->best);
    return PARE_OK;
}

pare_status pare_latency_reach(pare_ctx *ctx, pare_prune_plan *removal, const double *score,
                               const pare_prune_target *target, const pare_latency_goal *goal,
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
