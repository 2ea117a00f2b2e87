/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of the ranks' tables. Every count is an integer and a tensor's ends are maxima, so that
   the sum depends on neither the number of ranks nor on what a library adds first. First the ranks
   agree on how far each histogram reaches and how many channels there are; then the bins are added
   in place, tensor by tensor, and all else in three arrays. */
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

/* --- whole numbers of 128 bits as four of 32, each in 64 bits that have room for carries --- */

enum { LIMBS = 4 };

static void split(pare_wide value, uint64_t *limb)
{
    for (int k = 0; k < LIMBS - 1; k++, value >>= 32) limb[k] = (uint32_t)value;
    limb[LIMBS - 1] = (uint64_t)(int64_t)value; /* with the sign */
}

/* False where the sum has more than 128 bits. */
static bool join(const uint64_t *limb, pare_wide *out)
{
    unsigned __int128 value = 0;
    uint64_t carry = 0;
    for (int k = 0; k < LIMBS - 1; k++) {
        carry += limb[k];
        value |= (unsigned __int128)(uint32_t)carry << 32 * k;
        carry >>= 32;
    }
    const int64_t top = (int64_t)(limb[LIMBS - 1] + carry);
    *out = (pare_wide)(value | (unsigned __int128)(uint32_t)top << 96);
    return top >= INT32_MIN && top <= INT32_MAX;
}

/* --- the sums --- */

enum { COUNTS = 6 }; /* of a tensor */

typedef struct sums {
    uint64_t *count; /* (tensors, COUNTS), samples, (channels of all, LIMBS) */
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
        for (int64_t k = 0; k < c->count; k++, count += LIMBS) {
            split(c->sum[k], count);
            *most++ = c->largest[k];
        }
    }
}

static void take_ends(pare_histogram *h, const float *most)
{
    if (h->count == h->nan + h->inf) return;
    h->max = most[0];
    h->min = 0 - most[1]; /* 0, not -0 */
}

static pare_status take(pare_ctx *ctx, pare_ranges *r, const sums *s)
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
        for (int64_t k = 0; k < c->count; k++, count += LIMBS) {
            if (!join(count, &c->sum[k]))
                return PARE_FAIL(ctx, INPUT, "tensor '%s': the sum of its channels overflows",
                                 r->stats[i].name);
            c->largest[k] = *most++;
        }
    }
    return PARE_OK;
}

static pare_status sum_small(pare_ctx *ctx, pare_ranges *ranges, pare_comm *comm, sums *s)
{
    const size_t tensors = (size_t)ranges->count;
    size_t channels = 0;
    for (size_t i = 0; i < tensors; i++) channels += (size_t)ranges->stats[i].channels->count;
    s->counts = tensors * COUNTS + 1 + channels * LIMBS;
    s->mosts = tensors * 2 + channels;
    s->count = pare_alloc(ctx, s->counts, sizeof *s->count);
    s->most = pare_alloc(ctx, s->mosts, sizeof *s->most);
    if (!s->count || !s->most) return PARE_MEMORY;
    put(ranges, s);
    PARE_TRY(pare_comm_allreduce(comm, s->count, s->counts, PARE_COMM_SUM_U64));
    PARE_TRY(pare_comm_allreduce(comm, s->most, s->mosts, PARE_COMM_MAX_F32));
    return take(ctx, ranges, s);
}

static pare_status sum_bins(pare_ranges *ranges, pare_comm *comm)
{
    for (int i = 0; i < ranges->count; i++) {
        const pare_histogram *h = ranges->stats[i].histogram;
        uint64_t *bins = pare_histogram_bins(h, 0);
        if (!bins) continue;
        const size_t count = (PARE_HISTOGRAM_BINS + 1) * (h->negative ? 2 : 1);
        PARE_TRY(pare_comm_allreduce(comm, bins - 1, count, PARE_COMM_SUM_U64));
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
    return st == PARE_OK ? sum_bins(ranges, comm) : st;
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
