/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by oneDNN for Gemm, MatMul and FusedMatMul: f32 (f16 and bf16 through f32), and
   8-bit operands where VNNI makes its sums exact. oneDNN's matmul, never its inner product: that
   one's sums change with batch and threads.

   A 2-D B takes all leading axes of A as rows; otherwise the leading axes are one batch axis, which
   must be equal on both sides or absent from one. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/onednn/onednn.h"

#include <string.h>

/* The product as oneDNN sees it: Y (batch, rows, columns), batch axis only where rank is 3. */
typedef struct product {
    int rank;
    int64_t batch, rows;
    int64_t a_batch, b_batch; /* 1 or batch */
    dnnl_memory_desc_t a, b, b_any, c, y;
    int64_t bias; /* entries: 0, 1 or columns */
} product;

static int64_t leading(const pare_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank - 2; i++) n *= v->dim[i];
    return n;
}

/* Leading axes equal to y's, or all 1. */
static bool batch_of(const pare_view *v, const pare_view *y, int64_t *out)
{
    *out = leading(v);
    if (*out == 1) return true;
    for (int i = 1; i <= v->rank - 2; i++)
        if (v->dim[v->rank - 2 - i] != y->dim[y->rank - 2 - i]) return false;
    return *out == leading(y);
}

static bool desc_make(dnnl_memory_desc_t *out, int rank, int64_t batch, int64_t rows,
                      int64_t columns, bool transposed, pare_dtype type)
{
    int64_t row = transposed ? 1 : columns, column = transposed ? rows : 1;
    dnnl_dims_t dim3 = {batch, rows, columns}, stride3 = {rows * columns, row, column};
    int skip = 3 - rank;
    return !dnnl_memory_desc_init_by_strides(out, rank, dim3 + skip, pare_dnnl_type(type),
                                             stride3 + skip);
}

/* How many entries the bias has that oneDNN adds; false where it is not one row. */
static bool bias_of(const pare_prep *p, const pare_matmul_args *m, int64_t *out)
{
    *out = m->bias ? m->columns : 0;
    if (m->at.bias < 0 || m->bias) return true;
    const pare_view *c = &p->in[m->at.bias];
    *out = pare_view_count(c);
    if (c->dtype != p->in[0].dtype) return false;
    if (*out == 1) return m->columns == 1 || c->data;
    return *out == m->columns && c->dim[c->rank - 1] == m->columns;
}

static bool types_fit(const pare_prep *p, const pare_matmul_args *m)
{
    pare_dtype a = p->in[0].dtype, b = p->in[1].dtype, y = p->out[0].dtype;
    if (m->int8)
        return (b == PARE_s8 || (b == PARE_u8 && !p->in[1].data)) &&
               pare_cpu_isa() >= PARE_ISA_VNNI && (pare_type_is_int8(y) || y == PARE_f32);
    return a == b && a == y && (a == PARE_f32 || a == PARE_f16 || a == PARE_bf16);
}

/* oneDNN's B is s8; a u8 one is handed over less 128, and so is its zero point. */
static pare_dtype b_type(const pare_prep *p)
{
    return p->in[1].dtype == PARE_u8 ? PARE_s8 : p->in[1].dtype;
}

static bool product_make(const pare_prep *p, const pare_matmul_args *m, product *out)
{
    const pare_view *a = &p->in[0], *b = &p->in[1], *y = &p->out[0];
    if (!pare_view_rowmajor(a) || !pare_view_rowmajor(b) || !pare_view_rowmajor(y)) return false;
    if (!types_fit(p, m) || !bias_of(p, m, &out->bias)) return false;
    if (pare_view_count(a) == 0 || pare_view_count(b) == 0 || pare_view_count(y) == 0) return false;
    if (!batch_of(a, y, &out->a_batch) || !batch_of(b, y, &out->b_batch)) return false;
    out->batch = m->batch, out->rows = m->rows, out->rank = 3;
    if (out->b_batch == 1 && (!m->trans_a || m->batch == 1) && out->a_batch == m->batch) {
        out->rank = 2;
        out->rows *= m->batch;
        out->a_batch = out->batch = 1;
    }
    bool canonical_gemm = p->deterministic && !m->int8 && pare_cpu_isa() < PARE_ISA_AVX512;
    if (canonical_gemm) return false; /* sums there change with the number of rows */
    dnnl_dims_t any = {out->b_batch, m->depth, m->columns};
    int skip = 3 - out->rank;
    return desc_make(&out->a, out->rank, out->a_batch, out->rows, m->depth, m->trans_a, a->dtype) &&
           desc_make(&out->b, out->rank, out->b_batch, m->depth, m->columns, m->trans_b,
                     b_type(p)) &&
           desc_make(&out->y, out->rank, out->batch, out->rows, m->columns, false, y->dtype) &&
           !dnnl_memory_desc_init_by_tag(&out->b_any, out->rank, any + skip,
                                         pare_dnnl_type(b_type(p)), dnnl_format_tag_any) &&
           desc_make(&out->c, out->rank, 1, 1, m->columns, false, PARE_f32);
}

/* Gemm's C of Y's own shape is added like a residual. */
static void full_bias(const pare_prep *p, pare_matmul_args *m)
{
    if (m->int8 || m->at.bias < 0 || m->at.residual >= 0 || m->beta != 1) return;
    const pare_view *c = &p->in[m->at.bias];
    if (pare_view_count(c) == m->columns || !pare_view_same_order(c, &p->out[0])) return;
    m->at.residual = m->at.bias;
    m->at.bias = -1;
}

static bool read_args(const pare_prep *p, pare_matmul_args *m)
{
    const pare_dtype y = p->out[0].dtype;
    if (p->in[0].rank < 2 || p->in[1].rank < 2 || p->out[0].rank < 2) return false;
    if (pare_type_is_int8(p->in[0].dtype) && y != PARE_f32 && !pare_type_is_int8(y)) return false;
    if (pare_matmul_args_read(p, m) != PARE_OK) {
        pare_ctx_clear(p->ctx);
        return false;
    }
    full_bias(p, m);
    bool scaled = !m->int8 && (m->alpha != 1 || m->beta != 1);
    if (scaled && m->at.bias >= 0 && (!p->in[m->at.bias].data || m->alpha == 0)) return false;
    return m->at.residual < 0 || pare_dnnl_residual_fits(&p->in[m->at.residual], &p->out[0]);
}

static dnnl_primitive_desc_t describe(const pare_prep *p, const pare_matmul_args *m, product *x,
                                      dnnl_engine_t engine)
{
    dnnl_matmul_desc_t op;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc = NULL;
    if (!product_make(p, m, x)) return NULL;
    if (dnnl_matmul_desc_init(&op, &x->a, p->in[1].data ? &x->b_any : &x->b, x->bias ? &x->c : NULL,
                              &x->y))
        return NULL;
    pare_quant_args q = m->q;
    if (p->in[1].dtype == PARE_u8) q.w_zero -= 128;
    pare_dnnl_attr in = {.act = &m->act,
                         .q = m->int8 ? &q : NULL,
                         .epilogue = &m->epilogue,
                         .scale = m->scale,
                         .scale_count = m->columns,
                         .mask = 1 << (x->rank - 1),
                         .sum = m->at.residual >= 0,
                         .alpha = m->alpha};
    if (!pare_dnnl_attr_make(&in, &attr)) return NULL;
    if (dnnl_primitive_desc_create(&desc, &op, attr, engine, NULL)) desc = NULL;
    dnnl_primitive_attr_destroy(attr);
    const char *name = "";
    if (desc) dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    bool exact = !m->int8 || strstr(name, "vnni") || strstr(name, "amx");
    if (desc && (strstr(name, "ref") || !exact)) {
        dnnl_primitive_desc_destroy(desc);
        desc = NULL;
    }
    return desc;
}

static bool can(const pare_prep *p)
{
    pare_matmul_args m;
    product x;
    dnnl_engine_t engine;
    if (!read_args(p, &m) || dnnl_engine_create(&engine, dnnl_cpu, 0)) return false;
    dnnl_primitive_desc_t desc = describe(p, &m, &x, engine);
    if (desc) dnnl_primitive_desc_destroy(desc);
    dnnl_engine_destroy(engine);
    return desc != NULL;
}

/* oneDNN computes alpha * (A x B + bias): bias is beta / alpha * C; one entry becomes a row. */
static pare_status add_bias(pare_prep *p, pare_dnnl *d, const pare_matmul_args *m, const product *x)
{
    const pare_view *c = &p->in[m->at.bias];
    if (m->bias) {
        pare_dnnl_add(d, DNNL_ARG_BIAS, PARE_DNNL_FIXED, m->at.bias, (void *)(uintptr_t)m->bias,
                      &x->c);
        return PARE_OK;
    }
    bool as_is = x->bias == m->columns && m->alpha == 1 && m->beta == 1;
    if (as_is) return pare_dnnl_add_in(p, d, DNNL_ARG_BIAS, m->at.bias, &x->c);
    float *row = pare_arena_alloc(p->arena, (size_t)m->columns, sizeof *row);
    if (!row) return PARE_MEMORY;
    for (int64_t i = 0; i < m->columns; i++) {
        int64_t from = x->bias == 1 ? 0 : i;
        const pare_type_info *type = pare_type(c->dtype);
        float value = type->to_f32((const char *)c->data + from * (type->bits / 8));
        row[i] = m->alpha == m->beta ? value : value * (m->beta / m->alpha);
    }
    pare_dnnl_add(d, DNNL_ARG_BIAS, PARE_DNNL_FIXED, m->at.bias, row, &x->c);
    return PARE_OK;
}

static pare_status fill(pare_prep *p, pare_dnnl *d, const pare_matmul_args *m, const product *x,
                        dnnl_primitive_desc_t desc)
{
    PARE_TRY(pare_dnnl_add_in(p, d, DNNL_ARG_SRC, 0, &x->a));
    if (p->in[1].data)
        PARE_TRY(
            pare_dnnl_add_packed(p, d, DNNL_ARG_WEIGHTS, 1, &x->b,
                                 dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0)));
    else
        PARE_TRY(pare_dnnl_add_in(p, d, DNNL_ARG_WEIGHTS, 1, &x->b));
    if (x->bias) PARE_TRY(add_bias(p, d, m, x));
    PARE_TRY(pare_dnnl_add_out(p, d, &x->y));
    if (m->at.residual >= 0) pare_dnnl_set_residual(p, d, m->at.residual, m->int8 ? &m->q : NULL);
    return pare_dnnl_make(p, d, desc);
}

static pare_status prepare(pare_prep *p)
{
    pare_matmul_args m;
    product x;
    pare_dnnl *d;
    PARE_TRY(pare_matmul_args_read(p, &m));
    full_bias(p, &m);
    PARE_TRY(pare_dnnl_new(p, &d));
    double macs = (double)(m.batch * m.rows) * (double)(m.depth * m.columns);
    d->threads = pare_dnnl_threads(p, macs, m.int8);
    pare_dnnl_use_threads(d->threads);
    dnnl_primitive_desc_t desc = describe(p, &m, &x, d->engine);
    pare_status st = desc ? fill(p, d, &m, &x, desc)
                          : pare_dnnl_fail(p->node, dnnl_unimplemented, "this matrix product");
    pare_dnnl_use_threads(p->threads);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (st != PARE_OK) {
        pare_dnnl_release(d);
        p->state = NULL;
    }
    return st;
}

const pare_kernel pare_onednn_matmul = {.name = "onednn_matmul",
                                        .can = can,
                                        .prepare = prepare,
                                        .bind = pare_dnnl_bind,
                                        .run = pare_dnnl_run,
                                        .unbind = pare_dnnl_unbind,
                                        .release = pare_dnnl_release};
