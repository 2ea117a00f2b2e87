/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C reference kernels of MaxPool (1 to 12), AveragePool (1 to 19) and LpPool (1 to 18).
   Plan: one image is loaded as dense doubles, each channel plane is one task, each output value
   walks its window clipped to the tensor. Padding is never a candidate of a maximum. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/dense.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/window.h"
#include "runtime/base/size.h"

#include <math.h>
#include <string.h>

typedef struct pool_state {
    pare_window window;
    int64_t in, out; /* elements of one plane */
    int64_t p;       /* LpPool's norm */
    bool with_pads;  /* AveragePool: count_include_pad */
    bool column_major;
} pool_state;

/* Taps of one output position on each axis: first input index, taps inside, and the tap count that
   divides an average (padding counted, positions behind it not). */
typedef struct span {
    int64_t start, first, taps, padded;
} span;

static span span_of(const pare_window *w, int i, int64_t o)
{
    int64_t start = o * w->stride[i] - w->begin[i], d = w->dilation[i];
    int64_t skip = start < 0 ? (-start + d - 1) / d : 0, first = start + skip * d;
    int64_t end = start + (w->kernel[i] - 1) * d + 1, limit = w->in[i] + w->end[i];
    span s = {start, first, 0, 0};
    int64_t stop = end < w->in[i] ? end : w->in[i];
    if (stop > first) s.taps = (stop - first + d - 1) / d;
    stop = end < limit ? end : limit;
    s.padded = stop > start ? (stop - start + d - 1) / d : 0;
    return s;
}

typedef double (*window_fn)(const pool_state *s, const double *x, const span *at, int64_t *index);

/* The first largest value; NaN wins. index counts in the plane; -1 where the window saw only
 * padding. */
static double window_max(const pool_state *s, const double *x, const span *at, int64_t *index)
{
    const pare_window *w = &s->window;
    double best = -INFINITY;
    *index = -1;
    for (int64_t d = 0; d < at[0].taps; d++)
        for (int64_t h = 0; h < at[1].taps; h++)
            for (int64_t k = 0; k < at[2].taps; k++) {
                int64_t z = at[0].first + d * w->dilation[0], r = at[1].first + h * w->dilation[1];
                int64_t c = at[2].first + k * w->dilation[2];
                double v = x[(z * w->in[1] + r) * w->in[2] + c];
                if (*index >= 0 && !(v > best || (isnan(v) && !isnan(best)))) continue;
                best = v;
                *index = s->column_major ? (c * w->in[1] + r) * w->in[0] + z
                                         : (z * w->in[1] + r) * w->in[2] + c;
            }
    return best;
}

static double window_sum(const pool_state *s, const double *x, const span *at, double p)
{
    const pare_window *w = &s->window;
    double sum = 0;
    for (int64_t d = 0; d < at[0].taps; d++)
        for (int64_t h = 0; h < at[1].taps; h++) {
            int64_t z = at[0].first + d * w->dilation[0], r = at[1].first + h * w->dilation[1];
            const double *row = x + (z * w->in[1] + r) * w->in[2] + at[2].first;
            for (int64_t k = 0; k < at[2].taps; k++) {
                double v = row[k * w->dilation[2]];
                sum += p == 0 ? v : p == 1 ? fabs(v) : p == 2 ? v * v : pow(fabs(v), p);
            }
        }
    return sum;
}

static double window_average(const pool_state *s, const double *x, const span *at, int64_t *index)
{
    (void)index;
    int64_t n = 1;
    for (int i = 0; i < 3; i++) n *= s->with_pads ? at[i].padded : at[i].taps;
    return n ? window_sum(s, x, at, 0) / (double)n : 0;
}

static double window_lp(const pool_state *s, const double *x, const span *at, int64_t *index)
{
    (void)index;
    return pow(window_sum(s, x, at, (double)s->p), 1.0 / (double)s->p);
}

static void plane_run(const pool_state *s, double *y, int64_t *where, const double *x, window_fn fn)
{
    const pare_window *w = &s->window;
    span at[3];
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++) {
            at[0] = span_of(w, 0, d);
            at[1] = span_of(w, 1, h);
            for (int64_t k = 0; k < w->out[2]; k++) {
                int64_t index;
                at[2] = span_of(w, 2, k);
                *y++ = fn(s, x, at, &index);
                if (where) *where++ = index;
            }
        }
}

static pare_status pool_prepare(pare_prep *p)
{
    pool_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_shape x = {.rank = p->in[0].rank};
    memcpy(x.dim, p->in[0].dim, sizeof x.dim);
    PARE_TRY(pare_window_read(p->node, &x, NULL, &s->window));
    s->with_pads = pare_node_int(p->node, "count_include_pad", 0);
    s->column_major = pare_node_int(p->node, "storage_order", 0);
    s->p = pare_node_int(p->node, "p", 2);
    if (s->p < 1) return PARE_FAIL_NODE(p->node, INPUT, "attribute p is below 1");
    s->in = s->window.in[0] * s->window.in[1] * s->window.in[2];
    s->out = s->window.out[0] * s->window.out[1] * s->window.out[2];
    int64_t dims[] = {x.dim[1], s->in + 2 * s->out, sizeof(double)}, bytes;
    if (!pare_count_dims(dims, 3, &bytes))
        return PARE_FAIL_NODE(p->node, INPUT, "its dimensions overflow");
    p->scratch = (size_t)bytes;
    p->state = s;
    return PARE_OK;
}

/* Indices count in the whole tensor. */
static void store_indices(const pool_state *s, const pare_view *to, const int64_t *where,
                          int64_t first)
{
    int64_t index[PARE_MAX_RANK] = {0}, i = 0;
    if (!pare_view_count(to)) return;
    do {
        int64_t plane = first + i / s->out;
        pare_ref_set_int(to, pare_ref_offset(to, index), plane * s->in + where[i]);
        i++;
    } while (pare_ref_next(to, index));
}

static pare_status run(const pare_call *c, window_fn fn)
{
    const pool_state *s = c->state;
    int64_t channels = c->in[0].dim[1];
    double *x = c->scratch, *y = x + channels * s->in;
    bool indices = c->out_count > 1 && c->out[1].dtype != PARE_NOTYPE;
    int64_t *where = indices ? (int64_t *)(void *)(y + channels * s->out) : NULL;
    for (int64_t n = 0; n < c->in[0].dim[0]; n++) {
        pare_view from = pare_view_at(&c->in[0], 0, n), to = pare_view_at(&c->out[0], 0, n);
        pare_dense_load(x, &from, 0);
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->threads > 1)
        for (int64_t k = 0; k < channels; k++)
            plane_run(s, y + k * s->out, where ? where + k * s->out : NULL, x + k * s->in, fn);
        pare_dense_store(&to, y);
        if (!indices) continue;
        to = pare_view_at(&c->out[1], 0, n);
        store_indices(s, &to, where, n * channels);
    }
    return PARE_OK;
}

static pare_status max_run(const pare_call *c)
{
    return run(c, window_max);
}
static pare_status average_run(const pare_call *c)
{
    return run(c, window_average);
}
static pare_status lp_run(const pare_call *c)
{
    return run(c, window_lp);
}

static bool max_can(const pare_prep *p)
{
    return pare_dense_can(p->in[0].dtype);
}

static const pare_kernel ref_max_pool = {.name = "ref_max_pool",
                                         .can = max_can,
                                         .prepare = pool_prepare,
                                         .run = max_run,
                                         .flags = PARE_KERNEL_REF};
static const pare_kernel ref_average_pool = {.name = "ref_average_pool",
                                             .can = pare_ref_can_floats,
                                             .prepare = pool_prepare,
                                             .run = average_run,
                                             .flags = PARE_KERNEL_REF};
static const pare_kernel ref_lp_pool = {.name = "ref_lp_pool",
                                        .can = pare_ref_can_floats,
                                        .prepare = pool_prepare,
                                        .run = lp_run,
                                        .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_max_pool[] = {&pare_nhwc_max_pool, &ref_max_pool, NULL};
const pare_kernel *const pare_cpu_average_pool[] = {&pare_nhwc_average_pool, &ref_average_pool, NULL};
const pare_kernel *const pare_cpu_lp_pool[] = {&ref_lp_pool, NULL};
