/* SPDX-License-Identifier: Apache-2.0 */
#include "calib/channels.h"
#include "runtime/base/clones.h"
#include "runtime/device/samples.h"

#include <math.h>
#include <string.h>

enum { LANES = PARE_CHANNELS_LANES };

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
    pare_free(c);
}

pare_status pare_channels_open(pare_ctx *ctx, pare_channels *c, int64_t count)
{
    if (c->count || count < 1) return PARE_OK;
    if (!c->sum) c->sum = pare_alloc(ctx, (size_t)count, sizeof *c->sum);
    if (!c->largest) c->largest = pare_alloc(ctx, (size_t)count, sizeof *c->largest);
    if (!c->sum || !c->largest) return PARE_MEMORY;
    c->count = count;
    return PARE_OK;
}

void pare_channels_mix(pare_channels *c)
{
    pare_free(c->sum);
    pare_free(c->largest);
    *c = (pare_channels){.mixed = true};
}

double pare_channels_mean(const pare_channels *c, int64_t i)
{
    return ldexp((double)c->sum[i], -PARE_WIDE_SHIFT) / (double)c->each;
}

/* --- adding --- */

/* Values of one channel of a sample, in logical order, on their way into a whole number. */
typedef struct segment {
    pare_channels *to;
    int64_t channel, at; /* values so far */
    double lane[LANES];
    float largest;
} segment;

/* A segment's sums, `step` numbers apart, become one whole number. */
static void settle(pare_channels *c, int64_t channel, const double *lane, int lanes, int step)
{
    double sum = 0;
    for (int k = 0; k < lanes; k++) sum += lane[k * step];
    if (fabs(sum) < 0x1p60)
        c->sum[channel] += (pare_wide)rint(ldexp(sum, PARE_WIDE_SHIFT));
    else
        c->lost++;
}

/* n <= width numbers a row, side by side channels: row r goes to the sums lane + r % LANES * width.
 */
PARE_CLONES static void add_rows(const float *x, int64_t rows, int64_t step, int n, int width,
                                 double *lane, float *largest)
{
    for (int64_t r = 0; r < rows; r++, x += step) {
        double *sum = lane + r % LANES * width;
        for (int i = 0; i < n; i++) {
            const float magnitude = fabsf(x[i]);
            sum[i] += (double)x[i];
            largest[i] = magnitude > largest[i] ? magnitude : largest[i];
        }
    }
}

/* Rows of all channels: a sample, or a part of one that begins with a segment. */
static void add_side_by_side(pare_channels *c, const float *x, int64_t rows)
{
    enum { WIDTH = 64 };
    for (int64_t r = 0; r < rows; r += PARE_CHANNELS_SEGMENT, x += PARE_CHANNELS_SEGMENT * c->count)
        for (int64_t first = 0; first < c->count; first += WIDTH) {
            double lane[LANES * WIDTH];
            const int64_t left = rows - r, rest = c->count - first;
            const int n = rest < WIDTH ? (int)rest : WIDTH,
                      lanes = left < LANES ? (int)left : LANES;
            memset(lane, 0, (size_t)lanes * WIDTH * sizeof *lane);
            add_rows(x + first, left < PARE_CHANNELS_SEGMENT ? left : PARE_CHANNELS_SEGMENT,
                     c->count, n, WIDTH, lane, c->largest + first);
            for (int i = 0; i < n; i++) settle(c, first + i, lane + i, lanes, WIDTH);
        }
}

/* Whole turns of all lanes. */
PARE_CLONES static void add_turns(const float *x, int64_t n, double *lane, float *largest)
{
    float m[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float magnitude = fabsf(x[i + k]);
            lane[k] += (double)x[i + k];
            m[k] = magnitude > m[k] ? magnitude : m[k];
        }
    for (int k = 0; k < LANES; k++) *largest = fmaxf(*largest, m[k]);
}

static void end_segment(segment *s)
{
    settle(s->to, s->channel, s->lane, LANES, 1);
    memset(s->lane, 0, sizeof s->lane);
}

/* The next n values, which are in a row. */
static void add_run(segment *s, const float *x, int64_t n)
{
    while (n > 0) {
        const int64_t rest = PARE_CHANNELS_SEGMENT - s->at % PARE_CHANNELS_SEGMENT;
        int64_t step = n < rest ? n : rest;
        if (s->at % LANES || step < LANES) {
            s->lane[s->at % LANES] += (double)*x;
            s->largest = fmaxf(s->largest, fabsf(*x));
            step = 1;
        } else {
            step -= step % LANES;
            add_turns(x, step, s->lane, &s->largest);
        }
        x += step;
        n -= step;
        s->at += step;
        if (s->at % PARE_CHANNELS_SEGMENT == 0) end_segment(s);
    }
}

/* Any strides; one sample. run: values of a channel in a row in memory. */
static void add_channel(segment *s, const pare_view *v, int axis, int64_t run)
{
    int64_t at[PARE_MAX_RANK] = {0}, n = pare_view_count(v) / v->dim[axis];
    for (int64_t i = 0; i < n; i += run) {
        int64_t offset = s->channel * v->stride[axis], rest = i;
        for (int k = v->rank - 1; k >= 0; k--) {
            if (k == axis) continue;
            at[k] = rest % v->dim[k];
            rest /= v->dim[k];
            offset += at[k] * v->stride[k];
        }
        add_run(s, (const float *)v->data + offset, run);
    }
}

static void add_sample(pare_channels *c, const pare_view *v, int axis)
{
    const bool rows = pare_view_rowmajor(v), nhwc = !rows && v->rank == 4 && pare_view_nhwc(v);
    int64_t run = 1;
    for (int k = axis + 1; rows && k < v->rank; k++) run *= v->dim[k];
    if (nhwc || (rows && run == 1)) {
        add_side_by_side(c, v->data, pare_view_count(v) / c->count);
        return;
    }
    for (int64_t i = 0; i < c->count; i++) {
        segment s = {.to = c, .channel = i, .largest = c->largest[i]};
        add_channel(&s, v, axis, run);
        if (s.at % PARE_CHANNELS_SEGMENT) end_segment(&s);
        c->largest[i] = s.largest;
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
    if (axis == 0 || samples < 1 || v.dim[0] % samples) samples = 1;
    v.dim[0] /= samples;
    for (int64_t s = 0; s < samples; s++) {
        v.data = (float *)view->data + s * v.dim[0] * view->stride[0];
        add_sample(c, &v, axis);
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
