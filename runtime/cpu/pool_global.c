/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C reference kernels of GlobalAveragePool, GlobalMaxPool, GlobalLpPool and LRN.
   One (n, c) plane is one task; sums in double. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/dense.h"
#include "runtime/cpu/ref.h"

#include <math.h>

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

static pare_status average_run(const pare_call *c) { return run_planes(c, plane_mean, 0); }
static pare_status max_run(const pare_call *c) { return run_planes(c, plane_max, 0); }

static pare_status lp_run(const pare_call *c)
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
                                                    .run = average_run,
                                                    .flags = PARE_KERNEL_REF};
static const pare_kernel ref_global_max_pool = {.name = "ref_global_max_pool",
                                                .can = pare_ref_can_numbers,
                                                .run = max_run,
                                                .flags = PARE_KERNEL_REF};
static const pare_kernel ref_global_lp_pool = {.name = "ref_global_lp_pool",
                                               .can = pare_ref_can_floats,
                                               .run = lp_run,
                                               .flags = PARE_KERNEL_REF};
static const pare_kernel ref_lrn = {
    .name = "ref_lrn", .can = pare_ref_can_floats, .run = lrn_run, .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_global_average_pool[] = {&pare_nhwc_global_average_pool,
                                                           &ref_global_average_pool, NULL};
const pare_kernel *const pare_cpu_global_max_pool[] = {&ref_global_max_pool, NULL};
const pare_kernel *const pare_cpu_global_lp_pool[] = {&ref_global_lp_pool, NULL};
const pare_kernel *const pare_cpu_lrn[] = {&ref_lrn, NULL};
