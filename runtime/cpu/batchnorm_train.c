/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization in training: what ops/train_batchnorm.c says, element by element in double. */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/batchnorm_train.h"

#include <math.h>
#include <string.h>

/* --- channels --- */

static int64_t channel_count(const pare_view *x) { return x->rank > 1 ? x->dim[1] : 1; }

static int64_t channel_of(const pare_view *x, const int64_t *index)
{
    return x->rank > 1 ? index[1] : 0;
}

static double vector_at(const pare_view *v, int64_t i)
{
    return pare_ref_get(v, v->rank ? i * v->stride[0] : 0);
}

void pare_norm_moments(const pare_view *sums, const pare_view *mean0, double epsilon, double *mean,
                       double *inv)
{
    const double *s = sums->data;
    const int64_t c = sums->dim[1];
    for (int64_t i = 0; i < c; i++) {
        double n = s[2 * c + i], d = n > 0 ? s[i] / n : 0;
        double variance = n > 0 ? s[c + i] / n - d * d : 0;
        mean[i] = vector_at(mean0, i) + d;
        inv[i] = 1 / sqrt((variance < 0 ? 0 : variance) + epsilon);
    }
}

void pare_norm_slopes(const pare_view *scale, const pare_view *sums, const pare_view *gsums,
                      const double *inv, double *f, double *p, double *q)
{
    const double *g = gsums->data, *n = (const double *)sums->data + 2 * sums->dim[1];
    const int64_t c = sums->dim[1];
    for (int64_t i = 0; i < c; i++) {
        f[i] = vector_at(scale, i) * inv[i];
        p[i] = -f[i] * inv[i] * inv[i] * g[c + i] / n[i];
        q[i] = -f[i] * g[i] / n[i];
    }
}

void pare_norm_weight_grads(const pare_call *c, const double *inv)
{
    const double *g = c->out[0].data;
    const int64_t n = c->out[0].dim[1];
    for (int64_t i = 0; i < n; i++) {
        if (c->out_count > 1 && c->out[1].dtype) pare_ref_set(&c->out[1], i, g[n + i] * inv[i]);
        if (c->out_count > 2 && c->out[2].dtype) pare_ref_set(&c->out[2], i, g[i]);
    }
}

pare_status pare_norm_prepare(pare_prep *p, int x, int vectors)
{
    double *epsilon = pare_arena_alloc(p->arena, 1, sizeof *epsilon);
    if (!epsilon) return PARE_MEMORY;
    *epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    p->state = epsilon;
    p->scratch = sizeof(double) * (size_t)vectors * (size_t)channel_count(&p->in[x]);
    return PARE_OK;
}

/* --- kernels --- */

static pare_status stats_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    const int64_t channels = channel_count(x);
    int64_t index[PARE_MAX_RANK] = {0};
    double *sums = c->out[0].data;
    memset(sums, 0, sizeof *sums * 3 * (size_t)channels);
    if (!pare_view_count(x)) return PARE_OK;
    do {
        int64_t i = channel_of(x, index);
        double d = pare_ref_get(x, pare_ref_offset(x, index)) - vector_at(&c->in[1], i);
        sums[i] += d;
        sums[channels + i] += d * d;
        sums[2 * channels + i] += 1;
    } while (pare_ref_next(x, index));
    return PARE_OK;
}

static pare_status train_prepare(pare_prep *p) { return pare_norm_prepare(p, 0, 2); }

static pare_status train_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    double *mean = c->scratch, *inv = mean + channel_count(x);
    int64_t index[PARE_MAX_RANK] = {0};
    pare_norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    if (!pare_view_count(x)) return PARE_OK;
    do {
        int64_t i = channel_of(x, index);
        double d = pare_ref_get(x, pare_ref_offset(x, index)) - mean[i];
        pare_ref_set(y, pare_ref_offset(y, index),
                     d * inv[i] * vector_at(&c->in[1], i) + vector_at(&c->in[2], i));
    } while (pare_ref_next(x, index));
    return PARE_OK;
}

static pare_status grad_stats_prepare(pare_prep *p) { return pare_norm_prepare(p, 1, 2); }

static pare_status grad_stats_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *x = &c->in[1];
    const int64_t channels = channel_count(x);
    double *mean = c->scratch, *inv = mean + channels, *sums = c->out[0].data;
    int64_t index[PARE_MAX_RANK] = {0};
    pare_norm_moments(&c->in[2], &c->in[3], *(const double *)c->state, mean, inv);
    memset(sums, 0, sizeof *sums * 2 * (size_t)channels);
    if (pare_view_count(x)) do {
            int64_t i = channel_of(x, index);
            double d = pare_ref_get(dy, pare_ref_offset(dy, index));
            sums[i] += d;
            sums[channels + i] += d * (pare_ref_get(x, pare_ref_offset(x, index)) - mean[i]);
        } while (pare_ref_next(x, index));
    pare_norm_weight_grads(c, inv);
    return PARE_OK;
}

static pare_status grad_input_prepare(pare_prep *p) { return pare_norm_prepare(p, 1, 5); }

static pare_status grad_input_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *x = &c->in[1], *dx = &c->out[0];
    const int64_t channels = channel_count(x);
    double *mean = c->scratch, *inv = mean + channels, *f = inv + channels;
    double *p = f + channels, *q = p + channels;
    int64_t index[PARE_MAX_RANK] = {0};
    pare_norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    pare_norm_slopes(&c->in[2], &c->in[3], &c->in[5], inv, f, p, q);
    if (!pare_view_count(x)) return PARE_OK;
    do {
        int64_t i = channel_of(x, index);
        double d = pare_ref_get(x, pare_ref_offset(x, index)) - mean[i];
        double g = pare_ref_get(dy, pare_ref_offset(dy, index));
        pare_ref_set(dx, pare_ref_offset(dx, index), f[i] * g + (p[i] * d + q[i]));
    } while (pare_ref_next(x, index));
    return PARE_OK;
}

static const pare_kernel ref_stats = {.name = "ref_batch_norm_stats",
                                      .can = pare_ref_can_f32_f64,
                                      .run = stats_run,
                                      .flags = PARE_KERNEL_REF};
static const pare_kernel ref_train = {.name = "ref_batch_norm_train",
                                      .can = pare_ref_can_f32_f64,
                                      .prepare = train_prepare,
                                      .run = train_run,
                                      .flags = PARE_KERNEL_REF};
static const pare_kernel ref_grad_stats = {.name = "ref_batch_norm_grad_stats",
                                           .can = pare_ref_can_f32_f64,
                                           .prepare = grad_stats_prepare,
                                           .run = grad_stats_run,
                                           .flags = PARE_KERNEL_REF};
static const pare_kernel ref_grad_input = {.name = "ref_batch_norm_grad_input",
                                           .can = pare_ref_can_f32_f64,
                                           .prepare = grad_input_prepare,
                                           .run = grad_input_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_batch_norm_stats[] = {&pare_batch_norm_stats_f32, &ref_stats,
                                                        NULL};
const pare_kernel *const pare_cpu_batch_norm_train[] = {&pare_batch_norm_train_f32, &ref_train,
                                                        NULL};
const pare_kernel *const pare_cpu_batch_norm_grad_stats[] = {&pare_batch_norm_grad_stats_f32,
                                                             &ref_grad_stats, NULL};
const pare_kernel *const pare_cpu_batch_norm_grad_input[] = {&pare_batch_norm_grad_input_f32,
                                                             &ref_grad_input, NULL};
