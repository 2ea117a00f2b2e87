/* SPDX-License-Identifier: Apache-2.0 */
/* What the samples are in each quantized tensor, and trials: what the outputs lose where one part
   alone is quantized and all others are float. Errors of different parts are nearly independent, so
   that these effects add up to about the whole. */
#include "quant/diagnose/internal.h"

#include <math.h>

static const double ROOM = 5e8; /* bytes of tensors that are kept */

/* What the outputs lose by d->choice; probe: what one more tensor does, or NULL. */
static pare_status trial(pare_diag *d, double *error, pare_output_probe *probe)
{
    pare_model *model = NULL;
    pare_status st = pare_diag_build(d, d->choice, &model);
    if (st == PARE_OK) st = pare_output_error_probe(&d->outputs, model, error, probe);
    pare_model_free(model);
    d->done++;
    if (st == PARE_OK && d->on->progress)
        d->on->progress(d->on->progress_user, d->done < d->trials ? d->done : d->trials, d->trials);
    return st;
}

pare_status pare_diag_error(pare_diag *d, double *error) { return trial(d, error, NULL); }

/* --- two models side by side --- */

typedef struct pair {
    pare_model *model[2];
    pare_capture *flow[2];
    pare_capture_batch batch[2];
} pair;

static void pair_close(pair *p)
{
    for (int i = 0; i < 2; i++) {
        pare_capture_free(p->flow[i]);
        pare_model_free(p->model[i]);
    }
}

/* The float form, and the one of d->choice; names of as many tensors in each. */
static pare_status pair_open(pare_diag *d, pair *p, const char *const *names[2], int count)
{
    *p = (pair){0};
    PARE_TRY(pare_diag_build(d, d->choice, &p->model[1]));
    pare_diag_choose_all(d, PARE_CHOICE_FLOAT);
    PARE_TRY(pare_diag_build(d, d->choice, &p->model[0]));
    const int runs[] = {pare_capture_sizes_of(p->model[0], d->on->threads).runs,
                        pare_capture_sizes_of(p->model[1], d->on->threads).runs};
    for (int i = 0; i < 2; i++) {
        PARE_TRY(pare_output_error_flow(&d->outputs, p->model[i],
                                        runs[0] < runs[1] ? runs[0] : runs[1], 0, &p->flow[i]));
        PARE_TRY(pare_capture_begin(p->flow[i], names[i], NULL, count));
    }
    return PARE_OK;
}

static pare_status pair_next(pare_diag *d, pair *p)
{
    for (int i = 0; i < 2; i++) PARE_TRY(pare_capture_next(p->flow[i], &p->batch[i]));
    if (p->batch[0].count != p->batch[1].count)
        return PARE_FAIL(d->ctx, INPUT, "%s: runs other samples than %s", d->master->path,
                         d->exact->path);
    return PARE_OK;
}

/* --- statistics --- */

static void add_number(pare_part *part, float x, float y, int64_t channel)
{
    pare_part_stats *s = &part->stats;
    const double v = (double)x;
    const float limited = x < part->low ? part->low : x > part->high ? part->high : x;
    const float level = part->step > 0 ? rintf(limited / part->step) * part->step : 0;
    const double clip = v - (double)limited, round = (double)limited - (double)level;
    const double all = v - (double)y;
    s->energy += v * v;
    s->clipping += clip * clip;
    s->rounding += round * round;
    s->total += all * all;
    s->clipped += x != limited;
    s->low = x < s->low ? x : s->low;
    s->high = x > s->high ? x : s->high;
    if (s->largest && fabsf(x) > s->largest[channel]) s->largest[channel] = fabsf(x);
}

static pare_status open_channels(pare_diag *d, pare_part_stats *s, const pare_shape *shape)
{
    const int axis = pare_channels_axis(shape->rank);
    if (axis < 1 || s->largest) return PARE_OK; /* axis 0 counts samples */
    s->channels = shape->dim[axis];
    s->largest = pare_arena_alloc(&d->arena, (size_t)s->channels + 1, sizeof *s->largest);
    return s->largest ? PARE_OK : PARE_MEMORY;
}

static pare_status add_stats(pare_diag *d, pare_part *part, const pair *p, int k)
{
    const pare_shape *shape = pare_capture_shape(p->flow[0], k);
    const int64_t count = p->batch[0].count * p->batch[0].size[k];
    const float *x = p->batch[0].value[k], *y = p->batch[1].value[k];
    pare_part_stats *s = &part->stats;
    int64_t inner = 1;
    if (p->batch[0].size[k] != p->batch[1].size[k])
        return PARE_FAIL(d->ctx, INPUT, "%s: tensor '%s' has another size than without rounding",
                         d->master->path, part->value->name);
    PARE_TRY(open_channels(d, s, shape));
    for (int i = pare_channels_axis(shape->rank) + 1; s->largest && i < shape->rank; i++)
        inner *= shape->dim[i];
    if (!s->count && count) s->low = s->high = x[0];
    for (int64_t i = 0; i < count; i++)
        add_number(part, x[i], y[i], s->largest ? i / inner % s->channels : 0);
    s->count += (uint64_t)count;
    return pare_histogram_add(d->ctx, s->histogram, PARE_f32, x, count);
}

/* The float form's tensor, against which weights are measured. */
static pare_status keep(pare_diag *d, pare_part *part, const pair *p, int k)
{
    const double bytes =
        (double)p->batch[0].size[k] * sizeof(float) * (double)pare_capture_runs(p->flow[0]);
    pare_part_stats *s = &part->stats;
    if (!part->source || (!s->exact && (p->batch[0].first || d->kept + bytes > ROOM)))
        return PARE_OK;
    if (!s->exact) {
        s->exact = pare_alloc(d->ctx, (size_t)bytes / sizeof(float) + 1, sizeof *s->exact);
        if (!s->exact) return PARE_MEMORY;
        d->kept += bytes;
    }
    memcpy(s->exact + p->batch[0].first * p->batch[0].size[k], p->batch[0].value[k],
           (size_t)(p->batch[0].count * p->batch[0].size[k]) * sizeof(float));
    return PARE_OK;
}

/* What readers of the pair read in the quantized model. */
static const char *view_name(const pare_part *part)
{
    return part->read[0].name[PARE_CHOICE_QUANTIZED];
}

static pare_status statistics(pare_diag *d)
{
    const char **names[2];
    pare_part **of = pare_arena_alloc(&d->arena, (size_t)d->count + 1, sizeof(pare_part *));
    pair p = {0};
    int count = 0;
    for (int i = 0; i < 2; i++) {
        names[i] = pare_arena_alloc(&d->arena, (size_t)d->count + 1, sizeof(char *));
        if (!names[i] || !of) return PARE_MEMORY;
    }
    for (int k = 0; k < d->count; k++) {
        pare_part *part = &d->part[k];
        if (part->kind != PARE_PART_ACTIVATION) continue;
        PARE_TRY(pare_histogram_new(d->ctx, &part->stats.histogram));
        names[0][count] = part->value->name;
        names[1][count] = view_name(part);
        of[count++] = part;
    }
    if (!count) return PARE_OK;
    pare_diag_choose_all(d, PARE_CHOICE_QUANTIZED);
    pare_status st = pair_open(d, &p, (const char *const *[]){names[0], names[1]}, count);
    while (st == PARE_OK) {
        st = pair_next(d, &p);
        if (st != PARE_OK || !p.batch[0].count) break;
        for (int k = 0; st == PARE_OK && k < count; k++) {
            st = add_stats(d, of[k], &p, k);
            if (st == PARE_OK) st = keep(d, of[k], &p, k);
        }
    }
    pair_close(&p);
    return st;
}

/* --- trials --- */

/* The next quantized tensor, whose float form was kept. */
static const pare_part *next_of(const pare_diag *d, const pare_part *part)
{
    for (int k = 0; k < d->count; k++)
        if (d->part[k].kind == PARE_PART_ACTIVATION && d->part[k].source == part->node)
            return d->part[k].stats.exact ? &d->part[k] : NULL;
    return NULL;
}

static void choose_alone(pare_diag *d, const pare_part *part, pare_choice choice)
{
    pare_diag_choose_all(d, PARE_CHOICE_FLOAT);
    d->choice[part - d->part] = choice;
}

static pare_status weight_alone(pare_diag *d, pare_part *part)
{
    const pare_part *next = part->node ? next_of(d, part) : NULL;
    pare_output_probe probe = {.name = next ? next->value->name : NULL,
                               .exact = next ? next->stats.exact : NULL};
    choose_alone(d, part, PARE_CHOICE_QUANTIZED);
    PARE_TRY(trial(d, &part->effect, next ? &probe : NULL));
    if (next) part->next_error = probe.error;
    return PARE_OK;
}

/* Clipping that is little beside rounding needs no trial of its own. */
static pare_status activation_alone(pare_diag *d, pare_part *part)
{
    const pare_part_stats *s = &part->stats;
    choose_alone(d, part, PARE_CHOICE_QUANTIZED);
    PARE_TRY(trial(d, &part->effect, NULL));
    part->clip_effect = 0;
    if (s->clipping < 0.1 * s->rounding) return PARE_OK;
    choose_alone(d, part, PARE_CHOICE_CLIPPED);
    return trial(d, &part->clip_effect, NULL);
}

static int64_t trials_of(const pare_diag *d)
{
    int64_t n = 2;
    for (int k = 0; k < d->count; k++) n += pare_diag_has(&d->part[k], PARE_CHOICE_FLOAT);
    return n;
}

pare_status pare_diag_measure(pare_diag *d)
{
    d->trials = trials_of(d);
    pare_diag_choose_all(d, PARE_CHOICE_QUANTIZED);
    PARE_TRY(pare_diag_error(d, &d->out->error));
    pare_diag_choose_all(d, PARE_CHOICE_FLOAT);
    PARE_TRY(pare_diag_error(d, &d->out->exact));
    PARE_TRY(statistics(d));
    for (int k = 0; k < d->count; k++) {
        pare_part *part = &d->part[k];
        if (!pare_diag_has(part, PARE_CHOICE_FLOAT)) continue;
        PARE_TRY(part->kind == PARE_PART_ACTIVATION ? activation_alone(d, part)
                                                    : weight_alone(d, part));
    }
    return PARE_OK;
}
