/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C reference kernels of MaxPool (1 to 12), AveragePool (1 to 19) and LpPool (1 to 18).
   Plan: one image is loaded as dense doubles, each channel plane is one task, each output value
   walks its window clipped to the tensor. Padding is never a candidate of a maximum. */
#include "runtime/cpu/fast.h"
#include "runtime/base/size.h"
#include "runtime/cpu/dense.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/window.h"

#include <math.h>
#include <string.h>

typedef struct pool_state {
    pare_window window;
    int64_t in, out; /* elements of one plane */
    int64_t p;       /* LpPool's norm */
    bool column_major;
} pool_state;

typedef double (*window_fn)(const pool_state *s, const double *x, const pare_taps *at,
                            int64_t *index);

/* The first largest value; NaN wins. index counts in the plane; -1 where the window saw only
 * padding. */
static double window_max(const pool_state *s, const double *x, const pare_taps *at, int64_t *index)
{
    const pare_window *w = &s->window;
    double best = -INFINITY;
    *index = -1;
    for (int64_t d = 0; d < at[0].count; d++)
        for (int64_t h = 0; h < at[1].count; h++)
            for (int64_t k = 0; k < at[2].count; k++) {
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

static double window_sum(const pool_state *s, const double *x, const pare_taps *at, double p)
{
    const pare_window *w = &s->window;
    double sum = 0;
    for (int64_t d = 0; d < at[0].count; d++)
        for (int64_t h = 0; h < at[1].count; h++) {
            int64_t z = at[0].first + d * w->dilation[0], r = at[1].first + h * w->dilation[1];
            const double *row = x + (z * w->in[1] + r) * w->in[2] + at[2].first;
            for (int64_t k = 0; k < at[2].count; k++) {
                double v = row[k * w->dilation[2]];
                sum += p == 0 ? v : p == 1 ? fabs(v) : p == 2 ? v * v : pow(fabs(v), p);
            }
        }
    return sum;
}

static double window_average(const pool_state *s, const double *x, const pare_taps *at,
                             int64_t *index)
{
    (void)index;
    int64_t n = 1;
    for (int i = 0; i < 3; i++) n *= s->window.include_pad ? at[i].padded : at[i].count;
    return n ? window_sum(s, x, at, 0) / (double)n : 0;
}

static double window_lp(const pool_state *s, const double *x, const pare_taps *at, int64_t *index)
{
    (void)index;
    return pow(window_sum(s, x, at, (double)s->p), 1.0 / (double)s->p);
}

static void plane_run(const pool_state *s, double *y, int64_t *where, const double *x, window_fn fn)
{
    const pare_window *w = &s->window;
    pare_taps at[3];
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++) {
            at[0] = pare_window_taps(w, 0, d);
            at[1] = pare_window_taps(w, 1, h);
            for (int64_t k = 0; k < w->out[2]; k++) {
                int64_t index;
                at[2] = pare_window_taps(w, 2, k);
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

static pare_status max_run(const pare_call *c) { return run(c, window_max); }
static pare_status average_run(const pare_call *c) { return run(c, window_average); }
static pare_status lp_run(const pare_call *c) { return run(c, window_lp); }

static bool max_can(const pare_prep *p) { return pare_dense_can(p->in[0].dtype); }

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
const pare_kernel *const pare_cpu_average_pool[] = {&pare_nhwc_average_pool, &ref_average_pool,
                                                    NULL};
const pare_kernel *const pare_cpu_lp_pool[] = {&ref_lp_pool, NULL};

/* Plain C reference kernels of GlobalAveragePool, GlobalMaxPool, GlobalLpPool and LRN.
   One (n, c) plane is one task; sums in double. */

typedef double (*plane_fn)(const pare_view *plane, int64_t p);

static double plane_mean(const pare_view *plane, int64_t p)
{
    (void)p;
    int64_t index[PARE_MAX_RANK] = {0}, n = pare_view_count(plane);
    double sum = 0;
    if (!n) return NAN;
    do sum += pare_ref_get(plane, pare_ref_offset(plane, index));
    while (pare_ref_next(plane, index));
    return sum / (double)n;
}

static double plane_max(const pare_view *plane, int64_t p)
{
    (void)p;
    int64_t index[PARE_MAX_RANK] = {0};
    double best = -INFINITY;
    if (!pare_view_count(plane)) return best;
    do {
        double v = pare_ref_get(plane, pare_ref_offset(plane, index));
        if (v > best || isnan(v)) best = v;
        if (isnan(v)) break;
    } while (pare_ref_next(plane, index));
    return best;
}

static double plane_lp(const pare_view *plane, int64_t p)
{
    int64_t index[PARE_MAX_RANK] = {0};
    double sum = 0;
    if (!pare_view_count(plane)) return 0;
    do sum += pow(fabs(pare_ref_get(plane, pare_ref_offset(plane, index))), (double)p);
    while (pare_ref_next(plane, index));
    return pow(sum, 1.0 / (double)p);
}

static pare_status run_planes(const pare_call *c, plane_fn fn, int64_t p)
{
    int64_t channels = c->in[0].dim[1], planes = c->in[0].dim[0] * channels;
    int64_t work = pare_view_count(&c->in[0]);
#pragma omp parallel for num_threads(c->threads)                                                   \
    schedule(static) if (c->threads > 1 && work > 32768)
    for (int64_t i = 0; i < planes; i++) {
        pare_view x = pare_view_at(&c->in[0], 0, i / channels);
        x = pare_view_at(&x, 1, i % channels);
        const pare_view *y = &c->out[0];
        pare_ref_set(y, i / channels * y->stride[0] + i % channels * y->stride[1], fn(&x, p));
    }
    return PARE_OK;
}

static pare_status global_average_run(const pare_call *c) { return run_planes(c, plane_mean, 0); }
static pare_status global_max_run(const pare_call *c) { return run_planes(c, plane_max, 0); }

static pare_status global_lp_run(const pare_call *c)
{
    return run_planes(c, plane_lp, pare_node_int(c->node, "p", 2));
}

/* LRN 13: y = x / (bias + alpha / size * sum of x^2 over size channels around)^beta. */
static pare_status lrn_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t size = pare_node_int(c->node, "size", 1), channels = x->dim[1];
    double alpha = (double)pare_node_float(c->node, "alpha", 1e-4f) / (double)size;
    double beta = (double)pare_node_float(c->node, "beta", 0.75f);
    double bias = (double)pare_node_float(c->node, "bias", 1);
    int64_t index[PARE_MAX_RANK] = {0};
    if (!pare_view_count(y)) return PARE_OK;
    do {
        int64_t at = pare_ref_offset(x, index), k = index[1];
        int64_t low = k - (size - 1) / 2, high = k + size / 2;
        double sum = 0;
        for (int64_t i = low < 0 ? 0 : low; i <= high && i < channels; i++) {
            double v = pare_ref_get(x, at + (i - k) * x->stride[1]);
            sum += v * v;
        }
        pare_ref_set(y, pare_ref_offset(y, index),
                     pare_ref_get(x, at) / pow(bias + alpha * sum, beta));
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

static const pare_kernel ref_global_average_pool = {.name = "ref_global_average_pool",
                                                    .can = pare_ref_can_floats,
                                                    .run = global_average_run,
                                                    .flags = PARE_KERNEL_REF};
static const pare_kernel ref_global_max_pool = {.name = "ref_global_max_pool",
                                                .can = pare_ref_can_numbers,
                                                .run = global_max_run,
                                                .flags = PARE_KERNEL_REF};
static const pare_kernel ref_global_lp_pool = {.name = "ref_global_lp_pool",
                                               .can = pare_ref_can_floats,
                                               .run = global_lp_run,
                                               .flags = PARE_KERNEL_REF};
static const pare_kernel ref_lrn = {
    .name = "ref_lrn", .can = pare_ref_can_floats, .run = lrn_run, .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_global_average_pool[] = {&pare_nhwc_global_average_pool,
                                                           &ref_global_average_pool, NULL};
const pare_kernel *const pare_cpu_global_max_pool[] = {&ref_global_max_pool, NULL};
const pare_kernel *const pare_cpu_global_lp_pool[] = {&ref_global_lp_pool, NULL};
const pare_kernel *const pare_cpu_lrn[] = {&ref_lrn, NULL};
