/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons, logic, choices: Equal (19) Less Greater (13) LessOrEqual GreaterOrEqual (16) And Or
   Xor (7) Not (1) Where (16) IsNaN (20) IsInf (20). Truth is one byte, 0 or 1. */
#include "runtime/cpu/ref.h"

#include <math.h>
#include <string.h>

#define ROW(op, type, memory, calc, load, store, expr)                                             \
    static void op##_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)          \
    {                                                                                              \
        const memory *a = (const memory *)p[1], *b = (const memory *)p[2];                         \
        uint8_t *out = (uint8_t *)p[0];                                                            \
        (void)arg;                                                                                 \
        if (s[0] == 1 && s[1] == 1 && s[2] == 1)                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const calc x = load(a[i]), y = load(b[i]);                                         \
                out[i] = (expr);                                                                   \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const calc x = load(a[i * s[1]]), y = load(b[i * s[2]]);                           \
                out[i * s[0]] = (expr);                                                            \
            }                                                                                      \
    }

#define EQUAL(type, memory, calc, load, store) ROW(equal, type, memory, calc, load, store, x == y)
#define LESS(type, memory, calc, load, store)  ROW(less, type, memory, calc, load, store, x < y)
#define GREATER(type, memory, calc, load, store)                                                   \
    ROW(greater, type, memory, calc, load, store, x > y)
#define LESS_EQUAL(type, memory, calc, load, store)                                                \
    ROW(less_or_equal, type, memory, calc, load, store, x <= y)
#define GREATER_EQUAL(type, memory, calc, load, store)                                             \
    ROW(greater_or_equal, type, memory, calc, load, store, x >= y)
PARE_REF_NUMBERS(EQUAL)
PARE_REF_NUMBERS(LESS)
PARE_REF_NUMBERS(GREATER)
PARE_REF_NUMBERS(LESS_EQUAL)
PARE_REF_NUMBERS(GREATER_EQUAL)
ROW(equal, bool, uint8_t, uint8_t, PARE_REF_AS_IS, , !x == !y)
ROW(equal, string, pare_bytes, pare_bytes, PARE_REF_AS_IS, , pare_bytes_equal(x, y))
ROW(and, bool, uint8_t, uint8_t, PARE_REF_AS_IS, , x &&y)
ROW(or, bool, uint8_t, uint8_t, PARE_REF_AS_IS, , x || y)
ROW(xor, bool, uint8_t, uint8_t, PARE_REF_AS_IS, , !x != !y)

#define ENTRY_OF(op, type) [PARE_##type] = op##_##type
#define TABLE(op)                                                                                  \
    ENTRY_OF(op, f32), ENTRY_OF(op, f64), ENTRY_OF(op, f16), ENTRY_OF(op, bf16), ENTRY_OF(op, s8), \
        ENTRY_OF(op, u8), ENTRY_OF(op, s16), ENTRY_OF(op, u16), ENTRY_OF(op, s32),                 \
        ENTRY_OF(op, u32), ENTRY_OF(op, s64), ENTRY_OF(op, u64)

#define KERNEL(op, ...)                                                                            \
    static const pare_ref_row op##_rows[PARE_DTYPE_COUNT] = {__VA_ARGS__};                         \
    static bool op##_can(const pare_prep *p)                                                       \
    {                                                                                              \
        return op##_rows[p->in[0].dtype] && p->in[1].dtype == p->in[0].dtype;                      \
    }                                                                                              \
    static pare_status op##_run(const pare_call *c)                                                \
    {                                                                                              \
        pare_ref_each_call(c, 2, op##_rows[c->in[0].dtype], NULL);                                 \
        return PARE_OK;                                                                            \
    }                                                                                              \
    static const pare_kernel ref_##op = {                                                          \
        .name = "ref_" #op, .can = op##_can, .run = op##_run, .flags = PARE_KERNEL_REF};           \
    const pare_kernel *const pare_cpu_##op[] = {&ref_##op, NULL};
KERNEL(equal, TABLE(equal), ENTRY_OF(equal, bool), ENTRY_OF(equal, string))
KERNEL(less, TABLE(less))
KERNEL(greater, TABLE(greater))
KERNEL(less_or_equal, TABLE(less_or_equal))
KERNEL(greater_or_equal, TABLE(greater_or_equal))
KERNEL(and, ENTRY_OF(and, bool))
KERNEL(or, ENTRY_OF(or, bool))
KERNEL(xor, ENTRY_OF(xor, bool))

/* --- one input --- */

static void not_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) p[0][i * s[0]] = !p[1][i * s[1]];
}

static bool not_can(const pare_prep *p) { return p->in[0].dtype == PARE_bool; }

static pare_status not_run(const pare_call *c)
{
    pare_ref_each_call(c, 1, not_row, NULL);
    return PARE_OK;
}

static const pare_kernel ref_not = {.name = "ref_not",
                                    .can = not_can,
                                    .run = not_run,
                                    .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_not[] = {&ref_not, NULL};

/* Which infinities count; for IsNaN neither is looked at. */
typedef struct wanted {
    bool positive, negative;
} wanted;

#define ODD_ROW(type, memory, calc, load, store)                                                   \
    static void is_nan_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)        \
    {                                                                                              \
        (void)arg;                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const calc x = load(((const memory *)p[1])[i * s[1]]);                                 \
            ((uint8_t *)p[0])[i * s[0]] = x != x;                                                  \
        }                                                                                          \
    }                                                                                              \
    static void is_inf_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)        \
    {                                                                                              \
        const wanted *w = arg;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const calc x = load(((const memory *)p[1])[i * s[1]]);                                 \
            const bool yes = isinf(x) && (x > 0 ? w->positive : w->negative);                      \
            ((uint8_t *)p[0])[i * s[0]] = yes;                                                     \
        }                                                                                          \
    }
PARE_REF_FLOATS(ODD_ROW)

#define FLOAT_TABLE(op)                                                                            \
    {                                                                                              \
        ENTRY_OF(op, f32), ENTRY_OF(op, f64), ENTRY_OF(op, f16), ENTRY_OF(op, bf16)                \
    }
static const pare_ref_row is_nan_rows[PARE_DTYPE_COUNT] = FLOAT_TABLE(is_nan);
static const pare_ref_row is_inf_rows[PARE_DTYPE_COUNT] = FLOAT_TABLE(is_inf);

static pare_status is_nan_run(const pare_call *c)
{
    pare_ref_each_call(c, 1, is_nan_rows[c->in[0].dtype], NULL);
    return PARE_OK;
}

static pare_status is_inf_prepare(pare_prep *p)
{
    wanted *w = pare_arena_alloc(p->arena, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    w->positive = pare_node_int(p->node, "detect_positive", 1) != 0;
    w->negative = pare_node_int(p->node, "detect_negative", 1) != 0;
    p->state = w;
    return PARE_OK;
}

static pare_status is_inf_run(const pare_call *c)
{
    pare_ref_each_call(c, 1, is_inf_rows[c->in[0].dtype], c->state);
    return PARE_OK;
}

static const pare_kernel ref_is_nan = {
    .name = "ref_is_nan", .can = pare_ref_can_floats, .run = is_nan_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_is_nan[] = {&ref_is_nan, NULL};
static const pare_kernel ref_is_inf = {.name = "ref_is_inf",
                                       .can = pare_ref_can_floats,
                                       .prepare = is_inf_prepare,
                                       .run = is_inf_run,
                                       .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_is_inf[] = {&ref_is_inf, NULL};

/* --- Where: moves elements of any type of whole bytes --- */

#define WHERE_ROW(bits, element)                                                                   \
    static void where_row_##bits(int64_t n, char *const *p, const int64_t *s, const void *arg)     \
    {                                                                                              \
        const uint8_t *when = (const uint8_t *)p[1];                                               \
        const element *x = (const element *)p[2], *y = (const element *)p[3];                      \
        element *out = (element *)p[0];                                                            \
        (void)arg;                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i * s[0]] = when[i * s[1]] ? x[i * s[2]] : y[i * s[3]];                            \
    }
WHERE_ROW(8, uint8_t)
WHERE_ROW(16, uint16_t)
WHERE_ROW(32, uint32_t)
WHERE_ROW(64, uint64_t)
WHERE_ROW(128, pare_bytes)

static bool where_can(const pare_prep *p)
{
    return p->in[0].dtype == PARE_bool && pare_type(p->in[1].dtype)->bits >= 8 &&
           p->in[2].dtype == p->in[1].dtype;
}

static pare_status where_run(const pare_call *c)
{
    int bits = pare_type(c->out[0].dtype)->bits;
    pare_ref_each_call(c, 3,
                       bits == 8    ? where_row_8
                       : bits == 16 ? where_row_16
                       : bits == 32 ? where_row_32
                       : bits == 64 ? where_row_64
                                    : where_row_128,
                       NULL);
    return PARE_OK;
}

static const pare_kernel ref_where = {
    .name = "ref_where", .can = where_can, .run = where_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_where[] = {&ref_where, NULL};
