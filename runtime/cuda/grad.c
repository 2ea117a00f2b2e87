/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/grad.h"
#include "runtime/cuda/grad_sums.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/fake_quantize.h"
#include "runtime/ops/grad_unary.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/moves.h"
#include "runtime/ops/window.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* --- UnaryGrad --- */

typedef struct unary {
    int row;
    float a, b;
} unary;

static bool unary_can(const pare_prep *p) { return pare_cuda_can_float(p, 1); }

static pare_status unary_prepare(pare_prep *p)
{
    unary *u = pare_arena_alloc(p->arena, 1, sizeof *u);
    const char *of = pare_node_string(p->node, "of", NULL);
    if (!u || !of) return PARE_MEMORY; /* the shape rule knows that it is there */
    u->row = (int)pare_unary_find(of);
    const pare_unary_row *r = &pare_unary_rows[u->row];
    if (r->a.name) u->a = pare_node_float(p->node, r->a.name, r->a.missing);
    if (r->b.name) u->b = pare_node_float(p->node, r->b.name, r->b.missing);
    p->state = u;
    return PARE_OK;
}

static pare_status unary_run(const pare_call *c)
{
    const unary *u = c->state;
    pare_view in[2] = {c->in[0], c->in[0]};
    pare_call both = *c;
    pare_cuda_walk w;
    for (int i = 1; i < c->in_count; i++)
        if (c->in[i].dtype) in[1] = c->in[i];
    both.in = in;
    pare_cuda_walk_call(&w, &both, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_unary_grad_launch, &w, c->in[0].dtype, u->row, u->a, u->b);
}

static const pare_kernel cuda_unary_grad = {.name = "cuda_unary_grad",
                                            .can = unary_can,
                                            .prepare = unary_prepare,
                                            .run = unary_run,
                                            .flags = PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cuda_unary_grad[] = {&cuda_unary_grad, NULL};

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
    fake *f = pare_arena_alloc(p->arena, 1, sizeof *f);
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
    if (x)
        p->scratch = pare_cuda_sums_set(&f->sums, (const pare_view *const[]){&p->in[0], &p->in[1]},
                                        2, f->axis);
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
                             pare_cuda_walk *w)
{
    const pare_view *zero = zero_of(c->in, c->in_count, x);
    const pare_view scale = along(&c->in[x + 1], &c->in[x], f->axis),
                    zeros = along(zero ? zero : &c->in[x + 1], &c->in[x], f->axis);
    const pare_view *all[5] = {&c->out[0], in, &scale, &zeros, &zeros};
    if (x) all[2] = &c->in[x], all[3] = &scale;
    pare_walk_init(&w->walk, all, 4 + x);
    for (int i = 0; i < 4 + x; i++) w->data[i] = all[i]->data;
    return PARE_OK;
}

static pare_status fake_run(const pare_call *c)
{
    const fake *f = c->state;
    pare_cuda_walk w;
    PARE_TRY(fake_walk(c, f, &c->in[0], 0, &w));
    return PARE_CUDA_LAUNCH(c, pare_cuda_fake_launch, &w, &f->levels);
}

static pare_status scale_grad(const pare_call *c, const fake *f)
{
    const pare_view *zero = zero_of(c->in, c->in_count, 1);
    pare_cuda_sums s = f->sums;
    s.kind = PARE_CUDA_SUMS_FAKE;
    s.dtype = PARE_f32;
    s.levels = f->levels;
    s.w.data[0] = c->in[0].data;
    s.w.data[1] = s.w.data[2] = c->in[1].data;
    s.scale = c->in[2].data;
    s.zero = zero ? zero->data : NULL;
    s.zero_step = zero && zero->rank && zero->dim[0] != 1;
    s.part = c->scratch;
    s.first = c->out[1].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &s);
}

static pare_status fake_grad_run(const pare_call *c)
{
    const fake *f = c->state;
    pare_cuda_walk w;
    if (c->out_count > 1 && c->out[1].dtype) PARE_TRY(scale_grad(c, f));
    if (!c->out[0].dtype) return PARE_OK;
    PARE_TRY(fake_walk(c, f, &c->in[0], 1, &w));
    return PARE_CUDA_LAUNCH(c, pare_cuda_fake_grad_launch, &w, &f->levels);
}

static const pare_kernel cuda_fake = {
    .name = "cuda_fake_quantize", .can = fake_can, .prepare = fake_prepare, .run = fake_run};
static const pare_kernel cuda_fake_grad = {.name = "cuda_fake_quantize_grad",
                                           .can = fake_can,
                                           .prepare = fake_prepare,
                                           .run = fake_grad_run};
const pare_kernel *const pare_cuda_fake_quantize[] = {&cuda_fake, NULL};
const pare_kernel *const pare_cuda_fake_quantize_grad[] = {&cuda_fake_grad, NULL};

/* --- pools --- */

static bool pool_can(const pare_prep *p)
{
    const pare_view *x = &p->out[0];
    if (!pare_cuda_can_float(p, p->in_count) || x->rank < 3 || x->rank > 5) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] > INT_MAX / 2) return false;
    return pare_view_count(x) <= INT_MAX;
}

static pare_status pool_prepare(pare_prep *p)
{
    pare_cuda_windows *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    pare_window w;
    pare_shape x = {.rank = p->out[0].rank};
    if (!s) return PARE_MEMORY;
    memcpy(x.dim, p->out[0].dim, sizeof x.dim);
    PARE_TRY(pare_window_read(p->node, &x, NULL, &w));
    for (int i = 0; i < 3; i++) {
        s->in[i] = (int)w.in[i], s->out[i] = (int)w.out[i], s->kernel[i] = (int)w.kernel[i];
        s->stride[i] = (int)w.stride[i], s->dilation[i] = (int)w.dilation[i];
        s->begin[i] = (int)w.begin[i], s->end[i] = (int)w.end[i];
    }
    s->include_pad = w.include_pad;
    s->dtype = p->in[0].dtype;
    s->count = pare_view_count(&p->out[0]);
    s->channels = (int)x.dim[1];
    pare_cuda_strides(&p->in[0], s->dy_stride);
    pare_cuda_strides(&p->in[p->in_count - 1], s->x_stride);
    pare_cuda_strides(&p->out[0], s->dx_stride);
    p->state = s;
    return PARE_OK;
}

static pare_status pool_run(const pare_call *c)
{
    pare_cuda_windows p = *(const pare_cuda_windows *)c->state;
    p.dy = c->in[0].data;
    p.x = c->in_count > 1 ? c->in[1].data : NULL;
    p.dx = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_pool_grad_launch, &p);
}

static const pare_kernel cuda_pool_grad = {
    .name = "cuda_pool_grad", .can = pool_can, .prepare = pool_prepare, .run = pool_run};
const pare_kernel *const pare_cuda_max_pool_grad[] = {&cuda_pool_grad, NULL};
const pare_kernel *const pare_cuda_average_pool_grad[] = {&cuda_pool_grad, NULL};

/* --- GatherGrad, SliceGrad --- */

static pare_status clear(const pare_call *c, const pare_view *v)
{
    const size_t bytes = pare_view_bytes(v);
    if (!bytes) return PARE_OK;
    return c->queue->device->backend->fill(c->ctx, c->queue, v->data, 0, bytes);
}

static bool gather_can(const pare_prep *p)
{
    return pare_cuda_can_float(p, 1) && pare_cuda_is_int(p->in[1].dtype) &&
           pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->in[1]) &&
           pare_view_rowmajor(&p->out[0]);
}

static pare_status gather_prepare(pare_prep *p)
{
    pare_cuda_scattered *g = pare_arena_alloc(p->arena, 1, sizeof *g);
    const pare_view *dx = &p->out[0];
    if (!g) return PARE_MEMORY;
    const int axis = pare_node_axis(p->node, 0, dx->rank);
    g->dtype = dx->dtype;
    g->index_type = p->in[1].dtype;
    g->outer = g->inner = 1;
    for (int i = 0; i < axis; i++) g->outer *= dx->dim[i];
    for (int i = axis + 1; i < dx->rank; i++) g->inner *= dx->dim[i];
    g->n = dx->dim[axis];
    g->count = pare_view_count(&p->in[1]);
    p->state = g;
    return PARE_OK;
}

static pare_status gather_run(const pare_call *c)
{
    pare_cuda_scattered g = *(const pare_cuda_scattered *)c->state;
    g.dy = c->in[0].data;
    g.index = c->in[1].data;
    g.dx = c->out[0].data;
    g.fault = (pare_cuda_fault){c->fault, c->step};
    PARE_TRY(clear(c, &c->out[0]));
    return PARE_CUDA_LAUNCH(c, pare_cuda_gather_grad_launch, &g);
}

static pare_status gather_fault(const pare_call *c, int64_t value)
{
    return PARE_FAIL_NODE(c->node, INPUT, "index %" PRId64 " is outside an axis of length %" PRId64,
                          value, ((const pare_cuda_scattered *)c->state)->n);
}

static const pare_kernel cuda_gather_grad = {.name = "cuda_gather_grad",
                                             .can = gather_can,
                                             .prepare = gather_prepare,
                                             .run = gather_run,
                                             .fault = gather_fault};
const pare_kernel *const pare_cuda_gather_grad[] = {&cuda_gather_grad, NULL};

static bool slice_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++)
        if (p->in[i].dtype && !p->in[i].data) return false;
    return pare_cuda_bytes(p->in[0].dtype) > 0;
}

/* Slice's move, from its output to the part of its input. */
static pare_status put_back(const pare_call *c, const pare_view *dy, const pare_view *part)
{
    return pare_cuda_copy(c, part, dy);
}

static pare_status slice_run(const pare_call *c)
{
    pare_view in[5] = {c->out[0]};
    pare_call forward = *c;
    for (int i = 1; i < c->in_count && i < 5; i++) in[i] = c->in[i];
    forward.in = in;
    forward.out = &c->in[0];
    forward.out_count = 1;
    PARE_TRY(clear(c, &c->out[0]));
    return pare_moves_slice(&forward, put_back);
}

static const pare_kernel cuda_slice_grad = {
    .name = "cuda_slice_grad", .can = slice_can, .run = slice_run};
const pare_kernel *const pare_cuda_slice_grad[] = {&cuda_slice_grad, NULL};

/* --- SliceSum of one slice --- */

static bool sum_can(const pare_prep *p)
{
    for (int i = 0; i < p->in_count; i++)
        if (pare_cuda_bytes(p->in[i].dtype) == 0) return false;
    return true;
}

static pare_status sum_run(const pare_call *c)
{
    for (int i = 0; i < c->out_count; i++)
        if (c->out[i].dtype) PARE_TRY(pare_cuda_copy(c, &c->out[i], &c->in[i]));
    return PARE_OK;
}

static const pare_kernel cuda_slice_sum = {
    .name = "cuda_slice_sum", .can = sum_can, .run = sum_run};
const pare_kernel *const pare_cuda_slice_sum[] = {&cuda_slice_sum, NULL};
