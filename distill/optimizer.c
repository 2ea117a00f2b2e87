/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/optimizer.h"

#include <math.h>

enum { PARALLEL = 1 << 14 }; /* elements from which threads pay */

pare_train_rule pare_optimizer_rule(const pare_optimizer *o, double rate, double decay,
                                    double scale, int64_t step)
{
    const double t = (double)step;
    return (pare_train_rule){.adamw = o->kind == PARE_OPTIMIZER_ADAMW,
                             .rate = rate,
                             .decay = decay,
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
    const pare_train_pace pace = pare_train_pace_of(rule, r.rate, true);
#pragma omp parallel for schedule(static) num_threads(u->threads) if (u->count >= PARALLEL)
    for (int64_t i = 0; i < u->count; i++) {
        pare_train_element e = {u->value[i], u->first[i], u->second[i]};
        e = pare_adamw_step(&r, pace, u->gradient[i], e);
        u->first[i] = e.first;
        u->second[i] = e.second;
        u->value[i] = e.value;
    }
}

static void sgd(const pare_train_rule *rule, const pare_update *u)
{
    const pare_train_rule r = *rule;
    const pare_train_pace pace = pare_train_pace_of(rule, r.rate, true);
#pragma omp parallel for schedule(static) num_threads(u->threads) if (u->count >= PARALLEL)
    for (int64_t i = 0; i < u->count; i++) {
        pare_train_element e = {u->value[i], u->first[i], 0};
        e = pare_sgd_step(&r, pace, u->gradient[i], e);
        u->first[i] = e.first;
        u->value[i] = e.value;
    }
}

/* The moments of a weight that stays 0 are 0, too. */
static void clear(const pare_update *u)
{
    for (int64_t i = 0; i < u->count; i++)
        if (u->zero[i]) {
            u->value[i] = u->first[i] = 0;
            if (u->second) u->second[i] = 0;
        }
}

void pare_optimizer_step(const pare_optimizer *optimizer, const pare_update *update)
{
    const pare_train_rule rule =
        pare_optimizer_rule(optimizer, update->rate, update->decay, update->scale, update->step);
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
