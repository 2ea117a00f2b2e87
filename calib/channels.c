/* SPDX-License-Identifier: Apache-2.0 */
#include "calib/channels.h"
#include "runtime/base/clones.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

pare_status pare_channels_new(pare_ctx *ctx, pare_channels **out)
{
    *out = pare_alloc(ctx, 1, sizeof **out);
    return *out ? PARE_OK : PARE_MEMORY;
}

void pare_channels_free(pare_channels *c)
{
    if (!c) return;
    pare_free(c->sum);
    pare_free(c->largest);
    pare_free(c->part);
    pare_free(c);
}

pare_status pare_channels_open(pare_ctx *ctx, pare_channels *c, int64_t count)
{
    if (c->count || count < 1) return PARE_OK;
    if (!c->sum) c->sum = pare_alloc(ctx, (size_t)count, sizeof *c->sum);
    if (!c->largest) c->largest = pare_alloc(ctx, (size_t)count, sizeof *c->largest);
    if (!c->part) c->part = pare_alloc(ctx, (size_t)count, sizeof *c->part);
    if (!c->sum || !c->largest || !c->part) return PARE_MEMORY;
    c->count = count;
    return PARE_OK;
}

void pare_channels_mix(pare_channels *c)
{
    pare_free(c->sum);
    pare_free(c->largest);
    pare_free(c->part);
    *c = (pare_channels){.mixed = true};
}

double pare_channels_mean(const pare_channels *c, int64_t i)
{
    return ldexp((double)c->sum[i], -PARE_WIDE_SHIFT) / (double)c->each;
}

/* --- adding --- */

/* (rows, n): channels lie side by side. */
PARE_CLONES static void add_rows(const float *x, int64_t rows, int64_t n, double *sum,
                                 float *largest)
{
    for (int64_t r = 0; r < rows; r++, x += n)
        for (int64_t i = 0; i < n; i++) {
            float magnitude = fabsf(x[i]);
            sum[i] += (double)x[i];
            largest[i] = magnitude > largest[i] ? magnitude : largest[i];
        }
}

/* One channel's values in a row, in LANES sums. */
PARE_CLONES static void add_run(const float *x, int64_t n, double *sum, float *largest)
{
    double s[LANES] = {0};
    float m[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float magnitude = fabsf(x[i + k]);
            s[k] += (double)x[i + k];
            m[k] = magnitude > m[k] ? magnitude : m[k];
        }
    for (int k = 0; i < n; i++, k++) {
        s[k] += (double)x[i];
        m[k] = fmaxf(m[k], fabsf(x[i]));
    }
    for (int k = 0; k < LANES; k++) {
        *sum += s[k];
        *largest = fmaxf(*largest, m[k]);
    }
}

/* Any strides, in logical order. */
static void add_strided(pare_channels *c, const pare_view *v, int axis)
{
    int64_t at[PARE_MAX_RANK] = {0}, n = pare_view_count(v);
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;
        for (int k = 0; k < v->rank; k++) offset += at[k] * v->stride[k];
        add_rows((const float *)v->data + offset, 1, 1, &c->part[at[axis]], &c->largest[at[axis]]);
        for (int k = v->rank - 1; k >= 0 && ++at[k] == v->dim[k]; k--) at[k] = 0;
    }
}

static void add_dense(pare_channels *c, const pare_view *v, int axis)
{
    int64_t outer = 1, inner = 1;
    const float *x = v->data;
    bool side_by_side = !pare_view_rowmajor(v);
    for (int k = 0; k < axis; k++) outer *= v->dim[k];
    for (int k = axis + 1; k < v->rank; k++) inner *= v->dim[k];
    if (side_by_side || inner == 1) {
        add_rows(x, outer * inner, c->count, c->part, c->largest);
        return;
    }
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < c->count; i++, x += inner)
            add_run(x, inner, &c->part[i], &c->largest[i]);
}

/* One sample's sums into whole numbers. */
static void settle(pare_channels *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        if (fabs(c->part[i]) < 0x1p60)
            c->sum[i] += (pare_wide)rint(ldexp(c->part[i], PARE_WIDE_SHIFT));
        else
            c->lost++;
        c->part[i] = 0;
    }
}

pare_status pare_channels_add(pare_ctx *ctx, pare_channels *c, const pare_view *view,
                              int64_t samples)
{
    int axis = pare_channels_axis(view->rank);
    int64_t n = pare_view_count(view);
    if (view->dtype != PARE_f32 || axis < 0 || n == 0 || c->mixed) return PARE_OK;
    PARE_TRY(pare_channels_open(ctx, c, view->dim[axis]));
    if (c->count != view->dim[axis]) {
        pare_channels_mix(c);
        return PARE_OK;
    }
    pare_view v = *view;
    bool dense = pare_view_rowmajor(view) || (v.rank == 4 && pare_view_nhwc(view));
    if (axis == 0 || samples < 1 || v.dim[0] % samples) samples = 1;
    v.dim[0] /= samples;
    for (int64_t s = 0; s < samples; s++) {
        v.data = (float *)view->data + s * v.dim[0] * view->stride[0];
        if (dense)
            add_dense(c, &v, axis);
        else
            add_strided(c, &v, axis);
        settle(c);
    }
    c->each += (uint64_t)(n / c->count);
    return PARE_OK;
}

/* --- merging --- */

pare_status pare_channels_merge(pare_ctx *ctx, pare_channels *to, const pare_channels *from)
{
    if (to->mixed || from->mixed || (to->count && from->count && to->count != from->count)) {
        pare_channels_mix(to);
        return PARE_OK;
    }
    if (!from->count) return PARE_OK;
    PARE_TRY(pare_channels_open(ctx, to, from->count));
    bool fits = to->each <= INT64_MAX - from->each && to->lost <= INT64_MAX - from->lost;
    for (int64_t i = 0; fits && i < to->count; i++) {
        fits = !__builtin_add_overflow(to->sum[i], from->sum[i], &to->sum[i]);
        to->largest[i] = fmaxf(to->largest[i], from->largest[i]);
    }
    if (!fits) return PARE_FAIL(ctx, INPUT, "the sums of its channels overflow");
    to->each += from->each;
    to->lost += from->lost;
    return PARE_OK;
}
