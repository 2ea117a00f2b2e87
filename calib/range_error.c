/* SPDX-License-Identifier: Apache-2.0 */
/* The squared error of a quantizer, from prefix sums of c, c v and c v^2 over the bins: a level at
   value q takes the values between its neighbours' middles and costs sum c v^2 - 2 q sum c v + q^2
   sum c. */
#include "calib/range.h"

#include <math.h>
#include <string.h>

pare_quantizer pare_range_quantizer(float low, float high, bool symmetric)
{
    if (symmetric) {
        double scale = (double)fmaxf(-low, high) / 127;
        return (pare_quantizer){scale > 0 ? scale : 1, 0, -127, 127};
    }
    double bottom = low < 0 ? (double)low : 0, top = high > 0 ? (double)high : 0;
    double scale = top > bottom ? (top - bottom) / 255 : 1;
    double zero = fmin(fmax(rint(-bottom / scale), 0), 255);
    return (pare_quantizer){scale, (int)zero, 0, 255};
}

/* --- sums --- */

/* The value that stands for bin i of one sign: the middle of its part inside the extremes. */
static double middle(const pare_histogram *h, int sign, int i)
{
    double from = (double)pare_histogram_edge(h, i), to = (double)pare_histogram_edge(h, i + 1);
    double most = sign ? -(double)h->min : (double)h->max;
    double least = sign ? -(double)h->max : (double)h->min;
    if (to > most) to = most;
    if (from < least) from = least;
    return sign ? -(from + to) / 2 : (from + to) / 2;
}

static void append(pare_error_sums *s, double count, double value)
{
    int i = s->bins++;
    s->count[i + 1] = s->count[i] + count;
    s->sum[i + 1] = s->sum[i] + count * value;
    s->square[i + 1] = s->square[i] + count * value * value;
}

pare_status pare_error_sums_new(pare_ctx *ctx, pare_error_sums *out, const pare_histogram *h)
{
    const uint64_t *negative = pare_histogram_bins(h, 1), *positive = pare_histogram_bins(h, 0);
    size_t n = 2 * PARE_HISTOGRAM_BINS + 2;
    *out = (pare_error_sums){.histogram = h};
    out->count = pare_alloc(ctx, 3 * n, sizeof *out->count);
    if (!out->count) return PARE_MEMORY;
    out->sum = out->count + n;
    out->square = out->sum + n;
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

/* --- a quantizer's error --- */

/* How many bins stand below a value: its own bin does where the bin's middle is below it. */
static int bins_below(const pare_error_sums *s, double value)
{
    const pare_histogram *h = s->histogram;
    float magnitude = (float)fabs(value);
    int32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    int32_t i = (bits >> 13) - h->first * PARE_OCTAVE_BINS;
    if (i < 0) return value > 0 ? s->zero + 1 : s->zero;
    bool past = (bits & 0x1fff) > 0x1000; /* beyond the middle of bin i */
    if (value > 0) {
        int at = s->zero + 1 + (i < PARE_HISTOGRAM_BINS ? i + past : PARE_HISTOGRAM_BINS);
        return at < s->bins ? at : s->bins;
    }
    int at = s->zero - (i < PARE_HISTOGRAM_BINS ? i + past : PARE_HISTOGRAM_BINS);
    return at > 0 ? at : 0;
}

/* Error of bins [from, to) at level value v. */
static double part_error(const pare_error_sums *s, int from, int to, double v)
{
    double c = s->count[to] - s->count[from], sum = s->sum[to] - s->sum[from];
    double square = s->square[to] - s->square[from], e = square - 2 * v * sum + v * v * c;
    return e > 0 ? e : 0; /* cancellation may leave less than nothing */
}

double pare_error_of(const pare_error_sums *s, const pare_quantizer *q, double clip_weight)
{
    const pare_histogram *h = s->histogram;
    double lowest = (q->low - q->zero) * q->scale, highest = (q->high - q->zero) * q->scale;
    int begin = bins_below(s, lowest - q->scale / 2), end = bins_below(s, highest + q->scale / 2);
    double error =
        clip_weight * (part_error(s, 0, begin, lowest) + part_error(s, end, s->bins, highest));
    /* levels outside the extremes hold nothing */
    double least = floor((double)h->min / q->scale) + q->zero;
    double most = ceil((double)h->max / q->scale) + q->zero;
    int first = least > q->low ? (int)least : q->low, last = most < q->high ? (int)most : q->high;
    int from = begin;
    for (int level = first; level <= last; level++) {
        double v = (level - q->zero) * q->scale;
        int to = level == last ? end : bins_below(s, v + q->scale / 2);
        if (to > from) error += part_error(s, from, to, v);
        from = to > from ? to : from;
    }
    double n = s->count[s->bins];
    return n > 0 ? error / n : 0;
}
