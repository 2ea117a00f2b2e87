/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization in training on the device, as cpu/batchnorm_train.c defines it. */
#include "runtime/cuda/grad_sums.h"
#include "runtime/cuda/kernel.h"

#include <string.h>

/* --- sums --- */

size_t pare_cuda_sums_set(pare_cuda_sums *s, const pare_view *const *v, int operands, int axis)
{
    enum { ELEMENTS = 2048, MOST_PARTS = 64 }; /* a part's elements, at least */
    pare_view one[3];
    const pare_view *all[3];
    s->channels = axis < 0 ? 1 : v[0]->dim[axis];
    for (int k = 0; k < 3; k++) {
        one[k] = *v[k < operands ? k : 0];
        s->step[k] = axis < 0 ? 0 : one[k].stride[axis];
        if (axis >= 0) one[k].dim[axis] = 1;
        all[k] = &one[k];
    }
    pare_walk_init(&s->w.walk, all, 3);
    const int64_t parts = s->channels ? s->w.walk.count / ELEMENTS : 1;
    s->parts = (int)(parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : parts);
    return 2 * sizeof(double) * (size_t)s->parts * (size_t)s->channels;
}

/* --- BatchNormalization in training --- */

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

static int axis_of(const pare_view *x) { return x->rank > 1 ? 1 : -1; }
static int64_t channels_of(const pare_view *x) { return x->rank > 1 ? x->dim[1] : 1; }

typedef struct norm {
    pare_cuda_sums sums;
    double epsilon;
    size_t stats; /* bytes: scratch holds these, then slopes or parts of sums */
} norm;

/* Vectors of channels are dense, sums doubles in rows. */
static bool norm_can(const pare_prep *p)
{
    if (!pare_cuda_is_float(p->in[0].dtype)) return false;
    for (int i = 1; i < p->in_count; i++) {
        const pare_view *v = &p->in[i];
        if (v->dtype != p->in[0].dtype && v->dtype != PARE_f64) return false;
        if (v->rank < 3 && !pare_view_rowmajor(v) && v->rank != p->in[0].rank) return false;
    }
    return true;
}

/* x: its place among the inputs; summed: how many inputs from 0 on are summed up. */
static pare_status norm_prepare(pare_prep *p, int x, int summed, size_t slopes)
{
    norm *n = pare_arena_alloc(p->arena, 1, sizeof *n);
    if (!n) return PARE_MEMORY;
    n->epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    n->stats = aligned(2 * sizeof(double) * (size_t)channels_of(&p->in[x]));
    p->scratch = n->stats + slopes * sizeof(double) * (size_t)channels_of(&p->in[x]);
    if (summed)
        p->scratch += pare_cuda_sums_set(&n->sums, (const pare_view *const[]){&p->in[0], &p->in[1]},
                                         summed, axis_of(&p->in[x]));
    p->state = n;
    return PARE_OK;
}

static pare_status stats_prepare(pare_prep *p) { return norm_prepare(p, 0, 1, 0); }
static pare_status train_prepare(pare_prep *p) { return norm_prepare(p, 0, 0, 0); }
static pare_status grad_stats_prepare(pare_prep *p) { return norm_prepare(p, 1, 2, 0); }
static pare_status grad_input_prepare(pare_prep *p) { return norm_prepare(p, 1, 0, 3); }

/* Means and deviations into scratch; with gsums the slopes behind them. */
static pare_status find_moments(const pare_call *c, int x, const pare_view *sums,
                                const pare_view *mean0, const pare_view *scale,
                                const pare_view *gsums)
{
    const norm *n = c->state;
    const pare_cuda_moments m = {.sums = sums->data,
                                 .gsums = gsums ? gsums->data : NULL,
                                 .mean0 = mean0->data,
                                 .scale = scale ? scale->data : NULL,
                                 .dtype = c->in[x].dtype,
                                 .channels = channels_of(&c->in[x]),
                                 .epsilon = n->epsilon,
                                 .stats = c->scratch,
                                 .slopes = (double *)((char *)c->scratch + n->stats)};
    return PARE_CUDA_LAUNCH(c, pare_cuda_moments_launch, &m);
}

/* `step` numbers a channel, with the dims of x. */
static pare_view channel_view(const pare_view *x, pare_dtype dtype, void *data, int64_t step)
{
    pare_view v = *x;
    v.dtype = dtype;
    v.data = data;
    memset(v.stride, 0, sizeof v.stride);
    if (x->rank > 1) v.stride[1] = step;
    return v;
}

static void walk_set(pare_cuda_walk *w, const pare_view *const *v, int operands)
{
    pare_walk_init(&w->walk, v, operands);
    for (int i = 0; i < operands; i++) w->data[i] = v[i]->data;
}

static pare_status stats_run(const pare_call *c)
{
    const norm *n = c->state;
    pare_cuda_sums s = n->sums;
    s.kind = PARE_CUDA_SUMS_STATS;
    s.dtype = c->in[0].dtype;
    for (int k = 0; k < 3; k++) s.w.data[k] = c->in[0].data;
    s.shift = c->in[1].data;
    s.sums = c->out[0].data;
    s.part = (double *)((char *)c->scratch + n->stats);
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &s);
}

static pare_status train_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    pare_cuda_walk w;
    PARE_TRY(find_moments(c, 0, &c->in[3], &c->in[4], NULL, NULL));
    const pare_view scale = channel_view(x, x->dtype, c->in[1].data, 1),
                    bias = channel_view(x, x->dtype, c->in[2].data, 1),
                    stats = channel_view(x, PARE_f64, c->scratch, 2);
    walk_set(&w, (const pare_view *const[]){&c->out[0], x, &scale, &bias, &stats}, 5);
    return PARE_CUDA_LAUNCH(c, pare_cuda_norm_train_launch, &w, x->dtype);
}

static pare_status grad_stats_run(const pare_call *c)
{
    const norm *n = c->state;
    pare_cuda_sums s = n->sums;
    PARE_TRY(find_moments(c, 1, &c->in[2], &c->in[3], NULL, NULL));
    s.kind = PARE_CUDA_SUMS_GRAD;
    s.dtype = c->in[1].dtype;
    s.w.data[0] = s.w.data[2] = c->in[0].data;
    s.w.data[1] = c->in[1].data;
    s.stats = c->scratch;
    s.sums = c->out[0].data;
    s.part = (double *)((char *)c->scratch + n->stats);
    if (c->out_count > 1 && c->out[1].dtype) s.first = c->out[1].data;
    if (c->out_count > 2 && c->out[2].dtype) s.second = c->out[2].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &s);
}

static pare_status grad_input_run(const pare_call *c)
{
    const norm *n = c->state;
    const pare_view *x = &c->in[1];
    pare_cuda_walk w;
    PARE_TRY(find_moments(c, 1, &c->in[3], &c->in[4], &c->in[2], &c->in[5]));
    const pare_view stats = channel_view(x, PARE_f64, c->scratch, 2),
                    slopes = channel_view(x, PARE_f64, (char *)c->scratch + n->stats, 3);
    walk_set(&w, (const pare_view *const[]){&c->out[0], &c->in[0], x, &stats, &slopes}, 5);
    return PARE_CUDA_LAUNCH(c, pare_cuda_norm_grad_launch, &w, x->dtype);
}

#define KERNEL(stem, prefix)                                                                       \
    static const pare_kernel cuda_##stem = {                                                       \
        .name = "cuda_" #stem, .can = norm_can, .prepare = prefix##_prepare, .run = prefix##_run}; \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
KERNEL(batch_norm_stats, stats)
KERNEL(batch_norm_train, train)
KERNEL(batch_norm_grad_stats, grad_stats)
KERNEL(batch_norm_grad_input, grad_input)
