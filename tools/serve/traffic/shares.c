/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/traffic/shares.h"

#include "runtime/base/hash.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WEIGHT = 1000000 };

/* --- text --- */

/* A number up to this character, behind which *at is put. */
static bool read_number(const char **at, char end, int64_t low, int64_t high, int64_t *out)
{
    char *rest;
    errno = 0;
    *out = strtoll(*at, &rest, 10);
    const bool good = !errno && rest > *at && **at >= '0' && **at <= '9' && *out >= low &&
                      *out <= high && (end ? *rest == end : strchr(" ,", *rest) != NULL);
    *at = rest + (end != 0);
    return good;
}

static pare_status add(pare_ctx *ctx, pare_shares *s, const char *what, pare_share one)
{
    for (int i = 0; i < s->count; i++)
        if (s->share[i].version == one.version)
            return PARE_FAIL(ctx, INPUT, "%s: version %lld has two weights", what,
                             (long long)one.version);
    if (s->count == PARE_MOST_SHARES)
        return PARE_FAIL(ctx, INPUT, "%s: at most %d versions have weights", what,
                         PARE_MOST_SHARES);
    s->share[s->count++] = one;
    s->sum += one.weight;
    return PARE_OK;
}

pare_status pare_shares_read(pare_ctx *ctx, pare_shares *out, const char *what, const char *text)
{
    const char *at = text;
    *out = (pare_shares){0};
    while (*(at += strspn(at, " ,"))) {
        pare_share one = {0};
        if (!read_number(&at, ':', 1, INT64_MAX, &one.version) ||
            !read_number(&at, 0, 0, MOST_WEIGHT, &one.weight))
            return PARE_FAIL(ctx, INPUT,
                             "%s: '%s': expected VERSION:WEIGHT, versions from 1, weights from 0 "
                             "to %d",
                             what, text, MOST_WEIGHT);
        PARE_TRY(add(ctx, out, what, one));
    }
    if (out->sum) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "%s: '%s': no version has a weight", what, text);
}

pare_status pare_shares_check(pare_ctx *ctx, const pare_shares *s, const char *path,
                              const int64_t *version, int count)
{
    for (int i = 0; i < s->count; i++) {
        int k = 0;
        while (k < count && version[k] != s->share[i].version) k++;
        if (k == count)
            return PARE_FAIL(ctx, INPUT, "%s: version %lld has a weight and is not served", path,
                             (long long)s->share[i].version);
    }
    return PARE_OK;
}

const char *pare_shares_text(const pare_shares *s, char *text)
{
    int n = 0;
    text[0] = 0;
    for (int i = 0; i < s->count; i++)
        n += snprintf(text + n, PARE_SHARES_TEXT - (size_t)n, "%s%lld:%lld", i ? " " : "",
                      (long long)s->share[i].version, (long long)s->share[i].weight);
    return text;
}

/* --- in turn --- */

/* Tijdeman 1980, "The chairman assignment problem", Discrete Mathematics 32:323: of those that are
   behind by at least 1 / (2k - 2) the one that would first be behind by 1 - 1 / (2k - 2); then none
   of k is ever off by more than that. All is multiplied by sum * (2k - 2). */
static int most_urgent(const pare_shares *s, int64_t scale)
{
    int best = -1;
    double soonest = INFINITY;
    for (int i = 0; i < s->count; i++) {
        const pare_share *one = &s->share[i];
        const int64_t behind = one->weight * (s->given + 1) - one->given * s->sum;
        if (!one->weight || scale * behind < s->sum) continue;
        const double until =
            (double)((scale - 1) * s->sum - scale * behind) / (double)(scale * one->weight);
        if (until < soonest) {
            soonest = until;
            best = i;
        }
    }
    return best;
}

int64_t pare_shares_next(pare_shares *s)
{
    int used = 0, last = 0;
    for (int i = 0; i < s->count; i++)
        if (s->share[i].weight) {
            used++;
            last = i;
        }
    const int found = used > 1 ? most_urgent(s, 2 * used - 2) : last;
    pare_share *one = &s->share[found >= 0 ? found : last];
    one->given++;
    if (++s->given == s->sum) { /* each has exactly its weight: from the beginning again */
        s->given = 0;
        for (int i = 0; i < s->count; i++) s->share[i].given = 0;
    }
    return one->version;
}

/* --- by id --- */

/* Rendezvous hashing (Thaler and Ravishankar 1998, IEEE/ACM Transactions on Networking 6:1) with
   weights: each version draws an exponential time whose rate is its weight, from the id; the first
   one has it. */
int64_t pare_shares_of(const pare_shares *s, const char *id)
{
    const pare_hash hash = pare_hash_bytes(id, strlen(id));
    double soonest = INFINITY;
    int64_t found = 0;
    for (int i = 0; i < s->count; i++) {
        const uint64_t key[] = {hash.low, hash.high, (uint64_t)s->share[i].version};
        const double u = ((double)(pare_hash_bytes(key, sizeof key).low >> 11) + 0.5) * 0x1p-53;
        const double time = -log(u) / (double)s->share[i].weight;
        if (!s->share[i].weight || time >= soonest) continue;
        soonest = time;
        found = s->share[i].version;
    }
    return found;
}
