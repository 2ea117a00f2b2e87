/* SPDX-License-Identifier: Apache-2.0 */
/* The range of least squared error. Errors are computed from prefix sums of c, c v and c v^2 over a
   histogram's bins. Candidates for an end: the extreme itself and FINE an octave below it; for u8
   with values of both signs every pair of ends on a coarse scale, then the finer neighbours of the
   best pair. Ties take the larger range. */
#include "calib/range.h"

#include <math.h>

/* --- prefix sums --- */

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

/* --- the search --- */

enum { ENDS = PARE_RANGE_ENDS };

void pare_range_decay(double *decay)
{
    for (int i = 0; i < PARE_RANGE_DECAY; i++) decay[i] = exp2(-(double)i / PARE_RANGE_FINE);
}

static void search_one(const pare_error_sums *s, const double *decay, bool symmetric,
                       double clip_weight, pare_range *out)
{
    float low = out->low, high = out->high;
    double best = INFINITY;
    for (int i = 0; i < ENDS; i++) {
        float a = pare_range_end(decay, low, i), b = pare_range_end(decay, high, i);
        double error = pare_range_cost(s, a, b, symmetric, clip_weight);
        if (error < best) best = error, out->low = a, out->high = b;
    }
}

static double cost_two(const pare_error_sums *s, const double *decay, float low, int i, float high,
                       int k, double clip_weight)
{
    float a = pare_range_end(decay, low, i), b = pare_range_end(decay, high, k);
    return pare_range_cost(s, a, b, false, clip_weight);
}

static void search_two(const pare_error_sums *s, const double *decay, double clip_weight,
                       pare_range *out)
{
    float low = out->low, high = out->high;
    int step = PARE_RANGE_FINE / PARE_RANGE_COARSE, at_low = 0, at_high = 0;
    double best = INFINITY;
    for (int i = 0; i < ENDS; i += step)
        for (int k = 0; k < ENDS; k += step) {
            double error = cost_two(s, decay, low, i, high, k, clip_weight);
            if (error < best) best = error, at_low = i, at_high = k;
        }
    for (; step >= 1; step /= 2)
        for (int round = 0; round < PARE_RANGE_ROUNDS; round++) {
            int i0 = at_low, k0 = at_high;
            for (int di = -1; di <= 1; di++)
                for (int dk = -1; dk <= 1; dk++) {
                    int i = i0 + di * step, k = k0 + dk * step;
                    if (i < 0 || k < 0) continue;
                    double error = cost_two(s, decay, low, i, high, k, clip_weight);
                    if (error < best) best = error, at_low = i, at_high = k;
                }
            if (at_low == i0 && at_high == k0) break;
        }
    out->low = pare_range_end(decay, low, at_low);
    out->high = pare_range_end(decay, high, at_high);
}

void pare_range_least_error(const pare_error_sums *s, bool symmetric, double clip_weight,
                            pare_range *out)
{
    double decay[PARE_RANGE_DECAY];
    float largest = fmaxf(-s->min, s->max);
    out->low = symmetric ? -largest : fminf(s->min, 0);
    out->high = symmetric ? largest : fmaxf(s->max, 0);
    if (s->min == 0 && s->max == 0) return;
    pare_range_decay(decay);
    if (!symmetric && s->min < 0 && s->max > 0)
        search_two(s, decay, clip_weight, out);
    else
        search_one(s, decay, symmetric, clip_weight, out);
}

pare_status pare_range_error(pare_ctx *ctx, const pare_histogram *histogram,
                             const pare_range *range, bool symmetric, double *error, double *square)
{
    pare_error_sums s;
    PARE_TRY(pare_error_sums_new(ctx, &s, histogram));
    const double count = s.count[s.bins];
    *error = pare_range_cost(&s, range->low, range->high, symmetric, PARE_AUTO_CLIP_WEIGHT);
    *square = count > 0 ? s.square[s.bins] / count : 0;
    pare_error_sums_free(&s);
    return PARE_OK;
}
