/* SPDX-License-Identifier: Apache-2.0 */
/* FakeQuantize and FakeQuantizeGrad (fake_quantize.h). The plain kernels go element by element and
   add each scale's sum in index order; the dense ones go along memory, as (outer, channels, inner):
   one scale for a run of `inner`, or, where that is 1, a scale for each element of a row. The sums
   of a run are made in eight lanes, added in order. One thread: sums do not depend on any. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/fake_quantize.h"
#include "runtime/ops/infer.h"

#include <math.h>
#include <string.h>

/* Which axis the scales go along, the levels; for dense tensors, the grid in memory order. */
typedef struct fake {
    int axis;
    pare_levels levels;
    int64_t outer, channels, inner;
} fake;

typedef struct operands {
    const pare_view *x, *s, *z; /* z NULL where absent */
} operands;

/* first: where X is: 0, or after dY. */
static operands operands_of(const pare_view *in, int in_count, int first)
{
    const pare_view *z = in_count > first + 2 && in[first + 2].dtype ? &in[first + 2] : NULL;
    return (operands){&in[first], &in[first + 1], z};
}

static bool is_grad(const pare_node *node) { return node->op_type[12] == 'G'; }

/* The axes in memory order: outer before the scales' axis, inner after it. */
static void grid_set(fake *f, const pare_view *x, int64_t channels)
{
    const bool nhwc = !pare_view_rowmajor(x);
    f->outer = 1;
    f->channels = channels;
    f->inner = 1;
    bool behind = channels == 1;
    for (int i = 0; i < x->rank; i++) {
        int at = !nhwc || i == 0 ? i : i == x->rank - 1 ? 1 : i + 1;
        if (at == f->axis && channels != 1)
            behind = true;
        else if (behind)
            f->inner *= x->dim[at];
        else
            f->outer *= x->dim[at];
    }
}

static pare_status fake_prepare(pare_prep *p)
{
    fake *f = pare_arena_alloc(p->arena, 1, sizeof *f);
    const operands o = operands_of(p->in, p->in_count, is_grad(p->node));
    if (!f) return PARE_MEMORY;
    pare_fake_levels(p->node, o.z ? o.z->dtype : PARE_NOTYPE, &f->levels);
    int64_t channels = pare_view_count(o.s);
    if (channels != 1)
        PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", 1), o.x->rank, &f->axis));
    grid_set(f, o.x, channels);
    if (is_grad(p->node)) p->scratch = sizeof(double) * (size_t)channels;
    p->state = f;
    return PARE_OK;
}

static bool fake_can(const pare_prep *p)
{
    const operands o = operands_of(p->in, p->in_count, is_grad(p->node));
    pare_levels levels;
    if (o.x->dtype != PARE_f32 && o.x->dtype != PARE_f64) return false;
    return o.s->dtype == o.x->dtype && o.s->rank <= 1 &&
           pare_fake_levels(p->node, o.z ? o.z->dtype : PARE_NOTYPE, &levels);
}

/* Scale and zero point of channel c. */
static double scale_at(const operands *o, int64_t c)
{
    return pare_ref_get(o->s, o->s->rank ? c * o->s->stride[0] : 0);
}

static double zero_at(const operands *o, int64_t c)
{
    if (!o->z) return 0;
    return pare_ref_get(o->z, o->z->rank && o->z->dim[0] != 1 ? c * o->z->stride[0] : 0);
}

/* --- plain --- */

/* q - z as a number, and how far the rounding moved x / s (0: a clamp did); in the tensor's type,
   as the pair of kernels computes it. NaN is below. */
typedef struct level {
    double steps, moved;
    bool inside;
} level;

#define LEVEL(type, ctype, nearest)                                                                \
    static level level_##type(ctype x, ctype s, ctype z, const pare_levels *l)                     \
    {                                                                                              \
        const ctype low = (ctype)l->low, high = (ctype)l->high, v = x / s, r = nearest(v);         \
        ctype q = r + z;                                                                           \
        const bool inside = q >= low && q <= high;                                                 \
        q = q > low ? q : low;                                                                     \
        q = q < high ? q : high;                                                                   \
        return (level){(double)(q - z), inside ? (double)(r - v) : 0, inside};                     \
    }
LEVEL(f32, float, rintf)
LEVEL(f64, double, rint)

static level level_of(const operands *o, const fake *f, const int64_t *index, double *scale)
{
    const int64_t c = f->channels == 1 ? 0 : index[f->axis];
    const double x = pare_ref_get(o->x, pare_ref_offset(o->x, index)), z = zero_at(o, c);
    *scale = scale_at(o, c);
    if (o->x->dtype == PARE_f64) return level_f64(x, *scale, z, &f->levels);
    return level_f32((float)x, (float)*scale, (float)z, &f->levels);
}

static pare_status plain_run(const pare_call *c)
{
    const operands o = operands_of(c->in, c->in_count, 0);
    const pare_view *y = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    double s;
    if (!pare_view_count(y)) return PARE_OK;
    do {
        double steps = level_of(&o, c->state, index, &s).steps;
        pare_ref_set(y, pare_ref_offset(y, index),
                     y->dtype == PARE_f64 ? steps * s : (double)((float)steps * (float)s));
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

static void give_scales(const pare_call *c, const double *sum, int64_t channels)
{
    if (c->out_count < 2 || !c->out[1].dtype) return;
    for (int64_t i = 0; i < channels; i++)
        pare_ref_set(&c->out[1], c->out[1].rank ? i * c->out[1].stride[0] : 0, sum[i]);
}

static pare_status plain_grad_run(const pare_call *c)
{
    const fake *f = c->state;
    const operands o = operands_of(c->in, c->in_count, 1);
    const pare_view *dx = &c->out[0];
    double *sum = c->scratch, s;
    int64_t index[PARE_MAX_RANK] = {0};
    memset(sum, 0, sizeof *sum * (size_t)f->channels);
    if (pare_view_count(o.x)) do {
            const level l = level_of(&o, f, index, &s);
            const double dy = pare_ref_get(&c->in[0], pare_ref_offset(&c->in[0], index));
            if (dx->dtype) pare_ref_set(dx, pare_ref_offset(dx, index), l.inside ? dy : 0);
            sum[f->channels == 1 ? 0 : index[f->axis]] += dy * (l.inside ? l.moved : l.steps);
        } while (pare_ref_next(o.x, index));
    give_scales(c, sum, f->channels);
    return PARE_OK;
}

/* --- dense f32 --- */

static bool is_dense(const pare_view *v) { return pare_view_rowmajor(v) || pare_view_nhwc(v); }

/* All tensors like X in one order, scale and zero point in a row. */
static bool dense_can(const pare_prep *p)
{
    const bool grad = is_grad(p->node);
    const operands o = operands_of(p->in, p->in_count, grad);
    if (!fake_can(p) || o.x->dtype != PARE_f32 || !is_dense(o.x) || !p->out[0].dtype) return false;
    if (grad && (!pare_view_same_order(&p->in[0], o.x) || p->in[0].dtype != PARE_f32)) return false;
    return pare_view_same_order(o.x, &p->out[0]) && p->out[0].dtype == PARE_f32 &&
           (!o.s->rank || o.s->dim[0] == 1 || o.s->stride[0] == 1);
}

static inline float clamped(float v, float low, float high)
{
    v = v > low ? v : low;
    return v < high ? v : high;
}

PARE_CLONES static void forward_one(float *restrict y, const float *restrict x, int64_t n, float s,
                                    float z, float low, float high)
{
    for (int64_t i = 0; i < n; i++) y[i] = (clamped(rintf(x[i] / s) + z, low, high) - z) * s;
}

PARE_CLONES static void forward_each(float *restrict y, const float *restrict x, int64_t n,
                                     const float *restrict s, const float *restrict z, float low,
                                     float high)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (clamped(rintf(x[i] / s[i]) + z[i], low, high) - z[i]) * s[i];
}

PARE_CLONES static void mask_one(float *restrict dx, const float *restrict dy,
                                 const float *restrict x, int64_t n, float s, float z, float low,
                                 float high)
{
    for (int64_t i = 0; i < n; i++) {
        const float q = rintf(x[i] / s) + z;
        const float kept = q >= low ? dy[i] : 0;
        dx[i] = q <= high ? kept : 0;
    }
}

/* What dY is multiplied by in the sum of a scale. */
static inline float slope(float v, float z, float low, float high)
{
    const float r = rintf(v), q = r + z, held = clamped(q, low, high);
    return held == q ? r - v : held - z;
}

enum { LANES = 8 };

PARE_CLONES static void sum_one(double *restrict sum, const float *restrict dy,
                                const float *restrict x, int64_t n, float s, float z, float low,
                                float high)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)dy[i + k] * (double)slope(x[i + k] / s, z, low, high);
    for (; i < n; i++) lane[0] += (double)dy[i] * (double)slope(x[i] / s, z, low, high);
    for (int k = 0; k < LANES; k++) *sum += lane[k];
}

PARE_CLONES static void mask_each(float *restrict dx, const float *restrict dy,
                                  const float *restrict x, int64_t n, const float *restrict s,
                                  const float *restrict z, float low, float high)
{
    for (int64_t i = 0; i < n; i++) {
        const float q = rintf(x[i] / s[i]) + z[i];
        const float kept = q >= low ? dy[i] : 0;
        dx[i] = q <= high ? kept : 0;
    }
}

PARE_CLONES static void sum_each(double *restrict sum, const float *restrict dy,
                                 const float *restrict x, int64_t n, const float *restrict s,
                                 const float *restrict z, float low, float high)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)dy[i] * (double)slope(x[i] / s[i], z[i], low, high);
}

/* Zero points as floats, where each element has its own scale. */
static void zeros_to(float *z, const operands *o, int64_t channels)
{
    for (int64_t i = 0; i < channels; i++) z[i] = (float)zero_at(o, i);
}

static pare_status dense_prepare(pare_prep *p)
{
    PARE_TRY(fake_prepare(p));
    const fake *f = p->state;
    p->scratch += sizeof(float) * (size_t)f->channels;
    return PARE_OK;
}

static pare_status dense_run(const pare_call *c)
{
    const fake *f = c->state;
    const operands o = operands_of(c->in, c->in_count, 0);
    const float *x = o.x->data, *s = o.s->data;
    float *y = c->out[0].data, *z = c->scratch;
    const float low = (float)f->levels.low, high = (float)f->levels.high;
    zeros_to(z, &o, f->channels);
    for (int64_t i = 0; i < f->outer; i++)
        if (f->inner == 1) {
            forward_each(y + i * f->channels, x + i * f->channels, f->channels, s, z, low, high);
        } else
            for (int64_t k = 0; k < f->channels; k++) {
                const int64_t at = (i * f->channels + k) * f->inner;
                forward_one(y + at, x + at, f->inner, s[k], z[k], low, high);
            }
    return PARE_OK;
}

static pare_status dense_grad_run(const pare_call *c)
{
    const fake *f = c->state;
    const operands o = operands_of(c->in, c->in_count, 1);
    const float *dy = c->in[0].data, *x = o.x->data, *s = o.s->data;
    const bool sums = c->out_count > 1 && c->out[1].dtype;
    const float low = (float)f->levels.low, high = (float)f->levels.high;
    double *sum = c->scratch;
    float *dx = c->out[0].data, *z = (float *)(sum + f->channels);
    zeros_to(z, &o, f->channels);
    memset(sum, 0, sizeof *sum * (size_t)f->channels);
    for (int64_t i = 0; i < f->outer; i++)
        if (f->inner == 1) {
            const int64_t at = i * f->channels;
            mask_each(dx + at, dy + at, x + at, f->channels, s, z, low, high);
            if (sums) sum_each(sum, dy + at, x + at, f->channels, s, z, low, high);
        } else
            for (int64_t k = 0; k < f->channels; k++) {
                const int64_t at = (i * f->channels + k) * f->inner;
                mask_one(dx + at, dy + at, x + at, f->inner, s[k], z[k], low, high);
                if (sums) sum_one(&sum[k], dy + at, x + at, f->inner, s[k], z[k], low, high);
            }
    give_scales(c, sum, f->channels);
    return PARE_OK;
}

static const pare_kernel dense_fake_quantize = {.name = "dense_fake_quantize_f32",
                                                .can = dense_can,
                                                .prepare = dense_prepare,
                                                .run = dense_run};
static const pare_kernel ref_fake_quantize = {.name = "ref_fake_quantize",
                                              .can = fake_can,
                                              .prepare = fake_prepare,
                                              .run = plain_run,
                                              .flags = PARE_KERNEL_REF};
static const pare_kernel dense_fake_quantize_grad = {.name = "dense_fake_quantize_grad_f32",
                                                     .can = dense_can,
                                                     .prepare = dense_prepare,
                                                     .run = dense_grad_run};
static const pare_kernel ref_fake_quantize_grad = {.name = "ref_fake_quantize_grad",
                                                   .can = fake_can,
                                                   .prepare = fake_prepare,
                                                   .run = plain_grad_run,
                                                   .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_fake_quantize[] = {&dense_fake_quantize, &ref_fake_quantize,
                                                     NULL};
const pare_kernel *const pare_cpu_fake_quantize_grad[] = {&dense_fake_quantize_grad,
                                                          &ref_fake_quantize_grad, NULL};
