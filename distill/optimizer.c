/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate, one step of an optimizer on one tensor, and a step of all weights where they
   are. */
#include "distill/optimizer.h"
#include "distill/trainer.h"

#include <math.h>
#include <string.h>

/* --- the learning rate --- */

/* Warm-up: linear, the first step has 1 / warmup of the rate (Goyal and others 2017). Cosine:
   without restarts (Loshchilov, Hutter 2017). Step: a tenth at 50 % and at 75 % (He and others
   2016, section 4.2). The part after the warm-up is what they count. */
double pare_schedule_rate(const pare_schedule *s, int64_t step)
{
    if (step < s->warmup) return s->learning_rate * (double)(step + 1) / (double)s->warmup;
    int64_t length = s->steps - s->warmup;
    double done = length > 0 ? (double)(step - s->warmup) / (double)length : 1;
    if (done > 1) done = 1;
    switch (s->kind) {
    case PARE_SCHEDULE_COSINE: return s->learning_rate * 0.5 * (1 + cos(acos(-1) * done));
    case PARE_SCHEDULE_STEP: return s->learning_rate * (done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01);
    case PARE_SCHEDULE_CONSTANT: break;
    }
    return s->learning_rate;
}

/* --- one tensor --- */

enum { PARALLEL = 1 << 14 }; /* elements from which threads pay */

pare_train_rule pare_optimizer_rule(const pare_optimizer *o, double learning_rate,
                                    double weight_decay, double scale, int64_t step)
{
    const double t = (double)step;
    return (pare_train_rule){.adamw = o->kind == PARE_OPTIMIZER_ADAMW,
                             .learning_rate = learning_rate,
                             .weight_decay = weight_decay,
                             .correction = 1 - pow(o->beta1, t),
                             .root = (float)sqrt(1 - pow(o->beta2, t)),
                             .scale = (float)scale,
                             .one1 = (float)(1 - o->beta1),
                             .one2 = (float)(1 - o->beta2),
                             .beta2 = (float)o->beta2,
                             .epsilon = (float)o->epsilon,
                             .momentum = (float)o->momentum};
}

static void adamw(const pare_train_rule *rule, const pare_update *u)
{
    const pare_train_rule r = *rule;
    const pare_train_step step = pare_train_step_of(rule, r.learning_rate, true);
#pragma omp parallel for schedule(static) num_threads(u->threads) if (u->count >= PARALLEL)
    for (int64_t i = 0; i < u->count; i++) {
        pare_train_element e = {u->value[i], u->exp_avg[i], u->exp_avg_sq[i]};
        e = pare_adamw_step(&r, step, u->gradient[i], e);
        u->exp_avg[i] = e.exp_avg;
        u->exp_avg_sq[i] = e.exp_avg_sq;
        u->value[i] = e.value;
    }
}

static void sgd(const pare_train_rule *rule, const pare_update *u)
{
    const pare_train_rule r = *rule;
    const pare_train_step step = pare_train_step_of(rule, r.learning_rate, true);
#pragma omp parallel for schedule(static) num_threads(u->threads) if (u->count >= PARALLEL)
    for (int64_t i = 0; i < u->count; i++) {
        pare_train_element e = {u->value[i], u->exp_avg[i], 0};
        e = pare_sgd_step(&r, step, u->gradient[i], e);
        u->exp_avg[i] = e.exp_avg;
        u->value[i] = e.value;
    }
}

/* The moments of a weight that stays 0 are 0, too. */
static void clear(const pare_update *u)
{
    for (int64_t i = 0; i < u->count; i++)
        if (u->zero[i]) {
            u->value[i] = u->exp_avg[i] = 0;
            if (u->exp_avg_sq) u->exp_avg_sq[i] = 0;
        }
}

void pare_optimizer_step(const pare_optimizer *optimizer, const pare_update *update)
{
    const pare_train_rule rule = pare_optimizer_rule(
        optimizer, update->learning_rate, update->weight_decay, update->scale, update->step);
    if (rule.adamw)
        adamw(&rule, update);
    else
        sgd(&rule, update);
    if (update->zero) clear(update);
}

void pare_ema_step(float *average, const float *value, int64_t count, double keep,
                   const uint8_t *zero)
{
    const float part = (float)(1 - keep);
    for (int64_t i = 0; i < count; i++) {
        average[i] += part * (value[i] - average[i]);
        if (zero && zero[i]) average[i] = 0;
    }
}

double pare_square_sum(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static pare_stream *stream_of(const pare_trainer *t)
{
    return pare_replicas_stream(t->learning.pool);
}

/* --- the norm --- */

static double square_sum_of(const pare_weights *w, const pare_weight *item)
{
    float *g = w->gradient + item->at;
    for (int64_t i = 0; item->zero && i < item->tensor->count; i++)
        if (item->zero[i]) g[i] = 0;
    for (int64_t i = 0; item->gradient_scale > 0 && i < item->tensor->count; i++)
        g[i] *= (float)item->gradient_scale;
    return pare_square_sum(g, item->tensor->count);
}

static double square_sum(const pare_weights *w)
{
    double sum = 0;
    for (int k = 0; k < w->trained; k++) sum += square_sum_of(w, &w->item[k]);
    return sum;
}

/* Of the weights of all stages. */
static pare_status square_sum_all(const pare_trainer *t, double *out)
{
    const pare_weights *w = &t->weights;
    double *own = pare_alloc(t->ctx, (size_t)w->trained + 1, sizeof *own);
    PARE_TRY(pare_comm_settle(t->options.comm, own ? PARE_OK : PARE_MEMORY));
    for (int k = 0; k < w->trained; k++) own[k] = square_sum_of(w, &w->item[k]);
    const pare_status st = pare_stage_weights_sum(t, own, out);
    pare_free(own);
    return st;
}

/* The same on devices, in their order. */
static pare_status square_sum_there(const pare_trainer *t, double *out)
{
    const double *own = NULL;
    const pare_status st =
        pare_device_weights_chunk_squares(t->weights.on_device, stream_of(t), &own);
    PARE_TRY(pare_comm_settle(t->options.comm, st));
    return pare_stage_weights_sum_chunks(t, own, out);
}

pare_status pare_update_norm(pare_trainer *t, double scale, double *out)
{
    double sum;
    if (t->stage && t->weights.on_device)
        PARE_TRY(square_sum_there(t, &sum));
    else if (t->weights.on_device)
        PARE_TRY(pare_device_weights_squares(t->weights.on_device, stream_of(t), &sum));
    else if (t->stage)
        PARE_TRY(square_sum_all(t, &sum));
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
    u.exp_avg = w->exp_avg + at;
    u.exp_avg_sq = w->exp_avg_sq ? w->exp_avg_sq + at : NULL;
    u.zero = item->zero ? item->zero + from : NULL;
    pare_optimizer_step(&t->optimizer, &u);
}

/* Every scale goes by steps relative to what it was. */
static void update_scales(pare_trainer *t, const pare_weight *item, const pare_update *like)
{
    const float *start = item->tensor->data;
    for (int64_t i = 0; i < item->tensor->count; i++) {
        pare_update u = *like;
        u.learning_rate *= fabs((double)start[i]);
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
        const pare_update u = {.learning_rate = f->learning_rate,
                               .weight_decay = item->decays ? o->weight_decay : 0,
                               .scale = scale,
                               .step = f->step + 1,
                               .threads = o->threads};
        if (item->gradient_scale > 0)
            update_scales(t, item, &u);
        else
            update_part(t, item, 0, item->tensor->count, &u);
        if (w->ema)
            pare_ema_step(w->ema + item->at, w->value + item->at, item->tensor->count, stays,
                          item->zero);
    }
}

/* --- either --- */

/* Running statistics are averages already. */
static void copy_statistics(pare_weights *w)
{
    const size_t at = w->item[w->trained].at;
    memcpy(w->ema + at, w->value + at, (w->floats - at) * sizeof *w->value);
}

pare_status pare_update_weights(pare_trainer *t, const pare_update_facts *f)
{
    const pare_distill_options *o = &t->options;
    pare_weights *w = &t->weights;
    /* the average forgets its start: at first less than `average` of it stays */
    const double step = (double)f->step, early = (1 + step) / (10 + step);
    const double stays = o->ema_decay < early ? o->ema_decay : early;
    double scale = f->scale;
    if (o->grad_clip_norm > 0 && f->norm > o->grad_clip_norm) scale *= o->grad_clip_norm / f->norm;
    if (w->on_device) {
        const pare_train_rule rule = pare_optimizer_rule(&t->optimizer, f->learning_rate,
                                                         o->weight_decay, scale, f->step + 1);
        PARE_TRY(pare_device_weights_step(w->on_device, stream_of(t), &rule, (float)(1 - stays)));
    } else
        update_here(t, f, scale, stays);
    if (w->ema && w->trained < w->count) copy_statistics(w);
    return PARE_OK;
}
