/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments of what a convolution with stride 1 sees, without writing its columns down. */
#ifndef PARE_CALIB_SHIFTS_H
#define PARE_CALIB_SHIFTS_H

#include "calib/moments.h"

/* Moments of one group on their way. */
typedef struct pare_shifts pare_shifts;

/* Is it quicker that way? Of convolutions with stride 1, more than one tap and enough channels. */
bool pare_shifts_serve(const pare_columns *columns);
/* What pare_shifts_new asks for. */
size_t pare_shifts_bytes(const pare_columns *columns, bool targets);
PARE_NODISCARD pare_status pare_shifts_new(pare_ctx *ctx, pare_shifts **out,
                                           const pare_columns *columns, bool targets, int threads);
void pare_shifts_free(pare_shifts *shifts);
/* Adds a run as pare_observer_add does; what a full portion comes to goes into sum. */
PARE_NODISCARD pare_status pare_shifts_add(pare_shifts *shifts, int64_t group, const float *x,
                                           const float *t, const float *s, pare_moments *sum);
/* Adds what is still waiting, and what shifted planes came to; once, after the last run. */
PARE_NODISCARD pare_status pare_shifts_finish(pare_shifts *shifts, pare_moments *sum);

#endif
