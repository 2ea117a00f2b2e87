/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of one runner's tensors where the tensors are: on its device. They are the same
   integers as the host's; only they come down, at the end (internal to calib/). */
#ifndef PARE_CALIB_DEVICE_H
#define PARE_CALIB_DEVICE_H

#include "calib/ranges.h"
#include "runtime/device/samples.h"
#include "runtime/ops/kernel.h"

typedef struct pare_device_stats pare_device_stats;

/* Empty statistics of `count` tensors; minmax_only: without bins and channels. */
PARE_NODISCARD pare_status pare_device_stats_open(pare_ctx *ctx, pare_device_stats **out,
                                                  pare_device *device, int count, bool minmax_only);
void pare_device_stats_close(pare_device_stats *stats); /* NULL is fine */

/* Puts the addition of a tensor of the device, of `samples` samples, into the stream. Allocates at
   a tensor's first call. */
PARE_NODISCARD pare_status pare_device_stats_add(pare_device_stats *stats, int tensor,
                                                 const pare_view *view, int64_t samples,
                                                 pare_stream *stream);

/* Adds all of it to a table of that many tensors; the streams it was put into must be empty. */
PARE_NODISCARD pare_status pare_device_stats_fetch(const pare_device_stats *stats, pare_ranges *to);

#endif
