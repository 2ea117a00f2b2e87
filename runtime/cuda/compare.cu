/* SPDX-License-Identifier: Apache-2.0 */
/* Equal, Less, And, Not, IsNaN and their kin: four neighbours a thread where they lie together,
   else one; truth is one byte. f64 is compared as it is, shorter floats as float, integers as
   int64_t; u64 with its top bit turned, which keeps its order. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/vec_number.cuh"

/* X(name, expression of x, y): the formulas of runtime/cpu/compare.c, for floats and int64_t. */
#define PARE_CUDA_COMPARE(X)                                                                       \
    X(equal, x == y)                                                                               \
    X(less, x < y)                                                                                 \
    X(greater, x > y)                                                                              \
    X(less_or_equal, x <= y)                                                                       \
    X(greater_or_equal, x >= y)                                                                    \
    X(and, x &&y)                                                                                  \
    X(or, x || y)                                                                                  \
    X(xor, !x != !y)                                                                               \
    X(not, !x)                                                                                     \
    X(is_nan, x != x)                                                                              \
    X(is_inf, (double)x == INFINITY || (double)x == -INFINITY)                                     \
    X(is_positive_inf, (double)x == INFINITY)                                                      \
    X(is_negative_inf, (double)x == -INFINITY)                                                     \
    X(never, 0)

#define X(name, expr) PARE_CUDA_IS_##name,
typedef enum pare_cuda_compare { PARE_CUDA_COMPARE(X) PARE_CUDA_COMPARE_COUNT } pare_cuda_compare;
#undef X

template <class R> SIMT_INLINE bool compare(int op, R x, R y)
{
    switch (op) {
#define X(name, expr)                                                                              \
    case PARE_CUDA_IS_##name: return expr;
        PARE_CUDA_COMPARE(X)
#undef X
    }
    return false;
}

template <int W>
SIMT_INLINE void operand_load(const pare_cuda_iterator &w, int k, pare_dtype type, int64_t at,
                              float to[W])
{
    vec_load_floats<W>(w.data[k], type, at, iterator_step(w, k), to);
}

template <int W>
SIMT_INLINE void operand_load(const pare_cuda_iterator &w, int k, pare_dtype type, int64_t at,
                              double to[W])
{
    vec_load_doubles<W>(w.data[k], type, at, iterator_step(w, k), to);
}

template <int W>
SIMT_INLINE void operand_load(const pare_cuda_iterator &w, int k, pare_dtype type, int64_t at,
                              int64_t to[W])
{
    const int64_t turn = type == PARE_u64 ? INT64_MIN : 0;
    vec_load_ints<W>(w.data[k], type, at, iterator_step(w, k), to);
    PARE_UNROLL for (int j = 0; j < W; j++) to[j] ^= turn;
}

/* R: float, double or int64_t; W: 4, or 1. */
template <class R, int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    compare_each(pare_cuda_iterator w, pare_dtype type, int op)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        R x[W], y[W];
        uint8_t is[W];
        pare_iterator_at<3>(w.walk, i * W, at);
        operand_load<W>(w, 1, type, at[1], x);
        operand_load<W>(w, 2, type, at[2], y);
        PARE_UNROLL for (int k = 0; k < W; k++) is[k] = compare(op, x[k], y[k]);
        vec_store<W>(static_cast<uint8_t *>(w.data[0]), at[0], is);
    }
}

/* Operands y (bool), x, y of one type, any number or bool; functions of one tensor get it twice. */
static cudaError_t compare_launch(const pare_cuda_iterator *w, pare_dtype dtype,
                                  pare_cuda_compare op, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    if (dtype == PARE_f64)
        PARE_ITERATOR_LAUNCH_VEC(4, (compare_each<double, 4>), (compare_each<double, 1>), dtype,
                                 (int)op);
    else if (pare_cuda_is_float(dtype))
        PARE_ITERATOR_LAUNCH_VEC(4, (compare_each<float, 4>), (compare_each<float, 1>), dtype,
                                 (int)op);
    else
        PARE_ITERATOR_LAUNCH_VEC(4, (compare_each<int64_t, 4>), (compare_each<int64_t, 1>), dtype,
                                 (int)op);
    return cudaGetLastError();
}

static bool numbers_can(const pare_prep *p)
{
    return pare_cuda_is_number(p->in[0].dtype) && p->in[1].dtype == p->in[0].dtype;
}

static bool bools_can(const pare_prep *p)
{
    return p->in[0].dtype == PARE_bool && p->in[1].dtype == PARE_bool;
}

static bool equal_can(const pare_prep *p) { return numbers_can(p) || bools_can(p); }

static pare_status compare(const pare_call *c, pare_cuda_compare op)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, compare_launch, &w, c->in[0].dtype, op);
}

#define COMPARE(op, accepts)                                                                       \
    static pare_status op##_run(const pare_call *c) { return compare(c, PARE_CUDA_IS_##op); }      \
    static const pare_kernel cuda_##op = {.name = "cuda_" #op, .can = accepts, .run = op##_run};   \
    const pare_kernel *const pare_cuda_##op[] = {&cuda_##op, NULL};
COMPARE(equal, equal_can)
COMPARE(less, numbers_can)
COMPARE(greater, numbers_can)
COMPARE(less_or_equal, numbers_can)
COMPARE(greater_or_equal, numbers_can)
COMPARE(and, bools_can)
COMPARE(or, bools_can)
COMPARE(xor, bools_can)

/* --- one input --- */

static bool not_can(const pare_prep *p) { return p->in[0].dtype == PARE_bool; }
static bool test_can(const pare_prep *p) { return pare_type_is_float(p->in[0].dtype); }

static pare_status test(const pare_call *c, pare_cuda_compare op)
{
    const pare_view twice[2] = {c->in[0], c->in[0]};
    pare_call call = *c;
    call.in = twice;
    call.in_count = 2;
    return compare(&call, op);
}

static pare_status not_run(const pare_call *c) { return test(c, PARE_CUDA_IS_not); }
static pare_status is_nan_run(const pare_call *c) { return test(c, PARE_CUDA_IS_is_nan); }

static pare_status is_inf_run(const pare_call *c)
{
    bool positive = pare_node_int(c->node, "detect_positive", 1) != 0;
    bool negative = pare_node_int(c->node, "detect_negative", 1) != 0;
    return test(c, positive && negative ? PARE_CUDA_IS_is_inf
                   : positive           ? PARE_CUDA_IS_is_positive_inf
                   : negative           ? PARE_CUDA_IS_is_negative_inf
                                        : PARE_CUDA_IS_never);
}

static const pare_kernel cuda_not = {
    .name = "cuda_not", .can = not_can, .run = not_run, .flags = PARE_KERNEL_INPLACE};
static const pare_kernel cuda_is_nan = {.name = "cuda_is_nan", .can = test_can, .run = is_nan_run};
static const pare_kernel cuda_is_inf = {.name = "cuda_is_inf", .can = test_can, .run = is_inf_run};
const pare_kernel *const pare_cuda_not[] = {&cuda_not, NULL};
const pare_kernel *const pare_cuda_is_nan[] = {&cuda_is_nan, NULL};
const pare_kernel *const pare_cuda_is_inf[] = {&cuda_is_inf, NULL};
