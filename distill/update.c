/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/update.h"
#include "distill/device_weights.h"

#include <math.h>
#include <string.h>

static pare_stream *stream_of(const pare_trainer *t)
{
    return pare_replicas_stream(t->learning.pool);
}

/* --- the norm --- */

static double square_sum(const pare_weights *w)
{
    double sum = 0;
    for (int k = 0; k < w->trained; k++) {
        const pare_weight *item = &w->item[k];
        float *g = w->gradient + item->at;
        for (int64_t i = 0; item->zero && i < item->tensor->count; i++)
            if (item->zero[i]) g[i] = 0;
        for (int64_t i = 0; item->gradient_scale > 0 && i < item->tensor->count; i++)
            g[i] *= (float)item->gradient_scale;
        sum += pare_square_sum(g, item->tensor->count);
    }
    return sum;
}

pare_status pare_update_norm(pare_trainer *t, double scale, double *out)
{
    double sum;
    if (t->weights.there)
        PARE_TRY(pare_device_weights_squares(t->weights.there, stream_of(t), &sum));
    else
        sum = square_sum(&t->weights);
    *out = sqrt(sum) * scale;
    return PARE_OK;
}

/* --- the step on the host --- */

/* Elements from .. from + count of a weight. */
static void update_part(pare_trainer *t, const pare_weight *item, int64_t from, int64_t count,
                        const pare_update *like)
{
    pare_weights *w = &t->weights;
    const size_t at = item->at + (size_t)from;
    pare_update u = *like;
    u.count = count;
    u.value = w->value + at;
    u.gradient = w->gradient + at;
    u.first = w->first + at;
    u.second = w->second ? w->second + at : NULL;
    u.zero = item->zero ? item->zero + from : NULL;
    pare_optimizer_step(&t->optimizer, &u);
}

/* Every scale goes by steps relative to what it was. */
static void update_scales(pare_trainer *t, const pare_weight *item, const pare_update *like)
{
    const float *start = item->tensor->data;
    for (int64_t i = 0; i < item->tensor->count; i++) {
        pare_update u = *like;
        u.rate *= fabs((double)start[i]);
        update_part(t, item, i, 1, &u);
    }
    pare_weights_hold(item, t->weights.value + item->at);
}

static void update_here(pare_trainer *t, const pare_update_facts *f, double scale, double stays)
{
    const pare_distill_options *o = &t->options;
    pare_weights *w = &t->weights;
    for (int k = 0; k < w->trained; k++) {
        const pare_weight *item = &w->item[k];
        const pare_update u = {.rate = f->rate,
                               .decay = item->decays ? o->decay : 0,
                               .scale = scale,
                               .step = f->step + 1,
                               .threads = o->threads};
        if (item->gradient_scale > 0)
            update_scales(t, item, &u);
        else
            update_part(t, item, 0, item->tensor->count, &u);
        if (w->average)
            pare_ema_step(w->average + item->at, w->value + item->at, item->tensor->count, stays,
                          item->zero);
    }
}

/* --- either --- */

/* Running statistics are averages already. */
static void copy_statistics(pare_weights *w)
{
    const size_t at = w->item[w->trained].at;
    memcpy(w->average + at, w->value + at, (w->floats - at) * sizeof *w->value);
}

pare_status pare_update_weights(pare_trainer *t, const pare_update_facts *f)
{
    const pare_distill_options *o = &t->options;
    pare_weights *w = &t->weights;
    /* the average forgets its start: at first less than `average` of it stays */
    const double step = (double)f->step, early = (1 + step) / (10 + step);
    const double stays = o->average < early ? o->average : early;
    double scale = f->scale;
    if (o->clip > 0 && f->norm > o->clip) scale *= o->clip / f->norm;
    if (w->there) {
        const pare_train_rule rule =
            pare_optimizer_rule(&t->optimizer, f->rate, o->decay, scale, f->step + 1);
        PARE_TRY(pare_device_weights_step(w->there, stream_of(t), &rule, (float)(1 - stays)));
    } else
        update_here(t, f, scale, stays);
    if (w->average && w->trained < w->count) copy_statistics(w);
    return PARE_OK;
}
