/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization in training: what ops/batchnorm_train.c says, element by element in double,
   which is rounded once. */
#include "runtime/cpu/ref.h"

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

/* mean, inv: (channels), of ops/batchnorm_train.c. */
static void norm_moments(const pare_view *sums, const pare_view *mean0, double epsilon,
                         double *mean, double *inv)
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

/* dX = f dY + p (X - mean) + q: f, p, q (channels). */
static void norm_slopes(const pare_view *scale, const pare_view *sums, const pare_view *gsums,
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

/* Outputs 1 and 2 of BatchNormGradStats from its output 0. */
static void norm_weight_grads(const pare_call *c, const double *inv)
{
    const double *g = c->out[0].data;
    const int64_t n = c->out[0].dim[1];
    for (int64_t i = 0; i < n; i++) {
        if (c->out_count > 1 && c->out[1].dtype) pare_ref_set(&c->out[1], i, g[n + i] * inv[i]);
        if (c->out_count > 2 && c->out[2].dtype) pare_ref_set(&c->out[2], i, g[i]);
    }
}

/* epsilon as state, and scratch for this many vectors of doubles, one number for each channel of
   input x. */
static pare_status norm_prepare(pare_prep *p, int x, int vectors)
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

static pare_status train_prepare(pare_prep *p) { return norm_prepare(p, 0, 2); }

static pare_status train_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    double *mean = c->scratch, *inv = mean + channel_count(x);
    int64_t index[PARE_MAX_RANK] = {0};
    norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    if (!pare_view_count(x)) return PARE_OK;
    do {
        int64_t i = channel_of(x, index);
        double d = pare_ref_get(x, pare_ref_offset(x, index)) - mean[i];
        pare_ref_set(y, pare_ref_offset(y, index),
                     d * inv[i] * vector_at(&c->in[1], i) + vector_at(&c->in[2], i));
    } while (pare_ref_next(x, index));
    return PARE_OK;
}

static pare_status grad_stats_prepare(pare_prep *p) { return norm_prepare(p, 1, 2); }

static pare_status grad_stats_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *x = &c->in[1];
    const int64_t channels = channel_count(x);
    double *mean = c->scratch, *inv = mean + channels, *sums = c->out[0].data;
    int64_t index[PARE_MAX_RANK] = {0};
    norm_moments(&c->in[2], &c->in[3], *(const double *)c->state, mean, inv);
    memset(sums, 0, sizeof *sums * 2 * (size_t)channels);
    if (pare_view_count(x)) do {
            int64_t i = channel_of(x, index);
            double d = pare_ref_get(dy, pare_ref_offset(dy, index));
            sums[i] += d;
            sums[channels + i] += d * (pare_ref_get(x, pare_ref_offset(x, index)) - mean[i]);
        } while (pare_ref_next(x, index));
    norm_weight_grads(c, inv);
    return PARE_OK;
}

static pare_status grad_input_prepare(pare_prep *p) { return norm_prepare(p, 1, 5); }

static pare_status grad_input_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *x = &c->in[1], *dx = &c->out[0];
    const int64_t channels = channel_count(x);
    double *mean = c->scratch, *inv = mean + channels, *f = inv + channels;
    double *p = f + channels, *q = p + channels;
    int64_t index[PARE_MAX_RANK] = {0};
    norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    norm_slopes(&c->in[2], &c->in[3], &c->in[5], inv, f, p, q);
    if (!pare_view_count(x)) return PARE_OK;
    do {
        int64_t i = channel_of(x, index);
        double d = pare_ref_get(x, pare_ref_offset(x, index)) - mean[i];
        double g = pare_ref_get(dy, pare_ref_offset(dy, index));
        pare_ref_set(dx, pare_ref_offset(dx, index), f[i] * g + (p[i] * d + q[i]));
    } while (pare_ref_next(x, index));
    return PARE_OK;
}

/* --- f32: a tensor is (rows, channels) where channels are innermost, else (rows, channels, inner).
       Rows shorter than a few vectors are taken several at a time, with what belongs to their
       channels repeated. Sums are floats over BATCH rows, then doubles; elements are floats. The
       order of every sum follows from these sizes alone. One thread. --- */

typedef struct planes {
    int64_t rows, channels, inner; /* inner 1: channels are innermost */
} planes;

/* The view as planes; all 0 where it is empty, has gaps or another order. */
static planes planes_of(const pare_view *x)
{
    int64_t count = pare_view_count(x), channels = x->rank > 1 ? x->dim[1] : 1;
    if (x->dtype != PARE_f32 || x->rank < 1 || !count) return (planes){0};
    if (pare_view_rowmajor(x) && count != x->dim[0] * channels)
        return (planes){x->dim[0], channels, count / (x->dim[0] * channels)};
    if (pare_view_rowmajor(x) || pare_view_nhwc(x)) return (planes){count / channels, channels, 1};
    return (planes){0};
}

/* --- rows of repeated channels --- */

enum { WIDTH = 64, BATCH = 16, LANES = 64 };

/* Elements of a row of repeated channels: a multiple of the channels. */
static int64_t width_of(int64_t channels)
{
    return channels < WIDTH ? WIDTH / channels * channels : channels;
}

/* to (width) = from (n), again and again. */
static void repeat(float *to, int64_t width, const float *from, int64_t n)
{
    for (int64_t i = 0; i < width; i++) to[i] = from[i % n];
}

/* --- sums over channels: a += u, b += u v; u and v are both x - m in the forward pass, dy and
       x - m in the backward pass --- */

/* Rows of w elements. */
PARE_CLONES static void add_rows(const float *dy, const float *x, const float *restrict m,
                                 int64_t rows, int64_t w, float *restrict a, float *restrict b)
{
    for (int64_t r = 0; r < rows; r++, x += w) {
        if (dy) {
            _Pragma("omp simd") for (int64_t i = 0; i < w; i++)
            {
                a[i] += dy[i];
                b[i] += dy[i] * (x[i] - m[i]);
            }
            dy += w;
        } else {
            _Pragma("omp simd") for (int64_t i = 0; i < w; i++)
            {
                const float v = x[i] - m[i];
                a[i] += v;
                b[i] += v * v;
            }
        }
    }
}

/* Element i belongs to channel i % n; what was summed up begins again. */
static void flush(double *sum, int64_t n, float *part, int64_t w)
{
    for (int64_t i = 0; i < w; i += n)
        for (int64_t k = 0; k < n && i + k < w; k++) sum[k] += (double)part[i + k];
    memset(part, 0, sizeof *part * (size_t)w);
}

/* (rows, channels); room: (3, width) */
static void sum_last(const float *dy, const float *x, const float *mean, const planes *s,
                     double *sums, float *room)
{
    const int64_t n = s->channels, w = width_of(n), count = s->rows * n;
    float *m = room, *a = room + w, *b = a + w;
    repeat(m, w, mean, n);
    memset(a, 0, sizeof *a * 2 * (size_t)w);
    for (int64_t at = 0; at < count; at += BATCH * w) {
        const int64_t left = count - at < BATCH * w ? count - at : BATCH * w;
        const int64_t whole = left / w * w;
        add_rows(dy ? dy + at : NULL, x + at, m, left / w, w, a, b);
        if (whole < left)
            add_rows(dy ? dy + at + whole : NULL, x + at + whole, m, 1, left - whole, a, b);
        flush(sums, n, a, w);
        flush(sums + n, n, b, w);
    }
}

/* (rows, channels, inner): each channel's row by itself */
static void sum_planes(const float *dy, const float *x, const float *mean, const planes *s,
                       double *sums)
{
    float m[LANES], a[LANES] = {0}, b[LANES] = {0};
    for (int64_t k = 0; k < s->rows * s->channels; k++) {
        const int64_t i = k % s->channels;
        const float *from = x + k * s->inner, *dfrom = dy ? dy + k * s->inner : NULL;
        repeat(m, LANES, mean + i, 1);
        for (int64_t at = 0; at < s->inner; at += BATCH * LANES) {
            int64_t left = s->inner - at < BATCH * LANES ? s->inner - at : BATCH * LANES;
            int64_t whole = left / LANES * LANES;
            add_rows(dy ? dfrom + at : NULL, from + at, m, left / LANES, LANES, a, b);
            add_rows(dy ? dfrom + at + whole : NULL, from + at + whole, m, 1, left - whole, a, b);
            flush(sums + i, 1, a, LANES);
            flush(sums + s->channels + i, 1, b, LANES);
        }
    }
}

static void sum_up(const float *dy, const float *x, const float *mean, const planes *s,
                   double *sums, float *room)
{
    memset(sums, 0, sizeof *sums * 2 * (size_t)s->channels);
    if (s->inner == 1)
        sum_last(dy, x, mean, s, sums, room);
    else
        sum_planes(dy, x, mean, s, sums);
}

/* --- elements --- */

/* y = (x - mean) f + t: vectors (n) where the strides are 1, numbers where they are 0. */
PARE_CLONES static void train_row(float *y, const float *x, int64_t n, const float *restrict k,
                                  int64_t c, bool vectors)
{
    const float *mean = k, *f = k + c, *t = k + 2 * c;
    if (vectors)
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean[i]) * f[i] + t[i];
    else {
        const float m = *mean, a = *f, b = *t;
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * a + b;
    }
}

/* dx = dy f + ((x - mean) p + q), the same way. */
PARE_CLONES static void grad_row(float *dx, const float *dy, const float *x, int64_t n,
                                 const float *restrict k, int64_t c, bool vectors)
{
    const float *mean = k, *f = k + c, *p = k + 2 * c, *q = k + 3 * c;
    if (vectors)
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] =
            dy[i] * f[i] + ((x[i] - mean[i]) * p[i] + q[i]);
    else {
        const float m = *mean, a = *f, b = *p, d = *q;
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] =
            dy[i] * a + ((x[i] - m) * b + d);
    }
}

static void narrow(float *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}

/* y (dx) of x (and dy) by `vectors` vectors k over channels. */
static void map_elements(const planes *s, float *y, const float *dy, const float *x, const float *k,
                         int vectors, float *room)
{
    const int64_t n = s->channels, count = s->rows * n * s->inner;
    const int64_t w = s->inner == 1 ? width_of(n) : s->inner;
    for (int v = 0; v < vectors && s->inner == 1; v++) repeat(room + v * w, w, k + v * n, n);
    for (int64_t at = 0, r = 0; at < count; at += w, r++) {
        const int64_t size = count - at < w ? count - at : w;
        const float *own = s->inner == 1 ? room : k + r % n;
        if (dy)
            grad_row(y + at, dy + at, x + at, size, own, s->inner == 1 ? w : n, s->inner == 1);
        else
            train_row(y + at, x + at, size, own, s->inner == 1 ? w : n, s->inner == 1);
    }
}

/* --- kernels --- */

static bool row_of(const pare_view *v, int64_t n)
{
    return v->dtype == PARE_f32 && pare_view_count(v) == n && pare_view_rowmajor(v);
}

static bool stats_can(const pare_prep *p)
{
    const planes s = planes_of(&p->in[0]);
    return s.channels && row_of(&p->in[1], s.channels);
}

/* Scratch: so many doubles for each channel, then floats for rows of repeated channels. */
static pare_status prepare(pare_prep *p, int x, int vectors, int rows)
{
    const int64_t n = planes_of(&p->in[x]).channels;
    PARE_TRY(norm_prepare(p, x, vectors));
    p->scratch += sizeof(float) * (size_t)rows * (size_t)width_of(n);
    return PARE_OK;
}

static pare_status stats_prepare(pare_prep *p) { return prepare(p, 0, 1, 3); }

/* Sums of x - near, where near is the mean of the first rows, become those of x - mean0: mean0 may
   be many deviations away, and floats would not hold its square and theirs. */
static void move_sums(const planes *s, const float *mean0, const float *near, double *sums)
{
    const double n = (double)(s->rows * s->inner);
    for (int64_t i = 0; i < s->channels; i++) {
        const double d = (double)near[i] - (double)mean0[i], a = sums[i];
        sums[i] = a + n * d;
        sums[s->channels + i] += 2 * d * a + n * d * d;
        sums[2 * s->channels + i] = n;
    }
}

static pare_status f32_stats_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[0]);
    const float *x = c->in[0].data, *mean0 = c->in[1].data;
    planes first = s;
    double *sums = c->out[0].data;
    float *near = c->scratch, *room = (float *)((double *)c->scratch + s.channels);
    if (first.rows > BATCH) first.rows = BATCH;
    sum_up(NULL, x, mean0, &first, sums, room);
    for (int64_t i = 0; i < s.channels; i++)
        near[i] = (float)((double)mean0[i] + sums[i] / (double)(first.rows * first.inner));
    sum_up(NULL, x, near, &s, sums, room);
    move_sums(&s, mean0, near, sums);
    return PARE_OK;
}

static bool train_can(const pare_prep *p)
{
    const planes s = planes_of(&p->in[0]);
    return s.channels && pare_view_same_order(&p->in[0], &p->out[0]) &&
           row_of(&p->in[1], s.channels) && row_of(&p->in[2], s.channels) &&
           row_of(&p->in[4], s.channels);
}

static pare_status f32_train_prepare(pare_prep *p) { return prepare(p, 0, 4, 3); }

static pare_status f32_train_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[0]);
    const int64_t n = s.channels;
    const float *scale = c->in[1].data, *bias = c->in[2].data, *x = c->in[0].data;
    double *mean = c->scratch, *inv = mean + n;
    float *k = (float *)(inv + n), *y = c->out[0].data; /* k: (3, channels) */
    norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    for (int64_t i = 0; i < n; i++) {
        k[i] = (float)mean[i];
        k[n + i] = (float)((double)scale[i] * inv[i]);
        /* the mean's own rounding is made good */
        k[2 * n + i] =
            (float)((double)bias[i] - (mean[i] - (double)k[i]) * inv[i] * (double)scale[i]);
    }
    map_elements(&s, y, NULL, x, k, 3, (float *)(mean + 4 * n));
    return PARE_OK;
}

static bool grad_can(const pare_prep *p)
{
    const planes s = planes_of(&p->in[1]);
    return s.channels && p->in[0].dtype == PARE_f32 && pare_view_same_order(&p->in[0], &p->in[1]);
}

static pare_status f32_grad_stats_prepare(pare_prep *p) { return prepare(p, 1, 3, 3); }

static pare_status f32_grad_stats_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[1]);
    const int64_t n = s.channels;
    double *mean = c->scratch, *inv = mean + n, *sums = c->out[0].data;
    float *k = (float *)(inv + n), *room = (float *)(mean + 3 * n);
    norm_moments(&c->in[2], &c->in[3], *(const double *)c->state, mean, inv);
    narrow(k, mean, n);
    sum_up(c->in[0].data, c->in[1].data, k, &s, sums, room);
    for (int64_t i = 0; i < n; i++) sums[n + i] -= (mean[i] - (double)k[i]) * sums[i];
    norm_weight_grads(c, inv);
    return PARE_OK;
}

static bool grad_input_can(const pare_prep *p)
{
    return grad_can(p) && pare_view_same_order(&p->in[1], &p->out[0]);
}

static pare_status f32_grad_input_prepare(pare_prep *p) { return prepare(p, 1, 7, 4); }

static pare_status f32_grad_input_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[1]);
    const int64_t n = s.channels;
    const float *dy = c->in[0].data, *x = c->in[1].data;
    double *mean = c->scratch, *inv = mean + n, *f = inv + n, *p = f + n, *q = p + n;
    float *k = (float *)(q + n), *dx = c->out[0].data; /* k: (4, channels) */
    norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    norm_slopes(&c->in[2], &c->in[3], &c->in[5], inv, f, p, q);
    narrow(k, mean, n);
    for (int64_t i = 0; i < n; i++) q[i] -= (mean[i] - (double)k[i]) * p[i];
    narrow(k + n, f, 3 * n);
    map_elements(&s, dx, dy, x, k, 4, (float *)(mean + 7 * n));
    return PARE_OK;
}

static const pare_kernel f32_stats = {.name = "batch_norm_stats_f32",
                                      .can = stats_can,
                                      .prepare = stats_prepare,
                                      .run = f32_stats_run};
static const pare_kernel f32_train = {.name = "batch_norm_train_f32",
                                      .can = train_can,
                                      .prepare = f32_train_prepare,
                                      .run = f32_train_run,
                                      .flags = PARE_KERNEL_INPLACE};
static const pare_kernel f32_grad_stats = {.name = "batch_norm_grad_stats_f32",
                                           .can = grad_can,
                                           .prepare = f32_grad_stats_prepare,
                                           .run = f32_grad_stats_run};
static const pare_kernel f32_grad_input = {.name = "batch_norm_grad_input_f32",
                                           .can = grad_input_can,
                                           .prepare = f32_grad_input_prepare,
                                           .run = f32_grad_input_run,
                                           .flags = PARE_KERNEL_INPLACE_ANY};

static const pare_kernel ref_stats = {.name = "ref_batch_norm_stats",
                                      .can = pare_ref_can_floats,
                                      .run = stats_run,
                                      .flags = PARE_KERNEL_REF};
static const pare_kernel ref_train = {.name = "ref_batch_norm_train",
                                      .can = pare_ref_can_floats,
                                      .prepare = train_prepare,
                                      .run = train_run,
                                      .flags = PARE_KERNEL_REF};
static const pare_kernel ref_grad_stats = {.name = "ref_batch_norm_grad_stats",
                                           .can = pare_ref_can_floats,
                                           .prepare = grad_stats_prepare,
                                           .run = grad_stats_run,
                                           .flags = PARE_KERNEL_REF};
static const pare_kernel ref_grad_input = {.name = "ref_batch_norm_grad_input",
                                           .can = pare_ref_can_floats,
                                           .prepare = grad_input_prepare,
                                           .run = grad_input_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_batch_norm_stats[] = {&f32_stats, &ref_stats, NULL};
const pare_kernel *const pare_cpu_batch_norm_train[] = {&f32_train, &ref_train, NULL};
const pare_kernel *const pare_cpu_batch_norm_grad_stats[] = {&f32_grad_stats, &ref_grad_stats,
                                                             NULL};
const pare_kernel *const pare_cpu_batch_norm_grad_input[] = {&f32_grad_input, &ref_grad_input,
                                                             NULL};
