/* SPDX-License-Identifier: Apache-2.0 */
/* The training: steps, validation, the best kept. The student is changed at the very end. */
#include "distill/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct loop {
    pare_trainer t;
    pare_distill_result *result;
    int64_t step;            /* done */
    int64_t since_best;      /* validations */
    double loss, norm, rate; /* of the last step */
    pare_distill_score best;
} loop;

void pare_distill_defaults(pare_distill_options *out)
{
    *out = (pare_distill_options){.epochs = 1,
                                  .batch = 128,
                                  .accumulate = 1,
                                  .rate = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .epsilon = 1e-8,
                                  .momentum = 0.9,
                                  .decay = 1e-2,
                                  .warmup = -1,
                                  .zeros_from = 0.2,
                                  .seed = 1};
}

/* --- a step --- */

static pare_status blame(loop *l, const char *what, double value)
{
    char text[128];
    snprintf(text, sizeof text, "step %" PRId64 ": the %s is %s", l->step + 1, what,
             isnan(value) ? "NaN" : "infinite");
    return pare_slices_blame(&l->t.learning, text);
}

/* Gradients of weights that stay zero count for nothing. */
static double gradient_norm(pare_weights *w, double scale)
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
    return sqrt(sum) * scale;
}

/* Running statistics are averages already. */
static void copy_statistics(pare_weights *w)
{
    const size_t at = w->item[w->trained].at;
    memcpy(w->average + at, w->value + at, (w->floats - at) * sizeof *w->value);
}

/* Elements from .. from + count of a weight. */
static void update_part(loop *l, const pare_weight *item, int64_t from, int64_t count,
                        const pare_update *like)
{
    pare_weights *w = &l->t.weights;
    const size_t at = item->at + (size_t)from;
    pare_update u = *like;
    u.count = count;
    u.value = w->value + at;
    u.gradient = w->gradient + at;
    u.first = w->first + at;
    u.second = w->second ? w->second + at : NULL;
    u.zero = item->zero ? item->zero + from : NULL;
    pare_optimizer_step(&l->t.optimizer, &u);
}

/* Every scale goes by steps relative to what it was. */
static void update_scales(loop *l, const pare_weight *item, const pare_update *like)
{
    const float *start = item->tensor->data;
    for (int64_t i = 0; i < item->tensor->count; i++) {
        pare_update u = *like;
        u.rate *= fabs((double)start[i]);
        update_part(l, item, i, 1, &u);
    }
    pare_weights_hold(item, l->t.weights.value + item->at);
}

/* Clipping by the norm of all gradients together (Pascanu, Mikolov, Bengio 2013). */
static void update(loop *l, double scale)
{
    const pare_distill_options *o = &l->t.options;
    pare_weights *w = &l->t.weights;
    const double t = (double)l->step, early = (1 + t) / (10 + t);
    if (o->clip > 0 && l->norm > o->clip) scale *= o->clip / l->norm;
    for (int k = 0; k < w->trained; k++) {
        const pare_weight *item = &w->item[k];
        const pare_update u = {.rate = l->rate,
                               .decay = item->decays ? o->decay : 0,
                               .scale = scale,
                               .step = l->step + 1,
                               .threads = o->threads};
        if (item->gradient_scale > 0)
            update_scales(l, item, &u);
        else
            update_part(l, item, 0, item->tensor->count, &u);
        /* the average forgets its start: at first less than `average` of it stays */
        if (w->average)
            pare_average_step(w->average + item->at, w->value + item->at, item->tensor->count,
                              o->average < early ? o->average : early, item->zero);
    }
    if (w->average && w->trained < w->count) copy_statistics(w);
}

static pare_status step(loop *l)
{
    pare_trainer *t = &l->t;
    const int batches = t->options.accumulate;
    pare_stream_batch batch = {0};
    double loss = 0, scale = 1 / ((double)t->slice_count * batches);
    for (int i = 0; i < batches; i++) {
        PARE_TRY(pare_ctx_poll(t->ctx));
        PARE_TRY(pare_stream_next(t->stream, &batch));
        PARE_TRY(pare_slices_learn(&t->learning, &t->weights, &batch, &t->pictures, !i, &loss));
        if (!isfinite(loss)) return blame(l, "loss", loss);
    }
    l->loss = loss * scale;
    l->norm = gradient_norm(&t->weights, scale);
    if (!isfinite(l->norm)) return blame(l, "norm of the gradients", l->norm);
    l->rate = pare_schedule_rate(&t->schedule, l->step);
    update(l, scale);
    l->step++;
    return PARE_OK;
}

/* --- validation --- */

static pare_status tell(loop *l, const pare_distill_score *score, bool best)
{
    const pare_trainer *t = &l->t;
    const int64_t samples = l->step * t->batch * t->options.accumulate;
    const pare_distill_event event = {.step = l->step,
                                      .steps = t->steps,
                                      .samples = samples,
                                      .epoch = (double)samples / (double)t->sample_count,
                                      .rate = l->rate,
                                      .loss = l->loss,
                                      .norm = l->norm,
                                      .score = score,
                                      .best = best};
    return t->options.event ? t->options.event(t->options.event_user, &event) : PARE_OK;
}

static pare_status validate(loop *l)
{
    pare_weights *w = &l->t.weights;
    const float *values = w->average ? w->average : w->value;
    pare_distill_score score;
    PARE_TRY(pare_held_out_score(&l->t.held, values, &score));
    if (!l->step) l->result->before = l->best = score;
    bool better = isfinite(score.loss) && !(l->best.loss <= score.loss);
    if (better) {
        memcpy(w->best, values, w->floats * sizeof *values);
        l->best = score;
        l->result->best_step = l->step;
    }
    l->since_best = better ? 0 : l->since_best + 1;
    return tell(l, &score, better || !l->step);
}

/* --- all steps --- */

static bool patient(const loop *l)
{
    const int patience = l->t.options.patience;
    return !patience || l->since_best < patience;
}

static pare_status run(loop *l)
{
    const pare_trainer *t = &l->t;
    PARE_TRY(validate(l));
    l->since_best = 0;
    while (l->step < t->steps && patient(l)) {
        PARE_TRY(step(l));
        if (l->step % t->options.validate_every == 0 || l->step == t->steps)
            PARE_TRY(validate(l));
        else
            PARE_TRY(tell(l, NULL, false));
    }
    l->result->end = l->step < t->steps ? PARE_DISTILL_PATIENCE : PARE_DISTILL_COMPLETE;
    return PARE_OK;
}

/* Asked to stop, the best so far is the result. */
static pare_status run_until_stopped(loop *l)
{
    const double unknown = NAN;
    pare_weights *w = &l->t.weights;
    memcpy(w->best, w->value, w->floats * sizeof *w->value);
    l->result->before = l->best = (pare_distill_score){unknown, -1, -1};
    pare_status st = run(l);
    if (st != PARE_INTERRUPTED) return st;
    pare_ctx_clear(l->t.ctx);
    l->result->end = PARE_DISTILL_INTERRUPTED;
    return PARE_OK;
}

static pare_status finish(loop *l, pare_model *student)
{
    pare_distill_result *r = l->result;
    pare_tensor **tensors;
    r->steps = l->step;
    r->batch = l->t.batch;
    r->train_samples = l->t.sample_count;
    r->held_out = l->t.held.count;
    r->weights = l->t.weights.trained;
    r->after = l->best;
    pare_hash_text(pare_stream_hash(l->t.stream), r->data_hash);
    PARE_TRY(pare_weights_pack(&l->t.weights, student, l->t.weights.best, &tensors));
    pare_weights_store(&l->t.weights, student, tensors);
    return PARE_OK;
}

pare_status pare_distill(pare_ctx *ctx, pare_distill_result *out, const pare_model *teacher,
                         pare_model *student, pare_data *data, const pare_distill_options *options)
{
    loop l = {.t = {.ctx = ctx,
                    .options = *options,
                    .teacher_file = teacher,
                    .student = student,
                    .data = data},
              .result = out};
    *out = (pare_distill_result){0};
    pare_status st = pare_trainer_open(&l.t);
    if (st == PARE_OK) st = run_until_stopped(&l);
    if (st == PARE_OK) st = finish(&l, student);
    pare_trainer_free(&l.t);
    return st;
}
