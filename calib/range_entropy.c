/* SPDX-License-Identifier: Apache-2.0 */
/* Entropy calibration (Migacz, "8-bit Inference with TensorRT", GTC 2017). With prefix sums of
   counts, of bins in use and of c log c, a candidate costs one term a level instead of one a bin
   (pare_entropy_of).

   Symmetric: 128 levels on |x|; u8 of one sign: 256 levels; u8 of both: 256 levels between two
   ends, searched one end at a time. Candidates are tried in ascending order, ties take the larger
   range. */
#include "calib/range.h"

#include <math.h>
#include <string.h>

/* --- grids --- */

static void regroup(const pare_histogram *h, const uint64_t *bins, double *out)
{
    if (!bins) return;
    out[0] += (double)bins[-1];
    for (int i = 0; i < PARE_HISTOGRAM_BINS; i++)
        if (bins[i]) out[pare_grid_place(h->first, h->top, i)] += (double)bins[i];
}

double pare_grid_make(const pare_histogram *h, int sign, double *bins)
{
    memset(bins, 0, PARE_GRID_BINS * sizeof *bins);
    if (sign <= 0) regroup(h, pare_histogram_bins(h, 0), bins);
    if (sign != 0) regroup(h, pare_histogram_bins(h, 1), bins);
    return pare_grid_width(h->top);
}

void pare_entropy_prepare(pare_entropy_sums *s)
{
    s->count[0] = s->used[0] = s->log[0] = 0;
    for (int i = 0; i < s->n; i++) {
        s->count[i + 1] = s->count[i] + s->bin[i];
        s->used[i + 1] = s->used[i] + (s->bin[i] > 0);
        s->log[i + 1] = s->log[i] + pare_c_log_c(s->bin[i]);
    }
}

/* --- searching --- */

/* The best end of a range that begins at bin 0. */
static int search_one(const pare_entropy_sums *s, int levels)
{
    double best = INFINITY;
    int at = s->n;
    for (int last = levels; last <= s->n; last++) {
        double kl = pare_entropy_of(s, 0, last, levels);
        if (kl <= best) best = kl, at = last;
    }
    return at;
}

/* The best place of one end (upper: last, else first), the other fixed: every
   PARE_ENTROPY_STRIDE-th, then the neighbours of the best. Smaller distance from the zero bin
   first. */
static void search_end(const pare_entropy_sums *s, int zero, bool upper, int *first, int *last,
                       double *best)
{
    int room = upper ? s->n - zero : zero, start = upper ? *last - zero : zero - *first;
    int from = 0, to = room, found = start;
    for (int stride = PARE_ENTROPY_STRIDE; stride >= 1; stride /= PARE_ENTROPY_STRIDE) {
        for (int i = from; i <= to; i += stride) {
            int a = upper ? *first : zero - i, b = upper ? zero + i : *last;
            if (b - a < PARE_ENTROPY_LEVELS) continue;
            double kl = pare_entropy_of(s, a, b, PARE_ENTROPY_LEVELS);
            if (kl < *best || (kl == *best && i > found)) *best = kl, found = i;
        }
        from = found > PARE_ENTROPY_STRIDE ? found - PARE_ENTROPY_STRIDE : 0;
        to = found + PARE_ENTROPY_STRIDE < room ? found + PARE_ENTROPY_STRIDE : room;
    }
    if (upper)
        *last = zero + found;
    else
        *first = zero - found;
}

static void search_both(const pare_entropy_sums *s, int zero, int *first, int *last)
{
    *first = 0;
    *last = s->n;
    double best = pare_entropy_of(s, 0, s->n, PARE_ENTROPY_LEVELS);
    for (int round = 0; round < PARE_ENTROPY_ROUNDS; round++) {
        int a = *first, b = *last;
        search_end(s, zero, true, first, last, &best);
        search_end(s, zero, false, first, last, &best);
        if (a == *first && b == *last) break;
    }
}

/* --- the range --- */

/* Bins up to the last one in use. */
static int used_bins(const double *bins)
{
    int n = PARE_GRID_BINS;
    while (n > 0 && bins[n - 1] == 0) n--;
    return n;
}

typedef struct workspace {
    double positive[PARE_GRID_BINS], bin[2 * PARE_GRID_BINS];
    double count[2 * PARE_GRID_BINS + 1], used[2 * PARE_GRID_BINS + 1], log[2 * PARE_GRID_BINS + 1];
} workspace;

static void choose_two_sided(const pare_histogram *h, workspace *w, pare_range *out)
{
    double negative[PARE_GRID_BINS], width = pare_grid_make(h, 0, w->positive);
    (void)pare_grid_make(h, 1, negative);
    int up = used_bins(w->positive), down = used_bins(negative), first, last;
    for (int i = 0; i < down; i++) w->bin[i] = negative[down - 1 - i];
    memcpy(w->bin + down, w->positive, (size_t)up * sizeof *w->bin);
    pare_entropy_sums s = {w->bin, w->count, w->used, w->log, down + up};
    pare_entropy_prepare(&s);
    if (s.n < PARE_ENTROPY_LEVELS) return;
    search_both(&s, down, &first, &last);
    out->high = fminf(out->high, (float)((last - down) * width));
    out->low = fmaxf(out->low, (float)((first - down) * width));
}

pare_status pare_range_entropy(pare_ctx *ctx, const pare_histogram *h, bool symmetric,
                               pare_range *out)
{
    float largest = fmaxf(-h->min, h->max);
    bool both = !symmetric && h->min < 0 && h->max > 0;
    out->low = symmetric ? -largest : fminf(h->min, 0);
    out->high = symmetric ? largest : fmaxf(h->max, 0);
    if (pare_histogram_nonzero(h) == 0) return PARE_OK;
    workspace *w = pare_alloc(ctx, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    int levels = symmetric ? PARE_ENTROPY_SYMMETRIC : PARE_ENTROPY_LEVELS;
    if (both) {
        choose_two_sided(h, w, out);
    } else {
        double width = pare_grid_make(h, -1, w->bin);
        pare_entropy_sums s = {w->bin, w->count, w->used, w->log, used_bins(w->bin)};
        pare_entropy_prepare(&s);
        float end = fminf(largest, (float)(search_one(&s, levels) * width));
        if (out->high > 0) out->high = end;
        if (out->low < 0) out->low = -end;
    }
    pare_free(w);
    return PARE_OK;
}
