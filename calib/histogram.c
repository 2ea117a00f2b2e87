/* SPDX-License-Identifier: Apache-2.0 */
/* Adding runs in blocks that stay in the first-level cache: a vector pass finds the minmax_only,
   which open octaves; a vector pass turns numbers into 16-bit slot numbers; a scalar pass counts.
   Zeros, half of what a ReLU makes, go to 16 slots in turn, so that no increment waits for the one
   before.
 */
#include "calib/histogram.h"
#include "runtime/base/clones.h"
#include "runtime/device/range.h"

#include <string.h>

enum {
    BLOCK = 2048,
    HALF = PARE_HISTOGRAM_BINS + 1, /* slots of one sign */
    FIRST = PARE_HISTOGRAM_SPREAD
};

pare_status pare_histogram_new(pare_ctx *ctx, pare_histogram **out)
{
    *out = pare_alloc(ctx, 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    (*out)->top = -1;
    return PARE_OK;
}

void pare_histogram_free(pare_histogram *h)
{
    if (!h) return;
    pare_free(h->slot);
    pare_free(h);
}

float pare_histogram_edge(const pare_histogram *h, int i) { return pare_bin_edge(h->first, i); }

/* --- the window --- */

/* Moves one sign's bins down by `by` octaves, the lowest into below. */
static void fold(uint64_t *bins, int by)
{
    int n = by < PARE_OCTAVES ? by * PARE_OCTAVE_BINS : PARE_HISTOGRAM_BINS;
    for (int i = 0; i < n; i++) bins[-1] += bins[i];
    memmove(bins, bins + n, (size_t)(PARE_HISTOGRAM_BINS - n) * sizeof *bins);
    memset(bins + PARE_HISTOGRAM_BINS - n, 0, (size_t)n * sizeof *bins);
}

pare_status pare_histogram_open(pare_ctx *ctx, pare_histogram *h, int octave, bool negative)
{
    if (!h->slot || (negative && !h->negative)) {
        size_t have = h->slot ? FIRST + HALF : 0, want = FIRST + HALF * (negative ? 2 : 1);
        uint64_t *slot = pare_alloc(ctx, want, sizeof *slot);
        if (!slot) return PARE_MEMORY;
        if (have) memcpy(slot, h->slot, have * sizeof *slot);
        pare_free(h->slot);
        h->slot = slot;
        h->negative |= negative;
    }
    if (octave <= h->top) return PARE_OK;
    int first = octave < PARE_OCTAVES ? 0 : octave - PARE_OCTAVES + 1;
    for (int s = 0; s < 2 && h->top >= 0; s++)
        if (first > h->first && pare_histogram_bins(h, s))
            fold(pare_histogram_bins(h, s), first - h->first);
    h->top = octave;
    h->first = first;
    return PARE_OK;
}

/* --- adding --- */

typedef uint32_t word __attribute__((may_alias)); /* a float's bits, read in place */

typedef struct minmax_only {
    int32_t low, high; /* numbers as integers of the same order */
    int32_t largest;   /* of the magnitudes' bits */
} minmax_only;

PARE_CLONES static minmax_only look(const word *x, int n)
{
    int32_t low = INT32_MAX, high = INT32_MIN, largest = 0;
    for (int i = 0; i < n; i++) {
        int32_t v = (int32_t)x[i], magnitude = v & 0x7fffffff;
        int32_t ordered = v ^ ((v >> 31) & 0x7fffffff);
        low = ordered < low ? ordered : low;
        high = ordered > high ? ordered : high;
        largest = magnitude > largest ? magnitude : largest;
    }
    return (minmax_only){low, high, largest};
}

/* Slot of each number; base is the key of bin 0. */
PARE_CLONES static void place(const word *x, uint16_t *slot, int n, int32_t base)
{
    for (int i = 0; i < n; i++) {
        int32_t v = (int32_t)x[i], magnitude = v & 0x7fffffff;
        int32_t bin = (magnitude >> PARE_BIN_SHIFT) - base + 1;
        bin = bin > 0 ? bin : 0;
        bin += FIRST + ((v >> 31) & HALF);
        slot[i] = (uint16_t)(magnitude ? bin : i & (FIRST - 1));
    }
}

static void count(uint64_t *slot, const uint16_t *at, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, at + i, sizeof four);
        slot[four & 0xffff]++;
        slot[four >> 16 & 0xffff]++;
        slot[four >> 32 & 0xffff]++;
        slot[four >> 48]++;
    }
    for (; i < n; i++) slot[at[i]]++;
}

static float from_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Counts n finite numbers and widens the minmax_only. */
static void add_ends(pare_histogram *h, int n, minmax_only e)
{
    float low = from_bits(e.low ^ ((e.low >> 31) & 0x7fffffff)) + 0.0f; /* -0 becomes 0 */
    float high = from_bits(e.high ^ ((e.high >> 31) & 0x7fffffff)) + 0.0f;
    if (h->count == h->nan + h->inf) h->min = low, h->max = high;
    h->min = low < h->min ? low : h->min;
    h->max = high > h->max ? high : h->max;
    h->count += (uint64_t)n;
}

/* Numbers without NaN and Inf. */
static pare_status add_finite(pare_ctx *ctx, pare_histogram *h, const word *x, int n, minmax_only e,
                              bool bins)
{
    uint16_t slot[BLOCK];
    bool negative = e.low < -1; /* -1 is -0 */
    add_ends(h, n, e);
    if (!bins) return PARE_OK;
    if (e.largest == 0) {
        h->zero += (uint64_t)n;
        return PARE_OK;
    }
    int octave = e.largest >> PARE_OCTAVE_SHIFT;
    if (!h->slot || octave > h->top || (negative && !h->negative))
        PARE_TRY(pare_histogram_open(ctx, h, octave, negative));
    place(x, slot, n, h->first * PARE_OCTAVE_BINS);
    count(h->slot, slot, n);
    for (int i = 0; i < FIRST; i++) {
        h->zero += h->slot[i];
        h->slot[i] = 0;
    }
    return PARE_OK;
}

/* A block in which some numbers are NaN or Inf: they are counted, the rest is added. */
static pare_status add_some(pare_ctx *ctx, pare_histogram *h, const word *x, int n, bool bins)
{
    uint32_t finite[BLOCK];
    int kept = 0;
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = x[i] & 0x7fffffff;
        if (magnitude < 0x7f800000) finite[kept++] = x[i];
        h->nan += magnitude > 0x7f800000;
        h->inf += magnitude == 0x7f800000;
        h->count += magnitude >= 0x7f800000;
    }
    return kept ? add_finite(ctx, h, finite, kept, look(finite, kept), bins) : PARE_OK;
}

static pare_status add_block(pare_ctx *ctx, pare_histogram *h, const word *x, int n, bool bins)
{
    minmax_only e = look(x, n);
    return e.largest < 0x7f800000 ? add_finite(ctx, h, x, n, e, bins)
                                  : add_some(ctx, h, x, n, bins);
}

static void widen(pare_dtype dtype, const void *data, int64_t first, int n, uint32_t *out)
{
    for (int i = 0; i < n; i++) {
        float v;
        if (dtype == PARE_f64)
            v = (float)((const double *)data)[first + i];
        else {
            uint16_t half = ((const uint16_t *)data)[first + i];
            v = dtype == PARE_f16 ? pare_f16_to_f32(half) : pare_bf16_to_f32(half);
        }
        memcpy(out + i, &v, sizeof v);
    }
}

static pare_status add(pare_ctx *ctx, pare_histogram *h, pare_dtype dtype, const void *data,
                       int64_t n, bool bins)
{
    uint32_t block[BLOCK];
    if (!pare_type_is_float(dtype))
        return PARE_FAIL(ctx, UNSUPPORTED, "histograms count floats, not %s",
                         pare_type(dtype)->name);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int part = n - at < BLOCK ? (int)(n - at) : BLOCK;
        const word *x = block;
        if (dtype == PARE_f32)
            x = (const word *)data + at;
        else
            widen(dtype, data, at, part, block);
        PARE_TRY(add_block(ctx, h, x, part, bins));
    }
    return PARE_OK;
}

pare_status pare_histogram_add(pare_ctx *ctx, pare_histogram *h, pare_dtype dtype, const void *data,
                               int64_t n)
{
    return add(ctx, h, dtype, data, n, true);
}

pare_status pare_histogram_add_minmax(pare_ctx *ctx, pare_histogram *h, pare_dtype dtype,
                                      const void *data, int64_t n)
{
    return add(ctx, h, dtype, data, n, false);
}

/* --- merging --- */

pare_status pare_histogram_merge(pare_ctx *ctx, pare_histogram *to, const pare_histogram *from)
{
    if (from->slot) PARE_TRY(pare_histogram_open(ctx, to, from->top, from->negative));
    if (from->count > from->nan + from->inf) {
        bool empty = to->count == to->nan + to->inf;
        if (empty || from->min < to->min) to->min = from->min;
        if (empty || from->max > to->max) to->max = from->max;
    }
    to->count += from->count;
    to->zero += from->zero;
    to->nan += from->nan;
    to->inf += from->inf;
    int down = to->first - from->first; /* never negative: to was opened as far as from */
    int gone = down < PARE_OCTAVES ? down * PARE_OCTAVE_BINS : PARE_HISTOGRAM_BINS;
    for (int s = 0; s < 2; s++) {
        const uint64_t *in = pare_histogram_bins(from, s);
        uint64_t *out = pare_histogram_bins(to, s);
        for (int i = -1; in && i < PARE_HISTOGRAM_BINS; i++) out[i < gone ? -1 : i - gone] += in[i];
    }
    return PARE_OK;
}
