/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/element.h"
#include "runtime/cuda/kernel.h"

#include <string.h>

/* --- one input --- */

typedef struct unary {
    pare_cuda_unary op;
    float alpha, beta;
} unary;

/* Has the function a form for integers? */
static bool takes_ints(pare_cuda_unary op)
{
    switch (op) {
#define X(fn, expr) case PARE_CUDA_##fn:
        PARE_CUDA_UNARY_INT(X)
#undef X
        return true;
    default: return false;
    }
}

static bool unary_can(const pare_prep *p, pare_cuda_unary op)
{
    return pare_cuda_can_float(p, 1) || (takes_ints(op) && pare_cuda_is_int(p->in[0].dtype));
}

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
    return PARE_CUDA_LAUNCH(c, pare_cuda_unary_launch, &w, c->in[0].dtype, u->op, u->alpha,
                            u->beta);
}

#define X(fn, alpha, beta, expr)                                                                   \
    static bool fn##_can(const pare_prep *p) { return unary_can(p, PARE_CUDA_##fn); }              \
    static pare_status fn##_prepare(pare_prep *p)                                                  \
    {                                                                                              \
        return unary_prepare(p, PARE_CUDA_##fn, alpha, beta);                                      \
    }                                                                                              \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                     \
                                          .can = fn##_can,                                         \
                                          .prepare = fn##_prepare,                                 \
                                          .run = unary_run,                                        \
                                          .flags = PARE_KERNEL_INPLACE};                           \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
PARE_CUDA_UNARY(X)
#undef X

/* --- two inputs --- */

static bool numbers_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++)
        if (p->in[i].dtype != p->in[0].dtype) return false;
    return pare_cuda_is_number(p->in[0].dtype);
}

static bool binary_can(const pare_prep *p) { return numbers_can(p) && p->in_count == 2; }

static pare_status binary_launch(const pare_call *c, pare_cuda_binary op)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_binary_launch, &w, c->in[0].dtype, op);
}

#define BINARY(fn)                                                                                 \
    static pare_status fn##_run(const pare_call *c) { return binary_launch(c, PARE_CUDA_##fn); }   \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                     \
                                          .can = binary_can,                                       \
                                          .run = fn##_run,                                         \
                                          .flags = PARE_KERNEL_INPLACE_ANY};                       \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(prelu)

static pare_status mod_run(const pare_call *c)
{
    return binary_launch(c, pare_node_int(c->node, "fmod", 0) ? PARE_CUDA_fmod : PARE_CUDA_mod);
}

static const pare_kernel cuda_mod = {
    .name = "cuda_mod", .can = binary_can, .run = mod_run, .flags = PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cuda_mod[] = {&cuda_mod, NULL};

static bool pow_can(const pare_prep *p)
{
    return pare_cuda_is_number(p->in[0].dtype) && pare_cuda_is_number(p->in[1].dtype);
}

static pare_status pow_run(const pare_call *c)
{
    pare_dtype base = c->in[0].dtype, exponent = c->in[1].dtype;
    if (base == exponent && pare_cuda_is_float(base)) return binary_launch(c, PARE_CUDA_pow);
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_power_launch, &w, base, exponent);
}

static const pare_kernel cuda_pow = {.name = "cuda_pow", .can = pow_can, .run = pow_run};
const pare_kernel *const pare_cuda_pow[] = {&cuda_pow, NULL};

/* Min and Max (13) of any number of inputs, folded pairwise into the output, first to last. */
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

#define MANY(fn)                                                                                   \
    static pare_status fn##_run(const pare_call *c) { return many_run(c, PARE_CUDA_##fn); }        \
    static const pare_kernel cuda_##fn = {                                                         \
        .name = "cuda_" #fn, .can = numbers_can, .run = fn##_run};                                 \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
MANY(min)
MANY(max)

/* Sum and Mean (13): up to four inputs a launch, the sum between launches kept in scratch as f32.
 */
enum { AT_ONCE = PARE_WALK_OPERANDS - 1 };

static pare_status sum_prepare(pare_prep *p)
{
    if (p->in_count > AT_ONCE) p->scratch = sizeof(float) * (size_t)pare_view_count(&p->out[0]);
    return PARE_OK;
}

static pare_status sum_launch(const pare_call *c, float divisor)
{
    pare_view sum = c->out[0], wide[AT_ONCE];
    sum.data = c->scratch;
    for (int next = 0; next < c->in_count;) {
        const bool begun = next > 0;
        int inputs = begun;
        if (begun) wide[0] = sum;
        while (inputs < AT_ONCE && next < c->in_count)
            wide[inputs++] = pare_view_stretch(&c->in[next++], &c->out[0]);
        const bool more = next < c->in_count;
        const pare_view *all[PARE_WALK_OPERANDS] = {more ? &sum : &c->out[0]};
        pare_cuda_walk w = {.data = {all[0]->data}};
        for (int i = 0; i < inputs; i++) all[i + 1] = &wide[i], w.data[i + 1] = wide[i].data;
        pare_walk_init(&w.walk, all, inputs + 1);
        PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_sum_launch, &w, c->out[0].dtype, inputs, begun, more,
                                  more ? 1 : divisor));
    }
    return PARE_OK;
}

static bool floats_can(const pare_prep *p) { return pare_cuda_can_float(p, p->in_count); }

static bool sum_can(const pare_prep *p)
{
    return floats_can(p) || (numbers_can(p) && p->in_count > 1);
}

static pare_status sum_run(const pare_call *c)
{
    return pare_cuda_is_float(c->out[0].dtype) ? sum_launch(c, 1) : many_run(c, PARE_CUDA_add);
}

static pare_status mean_run(const pare_call *c) { return sum_launch(c, (float)c->in_count); }

static const pare_kernel cuda_sum = {
    .name = "cuda_sum", .can = sum_can, .prepare = sum_prepare, .run = sum_run};
static const pare_kernel cuda_mean = {
    .name = "cuda_mean", .can = floats_can, .prepare = sum_prepare, .run = mean_run};
const pare_kernel *const pare_cuda_sum[] = {&cuda_sum, NULL};
const pare_kernel *const pare_cuda_mean[] = {&cuda_mean, NULL};

/* --- Clip (13), Where (16) --- */

static bool clip_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count && i < 3; i++)
        if (p->in[i].dtype && (p->in[i].dtype != p->in[0].dtype || !pare_view_count(&p->in[i])))
            return false;
    return pare_cuda_is_number(p->in[0].dtype);
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
