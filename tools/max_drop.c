/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/max_drop.h"

#include "calib/histogram.h"
#include "runtime/eval/eval.h"
#include "tools/progress.h"

#include <math.h>

typedef struct hunt {
    pare_tool *tool;
    pare_model *prepared;
    const pare_ranges *ranges;
    pare_quant_options options;
    pare_quant_ranking *ranking; /* NULL: nothing can be measured */
    pare_max_drop *asked;
    const char *const *best; /* keep of the model that loses least, or of the one to write */
} hunt;

/* --- one candidate --- */

/* any_accuracy: count samples are too few to call their accuracy chance. */
static pare_status compare(hunt *h, const pare_model *model, int64_t count, bool any_accuracy,
                           double *drop)
{
    const pare_model *models[] = {h->prepared, model};
    const pare_source *s = h->asked->source;
    const pare_eval_samples samples = {.data = s->data,
                                       .inputs = s->inputs,
                                       .input_count = s->input_count,
                                       .samples = s->samples,
                                       .count = count < s->count ? count : s->count,
                                       .batch = h->asked->batch,
                                       .name = h->asked->data};
    pare_comparison_options how;
    pare_comparison *c = NULL;
    pare_comparison_options_init(&how);
    how.threads = (int)h->tool->common->threads;
    how.any_accuracy = any_accuracy;
    PARE_TRY(pare_comparison_new(h->tool->ctx, &c, models, 2, &how));
    pare_comparison_use(c, h->tool->device);
    pare_status st = pare_comparison_run(c, &samples, NULL);
    if (st == PARE_OK && !pare_comparison_classifies(c))
        st = PARE_FAIL(h->tool->ctx, INPUT,
                       "%s: output '%s' is no score per class, which --max-drop counts in; look at "
                       "the SQNR that pare validate prints",
                       h->prepared->path, h->prepared->graph->out.item[0]->name);
    if (st == PARE_OK) {
        const pare_candidate *one = pare_comparison_candidate(c, 1);
        const double n = (double)pare_comparison_samples(c);
        h->asked->labels = pare_comparison_classes(c) > 0;
        h->asked->samples = pare_comparison_samples(c);
        *drop = h->asked->labels ? 100 * (double)(one->paired.first - one->paired.second) / n
                                 : 100 * (n - (double)one->agreed) / n;
    }
    pare_comparison_free(c);
    return st;
}

/* What a budget for float nodes loses. INFINITY: with it no node would be left to quantize. */
static pare_status try_budget(hunt *h, double budget, const char *const **keep, double *drop)
{
    pare_model *model;
    pare_quant_options options = h->options;
    *drop = INFINITY;
    *keep = NULL;
    if (h->ranking)
        PARE_TRY(pare_quant_keep(h->ranking, budget,
                                 budget <= h->options.mixed ? PARE_QUANT_LEAST_ERROR : 0, keep));
    options.keep = *keep;
    PARE_TRY(pare_model_clone(h->tool->ctx, &model, h->prepared));
    pare_status st = pare_quantize(h->tool->ctx, model, h->ranges, &options, NULL);
    if (st == PARE_OK)
        st = compare(h, model, h->asked->source->count, false, drop);
    else if (st == PARE_INPUT && *keep) {
        pare_ctx_clear(h->tool->ctx);
        st = PARE_OK;
    }
    pare_model_free(model);
    return st;
}

/* Is it enough? Notes the least loss so far. */
static pare_status judge(hunt *h, double budget, bool *enough)
{
    double drop;
    const char *const *keep;
    const pare_log_fn log = h->tool->ctx->log;
    h->tool->ctx->log = NULL; /* a trial's notes are not the result's */
    const pare_status st = try_budget(h, budget, &keep, &drop);
    h->tool->ctx->log = log;
    PARE_TRY(st);
    *enough = drop <= h->asked->points;
    pare_log(h->tool->ctx, PARE_LOG_INFO, "%.4g %% of the model float: loses %.2f points",
             100 * budget, drop);
    if (!*enough && !(drop < h->asked->drop)) return PARE_OK;
    h->asked->drop = drop;
    h->asked->mixed = budget;
    h->best = keep;
    return PARE_OK;
}

/* --- the search --- */

static pare_status find(hunt *h)
{
    enum { FINER = 3 };
    static const double budgets[] = {0.05, 0.1, 0.2, 0.4, 0.6, 0.8};
    double low = h->options.mixed, high = low;
    bool enough;
    PARE_TRY(judge(h, low, &enough));
    if (enough || !h->ranking) return PARE_OK;
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets && !enough; i++) {
        if (budgets[i] <= high) continue;
        low = high;
        high = budgets[i];
        PARE_TRY(judge(h, high, &enough));
    }
    for (int i = 0; i < FINER && enough; i++) {
        const double middle = (low + high) / 2;
        bool also;
        PARE_TRY(judge(h, middle, &also));
        if (also)
            high = middle;
        else
            low = middle;
    }
    return PARE_OK;
}

/* --- other data --- */

/* The least and largest number of input i in a few samples. */
static pare_status span_of(pare_ctx *ctx, const pare_source *s, int i, float *low, float *high)
{
    enum { SAMPLES = 32 };
    const int64_t n = s->count < SAMPLES ? s->count : SAMPLES;
    const int64_t each = pare_shape_count(pare_data_shape(s->data, i));
    pare_reader *reader;
    pare_batch batch;
    *low = INFINITY;
    *high = -INFINITY;
    PARE_TRY(pare_reader_open(ctx, &reader, s->data, s->samples, n, 1, 1));
    pare_status st = pare_reader_next(reader, &batch);
    for (; st == PARE_OK && batch.count; st = pare_reader_next(reader, &batch)) {
        const float *x = batch.input[i];
        for (int64_t k = 0; k < each; k++) {
            *low = fminf(*low, x[k]);
            *high = fmaxf(*high, x[k]);
        }
    }
    pare_reader_close(reader);
    return st;
}

/* An aim that is missed for the preprocessing: inputs that calibration saw with another scale than
   the samples that judge have. */
static pare_status warn_other_data(const hunt *h, const pare_quant_search *search)
{
    const float MUCH = 4;
    const pare_source *s = h->asked->source;
    for (int i = 0; i < s->input_count; i++) {
        const pare_stats *seen = h->ranges ? pare_ranges_find(h->ranges, s->inputs[i].name) : NULL;
        pare_pixels pixels;
        float low, high;
        if (s->inputs[i].dtype != PARE_f32 || !seen || !seen->histogram->count ||
            pare_data_has_pixels(s->data, i, &pixels))
            continue;
        PARE_TRY(span_of(h->tool->ctx, s, i, &low, &high));
        const float here = high - low, there = seen->histogram->max - seen->histogram->min;
        if (here <= MUCH * there && there <= MUCH * here) continue;
        pare_log(h->tool->ctx, PARE_LOG_WARNING,
                 "input '%s': the samples of %s reach from %.4g to %.4g, those of %s, which were "
                 "calibrated on, from %.4g to %.4g: is their preprocessing the same?",
                 s->inputs[i].name, h->asked->data, (double)low, (double)high,
                 pare_data_path(search->data), (double)seen->histogram->min,
                 (double)seen->histogram->max);
    }
    return PARE_OK;
}

pare_status pare_max_drop_find(pare_tool *tool, pare_model *prepared, const pare_ranges *ranges,
                               pare_quant_options *options, const pare_quant_search *search,
                               pare_max_drop *asked)
{
    hunt h = {
        .tool = tool, .prepared = prepared, .ranges = ranges, .options = *options, .asked = asked};
    asked->drop = INFINITY;
    PARE_TRY(pare_quant_rank(tool->ctx, prepared, ranges, options, search, 1, &h.ranking));
    pare_status st = find(&h);
    pare_quant_ranking_free(h.ranking);
    if (st == PARE_OK && asked->drop > asked->points) st = warn_other_data(&h, search);
    options->keep = h.best;
    options->mixed = asked->mixed;
    return st;
}

pare_status pare_max_drop_judge(pare_tool *tool, pare_model *prepared, const pare_ranges *ranges,
                                const pare_quant_options *options, pare_max_drop *asked)
{
    hunt h = {.tool = tool, .prepared = prepared, .ranges = ranges, .asked = asked};
    pare_model *model;
    const pare_log_fn log = tool->ctx->log;
    PARE_TRY(pare_model_clone(tool->ctx, &model, prepared));
    tool->ctx->log = NULL; /* a trial's notes are not the result's */
    pare_status st = pare_quantize(tool->ctx, model, ranges, options, NULL);
    if (st == PARE_OK) st = compare(&h, model, asked->source->count, false, &asked->drop);
    tool->ctx->log = log;
    pare_model_free(model);
    return st;
}

pare_status pare_max_drop_check(pare_tool *tool, pare_model *prepared, pare_max_drop *asked)
{
    hunt h = {.tool = tool, .prepared = prepared, .asked = asked};
    int64_t unit;
    double drop;
    PARE_TRY(pare_data_run_samples(tool->ctx, asked->source->data, prepared, &unit));
    return compare(&h, prepared, unit > 0 ? unit : 1, true, &drop);
}

/* --- what was found --- */

static const char *unit_of(const pare_max_drop *m)
{
    return m->labels ? "points of top-1" : "points of agreement with the float model (no labels)";
}

json_t *pare_max_drop_json(const pare_max_drop *m)
{
    return json_pack("{s:f, s:f, s:s, s:I, s:b}", "asked", m->points, "drop", m->drop, "of",
                     m->labels ? "top1" : "agreement", "samples", (json_int_t)m->samples, "met",
                     m->drop <= m->points);
}

pare_status pare_max_drop_verdict(pare_ctx *ctx, const pare_max_drop *m, const char *output)
{
    if (m->drop <= m->points) return PARE_OK;
    return PARE_FAIL(ctx, MISSED,
                     "%s: loses %.2f %s on %lld samples of %s, asked for at most %.2f; it is the "
                     "best that was found",
                     output, m->drop, unit_of(m), (long long)m->samples, m->data, m->points);
}
