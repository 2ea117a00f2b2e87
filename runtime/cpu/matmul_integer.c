/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulInteger (10): s32 sums of (a - a_zero_point) (b - b_zero_point); QLinearMatMul (21): those
   times a_scale b_scale / y_scale, rounded to nearest even, plus y_zero_point, saturated. Zero
   points and scales: one for all, one a row of A, one a column of B. */
#include "runtime/cpu/matmul.h"

#include <math.h>

/* x -= zero point. */
#define SUBTRACT(type, memory)                                                                     \
    static void subtract_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)      \
    {                                                                                              \
        (void)arg;                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((int32_t *)p[0])[i * s[0]] -= ((const memory *)p[1])[i * s[1]];                       \
    }
SUBTRACT(s8, int8_t)
SUBTRACT(u8, uint8_t)

/* A vector counts the rows of A: [M] becomes [M, 1]. One of B broadcasts along columns by itself.
 */
static pare_view per_row(const pare_view *v)
{
    pare_view w = *v;
    if (v->rank != 1) return w;
    w.rank = 2;
    w.dim[1] = 1;
    w.stride[1] = 0;
    return w;
}

static pare_view factor(const pare_call *c, const pare_matmul *mm, bool left, int zero_point)
{
    pare_view x =
        pare_matmul_pack(c, mm, left ? &mm->a : &mm->b, c->in[left ? mm->ia : mm->ib].data);
    if (zero_point >= c->in_count || !c->in[zero_point].dtype) return x;
    pare_view z = left ? per_row(&c->in[zero_point]) : c->in[zero_point];
    pare_ref_each(&x, (const pare_view *const[]){&z}, 1, c->threads,
                  z.dtype == PARE_s8 ? subtract_s8 : subtract_u8, NULL);
    return x;
}

static bool is_byte(const pare_view *v) { return v->dtype == PARE_s8 || v->dtype == PARE_u8; }

/* --- MatMulInteger --- */

static pare_status integer_prepare(pare_prep *p)
{
    return pare_matmul_plan(p, 0, 1, false, false, PARE_s32);
}

static pare_status integer_run(const pare_call *c)
{
    const pare_matmul *mm = c->state;
    pare_view a = factor(c, mm, true, 2), b = factor(c, mm, false, 3);
    pare_view y = pare_matmul_multiply(c, mm, &a, &b);
    if (mm->c.copy) pare_ref_copy(&c->out[0], &y, c->threads);
    return PARE_OK;
}

static bool integer_can(const pare_prep *p) { return is_byte(&p->in[0]) && is_byte(&p->in[1]); }

static const pare_kernel ref_matmul_integer = {.name = "ref_matmul_integer",
                                               .can = integer_can,
                                               .prepare = integer_prepare,
                                               .run = integer_run,
                                               .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_matmul_integer[] = {&ref_matmul_integer, NULL};

/* --- QLinearMatMul --- */

enum { A_SCALE = 1, A_ZERO, B, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO };

static pare_status qlinear_prepare(pare_prep *p)
{
    return pare_matmul_plan(p, 0, B, false, false, PARE_s32);
}

static pare_status qlinear_run(const pare_call *c)
{
    const pare_matmul *mm = c->state;
    const pare_view *y = &c->out[0];
    pare_view a = factor(c, mm, true, A_ZERO), b = factor(c, mm, false, B_ZERO);
    pare_view sums = pare_matmul_multiply(c, mm, &a, &b);
    pare_view rows = per_row(&c->in[A_SCALE]);
    pare_view sa = pare_view_stretch(&rows, y), sb = pare_view_stretch(&c->in[B_SCALE], y);
    pare_view sy = pare_view_stretch(&c->in[Y_SCALE], y), zy = pare_view_stretch(&c->in[Y_ZERO], y);
    double low = y->dtype == PARE_s8 ? -128 : 0, high = y->dtype == PARE_s8 ? 127 : 255;
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(y) == 0) return PARE_OK;
    do {
        float m = (float)pare_ref_get(&sa, pare_ref_offset(&sa, index)) *
                  (float)pare_ref_get(&sb, pare_ref_offset(&sb, index)) /
                  (float)pare_ref_get(&sy, pare_ref_offset(&sy, index));
        float v = rintf((float)pare_ref_get_int(&sums, pare_ref_offset(&sums, index)) * m);
        double q = (double)v + pare_ref_get(&zy, pare_ref_offset(&zy, index));
        pare_ref_set(y, pare_ref_offset(y, index), q < low ? low : q > high ? high : q);
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

static bool qlinear_can(const pare_prep *p)
{
    return is_byte(&p->in[0]) && is_byte(&p->in[B]) && is_byte(&p->out[0]) &&
           (p->out[0].rank > 1 || p->in[A_SCALE].rank == 0 ||
            pare_view_count(&p->in[A_SCALE]) == 1);
}

static const pare_kernel ref_qlinear_matmul = {.name = "ref_qlinear_matmul",
                                               .can = qlinear_can,
                                               .prepare = qlinear_prepare,
                                               .run = qlinear_run,
                                               .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_qlinear_matmul[] = {&ref_qlinear_matmul, NULL};
