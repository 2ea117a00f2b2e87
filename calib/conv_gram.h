/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments of what a convolution with stride 1 sees, without writing its columns down. */
#ifndef PARE_CALIB_CONV_GRAM_H
#define PARE_CALIB_CONV_GRAM_H

#include "calib/moments.h"

/* Moments of one group on their way. */
typedef struct pare_conv_gram pare_conv_gram;

/* Is it quicker that way? Of convolutions with stride 1, more than one tap and enough channels. */
bool pare_conv_gram_can(const pare_columns *columns);
/* What pare_conv_gram_new asks for. */
size_t pare_conv_gram_bytes(const pare_columns *columns, bool targets);
PARE_NODISCARD pare_status pare_conv_gram_new(pare_ctx *ctx, pare_conv_gram **out,
                                              const pare_columns *columns, bool targets,
                                              int threads);
void pare_conv_gram_free(pare_conv_gram *shifts);
/* Adds a run as pare_observer_add does; what a full portion comes to goes into sum. */
PARE_NODISCARD pare_status pare_conv_gram_add(pare_conv_gram *shifts, int64_t group, const float *x,
                                              const float *t, const float *s, pare_moments *sum);
/* Adds what is still waiting, and what shifted planes came to; once, after the last run. */
PARE_NODISCARD pare_status pare_conv_gram_finish(pare_conv_gram *shifts, pare_moments *sum);

#endif
