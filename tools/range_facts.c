/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/range_facts.h"

#include "calib/histogram.h"
#include "formats/json.h"
#include "runtime/base/f8.h"
#include "runtime/device/range.h"

#include <math.h>
#include <stdlib.h>

/* --- one tensor --- */

typedef struct maker {
    pare_range_plot *out;
    double low, width; /* of the picture */
    pare_dtype type;   /* s8, u8, f8e4m3 */
    double scale, zero, least, most;
    double signal, noise;
} maker;

/* The number that a value becomes. */
static double rounded(const maker *m, double value)
{
    if (m->type == PARE_f8e4m3)
        return (double)pare_f8e4m3_value(pare_f8e4m3_code((float)(value / m->scale))) * m->scale;
    const double q = fmin(fmax(rint(value / m->scale) + m->zero, m->least), m->most);
    return (q - m->zero) * m->scale;
}

static void put(maker *m, double value, double count)
{
    int bin = m->width > 0 ? (int)((value - m->low) / m->width) : 0;
    if (bin < 0) bin = 0;
    if (bin >= PARE_RANGE_PLOT_BINS) bin = PARE_RANGE_PLOT_BINS - 1;
    m->out->count[bin] += count;
    const double error = rounded(m, value) - value;
    m->signal += count * value * value;
    m->noise += count * error * error;
}

void pare_range_plot_make(pare_range_plot *out, const pare_histogram *h, const pare_range *range,
                          pare_dtype type)
{
    const bool symmetric = type != PARE_u8, f8 = type == PARE_f8e4m3;
    float scale;
    int zero;
    pare_range_scale(range, symmetric, &scale, &zero);
    *out = (pare_range_plot){.sqnr_db = NAN};
    maker m = {.out = out,
               .low = (double)h->min,
               .width = ((double)h->max - (double)h->min) / PARE_RANGE_PLOT_BINS,
               .type = type,
               .scale = f8 ? (double)scale * 127 / (double)PARE_F8E4M3_MOST : (double)scale,
               .zero = zero,
               .least = symmetric ? -127 : 0,
               .most = symmetric ? 127 : 255};
    double none = (double)h->zero;
    for (int sign = 0; sign < 2; sign++) {
        const uint64_t *bins = pare_histogram_bins(h, sign);
        for (int i = 0; bins && i < PARE_HISTOGRAM_BINS; i++)
            if (bins[i])
                put(&m, pare_bin_middle(h->first, h->min, h->max, sign, i), (double)bins[i]);
        if (bins) none += (double)bins[-1];
    }
    if (none > 0) put(&m, 0, none);
    if (h->count > h->nan + h->inf)
        out->sqnr_db = m.noise > 0 ? 10 * log10(m.signal / m.noise) : INFINITY;
}

/* --- all of them --- */

typedef struct tensor {
    const pare_stats *stats;
    pare_range range;
    double sqnr_db;
} tensor;

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *range_json(const tensor *t)
{
    return json_pack("{s:o, s:f, s:f, s:s, s:o}", "name", pare_json_text(t->stats->name), "low",
                     (double)t->range.low, "high", (double)t->range.high, "method",
                     pare_method_name(t->range.chosen), "sqnr_db", real_or_null(t->sqnr_db));
}

static json_t *histogram_json(const tensor *t, pare_dtype type)
{
    pare_range_plot picture;
    const pare_histogram *h = t->stats->histogram;
    json_t *json = range_json(t), *bins = json_array();
    pare_range_plot_make(&picture, h, &t->range, type);
    for (int i = 0; i < PARE_RANGE_PLOT_BINS; i++)
        json_array_append_new(bins, json_integer((json_int_t)picture.count[i]));
    json_object_update_new(json, json_pack("{s:f, s:f, s:o}", "min", (double)h->min, "max",
                                           (double)h->max, "bins", bins));
    return json;
}

/* The least first; names decide among equals, and what has no error or value comes last. */
static int worst_first(const void *x, const void *y)
{
    const tensor *a = x, *b = y;
    const double p = isfinite(a->sqnr_db) ? a->sqnr_db : 1e300,
                 q = isfinite(b->sqnr_db) ? b->sqnr_db : 1e300;
    return p != q ? (p > q ? 1 : -1) : (a->stats > b->stats) - (a->stats < b->stats);
}

static void put_facts(json_t *facts, tensor *all, int count, pare_dtype type)
{
    json_t *ranges = json_array(), *histograms = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(ranges, range_json(&all[i]));
    qsort(all, (size_t)count, sizeof *all, worst_first);
    for (int i = 0; i < count && i < PARE_RANGE_PLOTS; i++)
        if (isfinite(all[i].sqnr_db))
            json_array_append_new(histograms, histogram_json(&all[i], type));
    json_object_set_new(facts, "ranges", ranges);
    json_object_set_new(facts, "histograms", histograms);
}

pare_status pare_range_facts(pare_ctx *ctx, json_t *facts, const pare_ranges *ranges,
                             const pare_range_rule *rule, bool fp8)
{
    const int count = pare_ranges_count(ranges);
    const pare_dtype type = fp8 ? PARE_f8e4m3 : rule->symmetric ? PARE_s8 : PARE_u8;
    pare_range *chosen = pare_alloc(ctx, (size_t)count, sizeof *chosen);
    tensor *all = pare_alloc(ctx, (size_t)count, sizeof *all);
    pare_status st = chosen && all ? pare_ranges_choose(ctx, ranges, rule, 1, chosen) : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < count; i++) {
        pare_range_plot picture;
        const pare_stats *stats = pare_ranges_at(ranges, i);
        pare_range_plot_make(&picture, stats->histogram, &chosen[i], type);
        all[i] = (tensor){stats, chosen[i], picture.sqnr_db};
    }
    if (st == PARE_OK) put_facts(facts, all, count, type);
    pare_free(chosen);
    pare_free(all);
    return st;
}
