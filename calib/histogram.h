/* SPDX-License-Identifier: Apache-2.0 */
/* Exact, mergeable histograms of floats. A bin is the top 19 bits of the number (sign, exponent, 10
   mantissa bits: 1,024 bins an octave), kept for the 12 highest octaves seen over both signs; what
   is smaller is counted in one `below` per sign. Zeros, NaN and Inf are counted apart, smallest and
   largest finite value are exact. All of it depends on the multiset of values alone: not on order,
   pieces or merging. At most 192 KiB; the negative half exists once a negative value came. */
#ifndef PARE_CALIB_HISTOGRAM_H
#define PARE_CALIB_HISTOGRAM_H

#include "calib/calib.h"
#include "runtime/base/types.h"
#include "runtime/device/samples.h"

enum { PARE_HISTOGRAM_SPREAD = 16 }; /* slots in which zeros are counted while adding */

struct pare_histogram {
    uint64_t count;          /* of all values */
    uint64_t zero, nan, inf; /* inf: of both signs */
    float min, max;          /* of the finite values; 0 where there are none */
    int first;               /* octave (biased exponent) of bin 0 */
    int top;                 /* highest octave seen, -1: no value but zeros yet */
    /* Spread slots, then per sign (positive first): below, PARE_HISTOGRAM_BINS bins. */
    uint64_t *slot;
    bool negative; /* the second half is there */
};

PARE_NODISCARD pare_status pare_histogram_new(pare_ctx *ctx, pare_histogram **out);
void pare_histogram_free(pare_histogram *histogram);

/* Adds count values of type f32, f16, bf16 or f64 (rounded to f32). PARE_MEMORY, PARE_UNSUPPORTED.
 */
PARE_NODISCARD pare_status pare_histogram_add(pare_ctx *ctx, pare_histogram *histogram,
                                              pare_dtype dtype, const void *data, int64_t count);
/* Counts the values and keeps their minmax_only, without bins or zeros: a histogram of a few dozen
   bytes that only min-max can be chosen from. */
PARE_NODISCARD pare_status pare_histogram_add_minmax(pare_ctx *ctx, pare_histogram *histogram,
                                                     pare_dtype dtype, const void *data,
                                                     int64_t count);
/* Adds another histogram's counts. */
PARE_NODISCARD pare_status pare_histogram_merge(pare_ctx *ctx, pare_histogram *to,
                                                const pare_histogram *from);

/* Opens the octaves up to `octave`, the negative half too where asked (readers of files). */
PARE_NODISCARD pare_status pare_histogram_open(pare_ctx *ctx, pare_histogram *histogram, int octave,
                                               bool negative);

/* Bins of one sign (0: positive, 1: negative), or NULL; its below counter is bins[-1]. */
static inline uint64_t *pare_histogram_bins(const pare_histogram *h, int sign)
{
    if (!h->slot || (sign && !h->negative)) return (uint64_t *)0;
    return h->slot + PARE_HISTOGRAM_SPREAD + 1 + sign * (PARE_HISTOGRAM_BINS + 1);
}

/* Magnitude at which bin i of this histogram begins; i up to PARE_HISTOGRAM_BINS. */
float pare_histogram_edge(const pare_histogram *histogram, int i);

/* Finite values other than zero. */
static inline uint64_t pare_histogram_nonzero(const pare_histogram *h)
{
    return h->count - h->zero - h->nan - h->inf;
}
#endif
