/* SPDX-License-Identifier: Apache-2.0 */
/* The range of least squared error. Candidates for an end: the extreme itself and FINE an octave
   below it; for u8 with values of both signs every pair of ends on a coarse scale, then the finer
   neighbours of the best pair. Ties take the larger range. */
#include "calib/range.h"

#include <math.h>

enum {
    OCTAVES = 5, /* ends down to 1/32 of the extreme */
    FINE = 128,  /* candidates an octave */
    COARSE = 8,
    ENDS = OCTAVES * FINE
};

/* Candidate i of an end, falling from the extreme: geometric, ENDS in all. */
static float end_at(float extreme, int i)
{
    return i <= 0 ? extreme : (float)((double)extreme * exp2(-(double)i / FINE));
}

static double cost(const pare_error_sums *s, float low, float high, bool symmetric,
                   double clip_weight)
{
    pare_quantizer q = pare_range_quantizer(low, high, symmetric);
    return pare_error_of(s, &q, clip_weight);
}

static void search_one(const pare_error_sums *s, bool symmetric, double clip_weight,
                       pare_range *out)
{
    float low = out->low, high = out->high;
    double best = INFINITY;
    for (int i = 0; i < ENDS; i++) {
        float a = end_at(low, i), b = end_at(high, i);
        double error = cost(s, a, b, symmetric, clip_weight);
        if (error < best) best = error, out->low = a, out->high = b;
    }
}

static void search_two(const pare_error_sums *s, double clip_weight, pare_range *out)
{
    float low = out->low, high = out->high;
    int step = FINE / COARSE, at_low = 0, at_high = 0;
    double best = INFINITY;
    for (int i = 0; i < ENDS; i += step)
        for (int k = 0; k < ENDS; k += step) {
            double error = cost(s, end_at(low, i), end_at(high, k), false, clip_weight);
            if (error < best) best = error, at_low = i, at_high = k;
        }
    for (; step >= 1; step /= 2)
        for (int round = 0; round < 4; round++) {
            int i0 = at_low, k0 = at_high;
            for (int di = -1; di <= 1; di++)
                for (int dk = -1; dk <= 1; dk++) {
                    int i = i0 + di * step, k = k0 + dk * step;
                    if (i < 0 || k < 0) continue;
                    double error = cost(s, end_at(low, i), end_at(high, k), false, clip_weight);
                    if (error < best) best = error, at_low = i, at_high = k;
                }
            if (at_low == i0 && at_high == k0) break;
        }
    out->low = end_at(low, at_low);
    out->high = end_at(high, at_high);
}

void pare_range_least_error(const pare_error_sums *s, bool symmetric, double clip_weight,
                            pare_range *out)
{
    const pare_histogram *h = s->histogram;
    float largest = fmaxf(-h->min, h->max);
    out->low = symmetric ? -largest : fminf(h->min, 0);
    out->high = symmetric ? largest : fmaxf(h->max, 0);
    if (pare_histogram_nonzero(h) == 0) return;
    if (!symmetric && h->min < 0 && h->max > 0)
        search_two(s, clip_weight, out);
    else
        search_one(s, symmetric, clip_weight, out);
}
