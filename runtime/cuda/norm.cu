/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizations with statistics of channels or groups, f32, f16 or bf16 computed in float. The
   statistics come from reduce.cu into scratch; then one pass over the elements: x read and y
   written once, one thread an element of a grid-stride loop. Instance-, GroupNormalization   y = (x
   - mean) / deviation * scale + bias BatchNormalization              y = x factor + shift
     LRN   y = x / (bias + alpha / size * sum of the neighbours' squares)^beta */
#include "runtime/base/size.h"
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.h"
#include "runtime/ops/infer.h"

/* BatchNormalization's constants of n channels: factor[2c] = scale / sqrt(var + epsilon),
   factor[2c + 1] = B - mean factor[2c]. in: scale, B, mean, var, each (n) of its own float type. */
typedef struct pare_cuda_channels {
    const void *in[4];
    pare_dtype type[4];
    float *factor; /* (n, 2) */
    int64_t n;
    float epsilon;
} pare_cuda_channels;

/* LRN (13). Operands y, x, and one whose offset is the channel's number. */
typedef struct pare_cuda_neighbours {
    pare_dtype dtype;
    int64_t channels, stride, before, after; /* of x's channels; neighbours on either side */
    float alpha, beta, bias;                 /* alpha by now divided by size */
} pare_cuda_neighbours;

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    center_each(pare_cuda_iterator w, pare_dtype type)
{
    const double *stats = static_cast<const double *>(w.data[2]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[5];
        pare_iterator_at<5>(w.walk, i, at);
        const float mean = (float)stats[at[2]], inverse = (float)stats[at[2] + 1];
        float v = (pare_number_at(w.data[1], type, at[1]) - mean) * inverse;
        v = v * pare_number_at(w.data[3], type, at[3]) + pare_number_at(w.data[4], type, at[4]);
        pare_number_store(w.data[0], type, at[0], v);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) channels_each(pare_cuda_channels c)
{
    PARE_CUDA_EACH (i, c.n) {
        double v[4];
        for (int k = 0; k < 4; k++) v[k] = (double)pare_number_at(c.in[k], c.type[k], i);
        const double factor = v[0] / sqrt(v[3] + (double)c.epsilon);
        c.factor[2 * i] = (float)factor;
        c.factor[2 * i + 1] = (float)(v[1] - v[2] * factor);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    affine_each(pare_cuda_iterator w, pare_dtype type)
{
    const float *factor = static_cast<const float *>(w.data[2]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        float v = pare_number_at(w.data[1], type, at[1]) * factor[at[2]] + factor[at[2] + 1];
        pare_number_store(w.data[0], type, at[0], v);
    }
}

/* One element a thread: no barrier follows the return. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    lrn_each(pare_cuda_iterator w, pare_cuda_neighbours p)
{
    const int64_t i = (int64_t)blockIdx.x * PARE_CUDA_BLOCK + threadIdx.x;
    int64_t at[3];
    if (i >= w.walk.count) return;
    pare_iterator_at<3>(w.walk, i, at);
    int64_t low = at[2] - p.before, high = at[2] + p.after;
    low = low < 0 ? 0 : low;
    high = high < p.channels ? high : p.channels - 1;
    double sum = 0;
    for (int64_t k = low; k <= high; k++) {
        float v = pare_number_at(w.data[1], p.dtype, at[1] + (k - at[2]) * p.stride);
        sum += (double)v * (double)v;
    }
    float v = pare_number_at(w.data[1], p.dtype, at[1]);
    pare_number_store(w.data[0], p.dtype, at[0], v / powf(p.bias + p.alpha * (float)sum, p.beta));
}

/* --- launchers --- */

/* Operands y, x, statistics (two doubles: mean, 1 / deviation), scale, bias:
   y = (x - mean) / deviation * scale + bias. */
static cudaError_t center_launch(const pare_cuda_iterator *w, pare_dtype dtype, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(center_each, w->walk.count, *w, dtype);
}

static cudaError_t channels_launch(const pare_cuda_channels *c, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(channels_each, c->n, *c);
}

/* Operands y, x, factor and shift (two floats): y = x factor + shift. */
static cudaError_t affine_launch(const pare_cuda_iterator *w, pare_dtype dtype, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(affine_each, w->walk.count, *w, dtype);
}

static cudaError_t lrn_launch(const pare_cuda_iterator *w, const pare_cuda_neighbours *lrn,
                              cudaStream_t stream)
{
    const int64_t blocks = (w->walk.count + PARE_CUDA_BLOCK - 1) / PARE_CUDA_BLOCK;
    if (blocks == 0) return cudaSuccess;
    SIMT_LAUNCH(lrn_each, dim3(pare_cuda_blocks(blocks)), dim3(PARE_CUDA_BLOCK), 0, stream, *w,
                *lrn);
    return cudaGetLastError();
}

/* --- InstanceNormalization (6), GroupNormalization (18, 21) --- */

typedef struct group_norm {
    pare_cuda_reduce mean, inverse;
    int64_t groups;
    size_t stats_bytes; /* then room for the reductions' parts */
} group_norm;

/* [N, C, ...] as [N, groups, C / groups, ...]. */
static pare_view grouped(const pare_view *x, int64_t groups)
{
    pare_view v = {.dtype = x->dtype, .rank = x->rank + 1, .data = x->data};
    int64_t inside = x->dim[1] / groups;
    v.dim[0] = x->dim[0], v.stride[0] = x->stride[0];
    v.dim[1] = groups, v.stride[1] = x->stride[1] * inside;
    v.dim[2] = inside, v.stride[2] = x->stride[1];
    for (int i = 2; i < x->rank; i++) v.dim[i + 1] = x->dim[i], v.stride[i + 1] = x->stride[i];
    return v;
}

/* v's dims with the strides of the first three axes given, the others stretched. */
static pare_view stretched(const pare_view *v, pare_dtype dtype, void *data, int64_t n,
                           int64_t group, int64_t inside)
{
    pare_view s = *v;
    s.dtype = dtype;
    s.data = data;
    for (int i = 0; i < s.rank; i++)
        s.stride[i] = i == 0 ? n : i == 1 ? group : i == 2 ? inside : 0;
    return s;
}

static pare_view stats_view(const pare_view *v, void *data, int64_t groups)
{
    return stretched(v, PARE_f64, data, 2 * groups, 2, 0);
}

static int64_t groups_of(const pare_prep *p)
{
    return pare_node_int(p->node, "num_groups", p->in[0].dim[1]);
}

static bool group_norm_can(const pare_prep *p)
{
    return pare_cuda_can_float(p, 3) && p->in[0].rank > 1 && p->in[0].rank < PARE_MAX_RANK &&
           groups_of(p) > 0;
}

static pare_status group_norm_prepare(pare_prep *p)
{
    group_norm *s = (group_norm *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    bool flag[PARE_MAX_RANK] = {false, false, true, true, true, true, true, true};
    s->groups = groups_of(p);
    pare_view x = grouped(&p->in[0], s->groups), stats = stats_view(&x, NULL, s->groups);
    pare_view y = pare_cuda_axes(&stats, flag, false);
    pare_cuda_reduce_set(&s->mean, PARE_CUDA_MEAN, &x, flag, &y, p->deterministic);
    pare_cuda_reduce_set(&s->inverse, PARE_CUDA_INVERSE_DEVIATION, &x, flag, &y, p->deterministic);
    s->inverse.p = pare_node_float(p->node, "epsilon", 1e-5f);
    s->stats_bytes = pare_align_up(16 * (size_t)s->mean.kept.count, 256);
    p->scratch = s->stats_bytes + pare_cuda_reduce_scratch(&s->mean);
    p->state = s;
    return PARE_OK;
}

static pare_status center(const pare_call *c, const group_norm *s)
{
    pare_cuda_iterator w;
    pare_view x = grouped(&c->in[0], s->groups), y = grouped(&c->out[0], s->groups);
    pare_view stats = stats_view(&x, c->scratch, s->groups), factor[2];
    for (int i = 0; i < 2; i++) {
        const pare_view *v = &c->in[1 + i];
        bool per_group = v->dim[0] == s->groups; /* the form of 18, or groups of one channel */
        int64_t step = v->stride[0];
        factor[i] = stretched(&x, v->dtype, v->data, 0, per_group ? step : step * x.dim[2],
                              per_group ? 0 : step);
    }
    const pare_view *const operands[] = {&y, &x, &stats, &factor[0], &factor[1]};
    pare_cuda_iterator_set(&w, operands, 5);
    return PARE_CUDA_LAUNCH(c, center_launch, &w, x.dtype);
}

static pare_status group_norm_run(const pare_call *c)
{
    const group_norm *s = (const group_norm *)c->state;
    pare_cuda_reduce mean = s->mean, inverse = s->inverse;
    if (pare_view_count(&c->in[0]) == 0) return PARE_OK;
    mean.x = inverse.x = c->in[0].data;
    mean.y = c->scratch;
    inverse.mean = (const double *)c->scratch;
    inverse.y = (double *)c->scratch + 1;
    mean.part = inverse.part = (char *)c->scratch + s->stats_bytes;
    PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_reduce_launch, &mean));
    PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_reduce_launch, &inverse));
    return center(c, s);
}

static const pare_kernel cuda_group_norm = {.name = "cuda_group_norm",
                                            .can = group_norm_can,
                                            .prepare = group_norm_prepare,
                                            .run = group_norm_run,
                                            .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_group_norm[] = {&cuda_group_norm, NULL};

/* --- BatchNormalization (15), inference form --- */

static int64_t channel_count(const pare_view *x) { return x->rank > 1 ? x->dim[1] : 1; }

static bool batch_norm_can(const pare_prep *p)
{
    for (int i = 0; i < 5; i++)
        if (p->in_count < 5 || !pare_cuda_is_float(p->in[i].dtype) ||
            (i && pare_view_count(&p->in[i]) < channel_count(&p->in[0])))
            return false;
    return !pare_node_int(p->node, "training_mode", 0);
}

static pare_status batch_norm_prepare(pare_prep *p)
{
    float *epsilon = (float *)pare_arena_alloc(p->arena, 1, sizeof *epsilon);
    if (!epsilon) return PARE_MEMORY;
    *epsilon = pare_node_float(p->node, "epsilon", 1e-5f);
    p->scratch = 2 * sizeof(float) * (size_t)channel_count(&p->in[0]);
    p->state = epsilon;
    return PARE_OK;
}

static pare_status batch_norm_run(const pare_call *c)
{
    pare_cuda_channels k = {.factor = (float *)c->scratch,
                            .n = channel_count(&c->in[0]),
                            .epsilon = *(const float *)c->state};
    pare_cuda_iterator w;
    for (int i = 0; i < 4; i++) k.in[i] = c->in[i + 1].data, k.type[i] = c->in[i + 1].dtype;
    PARE_TRY(PARE_CUDA_LAUNCH(c, channels_launch, &k));
    pare_view factor = c->in[0];
    factor.dtype = PARE_f32;
    factor.data = c->scratch;
    for (int i = 0; i < factor.rank; i++) factor.stride[i] = i == 1 ? 2 : 0;
    const pare_view *const operands[] = {&c->out[0], &c->in[0], &factor};
    pare_cuda_iterator_set(&w, operands, 3);
    return PARE_CUDA_LAUNCH(c, affine_launch, &w, c->in[0].dtype);
}

static const pare_kernel cuda_batch_norm = {.name = "cuda_batch_norm",
                                            .can = batch_norm_can,
                                            .prepare = batch_norm_prepare,
                                            .run = batch_norm_run,
                                            .flags = PARE_KERNEL_INPLACE | PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_batch_norm[] = {&cuda_batch_norm, NULL};

/* --- LRN (13) --- */

static bool lrn_can(const pare_prep *p) { return pare_cuda_can_float(p, 1) && p->in[0].rank >= 2; }

static pare_status lrn_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    int64_t size = pare_node_int(c->node, "size", 1);
    pare_cuda_neighbours p = {.dtype = x->dtype,
                              .channels = x->dim[1],
                              .stride = x->stride[1],
                              .before = (size - 1) / 2,
                              .after = size / 2,
                              .alpha = pare_node_float(c->node, "alpha", 1e-4f) / (float)size,
                              .beta = pare_node_float(c->node, "beta", 0.75f),
                              .bias = pare_node_float(c->node, "bias", 1)};
    pare_cuda_iterator w;
    pare_view channel = *x;
    for (int i = 0; i < x->rank; i++) channel.stride[i] = i == 1;
    const pare_view *const operands[] = {&c->out[0], x, &channel};
    pare_cuda_iterator_set(&w, operands, 3);
    return PARE_CUDA_LAUNCH(c, lrn_launch, &w, &p);
}

static const pare_kernel cuda_lrn = {.name = "cuda_lrn", .can = lrn_can, .run = lrn_run};
const pare_kernel *const pare_cuda_lrn[] = {&cuda_lrn, NULL};
