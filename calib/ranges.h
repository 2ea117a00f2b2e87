/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the table of statistics (internal to calib/). */
#ifndef PARE_CALIB_RANGES_H
#define PARE_CALIB_RANGES_H

#include "calib/channels.h"
#include "calib/histogram.h"
#include "runtime/base/hash.h"

struct pare_ranges {
    char model[33];      /* hash of the model's file */
    pare_hash data;      /* sum of the samples' hashes */
    int64_t samples;     /* that were run */
    bool minmax_only;    /* of every f32 tensor, without bins */
    pare_device *device; /* where ranges are searched; NULL: on the host */
    pare_stats *stats;
    int count;
};

/* A table with an empty histogram and no channels yet per name; names are copied. */
PARE_NODISCARD pare_status pare_ranges_new(pare_ctx *ctx, pare_ranges **out,
                                           const char *const *names, int count);

/* Adds up the tables of all ranks, which have the same tensors; each then has the sum. */
PARE_NODISCARD pare_status pare_ranges_reduce(pare_ctx *ctx, pare_ranges *ranges, pare_comm *comm);

/* The place of a tensor in a table whose names are sorted, as a calibration's are; -1: none. */
int pare_ranges_place(const pare_ranges *ranges, const char *name);

/* A table of tensors that hold their two ends, once each. */
PARE_NODISCARD pare_status pare_ranges_of_ends(pare_ctx *ctx, pare_ranges **out,
                                               const char *const *names, const float *low,
                                               const float *high, int count);

/* Frees what one row holds. */
void pare_stats_drop(pare_stats *stats);

/* A histogram's bins of one sign as text: counts in hexadecimal, "-n" for n empty bins, the empty
   rest left out. The caller's. NULL with the message set. */
char *pare_bins_print(pare_ctx *ctx, const uint64_t *bins);
/* The same back; false where the text is not that. */
bool pare_bins_parse(const char *text, uint64_t *bins);

/* Sums and largest magnitudes of channels as text: hexadecimal numbers of 2^-40, and the numbers'
   bits. The caller's. NULL with the message set. */
char *pare_sums_print(pare_ctx *ctx, const pare_channels *channels);
char *pare_largest_print(pare_ctx *ctx, const pare_channels *channels);
/* The same back, into a tensor's channels that hold nothing; false where the text is not that. */
PARE_NODISCARD pare_status pare_channels_parse(pare_ctx *ctx, pare_channels *channels,
                                               const char *sums, const char *largest, bool *good);

/* Table from memory: what pare_ranges_read does with a file's content; path is for messages. */
PARE_NODISCARD pare_status pare_ranges_parse(pare_ctx *ctx, pare_ranges **out, const char *text,
                                             size_t size, const char *path);
#endif
