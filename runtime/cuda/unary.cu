/* SPDX-License-Identifier: Apache-2.0 */
/* y = f(x) of one tensor, and its gradient dx = g f'(x), the rows of ops/unary.inc in float: four
   neighbours a thread of a grid-stride loop over the merged walk where they lie together, else one.
   Reads each operand once, writes the output once. The function is chosen inside the kernel by a
   number that all threads share, so that a type needs one kernel, not one per function. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/cuda/tensor_iterator.h"
#include "runtime/ops/unary.h"

#include <math.h>

#define real float

#define PARE_UNARY(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx)                         \
    case PARE_UNARY_##name: return f;
SIMT_INLINE float unary(int row, float x, float a, float b)
{
    switch (row) {
#include "runtime/ops/unary.inc"
    }
    return x;
}

#define PARE_UNARY(...)
#define PARE_UNARY_INTS(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx, ints)              \
    case PARE_UNARY_##name: return (int64_t)(ints);
/* Of integers as 64-bit words, u64 without a sign. */
template <class I> SIMT_INLINE int64_t unary_int(int row, I x)
{
    switch (row) {
#include "runtime/ops/unary.inc"
    }
    return (int64_t)x;
}

/* The first of W numbers goes to the end: a loop that takes W turns sees each of them, and its body
   is there once, however long the functions are. */
template <int W> SIMT_INLINE void turn(float v[W], float last)
{
    PARE_UNROLL for (int k = 0; k + 1 < W; k++) v[k] = v[k + 1];
    v[W - 1] = last;
}

/* W: 4, or 1. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_each(pare_cuda_iterator w, pare_dtype type, int row, float a, float b)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2];
        float v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_floats<W>(w.data[1], type, at[1], iterator_step(w, 1), v);
        PARE_ROLLED for (int k = 0; k < W; k++) turn<W>(v, unary(row, v[0], a, b));
        vec_store_floats<W>(w.data[0], type, at[0], v);
    }
}

/* Integers of any type. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_ints(pare_cuda_iterator w, pare_dtype type, int row)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2], v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load_ints<W>(w.data[1], type, at[1], iterator_step(w, 1), v);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] =
            type == PARE_u64 ? unary_int(row, (uint64_t)v[k]) : unary_int(row, v[k]);
        vec_store_ints<W>(w.data[0], type, at[0], v);
    }
}

/* --- gradient --- */

#define CASE(name, value)                                                                          \
    case PARE_UNARY_##name:                                                                        \
        return value;
#define PARE_UNARY(name, fn, since, q, grad, a_, a0, b_, b0, f, reads, dx) CASE(name, dx)
#define PARE_UNARY_SLOPE(name, a_, a0, b_, b0, reads, dx)                  CASE(name, dx)
SIMT_INLINE float unary_slope(int row, float g, float x, float a, float b)
{
    const float y = x;
    switch (row) {
#include "runtime/ops/unary.inc"
    }
    return g;
}

template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    unary_grad_each(pare_cuda_iterator w, pare_dtype type, int row, float a, float b)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        float g[W], x[W];
        pare_iterator_at<3>(w.walk, i * W, at);
        vec_load_floats<W>(w.data[1], type, at[1], iterator_step(w, 1), g);
        vec_load_floats<W>(w.data[2], type, at[2], iterator_step(w, 2), x);
        PARE_ROLLED for (int k = 0; k < W; k++)
        {
            turn<W>(g, unary_slope(row, g[0], x[0], a, b));
            turn<W>(x, x[0]);
        }
        vec_store_floats<W>(w.data[0], type, at[0], g);
    }
}

/* --- launchers --- */

/* dtype: of all operands; f32, f16 and bf16 compute in float, integers (of the rows that have a
   form for them) in 64 bits. The walk has 2 operands. */
static cudaError_t unary_launch(const pare_cuda_iterator *w, pare_dtype dtype, int row, float a,
                                float b, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    if (pare_cuda_is_float(dtype))
        PARE_ITERATOR_LAUNCH_VEC(4, unary_each<4>, unary_each<1>, dtype, row, a, b);
    else
        PARE_ITERATOR_LAUNCH_VEC(4, unary_ints<4>, unary_ints<1>, dtype, row);
    return cudaGetLastError();
}

/* pare.UnaryGrad. Operands dx, g, v: what the derivative reads. f32, f16 or bf16, computed in
   float. */
static cudaError_t unary_grad_launch(const pare_cuda_iterator *w, pare_dtype dtype, int row,
                                     float a, float b, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    PARE_ITERATOR_LAUNCH_VEC(4, unary_grad_each<4>, unary_grad_each<1>, dtype, row, a, b);
    return cudaGetLastError();
}

/* --- operators --- */

typedef struct unary_state {
    int row;
    float a, b;
} unary_state;

#define PARE_UNARY(...)
#define PARE_UNARY_INTS(name, ...) case PARE_UNARY_##name:
static bool takes_ints(pare_unary row)
{
    switch (row) {
#include "runtime/ops/unary.inc"
        return true;
    default: return false;
    }
}

static bool unary_can(const pare_prep *p)
{
    return pare_cuda_can_float(p, 1) ||
           (takes_ints(pare_unary_of(p->node)) && pare_cuda_is_int(p->in[0].dtype));
}

static bool grad_can(const pare_prep *p) { return pare_cuda_can_float(p, 1); }

static pare_status unary_prepare(pare_prep *p)
{
    unary_state *u = (unary_state *)pare_arena_alloc(p->arena, 1, sizeof *u);
    pare_unary row = pare_unary_of(p->node);
    if (!u) return PARE_MEMORY;
    u->row = row;
    u->a = pare_unary_attr(p->node, row, 0);
    u->b = pare_unary_attr(p->node, row, 1);
    p->state = u;
    return PARE_OK;
}

static pare_status unary_run(const pare_call *c)
{
    const unary_state *u = (const unary_state *)c->state;
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, unary_launch, &w, c->in[0].dtype, u->row, u->a, u->b);
}

static pare_status grad_run(const pare_call *c)
{
    const unary_state *u = (const unary_state *)c->state;
    pare_view in[2] = {c->in[0], c->in[0]};
    pare_call both = *c;
    pare_cuda_iterator w;
    for (int i = 1; i < c->in_count; i++)
        if (c->in[i].dtype) in[1] = c->in[i];
    both.in = in;
    pare_cuda_iterator_call(&w, &both, 2);
    return PARE_CUDA_LAUNCH(c, unary_grad_launch, &w, c->in[0].dtype, u->row, u->a, u->b);
}

#define PARE_UNARY(name_, fn, ...)                                                                 \
    static const pare_kernel cuda_##fn = {.name = "cuda_" #fn,                                     \
                                          .can = unary_can,                                        \
                                          .prepare = unary_prepare,                                \
                                          .run = unary_run,                                        \
                                          .flags = PARE_KERNEL_INPLACE | PARE_KERNEL_PARTS};       \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
#define PARE_UNARY_FORM(...)
#include "runtime/ops/unary.inc"

static const pare_kernel cuda_unary_grad = {.name = "cuda_unary_grad",
                                            .can = grad_can,
                                            .prepare = unary_prepare,
                                            .run = grad_run,
                                            .flags = PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cuda_unary_grad[] = {&cuda_unary_grad, NULL};
