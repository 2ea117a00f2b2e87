/* SPDX-License-Identifier: Apache-2.0 */
/* QAdd, QMul, Table, Requantize and QConcat, any strides.
     QAdd        v = fmaf(b - z_b, s_b / s_y, (a - z_a) * (s_a / s_y))
     QMul        v = ((a - z_a) * (b - z_b)) * ((s_a * s_b) / s_y)
     Requantize  v = (x - z_x) * (s_x / s_y); QConcat the same per input
   then activation, rounding and clamping of epilogue.h. With an f32 output s_y is 1. */
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/int8_simd.h"
#include "runtime/cpu/ref.h"

typedef struct binary_args {
    pare_quant_args q;
    pare_epilogue epilogue;
    float a, b; /* QAdd: factors of both; QMul: a is the factor of the product */
    pare_dtype a_type, b_type;
    bool vectors; /* AVX2, and an epilogue it does */
} binary_args;

static pare_status binary_prepare(pare_prep *p, bool product)
{
    binary_args *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    pare_act act;
    PARE_TRY(pare_quant_read(p->node, &m->q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&m->epilogue, &m->q, &act, PARE_NOTYPE);
    float y_scale = m->epilogue.real ? 1 : m->q.y_scale;
    m->a = (product ? m->q.x_scale * m->q.z_scale : m->q.x_scale) / y_scale;
    m->b = m->q.z_scale / y_scale;
    m->a_type = p->in[0].dtype, m->b_type = p->in[1].dtype;
    bool straight =
        act.kind == PARE_ACT_NONE || act.kind == PARE_ACT_RELU || act.kind == PARE_ACT_CLIP;
    m->vectors = !product && straight && m->q.to != PARE_f32 && pare_cpu_isa() >= PARE_ISA_AVX2;
    p->state = m;
    return PARE_OK;
}

static pare_status add_prepare(pare_prep *p)
{
    return binary_prepare(p, false);
}
static pare_status mul_prepare(pare_prep *p)
{
    return binary_prepare(p, true);
}

static bool int8_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype);
}

PARE_CLONES_FMA static void add_floats(int64_t n, float *a, const float *b, float ma, float mb)
{
    for (int64_t i = 0; i < n; i++) a[i] = fmaf(b[i], mb, a[i] * ma);
}

PARE_CLONES_FMA static void mul_floats(int64_t n, float *a, const float *b, float m)
{
    for (int64_t i = 0; i < n; i++) a[i] = (a[i] * b[i]) * m;
}

static void binary_row(int64_t n, char *const *p, const int64_t *s, const binary_args *m,
                       bool product)
{
    float a[PARE_ROW], b[PARE_ROW];
    for (int64_t at = 0; at < n; at += PARE_ROW) {
        int64_t k = n - at < PARE_ROW ? n - at : PARE_ROW;
        pare_row_load(a, k, p[1] + at * s[1], m->a_type, s[1], m->q.x_zero);
        pare_row_load(b, k, p[2] + at * s[2], m->b_type, s[2], m->q.z_zero);
        if (product)
            mul_floats(k, a, b, m->a);
        else
            add_floats(k, a, b, m->a, m->b);
        pare_row_store(&m->epilogue, k, a, pare_element(p[0], m->epilogue.to, at * s[0]), s[0]);
    }
}

static void add_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    int64_t done = 0;
#ifdef PARE_INT8_SIMD
    const binary_args *m = arg;
    pare_int8_sum sum = {.epilogue = &m->epilogue,
                         .a = m->a,
                         .b = m->b,
                         .a_zero = m->q.x_zero,
                         .b_zero = m->q.z_zero,
                         .a_type = m->a_type,
                         .b_type = m->b_type};
    if (m->vectors && s[0] == 1 && s[1] == 1 && s[2] == 1)
        done = pare_int8_add_avx2(&sum, n, p[1], p[2], p[0]);
    if (done == n) return;
#endif
    char *rest[3] = {pare_element(p[0], ((const binary_args *)arg)->epilogue.to, done * s[0]),
                     p[1] + done * s[1], p[2] + done * s[2]};
    binary_row(n - done, rest, s, arg, false);
}

static void mul_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    binary_row(n, p, s, arg, true);
}

static pare_status add_run(const pare_call *c)
{
    pare_ref_each_call(c, 2, add_row, c->state);
    return PARE_OK;
}

static pare_status mul_run(const pare_call *c)
{
    pare_ref_each_call(c, 2, mul_row, c->state);
    return PARE_OK;
}

static const pare_kernel q_add = {.name = "int8_add",
                                  .can = int8_can,
                                  .prepare = add_prepare,
                                  .run = add_run,
                                  .flags = PARE_KERNEL_REF};
static const pare_kernel q_mul = {.name = "int8_mul",
                                  .can = int8_can,
                                  .prepare = mul_prepare,
                                  .run = mul_run,
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

/* The table of x -> y for x of this type; e's units are steps of y. */
static void requantize_table(uint8_t *out, pare_dtype type, int32_t x_zero, float factor,
                             const pare_epilogue *e)
{
    for (int i = 0; i < 256; i++) {
        int32_t x = type == PARE_s8 ? (int8_t)i : i;
        pare_epilogue_store(e, (float)(x - x_zero) * factor, out, i);
    }
}

static pare_status requantize_prepare(pare_prep *p)
{
    uint8_t *out = pare_arena_alloc(p->arena, 256, 1);
    if (!out) return PARE_MEMORY;
    pare_quant_args q;
    pare_act act;
    pare_epilogue e;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&e, &q, &act, PARE_NOTYPE);
    requantize_table(out, p->in[0].dtype, q.x_zero, e.real ? q.x_scale : q.x_scale / q.y_scale, &e);
    p->state = out;
    return PARE_OK;
}

static bool requantize_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->out[0].dtype);
}

static pare_status requantize_run(const pare_call *c)
{
    pare_ref_each_call(c, 1, table_row, c->state);
    return PARE_OK;
}

static const pare_kernel requantize = {.name = "int8_requantize",
                                       .can = requantize_can,
                                       .prepare = requantize_prepare,
                                       .run = requantize_run,
                                       .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_requantize[] = {&requantize, NULL};

/* --- QConcat: every input through its table, into its part of y --- */

typedef struct concat_args {
    int axis;
    const uint8_t **table; /* per input; NULL: equal scale, zero point and type, a plain copy */
} concat_args;

static pare_status concat_prepare(pare_prep *p)
{
    concat_args *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    m->table = pare_arena_alloc(p->arena, (size_t)p->in_count, sizeof *m->table);
    if (!m->table) return PARE_MEMORY;
    int64_t axis = pare_node_int(p->node, "axis", 0);
    m->axis = (int)(axis < 0 ? axis + p->out[0].rank : axis);
    const float *scales = pare_node_attr(p->node, "scales")->floats;
    const int64_t *zeros = pare_node_attr(p->node, "zero_points")->ints;
    int last = p->in_count;
    pare_quant_args q = {
        .y_scale = scales[last], .y_zero = (int32_t)zeros[last], .to = p->out[0].dtype};
    pare_act act = {0};
    pare_epilogue e;
    pare_epilogue_init(&e, &q, &act, PARE_NOTYPE);
    for (int i = 0; i < last; i++) {
        if (scales[i] == scales[last] && zeros[i] == zeros[last] && p->in[i].dtype == q.to)
            continue;
        uint8_t *t = pare_arena_alloc(p->arena, 256, 1);
        if (!t) return PARE_MEMORY;
        requantize_table(t, p->in[i].dtype, (int32_t)zeros[i], scales[i] / q.y_scale, &e);
        m->table[i] = t;
    }
    p->state = m;
    return PARE_OK;
}

static bool concat_can(const pare_prep *p)
{
    for (int i = 0; i < p->in_count; i++)
        if (!pare_type_is_int8(p->in[i].dtype)) return false;
    return pare_type_is_int8(p->out[0].dtype);
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
        else
            pare_ref_copy(&part, x, c->threads);
        part.data = (char *)part.data + part.dim[m->axis] * part.stride[m->axis];
    }
    return PARE_OK;
}

static const pare_kernel q_concat = {.name = "int8_concat",
                                     .can = concat_can,
                                     .prepare = concat_prepare,
                                     .run = concat_run,
                                     .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_q_concat[] = {&q_concat, NULL};
