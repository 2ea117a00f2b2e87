/* SPDX-License-Identifier: Apache-2.0 */
/* pare.UnaryGrad: the rows of ops/grad_unary.inc as loops, f32 with float functions that become
   vector code, f64 with libm's. */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/vmath.h"
#include "runtime/ops/grad_unary.h"

#include <math.h>

typedef struct unary {
    pare_ref_row row;
    float a, b;
} unary;

/* A row function: p[0] dx, p[1] g, p[2] what the derivative reads. */
#define PARE_UNARY_GRAD(op, reads, a_, b_, dx)                                                     \
    CLONES static void NAME(op)(int64_t n, char *const *p, const int64_t *s, const void *arg)      \
    {                                                                                              \
        real *to = (real *)p[0];                                                                   \
        const real *from = (const real *)p[1], *in = (const real *)p[2];                           \
        const real a = (real)((const unary *)arg)->a, b = (real)((const unary *)arg)->b;           \
        (void)a, (void)b;                                                                          \
        if (s[0] == 1 && s[1] == 1 && s[2] == 1)                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const real g = from[i], x = in[i], y = x;                                          \
                (void)x, (void)y;                                                                  \
                to[i] = dx;                                                                        \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const real g = from[i * s[1]], x = in[i * s[2]], y = x;                            \
                (void)x, (void)y;                                                                  \
                to[i * s[0]] = dx;                                                                 \
            }                                                                                      \
    }

#define real     float
#define CLONES   PARE_CLONES
#define NAME(op) unary_f32_##op
#define FORM(fn) static inline real fn##_f32
#define EXP      pare_vexp
#define ERF      pare_verf
#define TANH     pare_vtanh
#define LOG1P    log1pf
#define SIN      sinf
#define COS      cosf
#define SINH     sinhf
#define COSH     coshf
#define SQRT     sqrtf
#define FABS     fabsf
#include "runtime/ops/grad_unary_forms.inc"
#define gelu_tanh gelu_tanh_f32
#define mish      mish_f32
#include "runtime/ops/grad_unary.inc"
#undef real
#undef CLONES
#undef NAME
#undef FORM
#undef EXP
#undef ERF
#undef TANH
#undef LOG1P
#undef SIN
#undef COS
#undef SINH
#undef COSH
#undef SQRT
#undef FABS
#undef gelu_tanh
#undef mish

#define real double
#define CLONES
#define NAME(op) unary_f64_##op
#define FORM(fn) static inline real fn##_f64
#define EXP      exp
#define ERF      erf
#define TANH     tanh
#define LOG1P    log1p
#define SIN      sin
#define COS      cos
#define SINH     sinh
#define COSH     cosh
#define SQRT     sqrt
#define FABS     fabs
#include "runtime/ops/grad_unary_forms.inc"
#define gelu_tanh gelu_tanh_f64
#define mish      mish_f64
#include "runtime/ops/grad_unary.inc"
#undef PARE_UNARY_GRAD

#define PARE_UNARY_GRAD(op, reads, a, b, dx) {unary_f32_##op, unary_f64_##op},
static const pare_ref_row rows[PARE_UNARY_GRADS][2] = {
#include "runtime/ops/grad_unary.inc"
};

static pare_status unary_prepare(pare_prep *p)
{
    unary *u = pare_arena_alloc(p->arena, 1, sizeof *u);
    const char *of = pare_node_string(p->node, "of", NULL);
    if (!u || !of) return PARE_MEMORY; /* the shape rule knows that it is there */
    pare_unary_grad row = pare_unary_find(of);
    const pare_unary_row *r = &pare_unary_rows[row];
    if (r->a.name) u->a = pare_node_float(p->node, r->a.name, r->a.missing);
    if (r->b.name) u->b = pare_node_float(p->node, r->b.name, r->b.missing);
    u->row = rows[row][p->in[0].dtype == PARE_f64];
    p->state = u;
    return PARE_OK;
}

static pare_status unary_run(const pare_call *c)
{
    const unary *u = c->state;
    const pare_view *in[2] = {&c->in[0], &c->in[0]};
    for (int i = 1; i < c->in_count; i++)
        if (c->in[i].dtype) in[1] = &c->in[i];
    pare_ref_each(&c->out[0], in, 2, c->threads, u->row, u);
    return PARE_OK;
}

static const pare_kernel ref_unary_grad = {.name = "ref_unary_grad",
                                           .can = pare_ref_can_f32_f64,
                                           .prepare = unary_prepare,
                                           .run = unary_run,
                                           .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cpu_unary_grad[] = {&ref_unary_grad, NULL};
