/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/eval/resample.h"

#include <math.h>
#include <string.h>

enum { SETS = 2000, STRETCHES = 40, SHORTEST = 5, FEWEST = 4 };

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [0, n): the product's high half (Lemire 2019, ACM TOMACS 29:3), its bias below 2^-32 n. */
static int draw(uint64_t *state, int n) { return (int)((next(state) >> 32) * (uint64_t)n >> 32); }

pare_status pare_resample(pare_ctx *ctx, pare_interval *out, pare_statistic of, void *user,
                          int units)
{
    double *value = pare_alloc(ctx, SETS, sizeof *value);
    int *pick = pare_alloc(ctx, (size_t)units, sizeof *pick);
    uint64_t state = 1;
    bool known = value && pick;
    *out = (pare_interval){NAN, NAN};
    for (int s = 0; known && s < SETS; s++) {
        for (int i = 0; i < units; i++) pick[i] = draw(&state, units);
        value[s] = of(user, pick, units);
        known = isfinite(value[s]);
    }
    if (known) {
        pare_stats_sort(value, SETS);
        *out = (pare_interval){pare_stats_percentile(value, SETS, 2.5),
                               pare_stats_percentile(value, SETS, 97.5)};
    }
    const pare_status st = value && pick ? PARE_OK : PARE_MEMORY;
    pare_free(value);
    pare_free(pick);
    return st;
}

/* --- times --- */

typedef struct series {
    double first[STRETCHES], second[STRETCHES]; /* medians of stretches */
    int count;
} series;

static int stretches_of(size_t n)
{
    return n >= (size_t)STRETCHES * SHORTEST ? STRETCHES : (int)(n / SHORTEST);
}

static pare_status medians(pare_ctx *ctx, double *out, const double *times, size_t n, int count)
{
    double *sorted = pare_alloc(ctx, n, sizeof *sorted);
    if (!sorted) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        const size_t from = (size_t)i * n / (size_t)count, to = (size_t)(i + 1) * n / (size_t)count;
        memcpy(sorted, times + from, (to - from) * sizeof *sorted);
        pare_stats_sort(sorted, to - from);
        out[i] = pare_stats_percentile(sorted, to - from, 50);
    }
    pare_free(sorted);
    return PARE_OK;
}

static double median_of(const double *values, const int *pick, int units)
{
    double some[STRETCHES];
    for (int i = 0; i < units; i++) some[i] = values[pick[i]];
    pare_stats_sort(some, (size_t)units);
    return pare_stats_percentile(some, (size_t)units, 50);
}

static double median(void *user, const int *pick, int units)
{
    return median_of(((const series *)user)->first, pick, units);
}

static double ratio(void *user, const int *pick, int units)
{
    const series *s = user;
    return median_of(s->first, pick, units) / median_of(s->second, pick, units);
}

pare_status pare_resample_median(pare_ctx *ctx, pare_interval *out, const double *times, size_t n)
{
    series s = {.count = stretches_of(n)};
    *out = (pare_interval){NAN, NAN};
    if (s.count < FEWEST) return PARE_OK;
    PARE_TRY(medians(ctx, s.first, times, n, s.count));
    return pare_resample(ctx, out, median, &s, s.count);
}

pare_status pare_resample_ratio(pare_ctx *ctx, pare_interval *out, const double *first, size_t n,
                                const double *second, size_t m)
{
    series s = {.count = stretches_of(n < m ? n : m)};
    *out = (pare_interval){NAN, NAN};
    if (s.count < FEWEST) return PARE_OK;
    PARE_TRY(medians(ctx, s.first, first, n, s.count));
    PARE_TRY(medians(ctx, s.second, second, m, s.count));
    return pare_resample(ctx, out, ratio, &s, s.count);
}

/* --- errors --- */

static double sqnr(void *user, const int *pick, int units)
{
    const pare_error_stats *sums = user;
    pare_error_stats all = {0};
    for (int i = 0; i < units; i++) {
        all.rr += sums[pick[i]].rr;
        all.dd += sums[pick[i]].dd;
    }
    return pare_error_sqnr(&all);
}

pare_status pare_resample_sqnr(pare_ctx *ctx, pare_interval *out, const pare_error_stats *sums,
                               int units)
{
    return pare_resample(ctx, out, sqnr, (void *)sums, units);
}
