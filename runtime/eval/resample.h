/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap intervals (Efron 1979, Annals of Statistics 7:1): a statistic is computed of 2,000 sets
   of units drawn with replacement, and the middle 95 % of what it came to is its interval. Draws
   are those of SplitMix64 (Steele, Lea, Flood 2014, OOPSLA) from one fixed state: same values, same
   interval. */
#ifndef PARE_RUNTIME_EVAL_RESAMPLE_H
#define PARE_RUNTIME_EVAL_RESAMPLE_H

#include "runtime/base/ctx.h"
#include "runtime/eval/stats.h"

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
#endif
