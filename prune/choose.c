/* SPDX-License-Identifier: Apache-2.0 */
/* Which way nodes bind that can bind in several: a reshape carries channels in one of the factors
   that its axes are merged or split into.

   Ways whose channels the rest of the graph blocks anyway are ruled out first. Of the others the
   first (outermost) is taken; where its channels turn out to be blocked by the answers to other
   questions, the way that leaves most channels of the whole graph free. */
#include "prune/channels.h"

#include <string.h>

pare_status pare_channel_sets_rebind(pare_channel_sets *sets)
{
    pare_channel_sets *u = sets;
    size_t bytes = (size_t)u->channel_count * sizeof *u->parent;
    memcpy(u->parent, u->base_parent, bytes);
    memcpy(u->blocked, u->base_blocked, bytes);
    u->block_count = u->base_block_count;
    u->even_count = 0;
    return pare_channel_sets_ask(u, PARE_CHANNELS_BIND);
}

static int64_t free_channels(pare_channel_sets *u)
{
    int64_t n = 0;
    for (int32_t i = 0; i < u->channel_count; i++)
        n += u->blocked[pare_channel_sets_find(u, i)] < 0;
    return n;
}

static bool is_stuck(pare_channel_sets *u, const pare_channel_question *q)
{
    int slot = q->has_bound ? pare_channel_sets_find_axis(u, q->bound.value, q->bound.axis) : -1;
    for (int64_t i = 0; slot >= 0 && i < q->bound.length; i++) {
        int32_t channel = u->slot[slot].first + (int32_t)(q->bound.start + i);
        if (u->blocked[pare_channel_sets_find(u, channel)] < 0) return false;
    }
    return slot >= 0;
}

static int ways_left(const pare_channel_question *q) { return __builtin_popcount(q->possible); }

/* Rules out what the rest of the graph blocks whatever the other answers are. */
static pare_status rule_out(pare_channel_sets *u)
{
    int most = 0;
    for (size_t i = 0; i < u->question_count; i++)
        if (u->question[i].count > most) most = u->question[i].count;
    for (int way = 0; way < most; way++) {
        for (size_t i = 0; i < u->question_count; i++) {
            pare_channel_question *q = &u->question[i];
            q->way = way < q->count ? way : q->count - 1;
        }
        PARE_TRY(pare_channel_sets_ask(u, PARE_CHANNELS_PROBE));
    }
    for (size_t i = 0; i < u->question_count; i++) {
        pare_channel_question *q = &u->question[i];
        q->way = q->possible ? __builtin_ctz(q->possible) : 0;
    }
    return PARE_OK;
}

/* The other ways of one question that is stuck: the one that frees most channels, if any does. */
static pare_status improve(pare_channel_sets *u, pare_channel_question *q, int64_t *best,
                           bool *better)
{
    int kept = q->way;
    for (int way = 0; way < q->count; way++) {
        if (way == kept || !(q->possible >> way & 1)) continue;
        int before = q->way;
        q->way = way;
        PARE_TRY(pare_channel_sets_rebind(u));
        int64_t n = free_channels(u);
        *better = *better || n > *best;
        q->way = n > *best ? way : before;
        *best = n > *best ? n : *best;
    }
    return pare_channel_sets_rebind(u);
}

pare_status pare_channel_sets_choose(pare_channel_sets *sets)
{
    pare_channel_sets *u = sets;
    bool better = true;
    PARE_TRY(rule_out(u));
    PARE_TRY(pare_channel_sets_rebind(u));
    int64_t best = free_channels(u);
    for (int round = 0; round < 8 && better; round++) {
        better = false;
        for (size_t i = 0; i < u->question_count; i++)
            if (ways_left(&u->question[i]) > 1 && is_stuck(u, &u->question[i]))
                PARE_TRY(improve(u, &u->question[i], &best, &better));
        PARE_TRY(pare_ctx_poll(u->ctx));
    }
    return PARE_OK;
}
