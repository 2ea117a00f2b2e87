/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one tensor, element by element. f16 and bf16 compute in f32, f64 in f64.
   Each formula is the ONNX operator's of that name (newest version up to opset 22). */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/vmath.h"

#include <string.h>
#include <tgmath.h>

/* What a row needs of its node. */
typedef struct unary {
    pare_ref_row row;
    float alpha, beta;
} unary;

static pare_status unary_run(const pare_call *c)
{
    const unary *u = c->state;
    pare_ref_each_call(c, 1, u->row, u);
    return PARE_OK;
}

static pare_status unary_prepare(pare_prep *p, const pare_ref_row *rows, float alpha, float beta)
{
    unary *u = pare_arena_alloc(p->arena, 1, sizeof *u);
    if (!u) return PARE_MEMORY;
    u->row = rows[p->in[0].dtype];
    u->alpha = pare_node_float(p->node, "alpha", alpha);
    u->beta = pare_node_float(p->node, "beta", beta);
    p->state = u;
    return PARE_OK;
}

/* A row: y = expr of x (alpha, beta), x and y of the calc type. */
#define ROW(op, type, memory, calc, load, store, clones, expr)                                     \
    clones static void op##_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)   \
    {                                                                                              \
        typedef calc real __attribute__((unused));                                                 \
        const unary *u = arg;                                                                      \
        const calc alpha = (calc)u->alpha, beta = (calc)u->beta;                                   \
        const memory *in = (const memory *)p[1];                                                   \
        memory *out = (memory *)p[0];                                                              \
        (void)alpha, (void)beta;                                                                   \
        if (s[0] == 1 && s[1] == 1) _Pragma("omp simd") for (int64_t i = 0; i < n; i++)            \
            {                                                                                      \
                const calc x = load(in[i]);                                                        \
                out[i] = store((calc)(expr));                                                      \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const calc x = load(in[i * s[1]]);                                                 \
                out[i * s[0]] = store((calc)(expr));                                               \
            }                                                                                      \
    }

#define HALVES(op, half)                                                                           \
    static void op##_##half(int64_t n, char *const *p, const int64_t *s, const void *arg)          \
    {                                                                                              \
        pare_ref_halves(n, p, s, 1, PARE_##half, op##_f32, arg);                                   \
    }

#define ROWS_FLOAT(op, expr)                                                                       \
    ROW(op, f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES, expr)                  \
    ROW(op, f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                           \
    HALVES(op, f16)                                                                                \
    HALVES(op, bf16)
#define TABLE_FLOAT(op)                                                                            \
    [PARE_f32] = op##_f32, [PARE_f64] = op##_f64, [PARE_f16] = op##_f16, [PARE_bf16] = op##_bf16

#define ROWS_INT(op, expr)                                                                         \
    ROW(op, s8, int8_t, int8_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                            \
    ROW(op, u8, uint8_t, uint8_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                          \
    ROW(op, s16, int16_t, int16_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                         \
    ROW(op, u16, uint16_t, uint16_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                       \
    ROW(op, s32, int32_t, int32_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                         \
    ROW(op, u32, uint32_t, uint32_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                       \
    ROW(op, s64, int64_t, int64_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                         \
    ROW(op, u64, uint64_t, uint64_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)
#define TABLE_INT(op)                                                                              \
    [PARE_s8] = op##_s8, [PARE_u8] = op##_u8, [PARE_s16] = op##_s16, [PARE_u16] = op##_u16,        \
    [PARE_s32] = op##_s32, [PARE_u32] = op##_u32, [PARE_s64] = op##_s64, [PARE_u64] = op##_u64

/* The kernel around a table of rows. */
#define KERNEL(op, prefix, kind, alpha, beta)                                                      \
    static bool prefix##_##op##_can(const pare_prep *p)                                            \
    {                                                                                              \
        return prefix##_##op##_rows[p->in[0].dtype] != NULL;                                       \
    }                                                                                              \
    static pare_status prefix##_##op##_prepare(pare_prep *p)                                       \
    {                                                                                              \
        return unary_prepare(p, prefix##_##op##_rows, alpha, beta);                                \
    }                                                                                              \
    static const pare_kernel prefix##_##op = {.name = #prefix "_" #op,                             \
                                              .can = prefix##_##op##_can,                          \
                                              .prepare = prefix##_##op##_prepare,                  \
                                              .run = unary_run,                                    \
                                              .flags = kind | PARE_KERNEL_INPLACE};

#define FLOAT_ROWS(op, expr)                                                                       \
    ROWS_FLOAT(op, expr)                                                                           \
    static const pare_ref_row ref_##op##_rows[PARE_DTYPE_COUNT] = {TABLE_FLOAT(op)};
#define NUMBER_ROWS(op, expr, int_expr)                                                            \
    ROWS_FLOAT(op, expr)                                                                           \
    ROWS_INT(op, int_expr)                                                                         \
    static const pare_ref_row ref_##op##_rows[PARE_DTYPE_COUNT] = {TABLE_FLOAT(op), TABLE_INT(op)};

/* An operator with its plain kernel only. */
#define PLAIN(op, alpha, beta)                                                                     \
    KERNEL(op, ref, PARE_KERNEL_REF, alpha, beta)                                                  \
    const pare_kernel *const pare_cpu_##op[] = {&ref_##op, NULL};
#define FLOATS(op, alpha, beta, expr) FLOAT_ROWS(op, expr) PLAIN(op, alpha, beta)
#define NUMBERS(op, alpha, beta, expr, int_expr)                                                   \
    NUMBER_ROWS(op, expr, int_expr) PLAIN(op, alpha, beta)
/* An operator with a vector kernel for f32 in front. */
#define FAST(op, expr, fast)                                                                       \
    FLOAT_ROWS(op, expr)                                                                           \
    ROW(vec_##op, f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES, fast)            \
    static const pare_ref_row vec_##op##_rows[PARE_DTYPE_COUNT] = {[PARE_f32] = vec_##op##_f32};   \
    KERNEL(op, ref, PARE_KERNEL_REF, 1, 0)                                                         \
    KERNEL(op, vec, 0, 1, 0)                                                                       \
    const pare_kernel *const pare_cpu_##op[] = {&vec_##op, &ref_##op, NULL};

/* Comparisons that let NaN through. */
#define HOLD(v, low, high) ((v) < (low) ? (low) : (v) > (high) ? (high) : (v))

/* --- exact or nearly so --- */

NUMBERS(relu, 0, 0, x<0 ? 0 : x, x> 0 ? x : 0)
NUMBERS(abs, 0, 0, fabs(x), x > 0 ? (uint64_t)x : 0 - (uint64_t)x)
NUMBERS(neg, 0, 0, -x, 0 - (uint64_t)x)
NUMBERS(sign, 0, 0, x > 0 ? 1 : x < 0 ? -1 : x, x > 0 ? 1 : -(x != 0))
FLOATS(sqrt, 0, 0, sqrt(x))
FLOATS(reciprocal, 0, 0, 1 / x)
FLOATS(floor, 0, 0, floor(x))
FLOATS(ceil, 0, 0, ceil(x))
FLOATS(round, 0, 0, rint(x)) /* ties to even, as ONNX wants */
FLOATS(leaky_relu, 0.01f, 0, x < 0 ? alpha * x : x)
FLOATS(thresholded_relu, 1, 0, x > alpha ? x : 0)
FLOATS(hard_sigmoid, 0.2f, 0.5f, HOLD(alpha *x + beta, 0, 1))
FLOATS(hard_swish, 0, 0, x *HOLD(x / 6 + (real)0.5, 0, 1))
FLOATS(softsign, 0, 0, x / (1 + fabs(x)))

/* --- transcendental --- */

FAST(exp, exp(x), pare_vexp(x))
FAST(erf, erf(x), pare_verf(x))
FAST(tanh, tanh(x), pare_vtanh(x))
FAST(sigmoid, 1 / (1 + exp(-x)), pare_vsigmoid(x))
FLOATS(log, 0, 0, log(x))
FLOATS(sin, 0, 0, sin(x))
FLOATS(cos, 0, 0, cos(x))
FLOATS(tan, 0, 0, tan(x))
FLOATS(asin, 0, 0, asin(x))
FLOATS(acos, 0, 0, acos(x))
FLOATS(atan, 0, 0, atan(x))
FLOATS(sinh, 0, 0, sinh(x))
FLOATS(cosh, 0, 0, cosh(x))
FLOATS(asinh, 0, 0, asinh(x))
FLOATS(acosh, 0, 0, acosh(x))
FLOATS(atanh, 0, 0, atanh(x))
FLOATS(elu, 1, 0, x < 0 ? alpha * expm1(x) : x)
FLOATS(celu, 1, 0, x < 0 ? alpha * expm1(x / alpha) : x)
FLOATS(softplus, 0, 0, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
FLOATS(mish, 0, 0, x *tanh(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x))))

/* Selu's second attribute is called gamma. */
FLOAT_ROWS(selu, beta *(x > 0 ? x : alpha * expm1(x)))
static bool selu_can(const pare_prep *p) { return ref_selu_rows[p->in[0].dtype] != NULL; }
static pare_status selu_prepare(pare_prep *p)
{
    PARE_TRY(unary_prepare(p, ref_selu_rows, 1.67326319217681884765625f, 0));
    ((unary *)p->state)->beta = pare_node_float(p->node, "gamma", 1.05070102214813232421875f);
    return PARE_OK;
}
static const pare_kernel ref_selu = {.name = "ref_selu",
                                     .can = selu_can,
                                     .prepare = selu_prepare,
                                     .run = unary_run,
                                     .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_selu[] = {&ref_selu, NULL};

/* Gelu (20): exact by erf, or with approximate = "tanh". */
FLOAT_ROWS(gelu, x / 2 * (1 + erf(x * (real)0.70710678118654752440)))
FLOAT_ROWS(gelu_tanh,
           x / 2 * (1 + tanh((real)0.79788456080286535588 * (x + (real)0.044715 * x * x * x))))
ROW(vec_gelu, f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES, pare_vgelu(x))
ROW(vec_gelu_tanh, f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES,
    pare_vgelu_tanh(x))

static bool gelu_by_tanh(const pare_prep *p)
{
    return !strcmp(pare_node_string(p->node, "approximate", "none"), "tanh");
}

static bool gelu_can(const pare_prep *p) { return ref_gelu_rows[p->in[0].dtype] != NULL; }

static pare_status gelu_prepare(pare_prep *p)
{
    return unary_prepare(p, gelu_by_tanh(p) ? ref_gelu_tanh_rows : ref_gelu_rows, 0, 0);
}

static bool vec_gelu_can(const pare_prep *p) { return p->in[0].dtype == PARE_f32; }

static pare_status vec_gelu_prepare(pare_prep *p)
{
    PARE_TRY(unary_prepare(p, ref_gelu_rows, 0, 0));
    ((unary *)p->state)->row = gelu_by_tanh(p) ? vec_gelu_tanh_f32 : vec_gelu_f32;
    return PARE_OK;
}

static const pare_kernel vec_gelu = {.name = "vec_gelu",
                                     .can = vec_gelu_can,
                                     .prepare = vec_gelu_prepare,
                                     .run = unary_run,
                                     .flags = PARE_KERNEL_INPLACE};
static const pare_kernel ref_gelu = {.name = "ref_gelu",
                                     .can = gelu_can,
                                     .prepare = gelu_prepare,
                                     .run = unary_run,
                                     .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_gelu[] = {&vec_gelu, &ref_gelu, NULL};
