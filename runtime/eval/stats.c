/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of outputs and times, with confidence intervals. */
#include "runtime/eval/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double Z = 1.959963984540054; /* normal quantile of 0.975 */

static pare_interval wilson(int64_t hits, int64_t n, double z)
{
    if (n <= 0) return (pare_interval){0, 1};
    double p = (double)hits / (double)n, zz = z * z / (double)n;
    double middle = p + zz / 2, half = sqrt(zz * (p * (1 - p) + zz / 4));
    pare_interval both = {(middle - half) / (1 + zz), (middle + half) / (1 + zz)};
    if (hits == 0) both.low = 0; /* exactly, not up to rounding */
    if (hits == n) both.high = 1;
    return both;
}

pare_interval pare_stats_wilson(int64_t hits, int64_t n) { return wilson(hits, n, Z); }

/* Correlation of the two classifiers' hits, the numerator drawn towards 0 by n/2 where positive. */
static double corrected_phi(pare_paired t, double n)
{
    double a = (double)t.both, b = (double)t.first, c = (double)t.second, d = (double)t.neither;
    double margins = sqrt(a + b) * sqrt(c + d) * sqrt(a + c) * sqrt(b + d);
    if (margins == 0) return 0;
    double excess = a * d - b * c;
    if (excess > n / 2)
        excess -= n / 2;
    else if (excess > 0)
        excess = 0;
    return excess / margins;
}

pare_interval pare_stats_newcombe(pare_paired t)
{
    int64_t count = t.both + t.first + t.second + t.neither;
    if (count <= 0) return (pare_interval){-1, 1};
    double n = (double)count, phi = corrected_phi(t, n);
    double p1 = (double)(t.both + t.first) / n, p2 = (double)(t.both + t.second) / n;
    double difference = (double)(t.first - t.second) / n;
    pare_interval w1 = pare_stats_wilson(t.both + t.first, count);
    pare_interval w2 = pare_stats_wilson(t.both + t.second, count);
    double down1 = p1 - w1.low, up1 = w1.high - p1, down2 = p2 - w2.low, up2 = w2.high - p2;
    double below = down1 * down1 - 2 * phi * down1 * up2 + up2 * up2;
    double above = up1 * up1 - 2 * phi * up1 * down2 + down2 * down2;
    return (pare_interval){difference - sqrt(fmax(below, 0)), difference + sqrt(fmax(above, 0))};
}

/* 2 P(X <= few) of a fair binomial, at most 1; below 25 pairs every term is exact in double. */
static double mcnemar_exact(int64_t few, int64_t pairs)
{
    double term = 1, sum = 0; /* pairs choose i */
    for (int64_t i = 0; i <= few; i++) {
        sum += term;
        term = term * (double)(pairs - i) / (double)(i + 1);
    }
    return fmin(1, ldexp(sum, 1 - (int)pairs));
}

double pare_stats_mcnemar(pare_paired t, bool *exact)
{
    int64_t pairs = t.first + t.second, few = t.first < t.second ? t.first : t.second;
    bool small = pairs < 25;
    if (exact) *exact = small;
    if (small) return mcnemar_exact(few, pairs);
    double excess = fabs((double)(t.first - t.second)) - 1;
    if (excess < 0) excess = 0;
    /* upper tail of chi-square with one degree of freedom: erfc(sqrt(x / 2)) */
    return erfc(sqrt(excess * excess / (double)pairs / 2));
}

/* Standard error of the logarithm of a proportion, one hit and one miss added. */
static double log_error(double hits, double n)
{
    return sqrt((1 - (hits + 1) / (n + 2)) / (hits + 1));
}

/* Samples that neither gets right say nothing of a ratio. Both proportions of the others have
   Wilson's interval, with z so much smaller that the two, as if independent, are as wide as the
   pairing makes the ratio's logarithm. */
pare_interval pare_stats_kept(pare_paired t)
{
    const int64_t n = t.both + t.first + t.second, x1 = t.both + t.first, x2 = t.both + t.second;
    if (n <= 0) return (pare_interval){0, INFINITY};
    const double paired =
        sqrt((double)(t.first + t.second + 2) / ((double)(x1 + 1) * (double)(x2 + 1)));
    const double z =
        Z * paired / (log_error((double)x1, (double)n) + log_error((double)x2, (double)n));
    const pare_interval p1 = wilson(x1, n, z), p2 = wilson(x2, n, z);
    return (pare_interval){p2.low / p1.high, p1.low > 0 ? p2.high / p1.low : INFINITY};
}

pare_floor pare_stats_floor(pare_interval kept, double floor)
{
    if (kept.low >= floor) return PARE_FLOOR_MET;
    return kept.high < floor ? PARE_FLOOR_MISSED : PARE_FLOOR_OPEN;
}

bool pare_stats_near_chance(int64_t hits, int64_t n, int64_t classes)
{
    if (n <= 0 || classes < 2) return false;
    double chance = 1 / (double)classes, least = chance + (1 - chance) / 20;
    return (double)hits <= least * (double)n || pare_stats_wilson(hits, n).low <= chance;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void pare_stats_sort(double *values, size_t n) { qsort(values, n, sizeof *values, by_value); }

double pare_stats_percentile(const double *sorted, size_t n, double q)
{
    if (!n) return 0;
    double at = q / 100 * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

int64_t pare_stats_needed(double q)
{
    const double beyond = fmin(q, 100 - q);
    if (q == 50 || beyond <= 0) return 1;
    return (int64_t)ceil(1000 / beyond - 1e-6); /* 100 - 99.9 is not quite 0.1 */
}

double pare_stats_mean(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    return n ? sum / (double)n : 0;
}

double pare_stats_variation(const double *values, size_t n)
{
    double mean = pare_stats_mean(values, n), sum = 0;
    if (n < 2 || mean == 0) return 0;
    for (size_t i = 0; i < n; i++) sum += (values[i] - mean) * (values[i] - mean);
    return sqrt(sum / (double)(n - 1)) / mean;
}

double pare_stats_drift(const double *values, size_t n, int windows, double *scratch)
{
    size_t each = n / (size_t)windows;
    double low = INFINITY, high = -INFINITY;
    if (each < 4) return 0;
    for (int w = 0; w < windows; w++) {
        memcpy(scratch, values + (size_t)w * each, each * sizeof *scratch);
        pare_stats_sort(scratch, each);
        double median = pare_stats_percentile(scratch, each, 50);
        low = fmin(low, median);
        high = fmax(high, median);
    }
    memcpy(scratch, values, n * sizeof *scratch);
    pare_stats_sort(scratch, n);
    double all = pare_stats_percentile(scratch, n, 50);
    return all > 0 ? (high - low) / all : 0;
}

double pare_stats_relative_spread(const double *values, int n)
{
    enum { MOST = 16 };
    double sorted[MOST];
    if (n < 2 || n > MOST) return 0;
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    pare_stats_sort(sorted, (size_t)n);
    const double median = pare_stats_percentile(sorted, (size_t)n, 50);
    return median > 0 ? (sorted[n - 1] - sorted[0]) / median : 0;
}

int64_t pare_stats_argmax(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (values[i] > values[best] || (isnan(values[best]) && !isnan(values[i]))) best = i;
    return best;
}

bool pare_stats_in_top(const float *values, int64_t n, int64_t at, int64_t k)
{
    int64_t before = 0;
    if (isnan(values[at])) return false;
    for (int64_t i = 0; i < n; i++)
        before += values[i] > values[at] || (values[i] == values[at] && i < at);
    return before < k;
}

void pare_error_add(pare_error_stats *sums, const float *reference, const float *other, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double r = reference[i], x = other[i], d = r - x;
        sums->count++;
        if (!isfinite(r) || !isfinite(x)) {
            sums->bad++;
            continue;
        }
        sums->rr += r * r;
        sums->xx += x * x;
        sums->rx += r * x;
        sums->dd += d * d;
        sums->max_abs = fmax(sums->max_abs, fabs(d));
    }
}

void pare_error_merge(pare_error_stats *to, const pare_error_stats *from)
{
    to->rr += from->rr;
    to->xx += from->xx;
    to->rx += from->rx;
    to->dd += from->dd;
    to->max_abs = fmax(to->max_abs, from->max_abs);
    to->count += from->count;
    to->bad += from->bad;
}

double pare_error_sqnr(const pare_error_stats *sums)
{
    return sums->dd > 0 ? 10 * log10(sums->rr / sums->dd) : INFINITY;
}

double pare_error_cosine(const pare_error_stats *sums)
{
    if (sums->rr == 0 && sums->xx == 0) return 1;
    if (sums->rr == 0 || sums->xx == 0) return 0;
    return sums->rx / sqrt(sums->rr) / sqrt(sums->xx);
}

double pare_error_mse(const pare_error_stats *sums)
{
    int64_t n = sums->count - sums->bad;
    return n > 0 ? sums->dd / (double)n : 0;
}

/* --- intervals by resampling --- */

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
