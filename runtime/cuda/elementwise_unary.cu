/* SPDX-License-Identifier: Apache-2.0 */
/* y = f(x) of one tensor, and its gradient dx = g f'(x): one thread an element of a grid-stride
   loop over the merged walk. Reads each operand once, writes the output once. The function is
   chosen inside the kernel by a number that all threads share, so that a type needs one kernel, not
   one per function. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/number.cuh"
#include "runtime/cuda/tensor_iterator.h"
#include "runtime/ops/grad_unary.h"

#include <string.h>

/* X(name, alpha's default, beta's default, expression of x, alpha, beta): the formulas of
   runtime/cpu/unary.c, in float. */
#define PARE_CUDA_UNARY_OPS(X)                                                                     \
    X(relu, 0, 0, x < 0 ? 0 : x)                                                                   \
    X(abs, 0, 0, fabsf(x))                                                                         \
    X(neg, 0, 0, -x)                                                                               \
    X(sign, 0, 0, x > 0 ? 1 : x < 0 ? -1 : x)                                                      \
    X(sqrt, 0, 0, sqrtf(x))                                                                        \
    X(reciprocal, 0, 0, 1 / x)                                                                     \
    X(floor, 0, 0, floorf(x))                                                                      \
    X(ceil, 0, 0, ceilf(x))                                                                        \
    X(round, 0, 0, rintf(x))                                                                       \
    X(leaky_relu, 0.01f, 0, x < 0 ? alpha * x : x)                                                 \
    X(thresholded_relu, 1, 0, x > alpha ? x : 0)                                                   \
    X(hard_sigmoid, 0.2f, 0.5f, hold(alpha *x + beta, 0, 1))                                       \
    X(hard_swish, 0, 0, x *hold(x / 6 + 0.5f, 0, 1))                                               \
    X(softsign, 0, 0, x / (1 + fabsf(x)))                                                          \
    X(exp, 0, 0, expf(x))                                                                          \
    X(erf, 0, 0, erff(x))                                                                          \
    X(tanh, 0, 0, tanhf(x))                                                                        \
    X(sigmoid, 0, 0, 1 / (1 + expf(-x)))                                                           \
    X(log, 0, 0, logf(x))                                                                          \
    X(sin, 0, 0, sinf(x))                                                                          \
    X(cos, 0, 0, cosf(x))                                                                          \
    X(tan, 0, 0, tanf(x))                                                                          \
    X(asin, 0, 0, asinf(x))                                                                        \
    X(acos, 0, 0, acosf(x))                                                                        \
    X(atan, 0, 0, atanf(x))                                                                        \
    X(sinh, 0, 0, sinhf(x))                                                                        \
    X(cosh, 0, 0, coshf(x))                                                                        \
    X(asinh, 0, 0, asinhf(x))                                                                      \
    X(acosh, 0, 0, acoshf(x))                                                                      \
    X(atanh, 0, 0, atanhf(x))                                                                      \
    X(elu, 1, 0, x < 0 ? alpha * expm1f(x) : x)                                                    \
    X(celu, 1, 0, x < 0 ? alpha * expm1f(x / alpha) : x)                                           \
    X(selu, 1.67326319217681884765625f, 1.05070102214813232421875f,                                \
      beta *(x > 0 ? x : alpha * expm1f(x)))                                                       \
    X(softplus, 0, 0, x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)))                              \
    X(mish, 0, 0, x *tanhf(x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x))))                        \
    X(gelu, 0, 0, x / 2 * (1 + erff(x * 0.70710678118654752440f)))

/* And the form that an attribute of Gelu chooses. */
#define PARE_CUDA_UNARY(X)                                                                         \
    PARE_CUDA_UNARY_OPS(X)                                                                         \
    X(gelu_tanh, 0, 0, x / 2 * (1 + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x))))

/* X(name, expression of x): the same where x is an integer, as int64_t; wide: it is u64. */
#define PARE_CUDA_UNARY_INT(X)                                                                     \
    X(relu, wide || x > 0 ? x : 0)                                                                 \
    X(abs, wide || x > 0 ? x : (int64_t)(0 - (uint64_t)x))                                         \
    X(neg, (int64_t)(0 - (uint64_t)x))                                                             \
    X(sign, wide || x > 0 ? x != 0 : -(x != 0))

#define X(name, ...) PARE_CUDA_##name,
typedef enum pare_cuda_unary { PARE_CUDA_UNARY(X) PARE_CUDA_UNARY_COUNT } pare_cuda_unary;
#undef X

/* Comparisons that let NaN through. */
SIMT_INLINE float hold(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

SIMT_INLINE float unary(int op, float x, float alpha, float beta)
{
    switch (op) {
#define X(name, a, b, expr)                                                                        \
    case PARE_CUDA_##name: return expr;
        PARE_CUDA_UNARY(X)
#undef X
    }
    return x;
}

SIMT_INLINE int64_t unary(int op, int64_t x, bool wide)
{
    switch (op) {
#define X(name, expr)                                                                              \
    case PARE_CUDA_##name: return expr;
        PARE_CUDA_UNARY_INT(X)
#undef X
    }
    return x;
}

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_each(pare_cuda_iterator w, int op, float alpha, float beta)
{
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_iterator_at<2>(w.walk, i, at);
        pare_store_f32(&y[at[0]], unary(op, pare_to_f32(x[at[1]]), alpha, beta));
    }
}

/* Integers of any type. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_ints(pare_cuda_iterator w, pare_dtype type, int op)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_iterator_at<2>(w.walk, i, at);
        pare_int_store(w.data[0], type, at[0],
                       unary(op, pare_int_at(w.data[1], type, at[1]), type == PARE_u64));
    }
}

/* --- gradient --- */

enum unary_row {
#define PARE_UNARY_GRAD(op, reads, a, b, dx) ROW_##op,
#include "runtime/ops/grad_unary.inc"
#undef PARE_UNARY_GRAD
    ROWS
};

#define real     float
#define EXP      expf
#define ERF      erff
#define SIN      sinf
#define COS      cosf
#define SINH     sinhf
#define COSH     coshf
#define SQRT     sqrtf
#define FABS     fabsf
#define TANH     tanhf
#define LOG1P    log1pf
#define FORM(fn) SIMT_INLINE real fn
#include "runtime/ops/grad_unary_forms.inc"

SIMT_INLINE float unary_slope(int row, float g, float x, float a, float b)
{
    const float y = x;
    switch (row) {
#define PARE_UNARY_GRAD(op, reads, a_, b_, dx)                                                     \
    case ROW_##op:                                                                                 \
        return dx;
#include "runtime/ops/grad_unary.inc"
#undef PARE_UNARY_GRAD
    }
    return g;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_grad_each(pare_cuda_iterator w, pare_dtype type, int row, float a, float b)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_iterator_at<3>(w.walk, i, at);
        const float g = pare_number_at(w.data[1], type, at[1]),
                    x = pare_number_at(w.data[2], type, at[2]);
        pare_number_store(w.data[0], type, at[0], unary_slope(row, g, x, a, b));
    }
}

/* --- launchers --- */

#define LAUNCH(kernel, ...)                                                                        \
    SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,       \
                ##__VA_ARGS__)

/* dtype: of all operands; f32, f16 and bf16 compute in float, f64 (two tensors only) in double,
   integers (of the functions above that have a form for them) in int64_t. The walk has 2 or 3
   operands. */
static cudaError_t unary_launch(const pare_cuda_iterator *w, pare_dtype dtype, pare_cuda_unary op,
                                float alpha, float beta, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    switch (dtype) {
    case PARE_f32: LAUNCH(unary_each<float>, (int)op, alpha, beta); break;
    case PARE_f16: LAUNCH(unary_each<__half>, (int)op, alpha, beta); break;
    case PARE_bf16: LAUNCH(unary_each<__nv_bfloat16>, (int)op, alpha, beta); break;
    default: LAUNCH(unary_ints, dtype, (int)op);
    }
    return cudaGetLastError();
}

/* pare.UnaryGrad. Operands dx, g, v: what the derivative reads; row: of ops/grad_unary.inc, with
   its attributes. f32, f16 or bf16, computed in float. */
static cudaError_t unary_grad_launch(const pare_cuda_iterator *w, pare_dtype dtype, int row,
                                     float a, float b, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(unary_grad_each, w->walk.count, *w, dtype, row, a, b);
}

/* --- operators --- */

typedef struct unary_state {
    pare_cuda_unary op;
    float alpha, beta;
} unary_state;

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
    unary_state *u = (unary_state *)pare_arena_alloc(p->arena, 1, sizeof *u);
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
    const unary_state *u = (const unary_state *)c->state;
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, unary_launch, &w, c->in[0].dtype, u->op, u->alpha, u->beta);
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
PARE_CUDA_UNARY_OPS(X)
#undef X

/* --- UnaryGrad --- */

typedef struct grad_state {
    int row;
    float a, b;
} grad_state;

static bool grad_can(const pare_prep *p) { return pare_cuda_can_float(p, 1); }

static pare_status grad_prepare(pare_prep *p)
{
    grad_state *u = (grad_state *)pare_arena_alloc(p->arena, 1, sizeof *u);
    const char *of = pare_node_string(p->node, "of", NULL);
    if (!u || !of) return PARE_MEMORY; /* the shape rule knows that it is there */
    u->row = (int)pare_unary_find(of);
    const pare_unary_row *r = &pare_unary_rows[u->row];
    if (r->a.name) u->a = pare_node_float(p->node, r->a.name, r->a.missing);
    if (r->b.name) u->b = pare_node_float(p->node, r->b.name, r->b.missing);
    p->state = u;
    return PARE_OK;
}

static pare_status grad_run(const pare_call *c)
{
    const grad_state *u = (const grad_state *)c->state;
    pare_view in[2] = {c->in[0], c->in[0]};
    pare_call both = *c;
    pare_cuda_iterator w;
    for (int i = 1; i < c->in_count; i++)
        if (c->in[i].dtype) in[1] = c->in[i];
    both.in = in;
    pare_cuda_iterator_call(&w, &both, 2);
    return PARE_CUDA_LAUNCH(c, unary_grad_launch, &w, c->in[0].dtype, u->row, u->a, u->b);
}

static const pare_kernel cuda_unary_grad = {.name = "cuda_unary_grad",
                                            .can = grad_can,
                                            .prepare = grad_prepare,
                                            .run = grad_run,
                                            .flags = PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cuda_unary_grad[] = {&cuda_unary_grad, NULL};
