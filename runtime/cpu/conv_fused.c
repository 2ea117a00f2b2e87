/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConv in plain C, any strides and one to three window axes: the definition of correct.
   Float: Y = act(conv(X, W) + B + Z), summed in double, rounded once to Y's type.
   FP8: an exact sum (epilogue_f8.h), rounded to f32, then what follows it.
   Int8: an exact sum of (x - z_x) * w over taps inside the tensor, then epilogue.h. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/product.h"

typedef struct strides {
    int64_t outer, channel, axis[3];
} strides;

static strides strides_of(const pare_view *v, int axes)
{
    strides s = {v->stride[0], v->stride[1], {0, 0, 0}};
    for (int i = 0; i < axes; i++) s.axis[3 - axes + i] = v->stride[2 + i];
    return s;
}

static pare_status conv_prepare(pare_prep *p)
{
    pare_conv_args *args = pare_arena_alloc(p->arena, 1, sizeof *args);
    if (!args) return PARE_MEMORY;
    p->state = args;
    return pare_conv_args_read(p, args);
}

typedef struct taps {
    const pare_conv_args *args;
    strides x, w;
    int64_t x0, w0; /* offsets of (n, first channel) and (m) */
    int64_t at[3];  /* output position */
} taps;

/* Calls body for every tap inside the tensor with xi and wi, the elements' offsets. */
#define EACH_TAP(t, body)                                                                          \
    do {                                                                                           \
        const pare_window *win_ = &(t)->args->win;                                                 \
        int64_t k_[3], p_[3];                                                                      \
        for (k_[0] = 0; k_[0] < win_->kernel[0]; k_[0]++)                                          \
            for (k_[1] = 0; k_[1] < win_->kernel[1]; k_[1]++)                                      \
                for (k_[2] = 0; k_[2] < win_->kernel[2]; k_[2]++) {                                \
                    int64_t xo_ = (t)->x0, wo_ = (t)->w0;                                          \
                    bool inside_ = true;                                                           \
                    for (int a_ = 0; a_ < 3; a_++) {                                               \
                        p_[a_] = (t)->at[a_] * win_->stride[a_] - win_->begin[a_] +                \
                                 k_[a_] * win_->dilation[a_];                                      \
                        inside_ &= p_[a_] >= 0 && p_[a_] < win_->in[a_];                           \
                        xo_ += p_[a_] * (t)->x.axis[a_];                                           \
                        wo_ += k_[a_] * (t)->w.axis[a_];                                           \
                    }                                                                              \
                    for (int64_t c_ = 0; inside_ && c_ < (t)->args->cg; c_++) {                    \
                        int64_t xi = xo_ + c_ * (t)->x.channel, wi = wo_ + c_ * (t)->w.channel;    \
                        body;                                                                      \
                    }                                                                              \
                }                                                                                  \
    } while (0)

static inline float float_at(const pare_view *v, int64_t i)
{
    const pare_type_info *type = pare_type(v->dtype);
    return type->to_f32((const char *)v->data + i * (type->bits / 8));
}

static void int8_point(const pare_call *c, const taps *t, int64_t m, int64_t zi, int64_t yi)
{
    const pare_conv_args *a = t->args;
    const pare_view *z = pare_operand(c->in, c->in_count, a->at.residual);
    int64_t acc = 0;
    EACH_TAP(t, acc +=
                (int64_t)(pare_byte_at(&c->in[0], xi) - a->q.x_zero) * pare_byte_at(&c->in[1], wi));
    float v = ((float)(int32_t)acc + (a->bias ? a->bias[m] : 0)) * a->scale[m];
    if (z) v = pare_epilogue_residual(&a->epilogue, v, z->data, zi);
    pare_epilogue_store(&a->epilogue, v, c->out[0].data, yi);
}

static void f8_point(const pare_call *c, const taps *t, int64_t m, int64_t zi, int64_t yi)
{
    const pare_conv_args *a = t->args;
    const pare_view *x = &c->in[0], *w = &c->in[1];
    const pare_view *z = pare_operand(c->in, c->in_count, a->at.residual);
    double acc = 0;
    EACH_TAP(t, acc += pare_ref_get(x, xi) * pare_ref_get(w, wi));
    float v = ((float)acc + (a->bias ? a->bias[m] : 0)) * a->scale[m];
    if (z) v = pare_f8_residual(&a->epilogue, v, (float)pare_ref_get(z, zi));
    pare_ref_set(&c->out[0], yi, (double)pare_f8_finish(&a->epilogue, v));
}

static void float_point(const pare_call *c, const taps *t, int64_t m, int64_t zi, int64_t yi)
{
    const pare_conv_args *a = t->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, a->at.bias);
    const pare_view *z = pare_operand(c->in, c->in_count, a->at.residual);
    double acc = 0;
    EACH_TAP(t, acc += (double)float_at(&c->in[0], xi) * (double)float_at(&c->in[1], wi));
    if (bias) acc += (double)float_at(bias, m * bias->stride[0]);
    if (z) acc += (double)float_at(z, zi);
    const pare_type_info *type = pare_type(c->out[0].dtype);
    type->from_f32_ref((char *)c->out[0].data + yi * (type->bits / 8),
                       pare_act_apply(&a->act, (float)acc));
}

static pare_status conv_run(const pare_call *c)
{
    const pare_conv_args *a = c->state;
    const pare_window *win = &a->win;
    const pare_view *z = pare_operand(c->in, c->in_count, a->at.residual);
    strides xs = strides_of(&c->in[0], win->nd), ys = strides_of(&c->out[0], win->nd);
    strides zs = z ? strides_of(z, win->nd) : ys;
    taps t = {.args = a, .x = xs, .w = strides_of(&c->in[1], win->nd)};
    for (int64_t n = 0; n < a->n; n++)
        for (int64_t m = 0; m < a->m; m++) {
            t.x0 = n * xs.outer + m / a->mg * a->cg * xs.channel;
            t.w0 = m * t.w.outer;
            for (t.at[0] = 0; t.at[0] < win->out[0]; t.at[0]++)
                for (t.at[1] = 0; t.at[1] < win->out[1]; t.at[1]++)
                    for (t.at[2] = 0; t.at[2] < win->out[2]; t.at[2]++) {
                        int64_t yi = n * ys.outer + m * ys.channel;
                        int64_t zi = n * zs.outer + m * zs.channel;
                        for (int i = 0; i < 3; i++) {
                            yi += t.at[i] * ys.axis[i];
                            zi += t.at[i] * zs.axis[i];
                        }
                        (a->int8 ? int8_point : a->f8 ? f8_point : float_point)(c, &t, m, zi, yi);
                    }
        }
    return PARE_OK;
}

const pare_kernel pare_ref_fused_conv = {
    .name = "ref_fused_conv", .prepare = conv_prepare, .run = conv_run, .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_fused_conv[] = {
    PARE_WITH_ONEDNN(&pare_onednn_conv, &pare_onednn_conv_brg, &pare_onednn_conv_jit,
                     &pare_onednn_conv_gemm) &
        pare_int8_depthwise,
    &pare_int8_conv, &pare_float_conv, &pare_ref_fused_conv, NULL};
