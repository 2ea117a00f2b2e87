/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of two or more tensors with broadcasting: Add Sub Mul Div Mod PRelu (14, 13, 16), Min
   Max Sum Mean (13), MixedBinary (ops/fused.h). f16 and bf16 compute in f32 and round the node's
   output once; integers wrap around, x / 0 and x mod 0 give 0. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/number.h"

#include <math.h>
#include <string.h>
#include <tgmath.h>

/* z = expr of x, y; the loops a compiler can vectorize are those with strides 0 and 1. */
#define ROW(op, type, memory, calc, load, store, clones, expr)                                     \
    clones static void op##_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)   \
    {                                                                                              \
        typedef calc real;                                                                         \
        const memory *a = (const memory *)p[1], *b = (const memory *)p[2];                         \
        memory *out = (memory *)p[0];                                                              \
        (void)arg;                                                                                 \
        if (s[0] == 1 && s[1] == 1 && s[2] == 1)                                                   \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                const real x = load(a[i]), y = load(b[i]);                                         \
                out[i] = store((real)(expr));                                                      \
            }                                                                                      \
        else if (s[0] == 1 && s[1] == 1 && s[2] == 0) {                                            \
            const real y = load(b[0]);                                                             \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                const real x = load(a[i]);                                                         \
                out[i] = store((real)(expr));                                                      \
            }                                                                                      \
        } else if (s[0] == 1 && s[1] == 0 && s[2] == 1) {                                          \
            const real x = load(a[0]);                                                             \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                const real y = load(b[i]);                                                         \
                out[i] = store((real)(expr));                                                      \
            }                                                                                      \
        } else                                                                                     \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const real x = load(a[i * s[1]]), y = load(b[i * s[2]]);                           \
                out[i * s[0]] = store((real)(expr));                                               \
            }                                                                                      \
    }

#define HALVES(op, half)                                                                           \
    static void op##_##half(int64_t n, char *const *p, const int64_t *s, const void *arg)          \
    {                                                                                              \
        pare_ref_halves(n, p, s, 2, PARE_##half, op##_f32, arg);                                   \
    }

#define ROWS_FLOAT(op, expr)                                                                       \
    ROW(op, f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES, expr)                  \
    ROW(op, f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                           \
    HALVES(op, f16)                                                                                \
    HALVES(op, bf16)
#define ROWS_SIGNED(op, expr)                                                                      \
    ROW(op, s8, int8_t, int8_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                            \
    ROW(op, s16, int16_t, int16_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                         \
    ROW(op, s32, int32_t, int32_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                         \
    ROW(op, s64, int64_t, int64_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)
#define ROWS_UNSIGNED(op, expr)                                                                    \
    ROW(op, u8, uint8_t, uint8_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                          \
    ROW(op, u16, uint16_t, uint16_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                       \
    ROW(op, u32, uint32_t, uint32_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)                       \
    ROW(op, u64, uint64_t, uint64_t, PARE_REF_AS_IS, PARE_REF_AS_IS, , expr)
#define ENTRY(op, type) [PARE_##type] = op##_##type
#define TABLE(op)                                                                                  \
    static const pare_ref_row op##_rows[PARE_DTYPE_COUNT] = {                                      \
        ENTRY(op, f32), ENTRY(op, f64), ENTRY(op, f16), ENTRY(op, bf16),                           \
        ENTRY(op, s8),  ENTRY(op, u8),  ENTRY(op, s16), ENTRY(op, u16),                            \
        ENTRY(op, s32), ENTRY(op, u32), ENTRY(op, s64), ENTRY(op, u64)};

/* Rows for all numbers: floats, signed, unsigned. */
#define ROWS(op, expr, signed_expr, unsigned_expr)                                                 \
    ROWS_FLOAT(op, expr) ROWS_SIGNED(op, signed_expr) ROWS_UNSIGNED(op, unsigned_expr) TABLE(op)

ROWS(add, x + y, (uint64_t)x + (uint64_t)y, (uint64_t)x + (uint64_t)y)
ROWS(sub, x - y, (uint64_t)x - (uint64_t)y, (uint64_t)x - (uint64_t)y)
ROWS(mul, x *y, (uint64_t)x *(uint64_t)y, (uint64_t)x *(uint64_t)y)
ROWS(div, x / y, pare_int_divide(x, y), y == 0 ? 0 : x / y)
ROWS(prelu, x < 0 ? x * y : x, x<0 ? (uint64_t)x *(uint64_t)y : (uint64_t)x, y> 0 ? x : x)
ROWS(min, x != x ? x : y != y ? y : x < y ? x : y, x < y ? x : y, x < y ? x : y)
ROWS(max, x != x ? x : y != y ? y : x > y ? x : y, x > y ? x : y, x > y ? x : y)
ROWS(fmod, fmod(x, y), pare_int_remainder(x, y), y == 0 ? 0 : x % y)
ROWS(mod, x - floor(x / y) * y, pare_int_modulo(x, y), y == 0 ? 0 : x % y)

/* --- kernels of two inputs --- */

static bool two_can(const pare_prep *p)
{
    return pare_ref_can_numbers(p) && p->in[1].dtype == p->in[0].dtype;
}

#define TWO(op)                                                                                    \
    static pare_status op##_run(const pare_call *c)                                                \
    {                                                                                              \
        pare_ref_each_call(c, 2, op##_rows[c->in[0].dtype], NULL);                                 \
        return PARE_OK;                                                                            \
    }                                                                                              \
    static const pare_kernel ref_##op = {.name = "ref_" #op,                                       \
                                         .can = two_can,                                           \
                                         .run = op##_run,                                          \
                                         .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE_ANY};      \
    const pare_kernel *const pare_cpu_##op[] = {&ref_##op, NULL};
TWO(add)
TWO(sub)
TWO(mul)
TWO(div)
TWO(prelu)

/* --- one short operand beside f32 --- */

typedef struct mixed {
    pare_ref_row row; /* of f32 */
    const pare_type_info *type[3];
} mixed;

static void mixed_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    enum { AT_ONCE = 64 };
    const mixed *m = arg;
    float v[3][AT_ONCE];
    int64_t step[3];
    for (int k = 0; k < 3; k++) step[k] = s[k] * (m->type[k]->bits / 8);
    for (int64_t at = 0; at < n; at += AT_ONCE) {
        const int64_t count = n - at < AT_ONCE ? n - at : AT_ONCE;
        for (int k = 1; k < 3; k++)
            for (int64_t i = 0; i < count; i++)
                v[k][i] = m->type[k]->to_f32(p[k] + (at + i) * step[k]);
        m->row(count, (char *const[]){(char *)v[0], (char *)v[1], (char *)v[2]},
               (const int64_t[]){1, 1, 1}, NULL);
        for (int64_t i = 0; i < count; i++)
            m->type[0]->from_f32_ref(p[0] + (at + i) * step[0], v[0][i]);
    }
}

static pare_status mixed_prepare(pare_prep *p)
{
    static const pare_ref_row rows[] = {[PARE_MIXED_ADD] = add_f32,
                                        [PARE_MIXED_SUB] = sub_f32,
                                        [PARE_MIXED_MUL] = mul_f32,
                                        [PARE_MIXED_DIV] = div_f32};
    mixed *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    pare_mixed_kind kind;
    if (!m) return PARE_MEMORY;
    PARE_TRY(pare_mixed_read(p->node, &kind));
    m->row = rows[kind];
    m->type[0] = pare_type(p->out[0].dtype);
    for (int k = 0; k < 2; k++) m->type[1 + k] = pare_type(p->in[k].dtype);
    p->state = m;
    return PARE_OK;
}

static pare_status mixed_run(const pare_call *c)
{
    pare_ref_each_call(c, 2, mixed_row, c->state);
    return PARE_OK;
}

static const pare_kernel ref_mixed_binary = {.name = "ref_mixed_binary",
                                             .prepare = mixed_prepare,
                                             .run = mixed_run,
                                             .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_mixed_binary[] = {&ref_mixed_binary, NULL};

static pare_status mod_prepare(pare_prep *p)
{
    const pare_ref_row *row = pare_arena_memdup(
        p->arena, &(pare_node_int(p->node, "fmod", 0) ? fmod_rows : mod_rows)[p->in[0].dtype],
        sizeof *row);
    p->state = (void *)row;
    return row ? PARE_OK : PARE_MEMORY;
}

static pare_status mod_run(const pare_call *c)
{
    pare_ref_each_call(c, 2, *(const pare_ref_row *)c->state, NULL);
    return PARE_OK;
}

static const pare_kernel ref_mod = {.name = "ref_mod",
                                    .can = two_can,
                                    .prepare = mod_prepare,
                                    .run = mod_run,
                                    .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE_ANY};
const pare_kernel *const pare_cpu_mod[] = {&ref_mod, NULL};

/* --- bits of integers: BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot (18), BitShift (11) --- */

#define TABLE_INTS(op)                                                                             \
    static const pare_ref_row op##_rows[PARE_DTYPE_COUNT] = {                                      \
        ENTRY(op, s8),  ENTRY(op, u8),  ENTRY(op, s16), ENTRY(op, u16),                            \
        ENTRY(op, s32), ENTRY(op, u32), ENTRY(op, s64), ENTRY(op, u64)};
#define ROWS_BITS(op, expr) ROWS_SIGNED(op, expr) ROWS_UNSIGNED(op, expr) TABLE_INTS(op)

ROWS_BITS(bitwise_and, x &y)
ROWS_BITS(bitwise_or, x | y)
ROWS_BITS(bitwise_xor, x ^ y)
/* Of one input: y is x again. */
ROWS_BITS(bitwise_not, ~x | (y & 0))
/* A shift by the type's bits or more leaves 0. */
ROWS_BITS(shift_left, (uint64_t)y >= 8 * sizeof(real) ? 0 : (real)((uint64_t)x << y))
ROWS_BITS(shift_right, (uint64_t)y >= 8 * sizeof(real) ? 0 : (real)(x >> y))

static bool bits_can(const pare_prep *p)
{
    const pare_dtype type = p->in[0].dtype;
    return pare_ref_in_set(type, PARE_SET_INTS) && (p->in_count < 2 || p->in[1].dtype == type);
}

static bool shift_can(const pare_prep *p)
{
    const unsigned types = PARE_BIT(u8) | PARE_BIT(u16) | PARE_BIT(u32) | PARE_BIT(u64);
    return bits_can(p) && pare_ref_in_set(p->in[0].dtype, types);
}

static pare_status bits_run(const pare_call *c, const pare_ref_row *rows)
{
    const pare_view *in[] = {&c->in[0], &c->in[c->in_count > 1]};
    pare_ref_each(&c->out[0], in, 2, c->threads, rows[c->in[0].dtype], NULL);
    return PARE_OK;
}

#define BITS(op)                                                                                   \
    static pare_status op##_run(const pare_call *c) { return bits_run(c, op##_rows); }             \
    static const pare_kernel ref_##op = {                                                          \
        .name = "ref_" #op, .can = bits_can, .run = op##_run, .flags = PARE_KERNEL_REF};           \
    const pare_kernel *const pare_cpu_##op[] = {&ref_##op, NULL};
BITS(bitwise_and)
BITS(bitwise_or)
BITS(bitwise_xor)
BITS(bitwise_not)

static pare_status bit_shift_run(const pare_call *c)
{
    const bool left = !strcmp(pare_node_string(c->node, "direction", ""), "LEFT");
    return bits_run(c, left ? shift_left_rows : shift_right_rows);
}

static const pare_kernel ref_bit_shift = {
    .name = "ref_bit_shift", .can = shift_can, .run = bit_shift_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_bit_shift[] = {&ref_bit_shift, NULL};

/* --- kernels of any number of inputs --- */

static bool many_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++)
        if (p->in[i].dtype != p->in[0].dtype) return false;
    return pare_ref_can_numbers(p);
}

/* Folds all inputs into the output pairwise, first to last. */
static void fold_rows(const pare_call *c, const pare_view *out, const pare_ref_row *rows)
{
    const pare_ref_row row = rows[out->dtype];
    if (c->in_count == 1) {
        pare_ref_copy(out, &c->in[0], c->threads);
        return;
    }
    const pare_view *pair[2] = {&c->in[0], &c->in[1]};
    pare_ref_each(out, pair, 2, c->threads, row, NULL);
    for (int i = 2; i < c->in_count; i++) {
        const pare_view *next[2] = {out, &c->in[i]};
        pare_ref_each(out, next, 2, c->threads, row, NULL);
    }
}

/* Sums of three and more short floats: element by element in f32, rounded once. */
static void sum_short(const pare_call *c, float divisor)
{
    const pare_view *out = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(out) == 0) return;
    do {
        float sum = 0;
        for (int i = 0; i < c->in_count; i++) {
            pare_view v = pare_view_stretch(&c->in[i], out);
            sum += (float)pare_ref_get(&v, pare_ref_offset(&v, index));
        }
        pare_ref_set(out, pare_ref_offset(out, index), (double)(sum / divisor));
    } while (pare_ref_next(out, index));
}

static pare_status min_run(const pare_call *c)
{
    fold_rows(c, &c->out[0], min_rows);
    return PARE_OK;
}

static pare_status max_run(const pare_call *c)
{
    fold_rows(c, &c->out[0], max_rows);
    return PARE_OK;
}

static bool is_short(const pare_call *c)
{
    return c->out[0].dtype == PARE_f16 || c->out[0].dtype == PARE_bf16;
}

static pare_status sum_run(const pare_call *c)
{
    if (is_short(c))
        sum_short(c, 1);
    else
        fold_rows(c, &c->out[0], add_rows);
    return PARE_OK;
}

static pare_status mean_run(const pare_call *c)
{
    pare_view count = {.dtype = c->out[0].dtype};
    double element;
    count.data = &element;
    if (is_short(c)) {
        sum_short(c, (float)c->in_count);
        return PARE_OK;
    }
    pare_ref_set(&count, 0, c->in_count);
    fold_rows(c, &c->out[0], add_rows);
    const pare_view *pair[2] = {&c->out[0], &count};
    pare_ref_each(&c->out[0], pair, 2, c->threads, div_rows[count.dtype], NULL);
    return PARE_OK;
}

#define MANY(op)                                                                                   \
    static const pare_kernel ref_##op = {                                                          \
        .name = "ref_" #op, .can = many_can, .run = op##_run, .flags = PARE_KERNEL_REF};           \
    const pare_kernel *const pare_cpu_##op[] = {&ref_##op, NULL};
MANY(min)
MANY(max)
MANY(sum)
MANY(mean)

/* --- Pow (15): the exponent may have another type than the base --- */

/* x * x and x * x * x where a constant exponent asks for them, else powf. */
PARE_CLONES static void pow_f32(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    const float *a = (const float *)p[1], *b = (const float *)p[2];
    float *out = (float *)p[0];
    (void)arg;
    if (s[2] == 0 && b[0] == 2)
        for (int64_t i = 0; i < n; i++) out[i * s[0]] = a[i * s[1]] * a[i * s[1]];
    else if (s[2] == 0 && b[0] == 3)
        for (int64_t i = 0; i < n; i++) out[i * s[0]] = a[i * s[1]] * a[i * s[1]] * a[i * s[1]];
    else
        for (int64_t i = 0; i < n; i++) out[i * s[0]] = pow(a[i * s[1]], b[i * s[2]]);
}

HALVES(pow, f16)
HALVES(pow, bf16)

static void pow_mixed(const pare_call *c)
{
    const pare_view *out = &c->out[0];
    pare_view a = pare_view_stretch(&c->in[0], out), b = pare_view_stretch(&c->in[1], out);
    int64_t index[PARE_MAX_RANK] = {0};
    bool ints = pare_ref_in_set(a.dtype, PARE_SET_INTS) && pare_ref_in_set(b.dtype, PARE_SET_INTS);
    if (pare_view_count(out) == 0) return;
    do {
        int64_t at = pare_ref_offset(out, index), i = pare_ref_offset(&a, index),
                j = pare_ref_offset(&b, index);
        if (ints)
            pare_ref_set_int(out, at,
                             pare_int_power(pare_ref_get_int(&a, i), pare_ref_get_int(&b, j)));
        else if (a.dtype == PARE_f64)
            pare_ref_set(out, at, pow(pare_ref_get(&a, i), pare_ref_get(&b, j)));
        else if (pare_type_is_float(a.dtype))
            pare_ref_set(out, at,
                         (double)pow((float)pare_ref_get(&a, i), (float)pare_ref_get(&b, j)));
        else
            pare_ref_set(out, at, pow(pare_ref_get(&a, i), pare_ref_get(&b, j)));
    } while (pare_ref_next(out, index));
}

static bool pow_can(const pare_prep *p)
{
    return pare_ref_can_numbers(p) && pare_ref_in_set(p->in[1].dtype, PARE_SET_NUMBERS);
}

static pare_status pow_run(const pare_call *c)
{
    pare_dtype base = c->in[0].dtype;
    if (base == PARE_f32 && c->in[1].dtype == PARE_f32)
        pare_ref_each_call(c, 2, pow_f32, NULL);
    else if ((base == PARE_f16 || base == PARE_bf16) && c->in[1].dtype == base)
        pare_ref_each_call(c, 2, base == PARE_f16 ? pow_f16 : pow_bf16, NULL);
    else
        pow_mixed(c);
    return PARE_OK;
}

static const pare_kernel ref_pow = {
    .name = "ref_pow", .can = pow_can, .run = pow_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_pow[] = {&ref_pow, NULL};

/* Clip (13): y = min(max(x, low), high); an absent limit does not limit; NaN stays NaN. */

#undef ROW
#undef ENTRY
#define ROW(type, memory, calc, load, store, clones)                                               \
    clones static void clip_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)   \
    {                                                                                              \
        const pare_view *const *limit = arg;                                                       \
        const memory *in = (const memory *)p[1];                                                   \
        memory *out = (memory *)p[0];                                                              \
        const bool has_low = limit[0] != NULL, has_high = limit[1] != NULL;                        \
        const calc low = has_low ? (calc)load(*(const memory *)limit[0]->data) : (calc)0;          \
        const calc high = has_high ? (calc)load(*(const memory *)limit[1]->data) : (calc)0;        \
        if (has_low && has_high && s[0] == 1 && s[1] == 1)                                         \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                calc x = load(in[i]);                                                              \
                x = x < low ? low : x;                                                             \
                out[i] = store(x > high ? high : x);                                               \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                calc x = load(in[i * s[1]]);                                                       \
                x = has_low && x < low ? low : x;                                                  \
                out[i * s[0]] = store(has_high && x > high ? high : x);                            \
            }                                                                                      \
    }
#define PLAIN(type, memory, calc, load, store) ROW(type, memory, calc, load, store, )
ROW(f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES)
ROW(f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS, )
ROW(f16, uint16_t, float, pare_f16_to_f32, pare_f32_to_f16, )
ROW(bf16, uint16_t, float, pare_bf16_to_f32, pare_f32_to_bf16, )
PARE_REF_INTS(PLAIN)

#define ENTRY(type, memory, calc, load, store) [PARE_##type] = clip_##type,
static const pare_ref_row clip_rows[PARE_DTYPE_COUNT] = {PARE_REF_NUMBERS(ENTRY)};

static bool clip_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count && i < 3; i++)
        if (p->in[i].dtype && p->in[i].dtype != p->in[0].dtype) return false;
    return clip_rows[p->in[0].dtype] != NULL;
}

static pare_status clip_run(const pare_call *c)
{
    const pare_view *limit[2] = {NULL, NULL};
    for (int i = 1; i < c->in_count && i < 3; i++)
        if (c->in[i].dtype && pare_view_count(&c->in[i]) > 0) limit[i - 1] = &c->in[i];
    pare_ref_each_call(c, 1, clip_rows[c->in[0].dtype], limit);
    return PARE_OK;
}

static const pare_kernel ref_clip = {.name = "ref_clip",
                                     .can = clip_can,
                                     .run = clip_run,
                                     .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_clip[] = {&ref_clip, NULL};
