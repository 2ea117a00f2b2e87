/* SPDX-License-Identifier: Apache-2.0 */
/* A group shrinks in *lumps*: the fewest coupled sets that keep its parts even and its channels a
   multiple of `round`. Each turn the lump that is cheapest for what it saves goes. Scores of one
   group are taken in ascending order; groups compete by (score of the lump) / (cost it saves).
   After the last turn, which can save more than was asked, lumps that fit come back, the dearest
   first. */
#include "prune/target.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    double score;
    int coupled;
} ranked;

typedef struct queue {
    ranked *item; /* (count) of all parts: part p at p * each, ascending by score */
    int parts;
    int64_t each;  /* coupled sets of a part, at most */
    int64_t *gone; /* (each + 1) how many of each part were gone before lump i */
    int64_t taken; /* coupled sets of each part that are gone */
    int64_t first; /* of them, gone from the start */
    int lumps;
    int64_t width;            /* channels of a coupled set */
    int64_t round;            /* channels that stay are a multiple of it */
    int64_t stop;             /* coupled sets of each part that are gone after the next lump */
    bool stuck;               /* no further lump */
    double key, saves, score; /* of the next lump */
} queue;

typedef struct reach {
    pare_ctx *ctx;
    pare_prune_plan *removal;
    const pare_groups *groups;
    const double *score;
    const pare_prune_target *target;
    queue *queue;
    double cost;
} reach;

double pare_target_macs(void *user, const pare_prune_plan *removal)
{
    (void)user;
    return removal->cost.macs;
}

double pare_target_params(void *user, const pare_prune_plan *removal)
{
    (void)user;
    return removal->cost.params;
}

double pare_target_bytes(void *user, const pare_prune_plan *removal)
{
    return removal->cost.bytes + (user ? *(const double *)user : 0);
}

static double cost_now(const reach *r) { return r->target->cost(r->target->user, r->removal); }

/* --- queues --- */

static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    return x->coupled < y->coupled ? -1 : x->coupled > y->coupled;
}

/* Channels of one coupled set: the channels it has of the first slot that makes channels. */
static int64_t channels_of(const pare_groups *groups, const pare_coupled_channels *c)
{
    int64_t n = 0;
    int slot = -1;
    for (int i = 0; i < c->channel_count; i++) {
        int s = c->channel[i].slot;
        if (slot < 0 && groups->slot[s].role == PARE_AXIS_MAKES) slot = s;
        n += s == slot;
    }
    return n ? n : 1;
}

/* Where all parts lose one coupled set, multiples of the round may be too rare: then of its half.
 */
static int64_t round_of(const pare_prune_target *t, const queue *q)
{
    const int64_t step = q->parts * q->width, dense = q->each * step;
    int64_t round = t->round_of ? t->round_of(dense) : t->round > dense ? 1 : t->round;
    while (t->round_of && round > 1 && step % round && step > 1 && step * round > dense) round /= 2;
    return round;
}

static pare_status fill_queue(reach *r, int g)
{
    const pare_dependency_group *group = &r->groups->group[g];
    queue *q = &r->queue[g];
    q->parts = group->parts;
    q->each = group->count / group->parts;
    q->width = channels_of(r->groups, &r->groups->coupled[group->first]);
    q->round = round_of(r->target, q);
    q->item = pare_alloc(r->ctx, (size_t)group->count, sizeof *q->item);
    q->gone = pare_alloc(r->ctx, (size_t)q->each + 1, sizeof *q->gone);
    if (!q->item || !q->gone) return PARE_MEMORY;
    q->taken = q->first = pare_prune_plan_of_part(r->removal, g, 0);
    int64_t *used = pare_alloc(r->ctx, (size_t)q->parts, sizeof *used);
    if (!used) return PARE_MEMORY;
    for (int c = group->first; c < group->first + group->count; c++) {
        int part = r->groups->coupled[c].part;
        if (r->removal->removed[c] || used[part] == q->each) continue;
        q->item[part * q->each + used[part]++] = (ranked){r->score[c], c};
    }
    for (int p = 0; p < q->parts; p++) {
        q->stuck = q->stuck || used[p] != q->each - q->taken;
        qsort(q->item + p * q->each, (size_t)used[p], sizeof *q->item, compare);
    }
    pare_free(used);
    return PARE_OK;
}

/* The number of gone coupled sets of each part, above `gone`, that a lump may end at; 0: none. */
static int64_t next_stop(const reach *r, const queue *q, int64_t gone)
{
    const pare_prune_target *t = r->target;
    double least = t->keep_at_least * (double)(q->each * q->parts);
    int64_t floor = t->floor > 1 ? t->floor : 1;
    if ((double)floor < least) floor = (int64_t)ceil(least);
    while ((q->each - ++gone) * q->parts >= floor)
        if (q->round <= 1 || (q->each - gone) * q->parts * q->width % q->round == 0) return gone;
    return 0;
}

/* --- lumps --- */

static void give_back(reach *r, queue *q, int64_t from, int64_t to)
{
    for (int p = 0; p < q->parts; p++)
        for (int64_t i = from; i < to; i++)
            pare_prune_plan_drop(r->removal, q->item[p * q->each + i - q->first].coupled);
}

/* Removes lump from .. to of every part; false, and nothing changed, where a slot would be empty.
 */
static bool take(reach *r, queue *q, int64_t from, int64_t to)
{
    for (int p = 0; p < q->parts; p++)
        for (int64_t i = from; i < to; i++) {
            int c = q->item[p * q->each + i - q->first].coupled;
            if (pare_prune_plan_add(r->removal, c, 0)) continue;
            give_back(r, q, from, to);
            return false;
        }
    return true;
}

/* What a lump up to `stop` saves; negative where it cannot go. */
static double saved_by(reach *r, queue *q, int64_t stop)
{
    if (!take(r, q, q->taken, stop)) return -1;
    double saved = r->cost - cost_now(r);
    give_back(r, q, q->taken, stop);
    return saved > 0 ? saved : 0;
}

/* The next lump: what it saves, and its place in the order of groups. It ends at the first stop,
   or, where that saves too little, at one of the next: a layer's time is flat over many channels
   where waking threads costs more than they do, and a noisy table has steps that go up. */
static void weigh(reach *r, queue *q)
{
    enum { LOOK_AHEAD = 32 };
    const double all = r->groups->coupled_count;
    q->stop = next_stop(r, q, q->taken);
    if (!q->stop || (q->saves = saved_by(r, q, q->stop)) < 0) {
        q->stuck = true;
        return;
    }
    if (r->target->least > 0) {
        int64_t stop = q->stop;
        for (int i = 0; i < LOOK_AHEAD && stop; i++, stop = next_stop(r, q, stop)) {
            double saves = i ? saved_by(r, q, stop) : q->saves;
            double share = (double)((stop - q->taken) * q->parts) / all;
            q->saves = 0;
            if (saves <= r->target->least * share * r->cost) continue;
            q->saves = saves;
            q->stop = stop;
            break;
        }
    }
    q->score = 0;
    for (int p = 0; p < q->parts; p++)
        for (int64_t i = q->taken; i < q->stop; i++)
            q->score += q->item[p * q->each + i - q->first].score;
    if (r->target->per_layer)
        q->key = (double)q->stop / (double)q->each;
    else if (r->target->by_score)
        q->key = q->score / (double)((q->stop - q->taken) * q->parts);
    else
        q->key = q->saves > 0 ? q->score / q->saves : INFINITY;
}

/* Costs of lumps change with what is removed elsewhere: all are weighed again in each turn. */
static queue *cheapest(reach *r)
{
    queue *best = NULL;
    for (int g = 0; g < r->groups->group_count; g++) {
        queue *q = &r->queue[g];
        if (!q->stuck) weigh(r, q);
        if (q->stuck || !(q->saves > 0)) continue;
        if (!best || q->key < best->key) best = q;
    }
    return best;
}

static pare_status shrink(reach *r)
{
    r->cost = cost_now(r);
    while (r->cost > r->target->goal) {
        queue *q = cheapest(r);
        if (!q) return PARE_OK;
        if (!take(r, q, q->taken, q->stop)) return PARE_OK;
        q->gone[q->lumps++] = q->taken;
        q->taken = q->stop;
        r->cost = cost_now(r);
        PARE_TRY(pare_ctx_poll(r->ctx));
    }
    return PARE_OK;
}

/* Of the lumps that were removed last, the one that is worth most and fits again. */
static queue *worthiest(reach *r)
{
    queue *best = NULL;
    double most = -1;
    for (int g = 0; g < r->groups->group_count; g++) {
        queue *q = &r->queue[g];
        if (!q->lumps) continue;
        int64_t from = q->gone[q->lumps - 1];
        give_back(r, q, from, q->taken);
        double cost = cost_now(r), score = 0;
        if (!take(r, q, from, q->taken)) continue;
        for (int p = 0; p < q->parts; p++)
            for (int64_t i = from; i < q->taken; i++)
                score += q->item[p * q->each + i - q->first].score;
        if (cost > r->target->goal || score <= most) continue;
        most = score;
        best = q;
    }
    return best;
}

static pare_status grow(reach *r)
{
    while (r->cost <= r->target->goal) {
        queue *q = worthiest(r);
        if (!q) return PARE_OK;
        int64_t from = q->gone[--q->lumps];
        give_back(r, q, from, q->taken);
        q->taken = from;
        r->cost = cost_now(r);
        PARE_TRY(pare_ctx_poll(r->ctx));
    }
    return PARE_OK;
}

pare_status pare_target_reach(pare_ctx *ctx, pare_prune_plan *removal, const double *score,
                              const pare_prune_target *target, double *reached)
{
    reach r = {ctx, removal, removal->groups, score, target, NULL, 0};
    pare_status st = PARE_OK;
    PARE_TRY(pare_prune_plan_check(ctx, removal));
    r.queue = pare_alloc(ctx, (size_t)r.groups->group_count, sizeof *r.queue);
    if (!r.queue) return PARE_MEMORY;
    for (int g = 0; g < r.groups->group_count && st == PARE_OK; g++) st = fill_queue(&r, g);
    if (st == PARE_OK) st = shrink(&r);
    if (st == PARE_OK) st = grow(&r);
    *reached = r.cost;
    for (int g = 0; g < r.groups->group_count; g++) {
        pare_free(r.queue[g].item);
        pare_free(r.queue[g].gone);
    }
    pare_free(r.queue);
    return st;
}
