/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizations: y = (x - mean) / sqrt(variance + epsilon) * scale + bias over a set of elements.
     LayerNormalization (17)      the axes from `axis` on; scale and bias broadcast to X
     RMSNormalization (23)        the same with a mean of 0 and without bias
     BatchNormalization (15), LpNormalization (1), MeanVarianceNormalization (13) below
   Plain kernels compute in double and round once; vector kernels take dense f32 (rows also of f16
   and bf16), sum in double and normalize in f32. */
#include "runtime/cpu/norm.h"
#include "runtime/cpu/float16.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/norm.h"

#include <math.h>
#include <string.h>

pare_norm_stats pare_norm_stats_of(const pare_view *region, int64_t base, double epsilon,
                                   bool centred)
{
    double sum = 0, squares = 0, n = (double)pare_view_count(region);
    int64_t index[PARE_MAX_RANK] = {0};
    do sum += pare_ref_get(region, base + pare_ref_offset(region, index));
    while (pare_ref_next(region, index));
    const double mean = centred ? sum / n : 0;
    do {
        double d = pare_ref_get(region, base + pare_ref_offset(region, index)) - mean;
        squares += d * d;
    } while (pare_ref_next(region, index));
    return (pare_norm_stats){mean, 1 / sqrt(squares / n + epsilon)};
}

pare_status pare_norm_prepare(pare_prep *p)
{
    pare_norm *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->epsilon = pare_node_float(p->node, "epsilon", 1e-5f);
    s->rms = pare_node_is(p->node, "RMSNormalization");
    if (s->rms || pare_node_is(p->node, "LayerNormalization") ||
        !strcmp(p->node->op_type, "QLayerNormalization"))
        PARE_TRY(
            pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, &s->axis));
    s->groups = pare_node_int(p->node, "num_groups", p->in[0].rank > 1 ? p->in[0].dim[1] : 1);
    p->state = s;
    return PARE_OK;
}

/* --- LayerNormalization --- */

static void stash(const pare_call *c, int i, const int64_t *index, double value)
{
    if (i < c->out_count && c->out[i].dtype)
        pare_ref_set(&c->out[i], pare_ref_offset(&c->out[i], index), value);
}

static pare_status layer_norm_run(const pare_call *c)
{
    const pare_norm *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    bool flag[PARE_MAX_RANK] = {false}, biased = c->in_count > 2 && c->in[2].dtype;
    pare_view walk = *x, kept, region, scale = pare_view_stretch(&c->in[1], x);
    pare_view bias = biased ? pare_view_stretch(&c->in[2], x) : scale;
    int64_t index[PARE_MAX_RANK] = {0};
    for (int i = s->axis; i < x->rank; i++) {
        flag[i] = true;
        walk.dim[i] = 1;
    }
    pare_ref_split(x, flag, &kept, &region);
    if (pare_view_count(x) == 0) return PARE_OK;
    do {
        pare_norm_stats st =
            pare_norm_stats_of(&region, pare_ref_offset(x, index), (double)s->epsilon, !s->rms);
        int64_t inner[PARE_MAX_RANK], inside[PARE_MAX_RANK] = {0};
        memcpy(inner, index, sizeof inner);
        stash(c, 1, index, st.mean);
        stash(c, 2, index, st.inverse);
        do {
            memcpy(inner + s->axis, inside, (size_t)region.rank * sizeof *inner);
            double v = (pare_ref_get(x, pare_ref_offset(x, inner)) - st.mean) * st.inverse *
                       pare_ref_get(&scale, pare_ref_offset(&scale, inner));
            if (biased) v += pare_ref_get(&bias, pare_ref_offset(&bias, inner));
            pare_ref_set(y, pare_ref_offset(y, inner), v);
        } while (pare_ref_next(&region, inside));
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

enum { LANES = 16 };

/* The sum of n neighbours, or of their squared differences to a mean. */
PARE_CLONES static double sum_f32(const float *x, int64_t n)
{
    double sum[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += (double)x[i + j];
    for (; i < n; i++) total += (double)x[i];
    for (int j = 0; j < LANES; j++) total += sum[j];
    return total;
}

PARE_CLONES static double squares_f32(const float *x, int64_t n, double mean)
{
    double square[LANES] = {0}, squares = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const double d = (double)x[i + j] - mean;
            square[j] += d * d;
        }
    for (; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (int j = 0; j < LANES; j++) squares += square[j];
    return squares;
}

pare_norm_stats pare_norm_stats_f32(const float *x, int64_t n, double epsilon, bool centred)
{
    const double mean = centred ? sum_f32(x, n) / (double)n : 0;
    return (pare_norm_stats){mean, 1 / sqrt(squares_f32(x, n, mean) / (double)n + epsilon)};
}

PARE_CLONES static void layer_row_f32(float *y, const float *x, const float *scale,
                                      const float *bias, int64_t n, float m, float f)
{
    if (bias) {
#pragma omp simd
        for (int64_t k = 0; k < n; k++) y[k] = (x[k] - m) * f * scale[k] + bias[k];
    } else {
#pragma omp simd
        for (int64_t k = 0; k < n; k++) y[k] = (x[k] - m) * f * scale[k];
    }
}

pare_norm_stats pare_layer_norm_row(float *y, const float *x, const float *scale, const float *bias,
                                    int64_t n, const pare_norm *norm)
{
    const pare_norm_stats st = pare_norm_stats_f32(x, n, (double)norm->epsilon, !norm->rms);
    layer_row_f32(y, x, scale, bias, n, (float)st.mean, (float)st.inverse);
    return st;
}

/* One row; f16 or bf16 through buffer (n). */
static void layer_row(const pare_call *c, int64_t r, int64_t n, const float *scale,
                      const float *bias, float *buffer, pare_norm_stats *out)
{
    const pare_norm *s = c->state;
    pare_dtype type = c->in[0].dtype;
    const float *x = buffer;
    float *y = buffer;
    if (type == PARE_f32) {
        x = (const float *)c->in[0].data + r * n;
        y = (float *)c->out[0].data + r * n;
    } else {
        pare_widen(buffer, (const uint16_t *)c->in[0].data + r * n, type, n, 1);
    }
    *out = pare_layer_norm_row(y, x, scale, bias, n, s);
    if (type != PARE_f32) pare_narrow((uint16_t *)c->out[0].data + r * n, buffer, type, n, 1);
}

bool pare_layer_factors_fit(const pare_prep *p, int axis, pare_dtype other)
{
    const pare_view *x = &p->in[0];
    for (int i = 1; i < p->in_count && i < 3; i++) {
        const pare_view *f = &p->in[i];
        if (f->dtype && ((f->dtype != x->dtype && f->dtype != other) || !pare_view_rowmajor(f) ||
                         !pare_norm_factor_is_row(x->dim, x->rank, axis, f->dim, f->rank)))
            return false;
    }
    return true;
}

const float *pare_layer_factor(const pare_call *c, int i, float *buffer)
{
    if (i >= c->in_count || !c->in[i].dtype) return NULL;
    if (c->in[i].dtype == PARE_f32) return c->in[i].data;
    pare_widen(buffer, c->in[i].data, c->in[i].dtype, pare_view_count(&c->in[i]), 1);
    return buffer;
}

static pare_status vec_layer_norm_run(const pare_call *c)
{
    const pare_norm *s = c->state;
    float *means = c->out_count > 1 && c->out[1].dtype ? c->out[1].data : NULL;
    float *inverses = c->out_count > 2 && c->out[2].dtype ? c->out[2].data : NULL;
    int64_t n = 1;
    for (int i = s->axis; i < c->in[0].rank; i++) n *= c->in[0].dim[i];
    int64_t rows = n ? pare_view_count(&c->in[0]) / n : 0;
    float *buffer = c->in[0].dtype == PARE_f32 ? NULL : c->scratch; /* scale, bias, rows */
    const float *scale = pare_layer_factor(c, 1, buffer);
    const float *bias = pare_layer_factor(c, 2, buffer ? buffer + n : NULL);
    int parts = c->threads > 1 && rows * n > 1 << 15 ? c->threads : 1;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        for (int64_t r = rows * t / parts; r < rows * (t + 1) / parts; r++) {
            pare_norm_stats st;
            layer_row(c, r, n, scale, bias, buffer ? buffer + (2 + t) * n : NULL, &st);
            if (means) means[r] = (float)st.mean;
            if (inverses) inverses[r] = (float)st.inverse;
        }
    return PARE_OK;
}

static pare_status vec_layer_norm_prepare(pare_prep *p)
{
    PARE_TRY(pare_norm_prepare(p));
    size_t n = 1;
    for (int i = ((pare_norm *)p->state)->axis; i < p->in[0].rank; i++)
        n *= (size_t)p->in[0].dim[i];
    if (p->in[0].dtype != PARE_f32) p->scratch = sizeof(float) * n * ((size_t)p->threads + 2);
    return PARE_OK;
}

/* Dense f32, f16 or bf16, with scale and bias of exactly the normalized dims; statistics in f32. */
static bool vec_layer_norm_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    int64_t axis = pare_node_int(p->node, "axis", -1);
    if (axis < 0) axis += x->rank;
    bool short_form = x->dtype == PARE_f16 || x->dtype == PARE_bf16;
    if ((x->dtype != PARE_f32 && !short_form) || axis < 0 || axis >= x->rank) return false;
    for (int i = 0; i < p->out_count; i++) {
        pare_dtype want = i ? PARE_f32 : x->dtype;
        if (p->out[i].dtype && (p->out[i].dtype != want || !pare_view_rowmajor(&p->out[i])))
            return false;
    }
    return pare_layer_factors_fit(p, (int)axis, x->dtype) && pare_view_rowmajor(x);
}

static const pare_kernel vec_layer_norm = {.name = "vec_layer_norm",
                                           .can = vec_layer_norm_can,
                                           .prepare = vec_layer_norm_prepare,
                                           .run = vec_layer_norm_run,
                                           .flags = PARE_KERNEL_INPLACE};
static const pare_kernel ref_rms_norm = {.name = "ref_rms_norm",
                                         .can = pare_ref_can_floats,
                                         .prepare = pare_norm_prepare,
                                         .run = layer_norm_run,
                                         .flags = PARE_KERNEL_REF};
static const pare_kernel ref_layer_norm = {.name = "ref_layer_norm",
                                           .can = pare_ref_can_floats,
                                           .prepare = pare_norm_prepare,
                                           .run = layer_norm_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_layer_norm[] = {&vec_layer_norm, &ref_layer_norm, NULL};
const pare_kernel *const pare_cpu_rms_norm[] = {&vec_layer_norm, &ref_rms_norm, NULL};

/* BatchNormalization (15, inference form), channel by channel: y = x s + t with
   s = scale / sqrt(var + epsilon), t = B - mean s, both made in double each run; and
   LpNormalization (1): y = x / |x|_p along one axis, 0 where the norm is 0. */

#define ROW(type, memory, calc, load, store, clones)                                               \
    clones static void affine_##type(int64_t n, char *const *p, const int64_t *s, const void *arg) \
    {                                                                                              \
        const memory *x = (const memory *)p[1];                                                    \
        const double *factor = (const double *)p[2], *shift = (const double *)p[3];                \
        memory *y = (memory *)p[0];                                                                \
        (void)arg;                                                                                 \
        if (s[0] == 1 && s[1] == 1 && s[2] == 0 && s[3] == 0) {                                    \
            const calc f = (calc)factor[0], t = (calc)shift[0];                                    \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = store(load(x[i]) * f + t);  \
        } else                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i * s[0]] =                                                                      \
                    store(load(x[i * s[1]]) * (calc)factor[i * s[2]] + (calc)shift[i * s[3]]);     \
    }
ROW(f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES)
ROW(f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS, )
ROW(f16, uint16_t, float, pare_f16_to_f32, pare_f32_to_f16, )
ROW(bf16, uint16_t, float, pare_bf16_to_f32, pare_f32_to_bf16, )
static const pare_ref_row rows[PARE_DTYPE_COUNT] = {
    [PARE_f32] = affine_f32,
    [PARE_f64] = affine_f64,
    [PARE_f16] = affine_f16,
    [PARE_bf16] = affine_bf16,
};

static int64_t channel_count(const pare_view *x) { return x->rank > 1 ? x->dim[1] : 1; }

static pare_status batch_norm_prepare(pare_prep *p)
{
    float *epsilon = pare_arena_alloc(p->arena, 1, sizeof *epsilon);
    if (!epsilon) return PARE_MEMORY;
    *epsilon = pare_node_float(p->node, "epsilon", 1e-5f);
    p->state = epsilon;
    p->scratch = 2 * sizeof(double) * (size_t)channel_count(&p->in[0]);
    return PARE_OK;
}

static pare_status batch_norm_infer_run(const pare_call *c)
{
    const float *epsilon = c->state;
    const pare_view *x = &c->in[0];
    int64_t n = channel_count(x);
    double *s = c->scratch, *t = s + n;
    for (int64_t i = 0; i < n; i++) {
        double in[4];
        for (int k = 0; k < 4; k++)
            in[k] = pare_ref_get(&c->in[k + 1], c->in[k + 1].rank ? i * c->in[k + 1].stride[0] : 0);
        s[i] = in[0] / sqrt(in[3] + (double)*epsilon);
        t[i] = in[1] - in[2] * s[i];
    }
    /* s and t as [1, C, 1 ...]; a tensor of rank 0 or 1 has one channel */
    pare_view factor = {.dtype = PARE_f64, .rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        factor.dim[i] = i == 1 ? n : 1;
        factor.stride[i] = i == 1;
    }
    pare_view shift = factor;
    factor.data = s;
    shift.data = t;
    pare_ref_each(&c->out[0], (const pare_view *const[]){x, &factor, &shift}, 3, c->threads,
                  rows[x->dtype], NULL);
    return PARE_OK;
}

/* Mean and population variance of the part of x from an offset on. */
static void moments(const pare_view *x, const pare_view *region, int64_t from, double *mean,
                    double *variance)
{
    const double n = (double)pare_view_count(region);
    int64_t index[PARE_MAX_RANK] = {0};
    double sum = 0, squares = 0;
    do sum += pare_ref_get(x, from + pare_ref_offset(region, index));
    while (pare_ref_next(region, index));
    *mean = sum / n;
    do {
        const double d = pare_ref_get(x, from + pare_ref_offset(region, index)) - *mean;
        squares += d * d;
    } while (pare_ref_next(region, index));
    *variance = squares / n;
}

/* y = x * scale + shift over the part of x from an offset on; y has x's dims. */
static void rescale(const pare_view *y, const pare_view *x, const bool *flag, const int64_t *kept,
                    double scale, double shift)
{
    pare_view xs, ys, x_region, y_region;
    int64_t index[PARE_MAX_RANK] = {0};
    pare_ref_split(x, flag, &xs, &x_region);
    pare_ref_split(y, flag, &ys, &y_region);
    const int64_t from = pare_ref_offset(&xs, kept), to = pare_ref_offset(&ys, kept);
    do {
        const double v = pare_ref_get(x, from + pare_ref_offset(&x_region, index));
        pare_ref_set(y, to + pare_ref_offset(&y_region, index), v * scale + shift);
    } while (pare_ref_next(&x_region, index));
}

/* Training mode: the batch's own moments; running = running * momentum + batch's * (1 - momentum).
 */
static pare_status batch_norm_train_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    const double momentum = (double)pare_node_float(c->node, "momentum", 0.9f);
    const double epsilon = (double)pare_node_float(c->node, "epsilon", 1e-5f);
    bool flag[PARE_MAX_RANK] = {true, false, true, true, true, true, true, true};
    pare_view kept, region;
    int64_t index[PARE_MAX_RANK] = {0};
    pare_ref_split(x, flag, &kept, &region);
    if (!pare_view_count(x)) return PARE_OK;
    for (int64_t k = 0; k < channel_count(x); k++) {
        double found[2], in[4];
        index[0] = x->rank > 1 ? k : 0;
        moments(x, &region, pare_ref_offset(&kept, index), &found[0], &found[1]);
        for (int i = 0; i < 4; i++)
            in[i] = pare_ref_get(&c->in[i + 1], c->in[i + 1].rank ? k * c->in[i + 1].stride[0] : 0);
        const double scale = in[0] / sqrt(found[1] + epsilon);
        rescale(&c->out[0], x, flag, index, scale, in[1] - found[0] * scale);
        for (int i = 0; i < 2; i++)
            if (1 + i < c->out_count && c->out[1 + i].dtype)
                pare_ref_set(&c->out[1 + i], k, in[2 + i] * momentum + found[i] * (1 - momentum));
    }
    return PARE_OK;
}

static pare_status batch_norm_run(const pare_call *c)
{
    return pare_node_int(c->node, "training_mode", 0) ? batch_norm_train_run(c)
                                                      : batch_norm_infer_run(c);
}

static const pare_kernel ref_batch_norm = {.name = "ref_batch_norm",
                                           .can = pare_ref_can_floats,
                                           .prepare = batch_norm_prepare,
                                           .run = batch_norm_run,
                                           .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_batch_norm[] = {&ref_batch_norm, NULL};

/* --- MeanVarianceNormalization (13): (x - mean) / (deviation + 1e-9) over the axes --- */

static pare_status mean_variance_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    static const int64_t usual[] = {0, 2, 3};
    bool flag[PARE_MAX_RANK] = {false};
    int count;
    const int64_t *axes = pare_node_ints(c->node, "axes", &count);
    pare_view kept, region;
    int64_t index[PARE_MAX_RANK] = {0};
    if (!axes) axes = usual, count = 3;
    for (int i = 0; i < count; i++) flag[axes[i] < 0 ? axes[i] + x->rank : axes[i]] = true;
    pare_ref_split(x, flag, &kept, &region);
    if (!pare_view_count(x)) return PARE_OK;
    do {
        double mean, variance;
        moments(x, &region, pare_ref_offset(&kept, index), &mean, &variance);
        const double scale = 1 / (sqrt(variance) + 1e-9);
        rescale(&c->out[0], x, flag, index, scale, -mean * scale);
    } while (pare_ref_next(&kept, index));
    return PARE_OK;
}

static const pare_kernel ref_mean_variance = {.name = "ref_mean_variance",
                                              .can = pare_ref_can_floats,
                                              .run = mean_variance_run,
                                              .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_mean_variance[] = {&ref_mean_variance, NULL};

/* --- LpNormalization --- */

static pare_status lp_norm_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int axis;
    int64_t p = pare_node_int(c->node, "p", 2), index[PARE_MAX_RANK] = {0};
    PARE_TRY(pare_infer_axis(c->node, pare_node_int(c->node, "axis", -1), x->rank, &axis));
    if (pare_view_count(x) == 0) return PARE_OK;
    pare_view walk = *x;
    walk.dim[axis] = 1;
    do {
        int64_t from = pare_ref_offset(x, index), to = pare_ref_offset(y, index);
        double length = 0;
        for (int64_t i = 0; i < x->dim[axis]; i++) {
            double v = pare_ref_get(x, from + i * x->stride[axis]);
            length += p == 1 ? fabs(v) : v * v;
        }
        length = p == 1 ? length : sqrt(length);
        for (int64_t i = 0; i < x->dim[axis]; i++)
            pare_ref_set(y, to + i * y->stride[axis],
                         length != 0 ? pare_ref_get(x, from + i * x->stride[axis]) / length : 0);
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static bool lp_norm_can(const pare_prep *p) { return pare_ref_can_floats(p) && p->in[0].rank > 0; }

static const pare_kernel ref_lp_norm = {
    .name = "ref_lp_norm", .can = lp_norm_can, .run = lp_norm_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_lp_norm[] = {&ref_lp_norm, NULL};

/* --- gradient of LayerNormalization: with X' = (X - mean) inv, g = dY scale,
       dX = inv (g - mean g - X' mean (g X')), dScale = sum dY X', dBias = sum dY. Sums over
       rows are made in a fixed number of slices, one after the other, and added in slice order, so
       that results do not depend on threads. --- */

enum { SLICES = 8 };

typedef struct layer_grad {
    int64_t rows, size;
    double epsilon;
} layer_grad;

static bool layer_grad_can(const pare_prep *p)
{
    if (p->in[0].dtype != PARE_f32 && p->in[0].dtype != PARE_f64) return false;
    for (int i = 0; i < 3; i++)
        if (p->in[i].dtype != p->in[0].dtype || !pare_view_rowmajor(&p->in[i]) ||
            (p->out[i].dtype && !pare_view_rowmajor(&p->out[i])))
            return false;
    return true;
}

static pare_status layer_grad_prepare(pare_prep *p)
{
    layer_grad *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->size = 1;
    s->epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    for (int i = (int)pare_node_int(p->node, "axis", 0); i < p->in[1].rank; i++)
        s->size *= p->in[1].dim[i];
    s->rows = s->size ? pare_view_count(&p->in[1]) / s->size : 0;
    p->scratch = sizeof(double) * 2 * SLICES * (size_t)s->size;
    p->state = s;
    return PARE_OK;
}

#define ROWS(type, ctype)                                                                          \
    PARE_CLONES static void layer_grad_row_##type(ctype *dx, const ctype *dy, const ctype *x,      \
                                                  const ctype *scale, const layer_grad *s,         \
                                                  double *dscale, double *dbias)                   \
    {                                                                                              \
        const int64_t n = s->size;                                                                 \
        double sum = 0, squares = 0, g_sum = 0, gx_sum = 0;                                        \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum +=              \
            (double)x[i];                                                                          \
        const double mean = sum / (double)n;                                                       \
        _Pragma("omp simd reduction(+ : squares)") for (int64_t i = 0; i < n; i++) squares +=      \
            ((double)x[i] - mean) * ((double)x[i] - mean);                                         \
        const double inv = 1 / sqrt(squares / (double)n + s->epsilon);                             \
        _Pragma("omp simd reduction(+ : g_sum, gx_sum)") for (int64_t i = 0; i < n; i++)           \
        {                                                                                          \
            const double unit = ((double)x[i] - mean) * inv, d = (double)dy[i];                    \
            const double g = d * (double)scale[i];                                                 \
            g_sum += g;                                                                            \
            gx_sum += g * unit;                                                                    \
            dscale[i] += d * unit;                                                                 \
            dbias[i] += d;                                                                         \
        }                                                                                          \
        if (!dx) return;                                                                           \
        g_sum /= (double)n;                                                                        \
        gx_sum /= (double)n;                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double unit = ((double)x[i] - mean) * inv;                                       \
            dx[i] = (ctype)(inv * ((double)dy[i] * (double)scale[i] - g_sum - unit * gx_sum));     \
        }                                                                                          \
    }
ROWS(f32, float)
ROWS(f64, double)

/* Rows of one slice. */
static void layer_grad_slice(const pare_call *c, int slice)
{
    const layer_grad *s = c->state;
    double *dscale = (double *)c->scratch + (int64_t)slice * 2 * s->size, *dbias = dscale + s->size;
    const bool wide = c->in[0].dtype == PARE_f64, has = c->out[0].dtype != PARE_NOTYPE;
    memset(dscale, 0, sizeof(double) * 2 * (size_t)s->size);
    for (int64_t r = s->rows * slice / SLICES; r < s->rows * (slice + 1) / SLICES; r++) {
        const int64_t at = r * s->size;
        if (wide)
            layer_grad_row_f64(has ? (double *)c->out[0].data + at : NULL,
                               (const double *)c->in[0].data + at,
                               (const double *)c->in[1].data + at, c->in[2].data, s, dscale, dbias);
        else
            layer_grad_row_f32(has ? (float *)c->out[0].data + at : NULL,
                               (const float *)c->in[0].data + at, (const float *)c->in[1].data + at,
                               c->in[2].data, s, dscale, dbias);
    }
}

static pare_status layer_grad_run(const pare_call *c)
{
    const layer_grad *s = c->state;
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->threads > 1)
    for (int slice = 0; slice < SLICES; slice++) layer_grad_slice(c, slice);
    for (int which = 0; which < 2; which++) {
        const pare_view *to = &c->out[1 + which];
        if (!to->dtype) continue;
        for (int64_t i = 0; i < s->size; i++) {
            double sum = 0;
            for (int k = 0; k < SLICES; k++)
                sum += ((const double *)c->scratch)[((int64_t)k * 2 + which) * s->size + i];
            if (to->dtype == PARE_f64)
                ((double *)to->data)[i] = sum;
            else
                ((float *)to->data)[i] = (float)sum;
        }
    }
    return PARE_OK;
}

static const pare_kernel ref_layer_norm_grad = {.name = "ref_layer_norm_grad",
                                                .can = layer_grad_can,
                                                .prepare = layer_grad_prepare,
                                                .run = layer_grad_run,
                                                .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_layer_norm_grad[] = {&pare_widened, &ref_layer_norm_grad, NULL};
