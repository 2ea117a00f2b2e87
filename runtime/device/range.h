/* SPDX-License-Identifier: Apache-2.0 */
/* What a range costs: the arithmetic of searches, one text for every backend, so that all choose
   the same. Numbers are double; nothing here rounds otherwise on one machine than on another. */
#ifndef PARE_RUNTIME_DEVICE_RANGE_H
#define PARE_RUNTIME_DEVICE_RANGE_H

#include "runtime/base/both.h"
#include "runtime/device/samples.h"

#include <math.h>
#include <string.h>

/* Natural logarithm from operations that round alike everywhere; libraries' differ in the last bit,
   and a tie may hang on that. x = 2^k m with m between 1/sqrt 2 and sqrt 2, log m = 2 artanh s with
   s = (m - 1) / (m + 1), as its series (Abramowitz and Stegun, 4.1.27): z^11 / 23 with z = s^2 <
   0.0295 is below 2^-64. For positive normal numbers; 0 gives minus infinity. */
PARE_BOTH double pare_logarithm(double x)
{
    const double high = 0x1.62e42fefa38p-1, low = 0x1.ef35793c7673p-45; /* of log 2 */
    if (!(x > 0)) return -INFINITY;
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffll) | 0x3ff0000000000000ll;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) m *= 0.5, k++;
    double s = (m - 1) / (m + 1), z = s * s, sum = 1.0 / 21;
    sum = sum * z + 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    return k * high + (2 * s + (2 * s * (sum * z) + k * low));
}

/* --- bins --- */

/* Magnitude at which bin i begins, of a histogram whose bin 0 begins octave `first`. */
PARE_BOTH float pare_bin_edge(int first, int i)
{
    uint32_t bits = ((uint32_t)first * PARE_OCTAVE_BINS + (uint32_t)i) << PARE_BIN_SHIFT;
    float edge;
    memcpy(&edge, &bits, sizeof edge);
    return edge;
}

/* The value that stands for bin i of one sign: the middle of its part inside the minmax_only. */
PARE_BOTH double pare_bin_middle(int first, float min, float max, int sign, int i)
{
    double from = (double)pare_bin_edge(first, i), to = (double)pare_bin_edge(first, i + 1);
    double most = sign ? -(double)min : (double)max;
    double least = sign ? -(double)max : (double)min;
    if (to > most) to = most;
    if (from < least) from = least;
    return sign ? -(from + to) / 2 : (from + to) / 2;
}

/* Which of PARE_GRID_BINS uniform bins of [0, 2^j), 2^j just above the top octave, holds bin i.
   Denormals (octave 0) have octave 1's spacing and no leading one. */
enum { PARE_GRID_BINS = 2048 };

PARE_BOTH int pare_grid_place(int first, int top, int i)
{
    int octave = first + i / PARE_OCTAVE_BINS, mantissa = i % PARE_OCTAVE_BINS;
    int down = top - (octave ? octave : 1);
    int at = (octave ? PARE_OCTAVE_BINS : 0) + mantissa;
    return down < 0 ? at : down < 31 ? at >> down : 0;
}

/* Width of a bin of that grid; 1.0 is octave 127. */
PARE_BOTH double pare_grid_width(int top)
{
    return ldexp(1.0, (top > 1 ? top : 1) - 127) / (PARE_GRID_BINS / 2);
}

/* --- percentile --- */

/* How many of n values are beyond the end (with a zero point: beyond each end). */
PARE_BOTH double pare_percentile_cut(double n, double percent, bool symmetric)
{
    double cut = n * (100 - percent) / 100;
    if (!symmetric) cut /= 2;
    return floor(cut * (1 + 1e-12) + 1e-9); /* 99.9 percent of 1,000 cuts one value */
}

/* --- entropy (Migacz, "8-bit Inference with TensorRT", GTC 2017) --- */

/* Prefix sums of a grid of n bins: (n + 1) each. */
typedef struct pare_entropy_sums {
    const double *bin;          /* (n) */
    double *count, *used, *log; /* of counts, of bins that are not empty, of c log c */
    int n;
} pare_entropy_sums;

PARE_BOTH double pare_c_log_c(double c) { return c > 0 ? c * pare_logarithm(c) : 0; }

/* Kullback-Leibler divergence of the values clipped to bins [first, last) from their quantization
   to `levels` levels: clipped mass goes into the outermost bins, a level's mass is spread over its
   bins that are not empty. Infinite where a level without mass would have to hold some. KL = sum p
   log p - sum p log q, p and q scaled to 1; over the bins of a level q is constant. */
PARE_BOTH double pare_entropy_of(const pare_entropy_sums *s, int first, int last, int levels)
{
    double total = s->count[s->n], inside = s->count[last] - s->count[first];
    double under = s->count[first], over = total - s->count[last];
    double low = s->bin[first], high = s->bin[last - 1];
    double plogp = s->log[last] - s->log[first] - pare_c_log_c(low) + pare_c_log_c(low + under) -
                   pare_c_log_c(high) + pare_c_log_c(high + over);
    double plogq = 0;
    int64_t width = last - first;
    int from = first;
    for (int g = 0; g < levels; g++) {
        int to = first + (int)((g + 1) * width / levels);
        double mass = s->count[to] - s->count[from], used = s->used[to] - s->used[from], p = mass;
        if (g == 0 && under > 0) p += under, used += low == 0;
        if (g == levels - 1 && over > 0) p += over, used += high == 0;
        if (p > 0 && mass == 0) return INFINITY;
        if (mass > 0) plogq += p * pare_logarithm(mass / used);
        from = to;
    }
    /* p / total and q / inside */
    return (plogp - plogq) / total + pare_logarithm(inside / total);
}

enum {
    PARE_ENTROPY_SYMMETRIC = 128, /* levels of |x| */
    PARE_ENTROPY_LEVELS = 256,
    PARE_ENTROPY_STRIDE = 8, /* of the two-sided search's first look */
    PARE_ENTROPY_ROUNDS = 8
};

/* --- squared error --- */

/* A quantizer's levels are (q - zero) * scale, q from low to high. */
typedef struct pare_quantizer {
    double scale;
    int zero, low, high;
} pare_quantizer;

/* The quantizer of a range: s8 in [-127, 127] with zero point 0, or u8 with the zero point that
   makes 0.0 exact. A range that is all zero has the scale 1. */
PARE_BOTH pare_quantizer pare_range_quantizer(float low, float high, bool symmetric)
{
    pare_quantizer q;
    double bottom = low < 0 ? (double)low : 0, top = high > 0 ? (double)high : 0;
    if (symmetric) {
        double scale = (double)(-low > high ? -low : high) / 127;
        q.scale = scale > 0 ? scale : 1;
        q.zero = 0;
        q.low = -127;
        q.high = 127;
        return q;
    }
    q.scale = top > bottom ? (top - bottom) / 255 : 1;
    double zero = rint(-bottom / q.scale);
    q.zero = (int)(zero < 0 ? 0 : zero > 255 ? 255 : zero);
    q.low = 0;
    q.high = 255;
    return q;
}

/* Prefix sums over all bins in ascending order of value, each bin at its middle (the outermost bins
   end at the minmax_only): zeros and what is below the window are at 0. */
typedef struct pare_error_sums {
    double *count, *sum, *square; /* (bins + 1) */
    int bins, zero;               /* zero: position of the bin of 0 */
    int first;                    /* octave of bin 0 */
    float min, max;
} pare_error_sums;

/* Most elements of one of its arrays. */
enum { PARE_ERROR_SUMS = 2 * PARE_HISTOGRAM_BINS + 2 };

/* How many bins are below a value: its own bin does where the bin's middle is below it. */
PARE_BOTH int pare_bins_below(const pare_error_sums *s, double value)
{
    float magnitude = (float)fabs(value);
    int32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    int32_t i = (bits >> PARE_BIN_SHIFT) - s->first * PARE_OCTAVE_BINS;
    if (i < 0) return value > 0 ? s->zero + 1 : s->zero;
    bool past = (bits & 0x1fff) > 0x1000; /* beyond the middle of bin i */
    int bins = i < PARE_HISTOGRAM_BINS ? i + past : PARE_HISTOGRAM_BINS;
    int at = value > 0 ? s->zero + 1 + bins : s->zero - bins;
    return at < 0 ? 0 : at < s->bins ? at : s->bins;
}

/* Error of bins [from, to) at level value v: sum c x^2 - 2 v sum c x + v^2 sum c. */
PARE_BOTH double pare_part_error(const pare_error_sums *s, int from, int to, double v)
{
    double c = s->count[to] - s->count[from], sum = s->sum[to] - s->sum[from];
    double square = s->square[to] - s->square[from], e = square - 2 * v * sum + v * v * c;
    return e > 0 ? e : 0; /* cancellation may leave less than nothing */
}

/* Expected squared error of a value, clipping weighed `clip_weight` times rounding: a level takes
   the values between its neighbours' middles. */
PARE_BOTH double pare_error_of(const pare_error_sums *s, const pare_quantizer *q,
                               double clip_weight)
{
    double lowest = (q->low - q->zero) * q->scale, highest = (q->high - q->zero) * q->scale;
    int begin = pare_bins_below(s, lowest - q->scale / 2);
    int end = pare_bins_below(s, highest + q->scale / 2);
    double error = clip_weight * (pare_part_error(s, 0, begin, lowest) +
                                  pare_part_error(s, end, s->bins, highest));
    /* levels outside the minmax_only hold nothing */
    double least = floor((double)s->min / q->scale) + q->zero;
    double most = ceil((double)s->max / q->scale) + q->zero;
    int first = least > q->low ? (int)least : q->low, last = most < q->high ? (int)most : q->high;
    int from = begin;
    for (int level = first; level <= last; level++) {
        double v = (level - q->zero) * q->scale;
        int to = level == last ? end : pare_bins_below(s, v + q->scale / 2);
        if (to > from) error += pare_part_error(s, from, to, v);
        from = to > from ? to : from;
    }
    double n = s->count[s->bins];
    return n > 0 ? error / n : 0;
}

/* Candidates for an end: the extreme itself and PARE_RANGE_FINE an octave below it. */
enum {
    PARE_RANGE_OCTAVES = 5, /* ends down to 1/32 of the extreme */
    PARE_RANGE_FINE = 128,
    PARE_RANGE_COARSE = 8, /* of the two-sided search's first look */
    PARE_RANGE_ROUNDS = 4, /* of its later ones, on each scale */
    PARE_RANGE_ENDS = PARE_RANGE_OCTAVES * PARE_RANGE_FINE,
    PARE_RANGE_DECAY = PARE_RANGE_ENDS + PARE_RANGE_FINE /* the later looks reach a little lower */
};

/* Candidate i of an end; decay[i] is 2^(-i / PARE_RANGE_FINE), (PARE_RANGE_DECAY). */
PARE_BOTH float pare_range_end(const double *decay, float extreme, int i)
{
    return i <= 0 ? extreme : (float)((double)extreme * decay[i]);
}

PARE_BOTH double pare_range_cost(const pare_error_sums *s, float low, float high, bool symmetric,
                                 double clip_weight)
{
    pare_quantizer q = pare_range_quantizer(low, high, symmetric);
    return pare_error_of(s, &q, clip_weight);
}

#endif
