/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one tensor, element by element, and their gradients: the rows of ops/unary.inc as
   loops. f16 and bf16 compute in f32, f64 in f64. The gradient's f32 and the kernels in front take
   vector forms of EXP, ERF and TANH. */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/vmath.h"
#include "runtime/ops/unary.h"

#include <tgmath.h>

/* What a loop needs of its node. */
typedef struct unary {
    pare_ref_row row, wide; /* wide: a gradient's row of f32, where row is of short floats */
    float a, b;
} unary;

/* --- the functions --- */

/* A loop over n elements: p[0] y, p[1] x; s: steps. */
#define LOOP(symbol, type, clones, expr)                                                           \
    clones static void symbol(int64_t n, char *const *p, const int64_t *s, const void *arg)        \
    {                                                                                              \
        typedef type real __attribute__((unused));                                                 \
        const unary *u = arg;                                                                      \
        const type a = (type)u->a, b = (type)u->b;                                                 \
        const type *in = (const type *)p[1];                                                       \
        type *out = (type *)p[0];                                                                  \
        (void)a, (void)b;                                                                          \
        if (s[0] == 1 && s[1] == 1) _Pragma("omp simd") for (int64_t i = 0; i < n; i++)            \
            {                                                                                      \
                const type x = in[i];                                                              \
                out[i] = (type)(expr);                                                             \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const type x = in[i * s[1]];                                                       \
                out[i * s[0]] = (type)(expr);                                                      \
            }                                                                                      \
    }

#define HALF(fn, half)                                                                             \
    static void fn##_##half(int64_t n, char *const *p, const int64_t *s, const void *arg)          \
    {                                                                                              \
        pare_ref_halves(n, p, s, 1, PARE_##half, fn##_f32, arg);                                   \
    }

#define PARE_UNARY(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx)                         \
    LOOP(fn##_f32, float, PARE_CLONES, f)                                                          \
    LOOP(fn##_f64, double, , f)                                                                    \
    HALF(fn, f16)                                                                                  \
    HALF(fn, bf16)
#include "runtime/ops/unary.inc"

#define PARE_UNARY(...)
#define PARE_UNARY_INTS(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx, ints)              \
    LOOP(fn##_s8, int8_t, , ints)                                                                  \
    LOOP(fn##_u8, uint8_t, , ints)                                                                 \
    LOOP(fn##_s16, int16_t, , ints)                                                                \
    LOOP(fn##_u16, uint16_t, , ints)                                                               \
    LOOP(fn##_s32, int32_t, , ints)                                                                \
    LOOP(fn##_u32, uint32_t, , ints)                                                               \
    LOOP(fn##_s64, int64_t, , ints)                                                                \
    LOOP(fn##_u64, uint64_t, , ints)
#include "runtime/ops/unary.inc"

#define FLOATS(fn)                                                                                 \
    [PARE_f32] = fn##_f32, [PARE_f64] = fn##_f64, [PARE_f16] = fn##_f16, [PARE_bf16] = fn##_bf16
#define INTS(fn)                                                                                   \
    [PARE_s8] = fn##_s8, [PARE_u8] = fn##_u8, [PARE_s16] = fn##_s16, [PARE_u16] = fn##_u16,        \
    [PARE_s32] = fn##_s32, [PARE_u32] = fn##_u32, [PARE_s64] = fn##_s64, [PARE_u64] = fn##_u64
static const pare_ref_row ref_rows[PARE_UNARY_COUNT][PARE_DTYPE_COUNT] = {
#define PARE_UNARY(name, fn, ...)      [PARE_UNARY_##name] = {FLOATS(fn)},
#define PARE_UNARY_INTS(name, fn, ...) [PARE_UNARY_##name] = {FLOATS(fn), INTS(fn)},
#include "runtime/ops/unary.inc"
};

#define EXP(x)  pare_vexp(x)
#define ERF(x)  pare_verf(x)
#define TANH(x) pare_vtanh(x)

#define PARE_UNARY(...)
#define PARE_UNARY_VECTOR(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx)                  \
    LOOP(vec_##fn##_f32, float, PARE_CLONES, f)
#include "runtime/ops/unary.inc"

static const pare_ref_row vec_rows[PARE_UNARY_COUNT] = {
#define PARE_UNARY(...)
#define PARE_UNARY_VECTOR(name, fn, ...) [PARE_UNARY_##name] = vec_##fn##_f32,
#include "runtime/ops/unary.inc"
};

/* --- the gradients: p[0] dx, p[1] g, p[2] what the derivative reads --- */

#define GRAD_LOOP(symbol, clones, expr)                                                            \
    clones static void symbol(int64_t n, char *const *p, const int64_t *s, const void *arg)        \
    {                                                                                              \
        real *to = (real *)p[0];                                                                   \
        const real *from = (const real *)p[1], *in = (const real *)p[2];                           \
        const real a = (real)((const unary *)arg)->a, b = (real)((const unary *)arg)->b;           \
        (void)a, (void)b;                                                                          \
        if (s[0] == 1 && s[1] == 1 && s[2] == 1)                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const real g = from[i], x = in[i], y = x;                                          \
                (void)x, (void)y;                                                                  \
                to[i] = expr;                                                                      \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const real g = from[i * s[1]], x = in[i * s[2]], y = x;                            \
                (void)x, (void)y;                                                                  \
                to[i * s[0]] = expr;                                                               \
            }                                                                                      \
    }

#define EXP(x)  pare_vexp(x)
#define ERF(x)  pare_verf(x)
#define TANH(x) pare_vtanh(x)
#define real    float
#define PARE_UNARY(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx)                         \
    GRAD_LOOP(grad_f32_##name, PARE_CLONES, dx)
#define PARE_UNARY_SLOPE(name, a_, a0, b_, b0, reads, dx)                                          \
    GRAD_LOOP(grad_f32_##name, PARE_CLONES, dx)
#include "runtime/ops/unary.inc"
#undef real

#define real double
#define PARE_UNARY(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx)                         \
    GRAD_LOOP(grad_f64_##name, , dx)
#define PARE_UNARY_SLOPE(name, a_, a0, b_, b0, reads, dx) GRAD_LOOP(grad_f64_##name, , dx)
#include "runtime/ops/unary.inc"
#undef real

static const pare_ref_row grad_rows[PARE_UNARY_COUNT][2] = {
#define PARE_UNARY(name, ...)       [PARE_UNARY_##name] = {grad_f32_##name, grad_f64_##name},
#define PARE_UNARY_SLOPE(name, ...) [PARE_UNARY_##name] = {grad_f32_##name, grad_f64_##name},
#include "runtime/ops/unary.inc"
};

/* Short floats through the row of f32. */
#define GRAD_HALVES(type)                                                                          \
    static void grad_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)          \
    {                                                                                              \
        pare_ref_halves(n, p, s, 2, PARE_##type, ((const unary *)arg)->wide, arg);                 \
    }
GRAD_HALVES(f16)
GRAD_HALVES(bf16)

/* --- kernels --- */

static pare_status prepare(pare_prep *p, pare_unary row, pare_ref_row loop)
{
    unary *u = pare_arena_alloc(p->arena, 1, sizeof *u);
    if (!u) return PARE_MEMORY;
    *u = (unary){loop, NULL, pare_unary_attr(p->node, row, 0), pare_unary_attr(p->node, row, 1)};
    p->state = u;
    return PARE_OK;
}

static bool ref_can(const pare_prep *p)
{
    return ref_rows[pare_unary_of(p->node)][p->in[0].dtype] != NULL;
}

static pare_status ref_prepare(pare_prep *p)
{
    pare_unary row = pare_unary_of(p->node);
    return prepare(p, row, ref_rows[row][p->in[0].dtype]);
}

static bool vec_can(const pare_prep *p) { return p->in[0].dtype == PARE_f32; }

static pare_status vec_prepare(pare_prep *p)
{
    pare_unary row = pare_unary_of(p->node);
    return prepare(p, row, vec_rows[row]);
}

static pare_status run(const pare_call *c)
{
    const unary *u = c->state;
    pare_ref_each_call(c, 1, u->row, u);
    return PARE_OK;
}

#define KERNEL(way, fn, kind)                                                                      \
    static const pare_kernel way##_##fn = {.name = #way "_" #fn,                                   \
                                           .can = way##_can,                                       \
                                           .prepare = way##_prepare,                               \
                                           .run = run,                                             \
                                           .flags = kind | PARE_KERNEL_INPLACE};
#define PARE_UNARY(name, fn, ...)                                                                  \
    KERNEL(ref, fn, PARE_KERNEL_REF)                                                               \
    const pare_kernel *const pare_cpu_##fn[] = {&ref_##fn, NULL};
#define PARE_UNARY_VECTOR(name, fn, ...)                                                           \
    KERNEL(vec, fn, 0)                                                                             \
    KERNEL(ref, fn, PARE_KERNEL_REF)                                                               \
    const pare_kernel *const pare_cpu_##fn[] = {&vec_##fn, &ref_##fn, NULL};
#define PARE_UNARY_FORM(...)
#include "runtime/ops/unary.inc"

static pare_status grad_prepare(pare_prep *p)
{
    const pare_unary row = pare_unary_of(p->node);
    const pare_dtype type = p->in[0].dtype;
    const pare_ref_row own = grad_rows[row][type == PARE_f64];
    PARE_TRY(prepare(p, row, type == PARE_f16 ? grad_f16 : type == PARE_bf16 ? grad_bf16 : own));
    ((unary *)p->state)->wide = own;
    return PARE_OK;
}

static pare_status grad_run(const pare_call *c)
{
    const unary *u = c->state;
    const pare_view *in[2] = {&c->in[0], &c->in[0]};
    for (int i = 1; i < c->in_count; i++)
        if (c->in[i].dtype) in[1] = &c->in[i];
    pare_ref_each(&c->out[0], in, 2, c->threads, u->row, u);
    return PARE_OK;
}

static const pare_kernel ref_unary_grad = {.name = "ref_unary_grad",
                                           .can = pare_ref_can_floats,
                                           .prepare = grad_prepare,
                                           .run = grad_run,
                                           .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cpu_unary_grad[] = {&ref_unary_grad, NULL};
