/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics that commands report: of proportions (accuracy), of samples (latency), of two tensors
   (quantization error). Proportions are fractions of 1, intervals have 95 % coverage. */
#ifndef PARE_RUNTIME_EVAL_STATS_H
#define PARE_RUNTIME_EVAL_STATS_H

#include "runtime/base/ctx.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_interval {
    double low, high;
} pare_interval;

/* Two classifiers on the same samples: how often both are right, only the first, only the second,
   neither. */
typedef struct pare_paired {
    int64_t both, first, second, neither;
} pare_paired;

/* Score interval of hits out of n (Wilson 1927, J. Am. Stat. Assoc. 22:209); n = 0 gives [0, 1]. */
pare_interval pare_stats_wilson(int64_t hits, int64_t n);

/* Interval of the difference of paired proportions, first minus second: method 10 of Newcombe 1998,
   Statistics in Medicine 17:2635 (Wilson's limits joined by a continuity-corrected phi). */
pare_interval pare_stats_newcombe(pare_paired table);

/* Two-sided p-value of McNemar's test (1947, Psychometrika 12:153) that both are equally often
   right: the exact binomial below 25 discordant pairs, else chi-square with Edwards' continuity
   correction; 1 without discordant pairs. *exact says which (NULL is allowed). */
double pare_stats_mcnemar(pare_paired table, bool *exact);

/* Interval of the second's hits over the first's on the same samples, how much of an accuracy is
   kept: the hybrid score interval of Bonett and Price 2006, Statistics in Medicine 25:3039, which
   has a width even where the two never differ. Inf where the first has no hit of its own or in
   common; [0, Inf] without any hit. */
pare_interval pare_stats_kept(pare_paired table);

/* Is at least `floor` kept (0.99: "99 % of FP32")? */
typedef enum pare_floor {
    PARE_FLOOR_MET,   /* the whole interval is at or above it */
    PARE_FLOOR_OPEN,  /* the samples cannot tell */
    PARE_FLOOR_MISSED /* the whole interval is below it */
} pare_floor;
pare_floor pare_stats_floor(pare_interval kept, double floor);

/* Is an accuracy no better than guessing among so many classes? True where hits / n is not above
   guessing by at least a twentieth of the way to 1, or where Wilson's interval includes guessing.
 */
bool pare_stats_near_chance(int64_t hits, int64_t n, int64_t classes);

/* Sorts ascending; NaN is not allowed. */
void pare_stats_sort(double *values, size_t n);
/* Percentile q in [0, 100] of ascending values, linear between neighbours (Hyndman and Fan 1996,
   American Statistician 50:361, definition 7); 0 for n = 0. */
double pare_stats_percentile(const double *sorted, size_t n, double q);
/* How many values a percentile (in [0, 100]) needs: that ten are beyond it, 1,000 for the 99th. The
   median, the least and the greatest need one. */
int64_t pare_stats_needed(double q);
double pare_stats_mean(const double *values, size_t n);
/* Sample standard deviation (n - 1) over the mean; 0 for n < 2 or mean 0. */
double pare_stats_variation(const double *values, size_t n);
/* How far the medians of `windows` consecutive stretches are apart: (max - min) / median of all;
   scratch: (n). 0 where a stretch would hold fewer than 4 values. */
double pare_stats_drift(const double *values, size_t n, int windows, double *scratch);

/* How far values are apart: (max - min) / median; 0 for fewer than two. At most 16 of them. */
double pare_stats_relative_spread(const double *values, int n);

/* Position of the greatest value, the first among equals; NaN never wins. */
int64_t pare_stats_argmax(const float *values, int64_t n);
/* Is values[at] among the k greatest (equals that are before it count as greater)? */
bool pare_stats_in_top(const float *values, int64_t n, int64_t at, int64_t k);

/* Sums over pairs (reference r, other x) that the error measures are made of. */
typedef struct pare_error_stats {
    double rr, xx, rx, dd; /* of r*r, x*x, r*x, (r-x)*(r-x) */
    double max_abs;        /* of |r - x| */
    int64_t count, bad;    /* pairs; pairs with NaN or Inf in x or r, left out of the sums */
} pare_error_stats;

void pare_error_add(pare_error_stats *sums, const float *reference, const float *other, int64_t n);
/* Adds other sums. */
void pare_error_merge(pare_error_stats *to, const pare_error_stats *from);
/* 10 log10(sum r^2 / sum (r-x)^2) in dB; Inf for equal tensors. */
double pare_error_sqnr(const pare_error_stats *sums);
/* sum rx / sqrt(sum r^2 sum x^2); 1 where both are zero, 0 where one is. */
double pare_error_cosine(const pare_error_stats *sums);
/* sum (r-x)^2 / count; 0 for none. */
double pare_error_mse(const pare_error_stats *sums);

/* Bootstrap intervals (Efron 1979, Annals of Statistics 7:1): a statistic is computed of 2,000 sets
   of units drawn with replacement, and the middle 95 % of what it came to is its interval. Draws
   are those of SplitMix64 (Steele, Lea, Flood 2014, OOPSLA) from one fixed state: same values, same
   interval. */

/* Of the units pick[0] to pick[units - 1], each in [0, units). */
typedef double (*pare_statistic)(void *user, const int *pick, int units);

/* units: at least 1. A statistic that is once NaN or infinite has the interval [NaN, NaN]. */
PARE_NODISCARD pare_status pare_resample(pare_ctx *ctx, pare_interval *out, pare_statistic of,
                                         void *user, int units);

/* Interval of the median of times that were measured one after the other. Runs near in time are
   alike, so that what is drawn are stretches of the series, as in the block bootstrap (Kuensch
   1989, Annals of Statistics 17:1217): 40 of them, fewer of at least 5 values where there are fewer
   than 200, each by its median. [NaN, NaN] for fewer than 20 values. */
PARE_NODISCARD pare_status pare_resample_median(pare_ctx *ctx, pare_interval *out,
                                                const double *times, size_t n);
/* The same of the ratio of two medians, first over second, of series measured in turns: stretches
   at the same time are drawn together. */
PARE_NODISCARD pare_status pare_resample_ratio(pare_ctx *ctx, pare_interval *out,
                                               const double *first, size_t n, const double *second,
                                               size_t m);

/* Interval of pare_error_sqnr over units of samples: sums (units). */
PARE_NODISCARD pare_status pare_resample_sqnr(pare_ctx *ctx, pare_interval *out,
                                              const pare_error_stats *sums, int units);

#ifdef __cplusplus
}
#endif
#endif
