/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization (15, inference form), channel by channel: y = x s + t with
   s = scale / sqrt(var + epsilon), t = B - mean s, both made in double each run; and
   LpNormalization (1): y = x / |x|_p along one axis, 0 where the norm is 0. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/infer.h"

#include <math.h>

#define ROW(type, memory, calc, load, store, clones)                                               \
    clones static void affine_##type(int64_t n, char *const *p, const int64_t *s, const void *arg) \
    {                                                                                              \
        const memory *x = (const memory *)p[1];                                                    \
        const double *factor = (const double *)p[2], *shift = (const double *)p[3];                \
        memory *y = (memory *)p[0];                                                                \
        (void)arg;                                                                                 \
        if (s[0] == 1 && s[1] == 1 && s[2] == 0 && s[3] == 0) {                                    \
            const calc f = (calc)factor[0], t = (calc)shift[0];                                    \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = store(load(x[i]) * f + t);  \
        } else                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i * s[0]] =                                                                      \
                    store(load(x[i * s[1]]) * (calc)factor[i * s[2]] + (calc)shift[i * s[3]]);     \
    }
ROW(f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES)
ROW(f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS, )
ROW(f16, uint16_t, float, pare_f16_to_f32, pare_f32_to_f16, )
ROW(bf16, uint16_t, float, pare_bf16_to_f32, pare_f32_to_bf16, )
static const pare_ref_row rows[PARE_DTYPE_COUNT] = {
    [PARE_f32] = affine_f32,
    [PARE_f64] = affine_f64,
    [PARE_f16] = affine_f16,
    [PARE_bf16] = affine_bf16,
};

static int64_t channel_count(const pare_view *x) { return x->rank > 1 ? x->dim[1] : 1; }

static pare_status batch_norm_prepare(pare_prep *p)
{
    float *epsilon = pare_arena_alloc(p->arena, 1, sizeof *epsilon);
    if (!epsilon) return PARE_MEMORY;
    *epsilon = pare_node_float(p->node, "epsilon", 1e-5f);
    p->state = epsilon;
    p->scratch = 2 * sizeof(double) * (size_t)channel_count(&p->in[0]);
    return PARE_OK;
}

static pare_status batch_norm_run(const pare_call *c)
{
    const float *epsilon = c->state;
    const pare_view *x = &c->in[0];
    int64_t n = channel_count(x);
    double *s = c->scratch, *t = s + n;
    for (int64_t i = 0; i < n; i++) {
        double in[4];
        for (int k = 0; k < 4; k++)
            in[k] = pare_ref_get(&c->in[k + 1], c->in[k + 1].rank ? i * c->in[k + 1].stride[0] : 0);
        s[i] = in[0] / sqrt(in[3] + (double)*epsilon);
        t[i] = in[1] - in[2] * s[i];
    }
    /* s and t as [1, C, 1 ...]; a tensor of rank 0 or 1 has one channel */
    pare_view factor = {.dtype = PARE_f64, .rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        factor.dim[i] = i == 1 ? n : 1;
        factor.stride[i] = i == 1;
    }
    pare_view shift = factor;
    factor.data = s;
    shift.data = t;
    pare_ref_each(&c->out[0], (const pare_view *const[]){x, &factor, &shift}, 3, c->threads,
                  rows[x->dtype], NULL);
    return PARE_OK;
}

static const pare_kernel ref_batch_norm = {.name = "ref_batch_norm",
                                           .can = pare_ref_can_floats,
                                           .prepare = batch_norm_prepare,
                                           .run = batch_norm_run,
                                           .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_batch_norm[] = {&ref_batch_norm, NULL};

/* --- LpNormalization --- */

static pare_status lp_norm_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int axis;
    int64_t p = pare_node_int(c->node, "p", 2), index[PARE_MAX_RANK] = {0};
    PARE_TRY(pare_infer_axis(c->node, pare_node_int(c->node, "axis", -1), x->rank, &axis));
    if (pare_view_count(x) == 0) return PARE_OK;
    pare_view walk = *x;
    walk.dim[axis] = 1;
    do {
        int64_t from = pare_ref_offset(x, index), to = pare_ref_offset(y, index);
        double norm = 0;
        for (int64_t i = 0; i < x->dim[axis]; i++) {
            double v = pare_ref_get(x, from + i * x->stride[axis]);
            norm += p == 1 ? fabs(v) : v * v;
        }
        norm = p == 1 ? norm : sqrt(norm);
        for (int64_t i = 0; i < x->dim[axis]; i++)
            pare_ref_set(y, to + i * y->stride[axis],
                         norm != 0 ? pare_ref_get(x, from + i * x->stride[axis]) / norm : 0);
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static bool lp_norm_can(const pare_prep *p) { return pare_ref_can_floats(p) && p->in[0].rank > 0; }

static const pare_kernel ref_lp_norm = {
    .name = "ref_lp_norm", .can = lp_norm_can, .run = lp_norm_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_lp_norm[] = {&ref_lp_norm, NULL};
