/* SPDX-License-Identifier: Apache-2.0 */
/* InstanceNormalization (6) and GroupNormalization (18, 21): y = (x - mean) / sqrt(variance +
   epsilon) * scale + bias over one sample's channel or group of channels; scale and bias per
   channel, or per group (18). The plain kernel computes in double and rounds once; the vector
   kernel takes dense f32, sums in double and normalizes in f32. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/ref.h"

#include <math.h>
#include <string.h>

/* Elements of sample n, channels first .. first + count. */
static pare_view channels_of(const pare_view *x, int64_t n, int64_t first, int64_t count)
{
    pare_view v = *x;
    v.dim[0] = 1;
    v.dim[1] = count;
    v.data = pare_ref_at(x, n * x->stride[0] + first * x->stride[1]);
    return v;
}

static void group_one(const pare_call *c, int64_t n, int64_t first, int64_t count, bool per_group,
                      double epsilon)
{
    pare_view x = channels_of(&c->in[0], n, first, count),
              y = channels_of(&c->out[0], n, first, count);
    const pare_view *scale = &c->in[1], *bias = &c->in[2];
    pare_norm_stats st = pare_norm_stats_of(&x, 0, epsilon, true);
    int64_t index[PARE_MAX_RANK] = {0};
    do {
        int64_t k = per_group ? first / count : first + index[1];
        double v = (pare_ref_get(&x, pare_ref_offset(&x, index)) - st.mean) * st.inverse;
        v = v * pare_ref_get(scale, k * scale->stride[0]) + pare_ref_get(bias, k * bias->stride[0]);
        pare_ref_set(&y, pare_ref_offset(&y, index), v);
    } while (pare_ref_next(&x, index));
}

static pare_status group_norm_run(const pare_call *c)
{
    const pare_norm *s = c->state;
    const pare_view *x = &c->in[0];
    if (pare_view_count(x) == 0) return PARE_OK;
    int64_t count = x->dim[1] / s->groups;
    bool per_group = c->in[1].dim[0] == s->groups && x->dim[1] != s->groups;
    for (int64_t n = 0; n < x->dim[0]; n++)
        for (int64_t g = 0; g < s->groups; g++)
            group_one(c, n, g * count, count, per_group, (double)s->epsilon);
    return PARE_OK;
}

static bool group_norm_can(const pare_prep *p)
{
    return pare_ref_can_floats(p) && p->in[0].rank > 1;
}

static const pare_kernel ref_group_norm = {.name = "ref_group_norm",
                                           .can = group_norm_can,
                                           .prepare = pare_norm_prepare,
                                           .run = group_norm_run,
                                           .flags = PARE_KERNEL_REF};

/* y = x * factor + shift, n neighbours, factor and shift of each or of all. */
PARE_CLONES static void affine_all(float *y, const float *x, int64_t n, float factor, float shift)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor + shift;
}

PARE_CLONES static void affine_each(float *y, const float *x, int64_t n, const float *factor,
                                    const float *shift)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor[i] + shift[i];
}

/* sum += x, or += (x - mean)^2, of n neighbours. */
PARE_CLONES static void sum_each(double *sum, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i];
}

PARE_CLONES static void squares_each(double *sum, const float *x, int64_t n, const double *mean)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - mean[i];
        sum[i] += d * d;
    }
}

typedef struct channels {
    int64_t count, group, size; /* channels, of one group, elements of one */
    bool per_group;             /* scale and bias are */
    const float *scale, *bias;
} channels;

static void affine_of(const channels *k, int64_t channel, pare_norm_stats st, float *factor,
                      float *shift)
{
    const int64_t i = k->per_group ? channel / k->group : channel;
    const double f = st.inverse * (double)k->scale[i];
    *factor = (float)f;
    *shift = (float)((double)k->bias[i] - st.mean * f);
}

/* Channel by channel: a group's elements are neighbours. */
static void group_rows(const pare_norm *s, const channels *k, int64_t group, const float *x,
                       float *y)
{
    const pare_norm_stats st = pare_norm_stats_f32(x, k->group * k->size, (double)s->epsilon, true);
    for (int64_t i = 0; i < k->group; i++) {
        float factor, shift;
        affine_of(k, group * k->group + i, st, &factor, &shift);
        affine_all(y + i * k->size, x + i * k->size, k->size, factor, shift);
    }
}

/* Mean of each group, in every of its channels: of sums (count) of n elements a group. */
static void share(const channels *k, double *sum)
{
    for (int64_t g = 0; g < k->count; g += k->group) {
        double total = 0;
        for (int64_t i = 0; i < k->group; i++) total += sum[g + i];
        for (int64_t i = 0; i < k->group; i++) sum[g + i] = total / (double)(k->group * k->size);
    }
}

/* One sample whose channels are neighbours; room: mean, variance, factor and shift of each. */
static void group_columns(const pare_norm *s, const channels *k, const float *x, float *y,
                          double *room)
{
    double *mean = room, *variance = mean + k->count;
    float *factor = (float *)(variance + k->count), *shift = factor + k->count;
    memset(room, 0, 2 * (size_t)k->count * sizeof *room);
    for (int64_t i = 0; i < k->size; i++) sum_each(mean, x + i * k->count, k->count);
    share(k, mean);
    for (int64_t i = 0; i < k->size; i++) squares_each(variance, x + i * k->count, k->count, mean);
    share(k, variance);
    for (int64_t i = 0; i < k->count; i++)
        affine_of(k, i, (pare_norm_stats){mean[i], 1 / sqrt(variance[i] + (double)s->epsilon)},
                  &factor[i], &shift[i]);
    for (int64_t i = 0; i < k->size; i++)
        affine_each(y + i * k->count, x + i * k->count, k->count, factor, shift);
}

static pare_status vec_group_norm_run(const pare_call *c)
{
    const pare_norm *s = c->state;
    const pare_view *x = &c->in[0];
    const bool rows = pare_view_rowmajor(x);
    const int64_t sample = pare_view_count(x) / x->dim[0];
    const channels k = {.count = x->dim[1],
                        .group = x->dim[1] / s->groups,
                        .size = sample / x->dim[1],
                        .per_group = c->in[1].dim[0] == s->groups && x->dim[1] != s->groups,
                        .scale = c->in[1].data,
                        .bias = c->in[2].data};
    const int64_t jobs = rows ? x->dim[0] * s->groups : x->dim[0];
    const int64_t step = rows ? sample / s->groups : sample;
    const int parts = c->threads > 1 && jobs * step > 1 << 15 ? c->threads : 1;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        for (int64_t i = jobs * t / parts; i < jobs * (t + 1) / parts; i++) {
            const float *from = (const float *)x->data + i * step;
            float *to = (float *)c->out[0].data + i * step;
            if (rows)
                group_rows(s, &k, i % s->groups, from, to);
            else
                group_columns(s, &k, from, to, (double *)c->scratch + 3 * t * k.count);
        }
    return PARE_OK;
}

static pare_status vec_group_norm_prepare(pare_prep *p)
{
    if (!pare_view_rowmajor(&p->in[0]))
        p->scratch = 3 * sizeof(double) * (size_t)p->in[0].dim[1] * (size_t)p->threads;
    return pare_norm_prepare(p);
}

/* Dense f32, channel by channel or with channels as neighbours. */
static bool vec_group_norm_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    if (x->rank < 2 || !pare_view_count(x) || !pare_view_same_order(x, y)) return false;
    for (int i = 0; i < 3; i++)
        if (p->in[i].dtype != PARE_f32 || (i && !pare_view_rowmajor(&p->in[i]))) return false;
    return pare_view_rowmajor(x) || (x->rank == 4 && pare_view_nhwc(x));
}

static const pare_kernel vec_group_norm = {.name = "vec_group_norm",
                                           .can = vec_group_norm_can,
                                           .prepare = vec_group_norm_prepare,
                                           .run = vec_group_norm_run,
                                           .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_group_norm[] = {&vec_group_norm, &pare_widened, &ref_group_norm,
                                                  NULL};
