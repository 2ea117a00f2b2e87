/* SPDX-License-Identifier: Apache-2.0 */
/* The methods by name, min-max and percentile, and `auto`. */
#include "calib/range.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fills *out, which is the whole range, for a tensor that has values other than 0. */
#define PARE_METHOD(id, name, function)                                                            \
    static pare_status pare_method_##function(pare_ctx *ctx, pare_range_work *w,                   \
                                              const pare_range_rule *rule, pare_range *out);
#include "calib/methods.inc"
#undef PARE_METHOD

static const struct {
    const char *name;
    pare_status (*choose)(pare_ctx *ctx, pare_range_work *w, const pare_range_rule *rule,
                          pare_range *out);
} rows[PARE_METHOD_COUNT] = {
#define PARE_METHOD(id, name, function) [PARE_METHOD_##id] = {name, pare_method_##function},
#include "calib/methods.inc"
#undef PARE_METHOD
};

const char *pare_method_name(pare_method method) { return rows[method].name; }

pare_status pare_method_parse(pare_ctx *ctx, const char *text, pare_range_rule *out)
{
    *out = (pare_range_rule){.symmetric = true};
    for (int i = 0; i < PARE_METHOD_COUNT; i++)
        if (i != PARE_METHOD_PERCENTILE && !strcmp(text, rows[i].name)) {
            out->method = (pare_method)i;
            return PARE_OK;
        }
    const char *prefix = "percentile:";
    if (!strncmp(text, prefix, strlen(prefix))) {
        char *end;
        const char *number = text + strlen(prefix);
        out->method = PARE_METHOD_PERCENTILE;
        out->percentile = strtod(number, &end);
        if (end != number && !*end && out->percentile >= 50 && out->percentile <= 100)
            return PARE_OK;
    }
    return PARE_FAIL(ctx, USAGE,
                     "method '%s': expected minmax, percentile:P with P from 50 to 100 (as "
                     "percentile:99.99), entropy, mse or auto",
                     text);
}

/* --- percentile --- */

/* Walks down from the far end of the given signs' bins until more than `cut` values are passed;
   returns the upper edge of the bin where that happens, 0 where it is none. */
static float end_of(const pare_histogram *h, int sign, double cut)
{
    const uint64_t *positive = sign == 1 ? NULL : pare_histogram_bins(h, 0);
    const uint64_t *negative = sign == 0 ? NULL : pare_histogram_bins(h, 1);
    double passed = 0;
    for (int i = PARE_HISTOGRAM_BINS - 1; i >= 0; i--) {
        if (positive) passed += (double)positive[i];
        if (negative) passed += (double)negative[i];
        if (passed > cut) return pare_histogram_edge(h, i + 1);
    }
    if (positive) passed += (double)positive[-1];
    if (negative) passed += (double)negative[-1];
    return passed > cut ? pare_histogram_edge(h, 0) : 0;
}

/* The upper edge of the bin in which the sorted values reach that many percent (of |x|; or for u8
   half of the rest cut off at each end), never beyond the minmax_only. */
static void percentile_range(const pare_histogram *h, double percent, bool symmetric,
                             pare_range *out)
{
    double n = (double)(h->count - h->nan - h->inf);
    double cut = pare_percentile_cut(n, percent, symmetric);
    if (symmetric) {
        float largest = fmaxf(-h->min, h->max), end = fminf(end_of(h, -1, cut), largest);
        out->low = -end;
        out->high = end;
        return;
    }
    out->high = fmaxf(fminf(end_of(h, 0, cut), h->max), 0);
    out->low = fminf(fmaxf(-end_of(h, 1, cut), h->min), 0) + 0.0f; /* -0 becomes 0 */
}

/* --- one tensor --- */

static pare_range whole_range(const pare_histogram *h, bool symmetric, pare_method method)
{
    float largest = fmaxf(-h->min, h->max);
    return (pare_range){symmetric ? -largest : fminf(h->min, 0),
                        symmetric ? largest : fmaxf(h->max, 0), method};
}

static pare_status need_sums(pare_ctx *ctx, pare_range_work *w)
{
    return w->sums.count ? PARE_OK : pare_error_sums_new(ctx, &w->sums, w->histogram);
}

static pare_status need_entropy(pare_ctx *ctx, pare_range_work *w)
{
    if (w->has_entropy) return PARE_OK;
    w->has_entropy = true;
    w->entropy.chosen = PARE_METHOD_ENTROPY;
    return pare_range_entropy(ctx, w->histogram, w->symmetric, &w->entropy);
}

/* Of all methods' ranges the one with the least error, clipping weighed. */
static pare_status pare_method_auto(pare_ctx *ctx, pare_range_work *w, const pare_range_rule *rule,
                                    pare_range *out)
{
    (void)rule;
    static const double percents[] = {99.99, 99.999};
    pare_range candidate[5];
    int n = 0;
    candidate[n++] = whole_range(w->histogram, w->symmetric, PARE_METHOD_MINMAX);
    for (int i = 0; i < 2; i++) {
        candidate[n].chosen = PARE_METHOD_PERCENTILE;
        percentile_range(w->histogram, percents[i], w->symmetric, &candidate[n++]);
    }
    PARE_TRY(need_entropy(ctx, w));
    candidate[n++] = w->entropy;
    PARE_TRY(need_sums(ctx, w));
    candidate[n].chosen = PARE_METHOD_MSE;
    pare_range_least_error(&w->sums, w->symmetric, PARE_AUTO_CLIP_WEIGHT, &candidate[n++]);
    double best = INFINITY;
    for (int i = 0; i < n; i++) {
        pare_quantizer q = pare_range_quantizer(candidate[i].low, candidate[i].high, w->symmetric);
        double error = pare_error_of(&w->sums, &q, PARE_AUTO_CLIP_WEIGHT);
        if (error < best) best = error, *out = candidate[i];
    }
    return PARE_OK;
}

static pare_status pare_method_minmax(pare_ctx *ctx, pare_range_work *w,
                                      const pare_range_rule *rule, pare_range *out)
{
    (void)ctx, (void)w, (void)rule, (void)out;
    return PARE_OK;
}

static pare_status pare_method_percentile(pare_ctx *ctx, pare_range_work *w,
                                          const pare_range_rule *rule, pare_range *out)
{
    (void)ctx;
    percentile_range(w->histogram, rule->percentile, w->symmetric, out);
    return PARE_OK;
}

static pare_status pare_method_entropy(pare_ctx *ctx, pare_range_work *w,
                                       const pare_range_rule *rule, pare_range *out)
{
    (void)rule;
    PARE_TRY(need_entropy(ctx, w));
    *out = w->entropy;
    return PARE_OK;
}

static pare_status pare_method_mse(pare_ctx *ctx, pare_range_work *w, const pare_range_rule *rule,
                                   pare_range *out)
{
    (void)rule;
    PARE_TRY(need_sums(ctx, w));
    pare_range_least_error(&w->sums, w->symmetric, 1, out);
    return PARE_OK;
}

pare_status pare_range_choose_with(pare_ctx *ctx, pare_range_work *w, const pare_range_rule *rule,
                                   pare_range *out)
{
    const pare_histogram *h = w->histogram;
    *out = whole_range(h, w->symmetric, rule->method);
    if (h->count == h->nan + h->inf)
        return PARE_FAIL(ctx, INPUT,
                         h->count
                             ? "all its values are NaN or infinite: it has no range; look for bad "
                               "weights with pare check"
                             : "it has no values and so no range");
    if (rule->method == PARE_METHOD_AUTO) out->chosen = PARE_METHOD_MINMAX;
    if (pare_histogram_nonzero(h) == 0) return PARE_OK;
    return rows[rule->method].choose(ctx, w, rule, out);
}

pare_status pare_range_choose(pare_ctx *ctx, const pare_histogram *h, const pare_range_rule *rule,
                              pare_range *out)
{
    pare_range_work work = {.histogram = h, .symmetric = rule->symmetric};
    pare_status st = pare_range_choose_with(ctx, &work, rule, out);
    pare_error_sums_free(&work.sums);
    return st;
}

void pare_range_scale(const pare_range *range, bool symmetric, float *scale, int *zero_point)
{
    pare_quantizer q = pare_range_quantizer(range->low, range->high, symmetric);
    *scale = (float)q.scale;
    *zero_point = q.zero;
}
