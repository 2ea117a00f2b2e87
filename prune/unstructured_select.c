/* SPDX-License-Identifier: Apache-2.0 */
/* Masks by score. The k least of many are found without sorting: two counts by the upper and the
   lower half of a score's bits (floats of one sign are ordered as their bits are) give the k-th
   score; of those equal to it the first ones go. */
#include "prune/unstructured.h"

#include <string.h>

enum { BUCKETS = 1 << 16 };

static uint32_t bits_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 */
    memcpy(&bits, &score, sizeof bits);
    return bits;
}

typedef struct hunt {
    pare_prunables *all;
    int first, count;
    pare_unstructured_score score;
    const void *const *user;
    uint64_t bucket[BUCKETS];
} hunt;

static uint32_t score_at(const hunt *h, int layer, int64_t i)
{
    const pare_prunable *s = &h->all->item[layer];
    return bits_of(h->score(s, i, h->user ? h->user[layer] : NULL));
}

/* Counts lower halves of the scores whose upper half is `high`; high -1: counts upper halves. */
static void count(hunt *h, int64_t high)
{
    memset(h->bucket, 0, sizeof h->bucket);
    for (int l = h->first; l < h->first + h->count; l++) {
        if (h->all->item[l].dense) continue;
        for (int64_t i = 0; i < h->all->item[l].count; i++) {
            uint32_t bits = score_at(h, l, i);
            if (high < 0)
                h->bucket[bits >> 16]++;
            else if (bits >> 16 == high)
                h->bucket[bits & 0xffff]++;
        }
    }
}

/* The bucket that holds the want-th; want becomes its place in there. */
static int64_t find(const hunt *h, int64_t *want)
{
    for (int64_t b = 0; b < BUCKETS; b++) {
        if ((uint64_t)*want < h->bucket[b]) return b;
        *want -= (int64_t)h->bucket[b];
    }
    return BUCKETS;
}

pare_status pare_prunables_least(pare_prunables *all, int first, int layers, int64_t want,
                                 pare_unstructured_score score, const void *const *user)
{
    hunt *h = pare_alloc(all->ctx, 1, sizeof *h);
    if (!h) return PARE_MEMORY;
    h->all = all, h->first = first, h->count = layers, h->score = score, h->user = user;
    count(h, -1);
    int64_t high = find(h, &want), low = 0;
    if (high < BUCKETS) {
        count(h, high);
        low = find(h, &want);
    }
    uint64_t edge = (uint64_t)high << 16 | (uint64_t)low; /* `want` of the scores equal to it go */
    for (int l = first; l < first + layers; l++) {
        pare_prunable *s = &all->item[l];
        for (int64_t i = 0; i < s->count && !s->dense; i++) {
            uint64_t bits = score_at(h, l, i);
            s->zero[i] = bits < edge || (bits == edge && want-- > 0);
        }
    }
    pare_free(h);
    return PARE_OK;
}

void pare_unstructured_least_of_m(pare_prunable *s, int n, int m, pare_unstructured_score score,
                                  const void *user)
{
    const pare_columns *c = &s->columns;
    for (int64_t r = 0; r < c->groups * c->outputs; r++)
        for (int64_t k = 0; k + m <= c->columns; k += m)
            for (int gone = 0; gone < m - n; gone++) {
                int64_t worst = -1;
                float least = 0;
                for (int64_t i = k; i < k + m; i++) {
                    int64_t at = pare_unstructured_place(s, r / c->outputs, r % c->outputs, i);
                    float value = s->zero[at] ? 0 : score(s, at, user);
                    if (s->zero[at] || (worst >= 0 && value >= least)) continue;
                    worst = at;
                    least = value;
                }
                s->zero[worst] = true;
            }
}
