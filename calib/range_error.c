/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix sums of c, c v and c v^2 over a histogram's bins, from which range.h computes errors. */
#include "calib/range.h"

static void append(pare_error_sums *s, double count, double value)
{
    int i = s->bins++;
    s->count[i + 1] = s->count[i] + count;
    s->sum[i + 1] = s->sum[i] + count * value;
    s->square[i + 1] = s->square[i] + count * value * value;
}

static double middle(const pare_histogram *h, int sign, int i)
{
    return pare_bin_middle(h->first, h->min, h->max, sign, i);
}

pare_status pare_error_sums_new(pare_ctx *ctx, pare_error_sums *out, const pare_histogram *h)
{
    const uint64_t *negative = pare_histogram_bins(h, 1), *positive = pare_histogram_bins(h, 0);
    *out = (pare_error_sums){.first = h->first, .min = h->min, .max = h->max};
    out->count = pare_alloc(ctx, 3 * PARE_ERROR_SUMS, sizeof *out->count);
    if (!out->count) return PARE_MEMORY;
    out->sum = out->count + PARE_ERROR_SUMS;
    out->square = out->sum + PARE_ERROR_SUMS;
    for (int i = PARE_HISTOGRAM_BINS - 1; negative && i >= 0; i--)
        append(out, (double)negative[i], negative[i] ? middle(h, 1, i) : 0);
    out->zero = out->bins;
    uint64_t near = h->zero + (negative ? negative[-1] : 0) + (positive ? positive[-1] : 0);
    append(out, (double)near, 0);
    for (int i = 0; positive && i < PARE_HISTOGRAM_BINS; i++)
        append(out, (double)positive[i], positive[i] ? middle(h, 0, i) : 0);
    return PARE_OK;
}

void pare_error_sums_free(pare_error_sums *s)
{
    pare_free(s->count);
    s->count = NULL;
}
