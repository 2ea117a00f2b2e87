/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges to scales and zero points (QuantizeLinear, ONNX 13). */
#include "calib/histogram.h"
#include "quant/internal.h"
#include "runtime/base/f8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

/* What calibration saw of a value, or of the one it was moved from: the elements are the same.
   NULL: nothing, as where its shape made it constant in the runs. */
static const pare_stats *stats_of(const pare_quant_scheme *s, const pare_value *value)
{
    while (value && s->ranges) {
        const pare_stats *stats = pare_ranges_find(s->ranges, value->name);
        if (stats && stats->histogram->count) return stats;
        const pare_node *maker = value->producer;
        value = pare_quant_kind_of(maker) == PARE_QUANT_PASS ? pare_node_in(maker, 0) : NULL;
    }
    return NULL;
}

/* What was seen of a function's values, within its bounds: with many keys Softmax gives each so
   little that steps of all of [0, 1] would leave nothing, and a value that is clipped is one that
   matters. The bounds, where nothing was seen. */
static void choose_fixed(const pare_quant_scheme *s, pare_quant_point *p)
{
    const pare_quant_role *role = &pare_op_of(p->value->producer)->quant;
    const pare_stats *stats = stats_of(s, p->value);
    const pare_histogram *h = stats ? stats->histogram : NULL;
    const bool seen = h && h->count > h->nan + h->inf;
    p->low = seen ? fmaxf(role->low, fminf(h->min, 0)) : role->low;
    p->high = seen ? fminf(role->high, fmaxf(h->max, 0)) : role->high;
}

/* chosen: of every tensor of the table. */
static pare_status choose(pare_quant_scheme *s, pare_quant_point *p, const pare_range *chosen)
{
    const pare_node *maker = p->value->producer;
    if (pare_quant_kind_of(maker) == PARE_QUANT_FIXED) {
        choose_fixed(s, p);
        return PARE_OK;
    }
    const pare_stats *stats = stats_of(s, p->value);
    p->unknown = !stats;
    if (!stats) return PARE_OK;
    const pare_histogram *h = stats->histogram;
    pare_range range = chosen[stats - pare_ranges_at(s->ranges, 0)];
    if (h->count == h->nan + h->inf) {
        pare_status st = pare_range_choose(s->ctx, h, &s->options->rule, &range);
        return pare_fail_prefix(s->ctx, st, "%s: tensor '%s'", s->model->path, p->value->name);
    }
    if (!isfinite(range.low) || !isfinite(range.high) || range.low > range.high)
        return PARE_FAIL(s->ctx, INPUT,
                         "%s: tensor '%s' has the range [%g, %g], expected finite "
                         "numbers in order; look for NaN or Inf with pare calibrate",
                         s->model->path, p->value->name, (double)range.low, (double)range.high);
    if (h->nan || h->inf)
        pare_log(s->ctx, PARE_LOG_WARNING,
                 "%s: tensor '%s' held NaN %" PRIu64 " times and Inf %" PRIu64
                 " times during calibration; its range is that of its finite values",
                 s->model->path, p->value->name, h->nan, h->inf);
    p->low = fminf(range.low, 0);
    p->high = fmaxf(range.high, 0);
    return PARE_OK;
}

pare_status pare_quant_rule(pare_ctx *ctx, const pare_ranges *ranges,
                            const pare_quant_options *options, pare_range **out)
{
    pare_range_rule rule = options->rule;
    rule.symmetric = !options->unsigned_activations;
    *out = pare_alloc(ctx, (size_t)pare_ranges_count(ranges) + 1, sizeof **out);
    return *out ? pare_ranges_choose(ctx, ranges, &rule, 1, *out) : PARE_MEMORY;
}

pare_status pare_quant_choose_ranges(pare_quant_scheme *s)
{
    const pare_range *chosen = s->options->chosen;
    pare_range *own = NULL;
    pare_status st = PARE_OK;
    if (s->ranges && !chosen) st = pare_quant_rule(s->ctx, s->ranges, s->options, &own);
    for (int i = 0; st == PARE_OK && i < s->point_count; i++)
        st = choose(s, &s->point[i], own ? own : chosen);
    pare_free(own);
    return st;
}

static float span(const pare_quant_scheme *s, const pare_quant_point *p)
{
    return s->options->unsigned_activations ? p->high - p->low : fmaxf(-p->low, p->high);
}

/* One scale for both costs less than a third of a bit. */
bool pare_quant_spans_agree(const pare_quant_scheme *s, int a, int b)
{
    float x = span(s, &s->point[a]), y = span(s, &s->point[b]);
    return fmaxf(x, y) <= 1.25f * fminf(x, y);
}

/* Symmetric: the larger end is 127, of FP8 448. With a zero point: [low, high] is [0, 255];
   balanced: 0 is 128. A tensor that was always zero, or so small that its scale would be denormal,
   gets the scale 1. */
static void set_scale(const pare_quant_scheme *s, pare_quant_point *p)
{
    bool zero_point = s->options->unsigned_activations;
    const bool balanced = zero_point && p->balanced && p->low < 0;
    p->scale = balanced          ? fmaxf(-p->low, p->high) / 127
               : s->options->fp8 ? span(s, p) / PARE_F8E4M3_MOST
                                 : span(s, p) / (zero_point ? 255 : 127);
    if (!(p->scale >= FLT_MIN)) p->scale = 1;
    if (pare_quant_f16_scales(s->options) && pare_quant_f16_takes(p->scale))
        p->scale = pare_quant_f16_scale(p->scale);
    p->zero = balanced     ? 128
              : zero_point ? (int)fminf(fmaxf(rintf(-p->low / p->scale), 0), 255)
                           : 0;
}

/* A range of one number is no range of what else may come. */
static pare_status warn_constant(pare_quant_scheme *s, const pare_quant_point *p)
{
    const pare_node *maker = p->value->producer;
    const pare_quant_kind kind = pare_quant_kind_of(maker);
    const pare_stats *stats = stats_of(s, p->value);
    const pare_histogram *h = stats ? stats->histogram : NULL;
    if (!h || h->count < 2 || h->min != h->max || h->nan || h->inf || kind == PARE_QUANT_FIXED ||
        kind == PARE_QUANT_PASS)
        return PARE_OK;
    return pare_quant_warn(s->model, s->facts, PARE_FAULT_CONSTANT, maker, p->value->name,
                           "calibration saw %.4g alone, and other values would be clipped; "
                           "calibrate on data that vary",
                           (double)h->min);
}

pare_status pare_quant_scales(pare_quant_scheme *s)
{
    for (int i = 0; i < s->point_count; i++) {
        pare_quant_point *p = &s->point[i], *first = &s->point[p->group];
        first->low = fminf(first->low, p->low);
        first->high = fmaxf(first->high, p->high);
        first->balanced |= p->balanced;
    }
    for (int i = 0; i < s->point_count; i++) {
        pare_quant_point *p = &s->point[i];
        if (p->group == i)
            set_scale(s, p);
        else
            p->scale = s->point[p->group].scale, p->zero = s->point[p->group].zero;
        PARE_TRY(warn_constant(s, p));
    }
    return PARE_OK;
}
