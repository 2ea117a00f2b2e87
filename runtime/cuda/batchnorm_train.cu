/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization in training, as cpu/train_batchnorm.c defines it: sums over a channel
   (channel_sums.cu), moments of each channel from them, then one pass over the elements.
     y = (x - mean) inverse scale + bias; dx = f dy + p (x - mean) + q
   One thread an element, each operand read once, the output written once. */
#include "runtime/base/size.h"
#include "runtime/cuda/channel_sums.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"

#include <string.h>

/* BatchNormalization in training (ops/batchnorm_train.c): what channels have from their sums. */
typedef struct pare_cuda_moments {
    const double *sums, *gsums;       /* (3, channels), (2, channels) or NULL */
    const void *mean0, *scale, *bias; /* (channels) of dtype, X's or f32; or NULL */
    pare_dtype dtype;
    int64_t channels;
    double epsilon;
    double *stats;  /* out: (channels, 2) mean, 1 / deviation */
    double *slopes; /* out, with gsums: (channels, 3) f, p, q of dX = f dY + p (X - mean) + q;
                       with bias: (channels, 2) scale, bias */
} pare_cuda_moments;

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) moments_each(pare_cuda_moments m)
{
    PARE_CUDA_EACH (c, m.channels) {
        const double n = m.sums[2 * m.channels + c], d = n > 0 ? m.sums[c] / n : 0;
        const double raw = n > 0 ? m.sums[m.channels + c] / n - d * d : 0;
        const double inv = 1 / sqrt((raw < 0 ? 0 : raw) + m.epsilon);
        m.stats[2 * c] = (double)pare_number_at(m.mean0, m.dtype, c) + d;
        m.stats[2 * c + 1] = inv;
        if (m.bias) {
            m.slopes[2 * c] = (double)pare_number_at(m.scale, m.dtype, c);
            m.slopes[2 * c + 1] = (double)pare_number_at(m.bias, m.dtype, c);
        }
        if (!m.gsums) continue;
        const double f = (double)pare_number_at(m.scale, m.dtype, c) * inv;
        m.slopes[3 * c] = f;
        m.slopes[3 * c + 1] = -f * inv * inv * m.gsums[m.channels + c] / n;
        m.slopes[3 * c + 2] = -f * m.gsums[c] / n;
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    norm_train_each(pare_cuda_iterator w, pare_dtype type)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_iterator_at<4>(w.walk, i, at);
        const double *stats = static_cast<const double *>(w.data[2]) + at[2],
                     *slopes = static_cast<const double *>(w.data[3]) + at[3];
        const double d = (double)pare_number_at(w.data[1], type, at[1]) - stats[0];
        pare_number_store(w.data[0], type, at[0], (float)(d * stats[1] * slopes[0] + slopes[1]));
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    norm_grad_each(pare_cuda_iterator w, pare_dtype type)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[5];
        pare_iterator_at<5>(w.walk, i, at);
        const double *slopes = static_cast<const double *>(w.data[4]) + at[4];
        const double d = (double)pare_number_at(w.data[2], type, at[2]) -
                         static_cast<const double *>(w.data[3])[at[3]];
        const double g = (double)pare_number_at(w.data[1], type, at[1]);
        pare_number_store(w.data[0], type, at[0],
                          (float)(slopes[0] * g + (slopes[1] * d + slopes[2])));
    }
}

/* --- launchers --- */

static cudaError_t moments_launch(const pare_cuda_moments *m, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(moments_each, m->channels, *m);
}

/* Operands y, x, stats, slopes (two doubles each): (x - mean) inv scale + bias. */
static cudaError_t norm_train_launch(const pare_cuda_iterator *w, pare_dtype dtype,
                                     cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(norm_train_each, w->walk.count, *w, dtype);
}

/* Operands dx, dy, x, stats, slopes (three doubles). */
static cudaError_t norm_grad_launch(const pare_cuda_iterator *w, pare_dtype dtype,
                                    cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(norm_grad_each, w->walk.count, *w, dtype);
}

/* --- operators --- */

static int axis_of(const pare_view *x) { return x->rank > 1 ? 1 : -1; }
static int64_t channels_of(const pare_view *x) { return x->rank > 1 ? x->dim[1] : 1; }

typedef struct train_state {
    pare_cuda_sums sums;
    double epsilon;
    size_t stats; /* bytes: scratch holds these, then slopes or parts of sums */
} train_state;

/* The first inputs are pictures of one type; vectors of channels, which are dense, are of one type,
   theirs or f32; sums are doubles in rows. */
static bool norm_can(const pare_prep *p, int pictures)
{
    const pare_dtype type = p->in[0].dtype;
    pare_dtype vectors = PARE_NOTYPE;
    if (!pare_cuda_is_float(type)) return false;
    for (int i = 1; i < p->in_count; i++) {
        const pare_view *v = &p->in[i];
        if (v->rank < 3 && !pare_view_rowmajor(v) && v->rank != p->in[0].rank) return false;
        if (v->dtype == PARE_f64) continue;
        if (i >= pictures && !vectors) vectors = v->dtype;
        if (v->dtype != (i < pictures ? type : vectors)) return false;
    }
    return !vectors || vectors == type || vectors == PARE_f32;
}

static bool stats_can(const pare_prep *p) { return norm_can(p, 1) && p->in[1].dtype == PARE_f32; }
static bool train_can(const pare_prep *p) { return norm_can(p, 1); }
static bool grad_stats_can(const pare_prep *p) { return norm_can(p, 2); }
static bool grad_input_can(const pare_prep *p) { return norm_can(p, 2); }

/* x: its place among the inputs; summed: how many inputs from 0 on are summed up. */
static pare_status norm_prepare(pare_prep *p, int x, int summed, size_t slopes)
{
    train_state *n = (train_state *)pare_arena_alloc(p->arena, 1, sizeof *n);
    if (!n) return PARE_MEMORY;
    n->epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    n->stats = pare_align_up(2 * sizeof(double) * (size_t)channels_of(&p->in[x]), 256);
    p->scratch = n->stats + slopes * sizeof(double) * (size_t)channels_of(&p->in[x]);
    const pare_view *const operands[] = {&p->in[0], &p->in[1]};
    if (summed) p->scratch += pare_cuda_sums_set(&n->sums, operands, summed, axis_of(&p->in[x]));
    p->state = n;
    return PARE_OK;
}

static pare_status stats_prepare(pare_prep *p) { return norm_prepare(p, 0, 1, 0); }
static pare_status train_prepare(pare_prep *p) { return norm_prepare(p, 0, 0, 2); }
static pare_status grad_stats_prepare(pare_prep *p) { return norm_prepare(p, 1, 2, 0); }
static pare_status grad_input_prepare(pare_prep *p) { return norm_prepare(p, 1, 0, 3); }

/* Means and deviations into scratch; with gsums the slopes after them. */
static pare_status find_moments(const pare_call *c, int x, const pare_view *sums,
                                const pare_view *mean0, const pare_view *scale,
                                const pare_view *bias, const pare_view *gsums)
{
    const train_state *n = (const train_state *)c->state;
    const pare_cuda_moments m = {.sums = (const double *)sums->data,
                                 .gsums = (const double *)(gsums ? gsums->data : NULL),
                                 .mean0 = mean0->data,
                                 .scale = scale ? scale->data : NULL,
                                 .bias = bias ? bias->data : NULL,
                                 .dtype = mean0->dtype,
                                 .channels = channels_of(&c->in[x]),
                                 .epsilon = n->epsilon,
                                 .stats = (double *)c->scratch,
                                 .slopes = (double *)((char *)c->scratch + n->stats)};
    return PARE_CUDA_LAUNCH(c, moments_launch, &m);
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

static pare_status stats_run(const pare_call *c)
{
    const train_state *n = (const train_state *)c->state;
    pare_cuda_sums s = n->sums;
    s.kind = PARE_CUDA_SUMS_STATS;
    s.dtype = c->in[0].dtype;
    for (int k = 0; k < 3; k++) s.w.data[k] = c->in[0].data;
    s.shift = (const float *)c->in[1].data;
    s.sums = (double *)c->out[0].data;
    s.part = (double *)((char *)c->scratch + n->stats);
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &s);
}

static pare_status train_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    pare_cuda_iterator w;
    PARE_TRY(find_moments(c, 0, &c->in[3], &c->in[4], &c->in[1], &c->in[2], NULL));
    const train_state *n = (const train_state *)c->state;
    const pare_view stats = channel_view(x, PARE_f64, c->scratch, 2),
                    slopes = channel_view(x, PARE_f64, (char *)c->scratch + n->stats, 2);
    const pare_view *const operands[] = {&c->out[0], x, &stats, &slopes};
    pare_cuda_iterator_set(&w, operands, 4);
    return PARE_CUDA_LAUNCH(c, norm_train_launch, &w, x->dtype);
}

static pare_status grad_stats_run(const pare_call *c)
{
    const train_state *n = (const train_state *)c->state;
    pare_cuda_sums s = n->sums;
    PARE_TRY(find_moments(c, 1, &c->in[2], &c->in[3], NULL, NULL, NULL));
    s.kind = PARE_CUDA_SUMS_GRAD;
    s.dtype = c->in[1].dtype;
    s.vectors = c->in[3].dtype;
    s.w.data[0] = s.w.data[2] = c->in[0].data;
    s.w.data[1] = c->in[1].data;
    s.stats = (const double *)c->scratch;
    s.sums = (double *)c->out[0].data;
    s.part = (double *)((char *)c->scratch + n->stats);
    if (c->out_count > 1 && c->out[1].dtype) s.first = c->out[1].data;
    if (c->out_count > 2 && c->out[2].dtype) s.second = c->out[2].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &s);
}

static pare_status grad_input_run(const pare_call *c)
{
    const train_state *n = (const train_state *)c->state;
    const pare_view *x = &c->in[1];
    pare_cuda_iterator w;
    PARE_TRY(find_moments(c, 1, &c->in[3], &c->in[4], &c->in[2], NULL, &c->in[5]));
    const pare_view stats = channel_view(x, PARE_f64, c->scratch, 2),
                    slopes = channel_view(x, PARE_f64, (char *)c->scratch + n->stats, 3);
    const pare_view *const operands[] = {&c->out[0], &c->in[0], x, &stats, &slopes};
    pare_cuda_iterator_set(&w, operands, 5);
    return PARE_CUDA_LAUNCH(c, norm_grad_launch, &w, x->dtype);
}

#define KERNEL(stem, prefix)                                                                       \
    static const pare_kernel cuda_##stem = {.name = "cuda_" #stem,                                 \
                                            .can = prefix##_can,                                   \
                                            .prepare = prefix##_prepare,                           \
                                            .run = prefix##_run};                                  \
    const pare_kernel *const pare_cuda_##stem[] = {&cuda_##stem, NULL};
KERNEL(batch_norm_stats, stats)
KERNEL(batch_norm_train, train)
KERNEL(batch_norm_grad_stats, grad_stats)
KERNEL(batch_norm_grad_input, grad_input)
