/* SPDX-License-Identifier: Apache-2.0 */
/* Means and largest magnitudes of a tensor's channels. Channels are axis 1 of tensors of four or
   more axes and the last axis of the others: what a convolution and a matrix product sum over. A
   channel's values in a sample, in logical order, are cut into segments of 512. Value i of a
   segment is added in double to sum i % 16, then the 16 are added in order; this becomes a whole
   number of 2^-40 in 128 bits, and whole numbers are added up: means depend on neither memory
   order, pieces, threads, devices nor merging. */
#ifndef PARE_CALIB_CHANNELS_H
#define PARE_CALIB_CHANNELS_H

#include "calib/calib.h"
#include "runtime/ops/kernel.h"

typedef pare_int128 pare_wide; /* a sum, in units of 2^-40 */

enum { PARE_WIDE_SHIFT = 40 };

struct pare_channels {
    int64_t count; /* of channels; 0: nothing was added, or */
    bool mixed;    /* tensors that differ in their number: there are no means */
    uint64_t each; /* values a channel */
    uint64_t
        lost; /* segments' sums that were NaN, infinite or beyond 2^60: then no mean is known */
    pare_wide *sum; /* (count) */
    float *largest; /* (count) of |x|; NaN does not count */
};

PARE_NODISCARD pare_status pare_channels_new(pare_ctx *ctx, pare_channels **out);
void pare_channels_free(pare_channels *channels);
/* Makes room for so many channels, where there are none yet. */
PARE_NODISCARD pare_status pare_channels_open(pare_ctx *ctx, pare_channels *channels,
                                              int64_t count);

/* The channel axis of a tensor of that rank; -1: a scalar has none. */
static inline int pare_channels_axis(int rank) { return rank >= 4 ? 1 : rank - 1; }

/* Leaves no means: tensors were added that differ in their number of channels. */
void pare_channels_mix(pare_channels *channels);

/* Adds a tensor of f32 (others are left out); its first axis holds `samples` samples of equal size.
 */
PARE_NODISCARD pare_status pare_channels_add(pare_ctx *ctx, pare_channels *channels,
                                             const pare_view *view, int64_t samples);
/* Adds another tensor's. PARE_INPUT: sums that overflow. */
PARE_NODISCARD pare_status pare_channels_merge(pare_ctx *ctx, pare_channels *to,
                                               const pare_channels *from);

/* Are means known? */
static inline bool pare_channels_known(const pare_channels *c)
{
    return c->count > 0 && c->each > 0 && c->lost == 0;
}
double pare_channels_mean(const pare_channels *channels, int64_t c);
#endif
