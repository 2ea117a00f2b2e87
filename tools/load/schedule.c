/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/schedule.h"

#include "runtime/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PER_S 1e6
#define MOST       1e8 /* requests of one rate */

pare_status pare_load_rates_parse(pare_ctx *ctx, pare_load_rates *out, const char *text)
{
    static const char poisson[] = "poisson:", constant[] = "constant:";
    const char *at = text;
    *out = (pare_load_rates){.is_poisson = !strncmp(text, poisson, strlen(poisson))};
    if (out->is_poisson)
        at += strlen(poisson);
    else if (!strncmp(text, constant, strlen(constant)))
        at += strlen(constant);
    while (at) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(value > 0 && value <= MOST_PER_S) ||
            out->count == PARE_LOAD_RATES)
            return PARE_FAIL(
                ctx, USAGE,
                "--rate %s: expected poisson:A,B,..., constant:A,B,... or A,B,...: up to %d "
                "rates, each above 0 and at most %.0f requests a second",
                text, PARE_LOAD_RATES, MOST_PER_S);
        out->per_s[out->count++] = value;
        at = *end ? end + 1 : NULL;
    }
    return PARE_OK;
}

/* Gaps of a Poisson process are -log(u) / rate, u uniform in (0, 1]. */
static pare_status draw_poisson(pare_ctx *ctx, double **out, size_t *count, double per_s,
                                double seconds, uint64_t seed)
{
    size_t capacity = 0;
    pare_random random = {seed};
    double t = 0;
    while ((t -= log(1 - pare_random_unit(&random)) / per_s) < seconds) {
        if (!pare_grow(ctx, out, &capacity, *count, sizeof **out)) return PARE_MEMORY;
        (*out)[(*count)++] = t;
    }
    return PARE_OK;
}

static pare_status draw_constant(pare_ctx *ctx, double **out, size_t *count, double per_s,
                                 double seconds)
{
    const size_t n = (size_t)ceil(per_s * seconds);
    *out = pare_alloc(ctx, n, sizeof **out);
    if (!*out) return PARE_MEMORY;
    while (*count < n && (double)*count / per_s < seconds) {
        (*out)[*count] = (double)*count / per_s;
        ++*count;
    }
    return PARE_OK;
}

pare_status pare_load_schedule(pare_ctx *ctx, double **out, size_t *count, bool is_poisson,
                               double per_s, double seconds, uint64_t seed)
{
    *out = NULL;
    *count = 0;
    if (per_s * seconds > MOST)
        return PARE_FAIL(ctx, USAGE,
                         "--rate: %.7g per second for %.7g s are more than %.0f requests", per_s,
                         seconds, MOST);
    pare_status st = is_poisson ? draw_poisson(ctx, out, count, per_s, seconds, seed)
                                : draw_constant(ctx, out, count, per_s, seconds);
    if (st == PARE_OK && !*count)
        st = PARE_FAIL(ctx, USAGE, "--rate: at %.7g per second no request is due within %.7g s",
                       per_s, seconds);
    if (st == PARE_OK) return PARE_OK;
    pare_free(*out);
    *out = NULL;
    return st;
}
