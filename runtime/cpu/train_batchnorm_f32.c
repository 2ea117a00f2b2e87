/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization in training, f32: sums in double, four lanes at a time, elements in float. A
   tensor is (rows, channels) where channels lie innermost, else (rows, channels, inner). The order
   of every sum follows from these sizes alone. One thread. */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/train_batchnorm.h"

#include <string.h>

typedef struct planes {
    int64_t rows, channels, inner; /* inner 1: channels lie innermost */
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

/* --- sums over channels: a += u, b += u v --- */

enum { LANES = 4, BLOCK = 4096 /* elements that stay in the nearest cache */ };
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));

#define WIDEN(to, from)                                                                            \
    do {                                                                                           \
        floats narrow_;                                                                            \
        memcpy(&narrow_, (from), sizeof narrow_);                                                  \
        (to) = __builtin_convertvector(narrow_, doubles);                                          \
    } while (0)

/* u and v of an element or of lanes: in the forward pass both are x - m; in the backward pass they
   are dy and x - m. */
#define FORWARD(widen, m)                                                                          \
    widen(v, x + at);                                                                              \
    v -= m;                                                                                        \
    u = v;
#define BACKWARD(widen, m)                                                                         \
    widen(u, dy + at);                                                                             \
    widen(v, x + at);                                                                              \
    v -= m;
#define ONE(to, from) (to) = (double)*(from)

#define SUMS(name, TERMS)                                                                          \
    /* (rows, channels): a block of rows, a vector of channels at a time */                        \
    PARE_CLONES static void name##_last(const float *dy, const float *x, const double *m,          \
                                        const planes *s, double *a, double *b)                     \
    {                                                                                              \
        const int64_t c = s->channels, step = BLOCK / c + 1;                                       \
        (void)dy;                                                                                  \
        for (int64_t r0 = 0; r0 < s->rows; r0 += step) {                                           \
            const int64_t end = r0 + step < s->rows ? r0 + step : s->rows;                         \
            int64_t i = 0;                                                                         \
            for (; i + LANES <= c; i += LANES) {                                                   \
                doubles sa, sb, sm, u, v;                                                          \
                memcpy(&sa, a + i, sizeof sa);                                                     \
                memcpy(&sb, b + i, sizeof sb);                                                     \
                memcpy(&sm, m + i, sizeof sm);                                                     \
                for (int64_t at = r0 * c + i; at < end * c; at += c) {                             \
                    TERMS(WIDEN, sm)                                                               \
                    sa += u;                                                                       \
                    sb += u * v;                                                                   \
                }                                                                                  \
                memcpy(a + i, &sa, sizeof sa);                                                     \
                memcpy(b + i, &sb, sizeof sb);                                                     \
            }                                                                                      \
            for (; i < c; i++)                                                                     \
                for (int64_t at = r0 * c + i; at < end * c; at += c) {                             \
                    double u, v;                                                                   \
                    TERMS(ONE, m[i])                                                               \
                    a[i] += u;                                                                     \
                    b[i] += u * v;                                                                 \
                }                                                                                  \
        }                                                                                          \
    }                                                                                              \
    /* one channel's row of n elements */                                                          \
    PARE_CLONES static void name##_row(const float *dy, const float *x, double m, int64_t n,       \
                                       double *a, double *b)                                       \
    {                                                                                              \
        doubles sa = {0}, sb = {0};                                                                \
        int64_t at = 0;                                                                            \
        (void)dy;                                                                                  \
        for (; at + LANES <= n; at += LANES) {                                                     \
            doubles u, v;                                                                          \
            TERMS(WIDEN, m)                                                                        \
            sa += u;                                                                               \
            sb += u * v;                                                                           \
        }                                                                                          \
        for (int k = 0; k < LANES; k++) {                                                          \
            *a += sa[k];                                                                           \
            *b += sb[k];                                                                           \
        }                                                                                          \
        for (; at < n; at++) {                                                                     \
            double u, v;                                                                           \
            TERMS(ONE, m)                                                                          \
            *a += u;                                                                               \
            *b += u * v;                                                                           \
        }                                                                                          \
    }                                                                                              \
    static void name(const float *dy, const float *x, const double *m, const planes *s,            \
                     double *sums)                                                                 \
    {                                                                                              \
        double *a = sums, *b = sums + s->channels;                                                 \
        memset(sums, 0, sizeof *sums * 2 * (size_t)s->channels);                                   \
        if (s->inner == 1) {                                                                       \
            name##_last(dy, x, m, s, a, b);                                                        \
            return;                                                                                \
        }                                                                                          \
        for (int64_t k = 0; k < s->rows * s->channels; k++) {                                      \
            const int64_t i = k % s->channels, at = k * s->inner;                                  \
            name##_row(dy ? dy + at : NULL, x + at, m[i], s->inner, a + i, b + i);                 \
        }                                                                                          \
    }
SUMS(forward_sums, FORWARD)
SUMS(backward_sums, BACKWARD)

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

static pare_status stats_prepare(pare_prep *p) { return pare_norm_prepare(p, 0, 1); }

static pare_status stats_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[0]);
    double *mean0 = c->scratch, *sums = c->out[0].data;
    for (int64_t i = 0; i < s.channels; i++) {
        mean0[i] = (double)((const float *)c->in[1].data)[i];
        sums[2 * s.channels + i] = (double)(s.rows * s.inner);
    }
    forward_sums(NULL, c->in[0].data, mean0, &s, sums);
    return PARE_OK;
}

static bool train_can(const pare_prep *p)
{
    const planes s = planes_of(&p->in[0]);
    return s.channels && pare_view_same_order(&p->in[0], &p->out[0]) &&
           row_of(&p->in[1], s.channels) && row_of(&p->in[2], s.channels) &&
           row_of(&p->in[4], s.channels);
}

static pare_status train_prepare(pare_prep *p) { return pare_norm_prepare(p, 0, 4); }

static pare_status train_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[0]);
    const int64_t n = s.channels;
    const float *scale = c->in[1].data, *bias = c->in[2].data, *x = c->in[0].data;
    double *mean = c->scratch, *inv = mean + n;
    float *k = (float *)(inv + n), *y = c->out[0].data; /* k: (3, channels) */
    pare_norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    for (int64_t i = 0; i < n; i++) {
        k[i] = (float)mean[i];
        k[n + i] = (float)((double)scale[i] * inv[i]);
        /* the mean's own rounding is made good */
        k[2 * n + i] =
            (float)((double)bias[i] - (mean[i] - (double)k[i]) * inv[i] * (double)scale[i]);
    }
    const int64_t rows = s.inner == 1 ? s.rows : s.rows * n, size = s.inner == 1 ? n : s.inner;
    for (int64_t r = 0; r < rows; r++)
        train_row(y + r * size, x + r * size, size, s.inner == 1 ? k : k + r % n, n, s.inner == 1);
    return PARE_OK;
}

static bool grad_can(const pare_prep *p)
{
    const planes s = planes_of(&p->in[1]);
    return s.channels && p->in[0].dtype == PARE_f32 && pare_view_same_order(&p->in[0], &p->in[1]);
}

static pare_status grad_stats_prepare(pare_prep *p) { return pare_norm_prepare(p, 1, 2); }

static pare_status grad_stats_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[1]);
    double *mean = c->scratch, *inv = mean + s.channels;
    pare_norm_moments(&c->in[2], &c->in[3], *(const double *)c->state, mean, inv);
    backward_sums(c->in[0].data, c->in[1].data, mean, &s, c->out[0].data);
    pare_norm_weight_grads(c, inv);
    return PARE_OK;
}

static bool grad_input_can(const pare_prep *p)
{
    return grad_can(p) && pare_view_same_order(&p->in[1], &p->out[0]);
}

static pare_status grad_input_prepare(pare_prep *p) { return pare_norm_prepare(p, 1, 7); }

static pare_status grad_input_run(const pare_call *c)
{
    const planes s = planes_of(&c->in[1]);
    const int64_t n = s.channels;
    const float *dy = c->in[0].data, *x = c->in[1].data;
    double *mean = c->scratch, *inv = mean + n, *f = inv + n, *p = f + n, *q = p + n;
    float *k = (float *)(q + n), *dx = c->out[0].data; /* k: (4, channels) */
    pare_norm_moments(&c->in[3], &c->in[4], *(const double *)c->state, mean, inv);
    pare_norm_slopes(&c->in[2], &c->in[3], &c->in[5], inv, f, p, q);
    narrow(k, mean, n);
    for (int64_t i = 0; i < n; i++) q[i] -= (mean[i] - (double)k[i]) * p[i];
    narrow(k + n, f, 3 * n);
    const int64_t rows = s.inner == 1 ? s.rows : s.rows * n, size = s.inner == 1 ? n : s.inner;
    for (int64_t r = 0; r < rows; r++)
        grad_row(dx + r * size, dy + r * size, x + r * size, size, s.inner == 1 ? k : k + r % n, n,
                 s.inner == 1);
    return PARE_OK;
}

const pare_kernel pare_batch_norm_stats_f32 = {
    .name = "batch_norm_stats_f32", .can = stats_can, .prepare = stats_prepare, .run = stats_run};
const pare_kernel pare_batch_norm_train_f32 = {.name = "batch_norm_train_f32",
                                               .can = train_can,
                                               .prepare = train_prepare,
                                               .run = train_run,
                                               .flags = PARE_KERNEL_INPLACE};
const pare_kernel pare_batch_norm_grad_stats_f32 = {.name = "batch_norm_grad_stats_f32",
                                                    .can = grad_can,
                                                    .prepare = grad_stats_prepare,
                                                    .run = grad_stats_run};
const pare_kernel pare_batch_norm_grad_input_f32 = {.name = "batch_norm_grad_input_f32",
                                                    .can = grad_input_can,
                                                    .prepare = grad_input_prepare,
                                                    .run = grad_input_run,
                                                    .flags = PARE_KERNEL_INPLACE_ANY};
