/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/element.h"
#include "runtime/cuda/kernel.h"

#include <string.h>

/* --- one input --- */

typedef struct unary {
    pare_cuda_unary op;
    float alpha, beta;
} unary;

static bool unary_can(const pare_prep *p) { return pare_cuda_can_float(p, 1); }

static pare_status unary_prepare(pare_prep *p, pare_cuda_unary op, float alpha, float beta)
{
    unary *u = pare_arena_alloc(p->arena, 1, sizeof *u);
    if (!u) return PARE_MEMORY;
    u->op = op;
    u->alpha = pare_node_float(p->node, "alpha", alpha);
    u->beta = pare_node_float(p->node, op == PARE_CUDA_selu ? "gamma" : "beta", beta);
    if (op == PARE_CUDA_gelu && !strcmp(pare_node_string(p->node, "approximate", "none"), "tanh"))
        u->op = PARE_CUDA_gelu_tanh;
    p->state = u;
    return PARE_OK;
}

static pare_status unary_run(const pare_call *c)
{
    const unary *u = c->state;
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, pare_cuda_unary_launch, &w, c->in[0].dtype, u->op, u->alpha, u->beta);
}

#define X(fn, alpha, beta, expr)                                                                 \
    static pare_status fn##_prepare(pare_prep *p)                                                \
    {                                                                                              \
        return unary_prepare(p, PARE_CUDA_##fn, alpha, beta);                                    \
    }                                                                                              \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                 \
                                            .can = unary_can,                                      \
                                            .prepare = fn##_prepare,                             \
                                            .run = unary_run,                                      \
                                            .flags = PARE_KERNEL_INPLACE};                         \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
PARE_CUDA_UNARY(X)
#undef X

/* --- two inputs --- */

static bool binary_can(const pare_prep *p) { return pare_cuda_can_float(p, 2); }

static pare_status binary_launch(const pare_call *c, pare_cuda_binary op)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_binary_launch, &w, c->in[0].dtype, op);
}

#define BINARY(fn)                                                                               \
    static pare_status fn##_run(const pare_call *c)                                              \
    {                                                                                              \
        return binary_launch(c, PARE_CUDA_##fn);                                                 \
    }                                                                                              \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                 \
                                            .can = binary_can,                                     \
                                            .run = fn##_run,                                     \
                                            .flags = PARE_KERNEL_INPLACE_ANY};                     \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(prelu)
BINARY(pow)

static pare_status mod_run(const pare_call *c)
{
    return binary_launch(c, pare_node_int(c->node, "fmod", 0) ? PARE_CUDA_fmod : PARE_CUDA_mod);
}

static const pare_kernel cuda_mod = {
    .name = "cuda_mod", .can = binary_can, .run = mod_run, .flags = PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cuda_mod[] = {&cuda_mod, NULL};

/* Min and Max (13) of any number of inputs, folded pairwise into the output, first to last. */
static bool many_can(const pare_prep *p) { return pare_cuda_can_float(p, p->in_count); }

static pare_status many_run(const pare_call *c, pare_cuda_binary op)
{
    pare_view pair[2] = {c->in[0], c->in[c->in_count > 1 ? 1 : 0]};
    pare_call step = *c;
    step.in = pair;
    step.in_count = 2;
    PARE_TRY(binary_launch(&step, op));
    for (int i = 2; i < c->in_count; i++) {
        pair[0] = c->out[0];
        pair[1] = c->in[i];
        PARE_TRY(binary_launch(&step, op));
    }
    return PARE_OK;
}

#define MANY(fn)                                                                                 \
    static pare_status fn##_run(const pare_call *c)                                              \
    {                                                                                              \
        return many_run(c, PARE_CUDA_##fn);                                                      \
    }                                                                                              \
    static const pare_kernel cuda_##fn = {                                                       \
        .name = "cuda_" #fn, .can = many_can, .run = fn##_run};                                \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
MANY(min)
MANY(max)

/* --- Clip (13), Where (16) --- */

static bool clip_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count && i < 3; i++)
        if (p->in[i].dtype && (p->in[i].dtype != p->in[0].dtype || !pare_view_count(&p->in[i])))
            return false;
    return pare_cuda_is_float(p->in[0].dtype);
}

static const void *limit(const pare_call *c, int i)
{
    return c->in_count > i && c->in[i].dtype ? c->in[i].data : NULL;
}

static pare_status clip_run(const pare_call *c)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, pare_cuda_clip_launch, &w, c->in[0].dtype, limit(c, 1), limit(c, 2));
}

static const pare_kernel cuda_clip = {
    .name = "cuda_clip", .can = clip_can, .run = clip_run, .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_clip[] = {&cuda_clip, NULL};

static bool where_can(const pare_prep *p)
{
    return p->in_count == 3 && p->in[0].dtype == PARE_bool && pare_cuda_bytes(p->in[1].dtype) > 0;
}

static pare_status where_run(const pare_call *c)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 3);
    return PARE_CUDA_LAUNCH(c, pare_cuda_where_launch, &w, pare_cuda_bytes(c->out[0].dtype));
}

static const pare_kernel cuda_where = {.name = "cuda_where", .can = where_can, .run = where_run};
const pare_kernel *const pare_cuda_where[] = {&cuda_where, NULL};
