/* SPDX-License-Identifier: Apache-2.0 */
/* Names for what was measured. A part has one fault at most: the first that its evidence is for. */
#include "quant/diagnose/internal.h"

#include <math.h>
#include <stdlib.h>

static const char *const names[PARE_FAULT_COUNT] = {
    [PARE_FAULT_ZERO_SCALE] = "zero-scale",       [PARE_FAULT_WRONG_AXIS] = "wrong-axis",
    [PARE_FAULT_BIAS_OVERFLOW] = "bias-overflow", [PARE_FAULT_DEAD_CHANNEL] = "dead-channel",
    [PARE_FAULT_SHARED_WEIGHT] = "shared-weight", [PARE_FAULT_OTHER_WEIGHT] = "other-weight",
    [PARE_FAULT_PREPROCESSING] = "preprocessing", [PARE_FAULT_STALE_RANGES] = "stale-ranges",
    [PARE_FAULT_CLIPPED] = "clipped-range",       [PARE_FAULT_WIDE] = "wide-range",
    [PARE_FAULT_OUTLIER] = "outlier-channel",     [PARE_FAULT_F16_OVERFLOW] = "f16-overflow",
    [PARE_FAULT_F16_UNDERFLOW] = "f16-underflow", [PARE_FAULT_CONSTANT] = "constant-tensor",
    [PARE_FAULT_WEIGHT] = "weight-rounding",      [PARE_FAULT_ROUNDING] = "rounding",
};

const char *pare_fault_name(pare_fault fault)
{
    return fault < PARE_FAULT_COUNT ? names[fault] : "?";
}

/* A range that is so far from what the samples are was made of other ones; a range of another
   method or of other samples of the same kind is nearer. */
static const double NARROW = 1.25, WIDE = 2.5, ALONE_WIDE = 4;
static const double NEARLY = 0.95;        /* of the samples: a range that clips on purpose */
static const double CLIPPED = 1e-3;       /* part of the energy */
static const double OUTLIER = 8;          /* times the channels' median */
static const double CHANGED = 0.25;       /* of an output's weights' energy: that is no rounding */
static const double CHANGED_FEW = 0.5;    /* the same, of fewer than 8 bits */
static const double FELT = 1e-3;          /* of all effects, of what is plainly wrong */
static const double NOTEWORTHY = 0.05;    /* of all effects */
static const double MOST_OF_IT = 1.0 / 3; /* the same, of what is mere rounding */

/* --- evidence --- */

/* How many times wider than the samples the range is; below 1: narrower. */
static double width(const pare_part *p)
{
    const pare_part_stats *s = &p->stats;
    if (p->least < 0 && !p->zero) {
        const double seen = fmax(fabs((double)s->low), fabs((double)s->high));
        return seen > 0 ? (double)p->high / seen : 1;
    }
    const double low = fmin((double)s->low, 0), high = fmax((double)s->high, 0);
    const double narrow = fmin(low < 0 ? (double)p->low / low : INFINITY,
                               high > 0 ? (double)p->high / high : INFINITY);
    if (narrow < 1) return narrow;
    return high > low ? (double)(p->high - p->low) / (high - low) : 1;
}

static bool misfits(const pare_part *p)
{
    if (p->kind != PARE_PART_ACTIVATION || !(p->step > 0)) return false;
    const double w = width(p);
    return w > WIDE || (w < 1 / NARROW && p->stats.clipping > CLIPPED * p->stats.energy);
}

static bool bad_scale(const pare_tensor *scale)
{
    for (int64_t i = 0; i < scale->count; i++) {
        const float s = pare_quant_number(scale->data, i);
        if (!(s > 0) || isinf(s)) return true;
    }
    return false;
}

static int role_axis(const pare_part *p)
{
    pare_weighted role;
    if (!p->node || pare_quant_kind_of(p->node) != PARE_QUANT_WEIGHTED ||
        pare_op_of(p->node)->quant.weighted(p->node, &role) != PARE_OK ||
        p->read[0].input != role.w)
        return -1;
    return role.axis;
}

static bool wrong_axis(const pare_part *p, int *has, int *wants)
{
    *wants = role_axis(p);
    *has = pare_node_axis(p->dq, 1, p->value->data->rank);
    return *wants >= 0 && p->scale->count > 1 && !pare_node_int(p->dq, "block_size", 0) &&
           *has != *wants;
}

/* The first output whose weights are all 0 and were not; -1: none. */
static int64_t dead_channel(const pare_part *p)
{
    const pare_tensor *w = p->read[0].exact;
    const int axis = role_axis(p);
    if (!w || !p->made || axis < 0 || axis >= w->rank) return -1;
    return pare_quant_dead_channel(w, axis, p->made);
}

/* The largest part of an output's weights that is wrong, among outputs whose weights are not next
   to nothing. */
static double part_wrong(const pare_part *p, int read)
{
    const pare_tensor *w = p->read[read].exact;
    const int axis = role_axis(p);
    double all = 0, most = 0;
    if (!w || !p->made || axis < 0 || axis >= w->rank) return 0;
    const pare_quant_weight_view v = pare_quant_weight_look(w, axis);
    for (int64_t i = 0; i < w->count; i++) {
        const double x = (double)pare_quant_number(w->data, i);
        all += x * x / (double)v.channels;
    }
    for (int64_t c = 0; c < v.channels; c++) {
        double energy = 0, wrong = 0;
        for (int64_t o = 0; o < v.outer; o++)
            for (int64_t i = 0; i < v.inner; i++) {
                const int64_t at = (o * v.channels + c) * v.inner + i;
                const double x = (double)pare_quant_number(w->data, at);
                const double e = x - (double)pare_quant_number(p->made->data, at);
                energy += x * x;
                wrong += e * e;
            }
        if (energy > 0.01 * all && wrong > most * energy) most = wrong / energy;
    }
    return most;
}

static int64_t overflow(const pare_part *p)
{
    const pare_tensor *b = p->read[0].exact;
    for (int64_t i = 0; b && i < b->count; i++) {
        const double s =
            (double)pare_quant_number(p->scale->data, p->scale->count == b->count ? i : 0);
        if (s > 0 && fabs((double)pare_quant_number(b->data, i) / s) > (double)INT32_MAX) return i;
    }
    return -1;
}

static int ascending(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* How far the largest channel is above the median one; -1: there are too few. */
static pare_status outlier(pare_diag *d, const pare_part *p, int64_t *channel, double *times)
{
    const pare_part_stats *s = &p->stats;
    *times = 0;
    if (!s->largest || s->channels < 4) return PARE_OK;
    float *sorted = pare_alloc(d->ctx, (size_t)s->channels, sizeof *sorted);
    if (!sorted) return PARE_MEMORY;
    memcpy(sorted, s->largest, (size_t)s->channels * sizeof *sorted);
    qsort(sorted, (size_t)s->channels, sizeof *sorted, ascending);
    const double median = (double)sorted[s->channels / 2];
    *channel = 0;
    for (int64_t c = 1; c < s->channels; c++)
        if (s->largest[c] > s->largest[*channel]) *channel = c;
    if (median > 0) *times = (double)s->largest[*channel] / median;
    pare_free(sorted);
    return PARE_OK;
}

/* --- one part --- */

typedef struct found {
    pare_finding finding;
    int part; /* -1: all that misfit */
} found;

#define SAY(...) pare_arena_printf(&d->out->arena, __VA_ARGS__)

static pare_status name_weight(pare_diag *d, const pare_part *p, pare_finding *f)
{
    int has, wants;
    int64_t c;
    if (bad_scale(p->scale)) {
        f->fault = PARE_FAULT_ZERO_SCALE;
        f->cause = "a scale of it is 0, negative or no number";
    } else if (p->kind == PARE_PART_BIAS) {
        c = overflow(p);
        f->fault = c >= 0 ? PARE_FAULT_BIAS_OVERFLOW : PARE_FAULT_WEIGHT;
        f->cause = c >= 0
                       ? SAY("the bias of output %lld is beyond int32 at its scale", (long long)c)
                       : "rounding of its bias";
    } else if (wrong_axis(p, &has, &wants)) {
        f->fault = PARE_FAULT_WRONG_AXIS;
        f->cause = SAY("its scales lie along axis %d, its outputs along axis %d", has, wants);
    } else if ((c = dead_channel(p)) >= 0) {
        f->fault = PARE_FAULT_DEAD_CHANNEL;
        f->cause = SAY("all weights of output %lld became 0", (long long)c);
    } else {
        double most = 0;
        for (int r = 0; r < p->readers; r++) most = fmax(most, part_wrong(p, r));
        const bool changed =
            most > (pare_type_is_packed(p->value->data->dtype) ? CHANGED_FEW : CHANGED);
        f->fault = !changed         ? PARE_FAULT_WEIGHT
                   : p->readers > 1 ? PARE_FAULT_SHARED_WEIGHT
                                    : PARE_FAULT_OTHER_WEIGHT;
        f->cause = changed && p->readers > 1
                       ? SAY("%d nodes share it, and it was changed for one of them", p->readers)
                   : changed              ? SAY("of one output %.0f %% are not the float model's",
                                                fmin(100 * most, 100))
                   : p->scale->count == 1 ? "rounding of its weights, one scale for all outputs"
                                          : "rounding of its weights";
    }
    return f->cause ? PARE_OK : PARE_MEMORY;
}

static pare_status name_activation(pare_diag *d, const pare_part *p, pare_finding *f)
{
    const pare_part_stats *s = &p->stats;
    const double w = width(p), low = (double)p->low, high = (double)p->high;
    const double seen_low = (double)s->low, seen_high = (double)s->high;
    int64_t channel = 0;
    double times;
    PARE_TRY(outlier(d, p, &channel, &times));
    if (bad_scale(p->scale)) {
        f->fault = PARE_FAULT_ZERO_SCALE;
        f->cause = "its scale is 0, negative or no number";
    } else if (w < NEARLY && p->clip_effect > p->effect / 2) {
        f->fault = PARE_FAULT_CLIPPED;
        f->cause = SAY("its range is %.4g to %.4g, the samples reach from %.4g to %.4g: %.3g %% of "
                       "the values are clipped",
                       low, high, seen_low, seen_high,
                       100.0 * (double)s->clipped / (double)(s->count ? s->count : 1));
    } else if (w > ALONE_WIDE) {
        f->fault = PARE_FAULT_WIDE;
        f->cause = SAY("its range is %.4g to %.4g, %.1f times what the samples are, %.4g to %.4g",
                       low, high, w, seen_low, seen_high);
    } else if (times > OUTLIER) {
        f->fault = PARE_FAULT_OUTLIER;
        f->cause = SAY("channel %lld reaches %.4g, %.0f times the channels' median; one scale "
                       "serves all",
                       (long long)channel, (double)s->largest[channel], times);
    } else {
        f->fault = PARE_FAULT_ROUNDING;
        f->cause = SAY("rounding to steps of %.3g", (double)p->step);
    }
    return f->cause ? PARE_OK : PARE_MEMORY;
}

/* Is it worth a line? sum: of all effects. */
static bool noteworthy(const pare_finding *f, double sum)
{
    if (isnan(f->effect)) return f->fault < PARE_FAULT_PREPROCESSING;
    if (f->fault < PARE_FAULT_SHARED_WEIGHT) return f->effect >= FELT * sum;
    return f->effect >= (f->fault < PARE_FAULT_WEIGHT ? NOTEWORTHY : MOST_OF_IT) * sum;
}

static pare_status look_at(pare_diag *d, int k, found *out)
{
    const pare_part *p = &d->part[k];
    *out = (found){.part = k};
    out->finding = (pare_finding){.node = pare_diag_node_name(p),
                                  .tensor = pare_diag_tensor_name(p),
                                  .effect = p->effect,
                                  .gain = NAN};
    return p->kind == PARE_PART_ACTIVATION ? name_activation(d, p, &out->finding)
                                           : name_weight(d, p, &out->finding);
}

/* --- all parts --- */

static int by_effect(const void *a, const void *b)
{
    const found *x = a, *y = b;
    const double p = isnan(x->finding.effect) ? INFINITY : x->finding.effect,
                 q = isnan(y->finding.effect) ? INFINITY : y->finding.effect;
    if (p != q) return p > q ? -1 : 1;
    if (x->finding.fault != y->finding.fault) return x->finding.fault < y->finding.fault ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

/* Are so many ranges off that one cause is behind them? Fills in *out. */
static pare_status look_at_all(pare_diag *d, found *out, bool *is)
{
    enum { FEWEST = 3 };
    int all = 0, off = 0, worst = -1, input = -1;
    for (int k = 0; k < d->count; k++) {
        const pare_part *p = &d->part[k];
        if (p->kind != PARE_PART_ACTIVATION) continue;
        all++;
        if (!misfits(p)) continue;
        off++;
        if (!p->value->producer && input < 0) input = k;
        if (worst < 0 || p->effect > d->part[worst].effect) worst = k;
    }
    const bool is_input = input >= 0 && off > 1 && 4 * off >= all;
    *is = is_input || (off >= FEWEST && 5 * off >= 2 * all);
    if (!*is) return PARE_OK;
    const pare_part *p = &d->part[is_input ? input : worst];
    for (int k = 0; k < d->count; k++)
        d->choice[k] = misfits(&d->part[k]) ? PARE_CHOICE_QUANTIZED : PARE_CHOICE_FLOAT;
    *out = (found){.part = -1};
    out->finding =
        (pare_finding){.fault = is_input ? PARE_FAULT_PREPROCESSING : PARE_FAULT_STALE_RANGES,
                       .node = pare_diag_node_name(p),
                       .tensor = pare_diag_tensor_name(p),
                       .gain = NAN};
    PARE_TRY(pare_diag_error(d, &out->finding.effect));
    out->finding.cause =
        SAY("%d of %d ranges do not fit these samples, %s: its range is %.4g to %.4g, the samples "
            "reach from %.4g to %.4g%s",
            off, all, is_input ? "the input's among them" : "this one's most", (double)p->low,
            (double)p->high, (double)p->stats.low, (double)p->stats.high,
            is_input ? "; the model was calibrated on data of another preprocessing"
                     : "; the model was calibrated on other data");
    return out->finding.cause ? PARE_OK : PARE_MEMORY;
}

/* --- cures --- */

/* Made of the samples that the ranges were: corrections of biases are, too. */
static bool is_of_other_samples(const pare_part *p)
{
    return misfits(p) || (p->kind == PARE_PART_WEIGHT && p->read_count > p->readers);
}

static void cured(pare_diag *d, const found *f, pare_choice *choice)
{
    for (int k = 0; k < d->count; k++)
        if (f->part == k || (f->part < 0 && is_of_other_samples(&d->part[k])))
            choice[k] = PARE_CHOICE_CURED;
}

static pare_status make_cure(pare_diag *d, found *f)
{
    const char *words;
    if (f->part >= 0)
        return pare_diag_cure(d, &d->part[f->part], f->finding.fault, &f->finding.cure);
    for (int k = 0; k < d->count; k++)
        if (is_of_other_samples(&d->part[k]))
            PARE_TRY(pare_diag_cure(d, &d->part[k], f->finding.fault, &words));
    f->finding.cure = f->finding.fault == PARE_FAULT_PREPROCESSING
                          ? "calibrate on data that are preprocessed as these are, or feed it data "
                            "as those were; with these data: give all of them the ranges of these "
                            "samples"
                          : "calibrate on data like these: give all of them the ranges of these "
                            "samples";
    return PARE_OK;
}

static pare_status gain_of(pare_diag *d, found *f)
{
    double error;
    PARE_TRY(make_cure(d, f));
    if (!f->finding.cure) return PARE_OK;
    pare_diag_choose_all(d, PARE_CHOICE_QUANTIZED);
    cured(d, f, d->choice);
    PARE_TRY(pare_diag_error(d, &error));
    f->finding.gain = pare_diagnosis_db(error, d->outputs.count) -
                      pare_diagnosis_db(d->out->error, d->outputs.count);
    return PARE_OK;
}

/* One cure after the other stays where it helps. */
static pare_status mend(pare_diag *d, found *list, int count)
{
    double best = d->out->error, error;
    pare_choice *choice = pare_arena_alloc(&d->arena, (size_t)d->count + 1, sizeof *choice);
    if (!choice) return PARE_MEMORY;
    for (int k = 0; k < d->count; k++) choice[k] = PARE_CHOICE_QUANTIZED;
    for (int i = 0; i < count; i++) {
        if (!list[i].finding.cure) continue;
        memcpy(d->choice, choice, (size_t)d->count * sizeof *choice);
        cured(d, &list[i], d->choice);
        PARE_TRY(pare_diag_error(d, &error));
        if (!(error < best) && !(isnan(best) && !isnan(error))) continue;
        best = error;
        list[i].finding.applied = true;
        memcpy(choice, d->choice, (size_t)d->count * sizeof *choice);
    }
    d->out->mended = best;
    return best == d->out->error ? PARE_OK : pare_diag_build(d, choice, &d->out->model);
}

/* --- the table --- */

static const char *kept(pare_diag *d, const char *text)
{
    const char *copy = pare_arena_printf(&d->out->arena, "%s", text);
    return copy ? copy : "?";
}

static pare_status tabulate(pare_diag *d)
{
    pare_diagnosis *out = d->out;
    out->tensor = pare_arena_alloc(&out->arena, (size_t)d->count + 1, sizeof *out->tensor);
    if (!out->tensor) return PARE_MEMORY;
    for (int k = 0; k < d->count; k++) {
        const pare_part *p = &d->part[k];
        const pare_part_stats *s = &p->stats;
        const double e = s->energy > 0 ? s->energy : 1;
        if (p->kind != PARE_PART_ACTIVATION) continue;
        pare_tensor_error *t = &out->tensor[out->tensor_count++];
        *t = (pare_tensor_error){.tensor = kept(d, pare_diag_tensor_name(p)),
                                 .node = kept(d, pare_diag_node_name(p)),
                                 .low = p->low,
                                 .high = p->high,
                                 .seen_low = s->low,
                                 .seen_high = s->high,
                                 .clipping = s->clipping / e,
                                 .rounding = s->rounding / e,
                                 .total = s->total / e,
                                 .effect = p->effect};
        for (int j = 0; p->source && j < d->count; j++) {
            const pare_part *w = &d->part[j];
            if (w->kind == PARE_PART_ACTIVATION || w->node != p->source || isnan(w->next_error))
                continue;
            *(w->kind == PARE_PART_BIAS ? &t->bias : &t->weight) += w->next_error / e;
        }
        const double rest = t->total - t->clipping - t->rounding - t->weight - t->bias;
        t->carried = rest < 0 ? 0 : rest; /* NaN stays */
    }
    return PARE_OK;
}

pare_status pare_diag_find(pare_diag *d)
{
    enum { MOST = 20 };
    double sum = 0;
    int count = 0;
    bool all;
    found *list = pare_arena_alloc(&d->arena, (size_t)d->count + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    PARE_TRY(look_at_all(d, &list[0], &all));
    count = all;
    for (int k = 0; k < d->count; k++) sum += d->part[k].effect > 0 ? d->part[k].effect : 0;
    for (int k = 0; k < d->count; k++) {
        if (all && misfits(&d->part[k])) continue;
        PARE_TRY(look_at(d, k, &list[count]));
        count += noteworthy(&list[count].finding, sum);
    }
    qsort(list, (size_t)count, sizeof *list, by_effect);
    count = count < MOST ? count : MOST;
    d->trials += 2 * count;
    for (int i = 0; i < count; i++) PARE_TRY(gain_of(d, &list[i]));
    if (d->mend) PARE_TRY(mend(d, list, count));
    d->out->finding = pare_arena_alloc(&d->out->arena, (size_t)count + 1, sizeof(pare_finding));
    if (!d->out->finding) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        pare_finding *f = &d->out->finding[i];
        *f = list[i].finding;
        f->node = kept(d, f->node);
        f->tensor = kept(d, f->tensor);
    }
    d->out->finding_count = count;
    return tabulate(d);
}
