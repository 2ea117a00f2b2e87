/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of the ranks' tables. Every count is an integer and a tensor's ends are maxima, so that
   the sum depends on neither the number of ranks nor on what a library adds first. First the ranks
   agree on how far each histogram reaches and how many channels there are; then bins and sums of
   channels are added in place, tensor by tensor, and all else in two arrays. */
#include "calib/ranges.h"
#include "runtime/comm/comm.h"

#include <math.h>

/* --- what the ranks agree on --- */

typedef struct reach {
    int64_t top;              /* octave, -1: no bins */
    int64_t negative;         /* has bins of negative values */
    int64_t channels, fewest; /* most of any rank, and minus the least of those that have some */
    int64_t mixed;            /* tensors differed in their number already */
} reach;

static reach reach_of(const pare_stats *s)
{
    const pare_channels *c = s->channels;
    return (reach){.top = s->histogram->top,
                   .negative = s->histogram->negative,
                   .channels = c->count,
                   .fewest = c->count ? -c->count : INT64_MIN,
                   .mixed = c->mixed};
}

static pare_status open_stats(pare_ctx *ctx, pare_stats *s, const reach *r)
{
    if (r->top >= 0)
        PARE_TRY(pare_histogram_open(ctx, s->histogram, (int)r->top, r->negative != 0));
    if (!r->mixed && (!r->channels || r->channels == -r->fewest))
        return pare_channels_open(ctx, s->channels, r->channels);
    pare_channels_mix(s->channels);
    return PARE_OK;
}

static pare_status open_all(pare_ctx *ctx, pare_ranges *ranges, pare_comm *comm, reach *all)
{
    for (int i = 0; i < ranges->count; i++) all[i] = reach_of(&ranges->stats[i]);
    PARE_TRY(pare_comm_allreduce(comm, all, (size_t)ranges->count * sizeof *all / sizeof(int64_t),
                                 PARE_COMM_MAX_I64));
    for (int i = 0; i < ranges->count; i++) PARE_TRY(open_stats(ctx, &ranges->stats[i], &all[i]));
    return PARE_OK;
}

/* --- the sums --- */

enum { COUNTS = 6 }; /* of a tensor */

typedef struct sums {
    uint64_t *count; /* (tensors, COUNTS), samples */
    float *most;     /* (tensors, 2): largest and minus smallest; (channels of all) */
    size_t counts, mosts;
} sums;

static void counts_of(const pare_stats *s, uint64_t *to)
{
    const pare_histogram *h = s->histogram;
    const uint64_t all[COUNTS] = {h->count, h->zero,           h->nan,
                                  h->inf,   s->channels->each, s->channels->lost};
    for (int k = 0; k < COUNTS; k++) to[k] = all[k];
}

static void put(const pare_ranges *r, sums *s)
{
    uint64_t *count = s->count;
    float *most = s->most;
    for (int i = 0; i < r->count; i++, count += COUNTS) {
        const pare_histogram *h = r->stats[i].histogram;
        const bool some = h->count > h->nan + h->inf;
        counts_of(&r->stats[i], count);
        *most++ = some ? h->max : -INFINITY;
        *most++ = some ? -h->min : -INFINITY;
    }
    *count++ = (uint64_t)r->samples;
    for (int i = 0; i < r->count; i++) {
        const pare_channels *c = r->stats[i].channels;
        for (int64_t k = 0; k < c->count; k++) *most++ = c->largest[k];
    }
}

static void take_ends(pare_histogram *h, const float *most)
{
    if (h->count == h->nan + h->inf) return;
    h->max = most[0];
    h->min = 0 - most[1]; /* 0, not -0 */
}

static void take(pare_ranges *r, const sums *s)
{
    const uint64_t *count = s->count;
    const float *most = s->most;
    for (int i = 0; i < r->count; i++, count += COUNTS, most += 2) {
        pare_histogram *h = r->stats[i].histogram;
        pare_channels *c = r->stats[i].channels;
        h->count = count[0], h->zero = count[1], h->nan = count[2], h->inf = count[3];
        c->each = c->mixed ? 0 : count[4], c->lost = c->mixed ? 0 : count[5];
        take_ends(h, most);
    }
    r->samples = (int64_t)*count++;
    for (int i = 0; i < r->count; i++) {
        pare_channels *c = r->stats[i].channels;
        for (int64_t k = 0; k < c->count; k++) c->largest[k] = *most++;
    }
}

static pare_status sum_small(pare_ctx *ctx, pare_ranges *ranges, pare_comm *comm, sums *s)
{
    const size_t tensors = (size_t)ranges->count;
    size_t channels = 0;
    for (size_t i = 0; i < tensors; i++) channels += (size_t)ranges->stats[i].channels->count;
    s->counts = tensors * COUNTS + 1;
    s->mosts = tensors * 2 + channels;
    s->count = pare_alloc(ctx, s->counts, sizeof *s->count);
    s->most = pare_alloc(ctx, s->mosts, sizeof *s->most);
    if (!s->count || !s->most) return PARE_MEMORY;
    put(ranges, s);
    PARE_TRY(pare_comm_allreduce(comm, s->count, s->counts, PARE_COMM_SUM_U64));
    PARE_TRY(pare_comm_allreduce(comm, s->most, s->mosts, PARE_COMM_MAX_F32));
    take(ranges, s);
    return PARE_OK;
}

static pare_status sum_channels(pare_ctx *ctx, const pare_stats *s, pare_comm *comm)
{
    bool fits;
    PARE_TRY(pare_comm_sum_i128(comm, s->channels->sum, (size_t)s->channels->count, &fits));
    if (fits) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "tensor '%s': the sum of its channels overflows", s->name);
}

static pare_status sum_tensors(pare_ctx *ctx, pare_ranges *ranges, pare_comm *comm)
{
    for (int i = 0; i < ranges->count; i++) {
        const pare_stats *s = &ranges->stats[i];
        const size_t count = (PARE_HISTOGRAM_BINS + 1) * (s->histogram->negative ? 2 : 1);
        uint64_t *bins = pare_histogram_bins(s->histogram, 0);
        if (bins) PARE_TRY(pare_comm_allreduce(comm, bins - 1, count, PARE_COMM_SUM_U64));
        if (s->channels->count) PARE_TRY(sum_channels(ctx, s, comm));
    }
    return PARE_OK;
}

pare_status pare_ranges_reduce(pare_ctx *ctx, pare_ranges *ranges, pare_comm *comm)
{
    sums s = {0};
    if (!comm) return PARE_OK;
    reach *all = pare_alloc(ctx, (size_t)ranges->count, sizeof *all);
    pare_status st = all ? open_all(ctx, ranges, comm, all) : PARE_MEMORY;
    pare_free(all);
    if (st == PARE_OK) st = sum_small(ctx, ranges, comm, &s);
    pare_free(s.count);
    pare_free(s.most);
    if (st == PARE_OK) st = pare_comm_sum_hash(comm, &ranges->data);
    return st == PARE_OK ? sum_tensors(ctx, ranges, comm) : st;
}

size_t pare_ranges_bins_bytes(const pare_ranges *ranges)
{
    size_t bytes = 0;
    for (int i = 0; i < ranges->count; i++) {
        const pare_histogram *h = ranges->stats[i].histogram;
        if (h->slot) bytes += (PARE_HISTOGRAM_BINS + 1) * (h->negative ? 2 : 1) * sizeof *h->slot;
    }
    return bytes;
}
