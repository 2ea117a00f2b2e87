/* SPDX-License-Identifier: Apache-2.0 */
/* When requests are due: arrival times that are drawn before a load begins, so that no answer
   changes them (an open loop: Schroeder, Wierman, Harchol-Balter 2006, NSDI). */
#ifndef PARE_TOOLS_LOAD_SCHEDULE_H
#define PARE_TOOLS_LOAD_SCHEDULE_H

#include "runtime/base/ctx.h"

enum { PARE_LOAD_RATES = 64 };

/* Offered loads, one after the other. */
typedef struct pare_load_rates {
    bool is_poisson; /* gaps are exponential; else all are alike */
    int count;
    double per_s[PARE_LOAD_RATES]; /* requests a second */
} pare_load_rates;

/* Of "poisson:100,200" or "constant:50"; a number alone is constant. PARE_USAGE: a rate is no
   number in (0, 1e6], or there are too many. */
PARE_NODISCARD pare_status pare_load_rates_parse(pare_ctx *ctx, pare_load_rates *out,
                                                 const char *text);

/* Times in [0, seconds), ascending, freed with pare_free; the first of constant ones is 0. The same
   seed gives the same Poisson times, at another rate stretched. PARE_USAGE: more than 1e8 of them,
   or none. */
PARE_NODISCARD pare_status pare_load_schedule(pare_ctx *ctx, double **out, size_t *count,
                                              bool is_poisson, double per_s, double seconds,
                                              uint64_t seed);
#endif
