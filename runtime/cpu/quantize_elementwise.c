/* SPDX-License-Identifier: Apache-2.0 */
/* QAdd, QMul, Table, Requantize and QConcat (formulas: runtime/ops/int8_elementwise.h), any
   strides. */
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/gemm/int8_simd.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/int8_elementwise.h"

typedef struct binary_args {
    pare_int8_pair pair;
    bool vectors; /* AVX2, and an epilogue it does */
} binary_args;

static pare_status binary_prepare(pare_prep *p, bool product)
{
    binary_args *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    PARE_TRY(pare_int8_pair_read(p, product, &m->pair));
    const pare_epilogue *e = &m->pair.epilogue;
    bool straight = e->act.kind == PARE_ACT_NONE || e->act.kind == PARE_ACT_RELU ||
                    e->act.kind == PARE_ACT_CLIP;
    m->vectors = !product && straight && e->to != PARE_f32 && pare_cpu_isa() >= PARE_ISA_AVX2;
    p->state = m;
    return PARE_OK;
}

static pare_status add_prepare(pare_prep *p) { return binary_prepare(p, false); }
static pare_status mul_prepare(pare_prep *p) { return binary_prepare(p, true); }

PARE_CLONES_FMA static void add_floats(int64_t n, float *a, const float *b, float ma, float mb)
{
    for (int64_t i = 0; i < n; i++) a[i] = fmaf(b[i], mb, a[i] * ma);
}

PARE_CLONES_FMA static void mul_floats(int64_t n, float *a, const float *b, float m)
{
    for (int64_t i = 0; i < n; i++) a[i] = (a[i] * b[i]) * m;
}

static void binary_row(int64_t n, char *const *p, const int64_t *s, const pare_int8_pair *m)
{
    float a[PARE_ROW], b[PARE_ROW];
    for (int64_t at = 0; at < n; at += PARE_ROW) {
        int64_t k = n - at < PARE_ROW ? n - at : PARE_ROW;
        pare_row_load(a, k, p[1] + at * s[1], m->a_type, s[1], m->a_zero);
        pare_row_load(b, k, p[2] + at * s[2], m->b_type, s[2], m->b_zero);
        if (m->product)
            mul_floats(k, a, b, m->a_factor);
        else
            add_floats(k, a, b, m->a_factor, m->b_factor);
        pare_row_store(&m->epilogue, k, a, pare_element(p[0], m->epilogue.to, at * s[0]), s[0]);
    }
}

static void pair_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    const binary_args *m = arg;
    int64_t done = 0;
#ifdef PARE_INT8_SIMD
    if (m->vectors && s[0] == 1 && s[1] == 1 && s[2] == 1)
        done = pare_int8_add_avx2(&m->pair, n, p[1], p[2], p[0]);
    if (done == n) return;
#endif
    char *rest[3] = {pare_element(p[0], m->pair.epilogue.to, done * s[0]), p[1] + done * s[1],
                     p[2] + done * s[2]};
    binary_row(n - done, rest, s, &m->pair);
}

static pare_status pair_run(const pare_call *c)
{
    pare_ref_each_call(c, 2, pair_row, c->state);
    return PARE_OK;
}

static const pare_kernel q_add = {.name = "int8_add",
                                  .can = pare_int8_pair_can,
                                  .prepare = add_prepare,
                                  .run = pair_run,
                                  .flags = PARE_KERNEL_REF};
static const pare_kernel q_mul = {.name = "int8_mul",
                                  .can = pare_int8_pair_can,
                                  .prepare = mul_prepare,
                                  .run = pair_run,
                                  .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_q_add[] = {&q_add, NULL};
const pare_kernel *const pare_cpu_q_mul[] = {&q_mul, NULL};

/* --- one 8-bit tensor to another: a table of 256 --- */

static void table_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    pare_row_table(arg, n, (const uint8_t *)p[1], s[1], (uint8_t *)p[0], s[0]);
}

static pare_status table_run(const pare_call *c)
{
    pare_ref_each_call(c, 1, table_row, c->in[1].data);
    return PARE_OK;
}

static bool table_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_view_rowmajor(&p->in[1]);
}

static const pare_kernel table = {.name = "int8_table",
                                  .can = table_can,
                                  .run = table_run,
                                  .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_table[] = {&table, NULL};

static pare_status requantize_prepare(pare_prep *p)
{
    p->state = pare_arena_alloc(p->arena, 256, 1);
    return p->state ? pare_requantize_table(p, p->state) : PARE_MEMORY;
}

static pare_status requantize_run(const pare_call *c)
{
    pare_ref_each_call(c, 1, table_row, c->state);
    return PARE_OK;
}

static const pare_kernel requantize = {.name = "int8_requantize",
                                       .can = pare_requantize_can,
                                       .prepare = requantize_prepare,
                                       .run = requantize_run,
                                       .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_requantize[] = {&requantize, NULL};

/* --- QConcat: every input through its table, into its part of y --- */

typedef struct concat_args {
    int axis;
    const uint8_t **table; /* per input; NULL: a plain copy */
} concat_args;

static pare_status concat_prepare(pare_prep *p)
{
    concat_args *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    uint8_t *tables = pare_arena_alloc(p->arena, (size_t)p->in_count, 256);
    if (!m || !tables) return PARE_MEMORY;
    m->table = pare_arena_alloc(p->arena, (size_t)p->in_count, sizeof *m->table);
    if (!m->table) return PARE_MEMORY;
    m->axis = pare_node_axis(p->node, 0, p->out[0].rank);
    pare_concat_tables(p, tables);
    for (int i = 0; i < p->in_count; i++)
        m->table[i] = pare_concat_is_copy(p->node, i) ? NULL : tables + 256 * (size_t)i;
    p->state = m;
    return PARE_OK;
}

static pare_status concat_run(const pare_call *c)
{
    const concat_args *m = c->state;
    pare_view part = c->out[0];
    for (int i = 0; i < c->in_count; i++) {
        const pare_view *x = &c->in[i];
        part.dim[m->axis] = x->dim[m->axis];
        if (m->table[i])
            pare_ref_each(&part, &x, 1, c->threads, table_row, m->table[i]);
        else if (x->data != part.data) /* a plan may have made it there */
            pare_ref_copy(&part, x, c->threads);
        part.data = (char *)part.data + part.dim[m->axis] * part.stride[m->axis];
    }
    return PARE_OK;
}

static const pare_kernel q_concat = {.name = "int8_concat",
                                     .can = pare_requantize_can,
                                     .prepare = concat_prepare,
                                     .run = concat_run,
                                     .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_q_concat[] = {&q_concat, NULL};
