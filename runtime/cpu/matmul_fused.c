/* SPDX-License-Identifier: Apache-2.0 */
/* FusedMatMul in plain C, any strides: the definition of correct.
   Float: Y = act(alpha * (A x B) + beta * C + Z), summed in double, rounded once to Y's type; B of
   integers is dequantized first.
   FP8: an exact sum (epilogue_f8.h), rounded to f32, then what follows it.
   Int8: an exact sum of (a - z_a) * (b - z_b), then epilogue.h. An f32 result is rounded to Y's
   type where that is shorter; a residual may be, too. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/product.h"

static pare_status matmul_prepare(pare_prep *p)
{
    pare_matmul_args *args = pare_arena_alloc(p->arena, 1, sizeof *args);
    if (!args) return PARE_MEMORY;
    p->state = args;
    return pare_matmul_args_read(p, args);
}

typedef struct dot {
    int64_t a, a_step, b, b_step; /* first elements and strides along the inner axis */
} dot;

static int32_t int8_sum(const pare_call *c, const pare_matmul_args *m, const dot *d)
{
    int64_t acc = 0;
    for (int64_t k = 0; k < m->depth; k++)
        acc += (int64_t)(pare_byte_at(&c->in[0], d->a + k * d->a_step) - m->q.x_zero) *
               (pare_byte_at(&c->in[1], d->b + k * d->b_step) - m->q.w_zero);
    return (int32_t)acc;
}

static double float_sum(const pare_call *c, const pare_matmul_args *m, const dot *d, int64_t column)
{
    const pare_view *b = &c->in[1];
    double acc = 0;
    for (int64_t k = 0; k < m->depth; k++) {
        double w = pare_ref_get(b, d->b + k * d->b_step);
        if (m->weight.block) {
            int zero;
            const float scale = pare_weight_scale(&m->weight, k, column, &zero);
            w = (double)(((float)w - (float)zero) * scale);
        }
        acc += pare_ref_get(&c->in[0], d->a + k * d->a_step) * w;
    }
    return acc;
}

/* What follows an integer sum, stored at y[yi]. */
static void int8_finish(const pare_call *c, float v, const pare_view *z, int64_t zi, int64_t yi)
{
    const pare_matmul_args *m = c->state;
    const pare_view *y = &c->out[0];
    if (z && (z->dtype == PARE_f16 || z->dtype == PARE_bf16))
        v += (float)pare_ref_get(z, zi);
    else if (z)
        v = pare_epilogue_residual(&m->epilogue, v, z->data, zi);
    if (y->dtype == PARE_f16 || y->dtype == PARE_bf16)
        pare_ref_set(y, yi, (double)pare_epilogue_value(&m->epilogue, v));
    else
        pare_epilogue_store(&m->epilogue, v, y->data, yi);
}

/* The same of FP8. */
static void f8_finish(const pare_call *c, float v, const pare_view *z, int64_t zi, int64_t yi)
{
    const pare_matmul_args *m = c->state;
    if (z) v = pare_f8_residual(&m->epilogue, v, (float)pare_ref_get(z, zi));
    pare_ref_set(&c->out[0], yi, (double)pare_f8_finish(&m->epilogue, v));
}

static void point(const pare_call *c, const dot *d, int64_t column, int64_t zi, int64_t yi)
{
    const pare_matmul_args *m = c->state;
    const pare_view *bias = pare_operand(c->in, c->in_count, m->at.bias);
    const pare_view *z = pare_operand(c->in, c->in_count, m->at.residual);
    int64_t bi = bias && bias->rank && bias->dim[bias->rank - 1] > 1
                     ? column * bias->stride[bias->rank - 1]
                     : 0;
    if (m->int8) {
        float v = ((float)int8_sum(c, m, d) + (m->bias ? m->bias[column] : 0)) * m->scale[column];
        int8_finish(c, v, z, zi, yi);
        return;
    }
    if (m->f8) {
        float v = ((float)float_sum(c, m, d, column) + (m->bias ? m->bias[column] : 0)) *
                  m->scale[column];
        f8_finish(c, v, z, zi, yi);
        return;
    }
    double acc = float_sum(c, m, d, column) * (double)m->alpha;
    if (bias) acc += (double)m->beta * pare_ref_get(bias, bi);
    if (z) acc += pare_ref_get(z, zi);
    if (m->act.kind != PARE_ACT_NONE) acc = (double)pare_act_apply(&m->act, (float)acc);
    pare_ref_set(&c->out[0], yi, acc);
}

static pare_status matmul_run(const pare_call *c)
{
    const pare_matmul_args *m = c->state;
    const pare_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const pare_view *z = pare_operand(c->in, c->in_count, m->at.residual);
    if (!z) z = y;
    int64_t a_row = a->stride[a->rank - (m->trans_a ? 1 : 2)];
    int64_t b_column = b->stride[b->rank - (m->trans_b ? 2 : 1)];
    dot d = {.a_step = a->stride[a->rank - (m->trans_a ? 2 : 1)],
             .b_step = b->stride[b->rank - (m->trans_b ? 1 : 2)]};
    for (int64_t n = 0; n < m->batch; n++) {
        int64_t a0 = pare_matmul_batch_offset(a, y, n), b0 = pare_matmul_batch_offset(b, y, n);
        int64_t y0 = pare_matmul_batch_offset(y, y, n), z0 = pare_matmul_batch_offset(z, y, n);
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->columns; j++) {
                d.a = a0 + i * a_row, d.b = b0 + j * b_column;
                point(c, &d, j, z0 + i * z->stride[z->rank - 2] + j * z->stride[z->rank - 1],
                      y0 + i * y->stride[y->rank - 2] + j * y->stride[y->rank - 1]);
            }
    }
    return PARE_OK;
}

const pare_kernel pare_ref_fused_matmul = {.name = "ref_fused_matmul",
                                           .prepare = matmul_prepare,
                                           .run = matmul_run,
                                           .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_fused_matmul[] = {&pare_int8_matmul_small,
                                                    &pare_float_matmul_small,
                                                    PARE_WITH_ONEDNN(&pare_onednn_matmul) &
                                                        pare_int8_matmul,
                                                    &pare_float_matmul,
                                                    &pare_ref_fused_matmul,
                                                    NULL};
