/* SPDX-License-Identifier: Apache-2.0 */
/* FakeQuantize and its gradient: y = (clamp(round(x / scale) + zero) - zero) * scale; dx = dy where
   x is inside the range, else 0. One thread an element; x (and dy) read, y (or dx) written once.
   dScale is a sum over a channel: channel_sums.cu. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/levels.cuh"
#include "runtime/ops/fake_quantize.h"
#include "runtime/ops/infer.h"

#include <string.h>

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    fake_each(pare_cuda_iterator w, pare_cuda_levels l)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_iterator_at<4>(w.walk, i, at);
        const float s = static_cast<const float *>(w.data[2])[at[2]],
                    z = pare_zero_at(w.data[3], l.zero, at[3]),
                    v = static_cast<const float *>(w.data[1])[at[1]] / s;
        static_cast<float *>(w.data[0])[at[0]] = (pare_level_hold(rintf(v) + z, l) - z) * s;
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    fake_grad_each(pare_cuda_iterator w, pare_cuda_levels l)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[5];
        pare_iterator_at<5>(w.walk, i, at);
        const float s = static_cast<const float *>(w.data[3])[at[3]],
                    z = pare_zero_at(w.data[4], l.zero, at[4]),
                    q = rintf(static_cast<const float *>(w.data[2])[at[2]] / s) + z;
        const bool inside = q >= l.low && q <= l.high;
        static_cast<float *>(w.data[0])[at[0]] =
            inside ? static_cast<const float *>(w.data[1])[at[1]] : 0;
    }
}

/* --- launchers --- */

/* Operands y, x, scale, zero point (anything where there is none), f32. */
static cudaError_t fake_launch(const pare_cuda_iterator *w, const pare_cuda_levels *levels,
                               cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(fake_each, w->walk.count, *w, *levels);
}

/* Operands dx, dy, x, scale, zero point: dx = dy where x is inside, else 0. */
static cudaError_t fake_grad_launch(const pare_cuda_iterator *w, const pare_cuda_levels *levels,
                                    cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(fake_grad_each, w->walk.count, *w, *levels);
}

/* --- FakeQuantize and its gradient --- */

typedef struct fake {
    int axis; /* of the scales; -1: one for all */
    pare_cuda_levels levels;
    pare_cuda_sums sums; /* of dScale */
} fake;

static bool is_grad(const pare_node *node) { return node->op_type[12] == 'G'; }

static const pare_view *zero_of(const pare_view *in, int in_count, int x)
{
    return in_count > x + 2 && in[x + 2].dtype ? &in[x + 2] : NULL;
}

static bool fake_can(const pare_prep *p)
{
    const int x = is_grad(p->node);
    const pare_view *zero = zero_of(p->in, p->in_count, x);
    pare_levels levels;
    for (int i = 0; i <= x + 1; i++)
        if (p->in[i].dtype != PARE_f32) return false;
    return p->in[x + 1].rank <= 1 &&
           pare_fake_levels(p->node, zero ? zero->dtype : PARE_NOTYPE, &levels);
}

static pare_status fake_prepare(pare_prep *p)
{
    const int x = is_grad(p->node);
    const pare_view *zero = zero_of(p->in, p->in_count, x);
    fake *f = (fake *)pare_arena_alloc(p->arena, 1, sizeof *f);
    pare_levels levels;
    if (!f) return PARE_MEMORY;
    (void)pare_fake_levels(p->node, zero ? zero->dtype : PARE_NOTYPE, &levels);
    f->levels = (pare_cuda_levels){.low = (float)levels.low,
                                   .high = (float)levels.high,
                                   .zero = zero ? zero->dtype : PARE_NOTYPE};
    f->axis = -1;
    if (pare_view_count(&p->in[x + 1]) != 1)
        PARE_TRY(
            pare_infer_axis(p->node, pare_node_int(p->node, "axis", 1), p->in[x].rank, &f->axis));
    const pare_view *const operands[] = {&p->in[0], &p->in[1]};
    if (x) p->scratch = pare_cuda_sums_set(&f->sums, operands, 2, f->axis);
    p->state = f;
    return PARE_OK;
}

/* A vector of one number a channel (or one in all) with the dims of x. */
static pare_view along(const pare_view *v, const pare_view *x, int axis)
{
    pare_view w = *x;
    w.dtype = v->dtype;
    w.data = v->data;
    memset(w.stride, 0, sizeof w.stride);
    if (axis >= 0 && v->rank && v->dim[0] != 1) w.stride[axis] = v->stride[0];
    return w;
}

static pare_status fake_walk(const pare_call *c, const fake *f, const pare_view *in, int x,
                             pare_cuda_iterator *w)
{
    const pare_view *zero = zero_of(c->in, c->in_count, x);
    const pare_view scale = along(&c->in[x + 1], &c->in[x], f->axis),
                    zeros = along(zero ? zero : &c->in[x + 1], &c->in[x], f->axis);
    const pare_view *all[5] = {&c->out[0], in, &scale, &zeros, &zeros};
    if (x) all[2] = &c->in[x], all[3] = &scale;
    pare_iterator_init(&w->walk, all, 4 + x);
    for (int i = 0; i < 4 + x; i++) w->data[i] = all[i]->data;
    return PARE_OK;
}

static pare_status fake_run(const pare_call *c)
{
    const fake *f = (const fake *)c->state;
    pare_cuda_iterator w;
    PARE_TRY(fake_walk(c, f, &c->in[0], 0, &w));
    return PARE_CUDA_LAUNCH(c, fake_launch, &w, &f->levels);
}

static pare_status scale_grad(const pare_call *c, const fake *f)
{
    const pare_view *zero = zero_of(c->in, c->in_count, 1);
    pare_cuda_sums s = f->sums;
    s.kind = PARE_CUDA_SUMS_FAKE;
    s.dtype = s.vectors = PARE_f32;
    s.levels = f->levels;
    s.w.data[0] = c->in[0].data;
    s.w.data[1] = s.w.data[2] = c->in[1].data;
    s.scale = (const float *)c->in[2].data;
    s.zero = zero ? zero->data : NULL;
    s.zero_step = zero && zero->rank && zero->dim[0] != 1;
    s.part = (double *)c->scratch;
    s.first = c->out[1].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &s);
}

static pare_status fake_grad_run(const pare_call *c)
{
    const fake *f = (const fake *)c->state;
    pare_cuda_iterator w;
    if (c->out_count > 1 && c->out[1].dtype) PARE_TRY(scale_grad(c, f));
    if (!c->out[0].dtype) return PARE_OK;
    PARE_TRY(fake_walk(c, f, &c->in[0], 1, &w));
    return PARE_CUDA_LAUNCH(c, fake_grad_launch, &w, &f->levels);
}

static const pare_kernel cuda_fake = {
    .name = "cuda_fake_quantize", .can = fake_can, .prepare = fake_prepare, .run = fake_run};
static const pare_kernel cuda_fake_grad = {.name = "cuda_fake_quantize_grad",
                                           .can = fake_can,
                                           .prepare = fake_prepare,
                                           .run = fake_grad_run};
const pare_kernel *const pare_cuda_fake_quantize[] = {&cuda_fake, NULL};
const pare_kernel *const pare_cuda_fake_quantize_grad[] = {&cuda_fake_grad, NULL};
