/* SPDX-License-Identifier: Apache-2.0 */
/* Pools over windows; those over whole planes of floats are reductions (reduce.c). */
#include "runtime/cuda/pool.h"
#include "runtime/cuda/kernel.h"

#include <limits.h>

/* N, C, three window axes of a tensor of rank 3 to 5. */
static void sizes_of(const pare_view *v, int d[5])
{
    d[0] = (int)v->dim[0];
    d[1] = (int)v->dim[1];
    for (int i = 0; i < 3; i++) {
        int axis = i - (5 - v->rank);
        d[2 + i] = axis < 0 ? 1 : (int)v->dim[2 + axis];
    }
}

static bool fits(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    bool values_only = p->out_count < 2 || !p->out[1].dtype;
    if (x->rank < 3 || x->rank > 5 || !values_only) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] > INT_MAX / 2) return false;
    return true;
}

static pare_status pool_new(pare_prep *p, pare_cuda_pool_kind kind, pare_cuda_pool **out)
{
    pare_cuda_pool *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->kind = kind;
    s->dtype = p->in[0].dtype;
    s->count = pare_view_count(&p->out[0]);
    sizes_of(&p->out[0], s->dim);
    pare_cuda_strides(&p->in[0], s->x_stride);
    pare_cuda_strides(&p->out[0], s->y_stride);
    p->state = *out = s;
    return PARE_OK;
}

static pare_status window_set(pare_prep *p, pare_cuda_pool *s)
{
    pare_window w;
    pare_shape x = {.rank = p->in[0].rank};
    for (int i = 0; i < x.rank; i++) x.dim[i] = p->in[0].dim[i];
    PARE_TRY(pare_window_read(p->node, &x, NULL, &w));
    for (int i = 0; i < 3; i++) {
        s->in[i] = (int)w.in[i], s->kernel[i] = (int)w.kernel[i], s->stride[i] = (int)w.stride[i];
        s->dilation[i] = (int)w.dilation[i];
        s->begin[i] = (int)w.begin[i], s->end[i] = (int)w.end[i];
    }
    s->include_pad = w.include_pad;
    return PARE_OK;
}

/* The whole plane is one window. */
static void plane_set(const pare_prep *p, pare_cuda_pool *s)
{
    int d[5];
    sizes_of(&p->in[0], d);
    for (int i = 0; i < 3; i++) {
        s->in[i] = s->kernel[i] = d[2 + i];
        s->stride[i] = s->dilation[i] = 1;
    }
}

static pare_status quantization_set(pare_prep *p, pare_cuda_pool *s)
{
    pare_quant_args q;
    pare_act act;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&s->epilogue, &q, &act, PARE_NOTYPE);
    s->factor = s->epilogue.real ? q.x_scale : q.x_scale / q.y_scale;
    s->zero = q.x_zero;
    return PARE_OK;
}

static pare_status pool_run(const pare_call *c)
{
    pare_cuda_pool p = *(const pare_cuda_pool *)c->state;
    p.x = c->in[0].data;
    p.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_pool_launch, &p);
}

static bool max_can(const pare_prep *p)
{
    return fits(p) && (pare_cuda_can_float(p, 1) || pare_type_is_int8(p->in[0].dtype));
}

static bool float_can(const pare_prep *p) { return fits(p) && pare_cuda_can_float(p, 1); }
static bool lp_can(const pare_prep *p)
{
    return float_can(p) && pare_node_int(p->node, "p", 2) >= 1;
}
static bool int8_can(const pare_prep *p) { return fits(p) && pare_type_is_int8(p->in[0].dtype); }

#define POOL(fn, accepts, pool_kind, ...)                                                          \
    static pare_status fn##_prepare(pare_prep *p)                                                  \
    {                                                                                              \
        pare_cuda_pool *s;                                                                         \
        PARE_TRY(pool_new(p, PARE_CUDA_POOL_##pool_kind, &s));                                     \
        __VA_ARGS__;                                                                               \
        return PARE_OK;                                                                            \
    }                                                                                              \
    static const pare_kernel cuda_##fn = {                                                         \
        .name = "cuda_" #fn, .can = accepts, .prepare = fn##_prepare, .run = pool_run};            \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
POOL(max_pool, max_can, MAX, PARE_TRY(window_set(p, s)))
POOL(average_pool, float_can, AVERAGE, PARE_TRY(window_set(p, s)))
POOL(lp_pool, lp_can, LP, PARE_TRY(window_set(p, s)); s->p = (float)pare_node_int(p->node, "p", 2))
POOL(q_average_pool, int8_can, AVERAGE, PARE_TRY(window_set(p, s));
     PARE_TRY(quantization_set(p, s)))
POOL(q_global_average_pool, int8_can, AVERAGE, plane_set(p, s); PARE_TRY(quantization_set(p, s)))
