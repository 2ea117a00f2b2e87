/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/optimizer.h"

#include <math.h>

enum { PARALLEL = 1 << 14 }; /* elements from which threads pay */

static void adamw(const pare_optimizer *o, const pare_update *u)
{
    const double t = (double)u->step;
    const float keep = (float)(1 - u->rate * u->decay), scale = (float)u->scale;
    const float one1 = (float)(1 - o->beta1), beta2 = (float)o->beta2;
    const float one2 = (float)(1 - o->beta2), epsilon = (float)o->epsilon;
    const float size = (float)(-u->rate / (1 - pow(o->beta1, t)));
    const float root = (float)sqrt(1 - pow(o->beta2, t));
#pragma omp parallel for schedule(static) num_threads(u->threads) if (u->count >= PARALLEL)
    for (int64_t i = 0; i < u->count; i++) {
        const float g = u->gradient[i] * scale;
        const float m = u->first[i] + one1 * (g - u->first[i]);
        const float v = u->second[i] * beta2 + one2 * g * g;
        u->first[i] = m;
        u->second[i] = v;
        u->value[i] = u->value[i] * keep + size * m / (sqrtf(v) / root + epsilon);
    }
}

static void sgd(const pare_optimizer *o, const pare_update *u)
{
    const float keep = (float)(1 - u->rate * u->decay), scale = (float)u->scale;
    const float momentum = (float)o->momentum, rate = (float)u->rate;
#pragma omp parallel for schedule(static) num_threads(u->threads) if (u->count >= PARALLEL)
    for (int64_t i = 0; i < u->count; i++) {
        const float m = momentum * u->first[i] + u->gradient[i] * scale;
        u->first[i] = m;
        u->value[i] = u->value[i] * keep - rate * m;
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
    if (optimizer->kind == PARE_OPTIMIZER_ADAMW)
        adamw(optimizer, update);
    else
        sgd(optimizer, update);
    if (update->zero) clear(update);
}

void pare_average_step(float *average, const float *value, int64_t count, double keep,
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
