/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C reference kernels of Conv (1, 11), ConvTranspose (1, 11), ConvInteger (10) and
   QLinearConv (10): y[n, m] = sum x[n, c, ...] * w[m, c, ...] + bias[m], summed exactly (dense.h),
   rounded once. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv.h"
#include "runtime/cpu/ref.h"

#include <math.h>

typedef struct conv_state {
    pare_conv conv;
    pare_conv_room room;
} conv_state;

typedef void (*image_fn)(const pare_conv *conv, double *y, const double *x, const double *w,
                         int threads);

static pare_status prepare(pare_prep *p, int w_at)
{
    conv_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_conv_read(p->node, &p->in[0], &p->in[w_at], &s->conv));
    PARE_TRY(pare_conv_room_of(p->ctx, &s->conv, &s->room));
    p->scratch = s->room.bytes;
    p->state = s;
    return PARE_OK;
}

static pare_status conv_prepare(pare_prep *p) { return prepare(p, 1); }
static pare_status qlinear_prepare(pare_prep *p) { return prepare(p, 3); }

static pare_status transposed_prepare(pare_prep *p)
{
    conv_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_shape x = {.rank = p->in[0].rank};
    for (int i = 0; i < x.rank; i++) x.dim[i] = p->in[0].dim[i];
    s->conv.n = x.dim[0];
    s->conv.c = x.dim[1];
    s->conv.group = pare_node_int(p->node, "group", 1);
    s->conv.m = p->in[1].dim[1] * s->conv.group;
    PARE_TRY(pare_window_read_transposed(p->node, &x, p->in[1].dim + 2, &s->conv.window));
    PARE_TRY(pare_conv_room_of(p->ctx, &s->conv, &s->room));
    p->scratch = s->room.bytes;
    p->state = s;
    return PARE_OK;
}

/* Element at of input i; 0 where it is absent. */
static double input_number(const pare_call *c, int i, int64_t at)
{
    return i < c->in_count && c->in[i].dtype != PARE_NOTYPE ? pare_ref_get(&c->in[i], at) : 0;
}

/* After the sum of one image: y (M, count) in place. */
typedef void (*finish_fn)(const pare_call *c, const conv_state *s, double *y, int64_t count);

static void run_images(const pare_call *c, double x_zero, image_fn image, finish_fn finish)
{
    const conv_state *s = c->state;
    const int64_t *out = s->conv.window.out;
    double *room = c->scratch, *y = room + s->room.y;
    for (int64_t n = 0; n < s->conv.n; n++) {
        pare_view from = pare_view_at(&c->in[0], 0, n), to = pare_view_at(&c->out[0], 0, n);
        pare_dense_load(room + s->room.x, &from, x_zero);
        image(&s->conv, y, room + s->room.x, room + s->room.w, c->threads);
        finish(c, s, y, out[0] * out[1] * out[2]);
        pare_dense_store(&to, y);
    }
}

static void add_bias(const pare_call *c, const conv_state *s, double *y, int64_t count)
{
    if (c->in_count < 3 || c->in[2].dtype == PARE_NOTYPE) return;
    for (int64_t m = 0; m < s->conv.m; m++) {
        double bias = input_number(c, 2, m);
        for (int64_t i = 0; i < count; i++) y[m * count + i] += bias;
    }
}

static pare_status conv_run(const pare_call *c)
{
    const conv_state *s = c->state;
    pare_dense_load((double *)c->scratch + s->room.w, &c->in[1], 0);
    run_images(c, 0, pare_conv_image, add_bias);
    return PARE_OK;
}

static pare_status transposed_run(const pare_call *c)
{
    const conv_state *s = c->state;
    pare_dense_load((double *)c->scratch + s->room.w, &c->in[1], 0);
    run_images(c, 0, pare_conv_image_transposed, add_bias);
    return PARE_OK;
}

/* The weight minus its zero point: one value, or one for each output channel. */
static void load_weight(const pare_call *c, const conv_state *s, int w_at, int zero_at)
{
    const pare_view *w = &c->in[w_at], *zero = zero_at < c->in_count ? &c->in[zero_at] : NULL;
    double *to = (double *)c->scratch + s->room.w;
    int64_t each = s->conv.m ? pare_view_count(w) / s->conv.m : 0;
    bool many = zero && zero->dtype != PARE_NOTYPE && pare_view_count(zero) > 1;
    for (int64_t m = 0; m < s->conv.m; m++) {
        pare_view one = pare_view_at(w, 0, m);
        pare_dense_load(to + m * each, &one, input_number(c, zero_at, many ? m : 0));
    }
}

/* 32-bit sums wrap as two's complement. */
static void wrap(const pare_call *c, const conv_state *s, double *y, int64_t count)
{
    (void)c;
    for (int64_t i = 0; i < s->conv.m * count; i++) y[i] = (int32_t)(uint32_t)(int64_t)y[i];
}

static pare_status integer_run(const pare_call *c)
{
    load_weight(c, c->state, 1, 3);
    run_images(c, input_number(c, 2, 0), pare_conv_image, wrap);
    return PARE_OK;
}

/* v = (acc + bias) * (s_x * s_w[m] / s_y); y = clamp(rint(v + z_y)). */
static void requantize(const pare_call *c, const conv_state *s, double *y, int64_t count)
{
    float s_x = (float)input_number(c, 1, 0), s_y = (float)input_number(c, 6, 0);
    float z_y = (float)input_number(c, 7, 0);
    bool many = pare_view_count(&c->in[4]) > 1, is_signed = c->out[0].dtype == PARE_s8;
    float lo = is_signed ? -128.f : 0.f, hi = is_signed ? 127.f : 255.f;
    for (int64_t m = 0; m < s->conv.m; m++) {
        float scale = s_x * (float)input_number(c, 4, many ? m : 0) / s_y;
        float bias = (float)input_number(c, 8, m);
        for (int64_t i = 0; i < count; i++) {
            float v = rintf(((float)y[m * count + i] + bias) * scale + z_y);
            y[m * count + i] = v < lo ? lo : v > hi ? hi : v;
        }
    }
}

static pare_status qlinear_run(const pare_call *c)
{
    load_weight(c, c->state, 3, 5);
    run_images(c, input_number(c, 2, 0), pare_conv_image, requantize);
    return PARE_OK;
}

static bool conv_can(const pare_prep *p)
{
    return pare_type_is_float(p->in[0].dtype) && p->in[1].dtype == p->in[0].dtype;
}

static bool is_byte(pare_dtype t) { return t == PARE_s8 || t == PARE_u8; }
static bool integer_can(const pare_prep *p)
{
    return is_byte(p->in[0].dtype) && is_byte(p->in[1].dtype);
}
static bool qlinear_can(const pare_prep *p)
{
    return is_byte(p->in[0].dtype) && is_byte(p->in[3].dtype) && is_byte(p->out[0].dtype);
}

static const pare_kernel ref_conv = {.name = "ref_conv",
                                     .can = conv_can,
                                     .prepare = conv_prepare,
                                     .run = conv_run,
                                     .flags = PARE_KERNEL_REF};
static const pare_kernel ref_conv_transpose = {.name = "ref_conv_transpose",
                                               .can = conv_can,
                                               .prepare = transposed_prepare,
                                               .run = transposed_run,
                                               .flags = PARE_KERNEL_REF};
static const pare_kernel ref_conv_integer = {.name = "ref_conv_integer",
                                             .can = integer_can,
                                             .prepare = conv_prepare,
                                             .run = integer_run,
                                             .flags = PARE_KERNEL_REF};
static const pare_kernel ref_qlinear_conv = {.name = "ref_qlinear_conv",
                                             .can = qlinear_can,
                                             .prepare = qlinear_prepare,
                                             .run = qlinear_run,
                                             .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_conv[] = {
    PARE_WITH_ONEDNN(&pare_onednn_conv, &pare_onednn_conv_brg, &pare_onednn_conv_jit,
                     &pare_onednn_conv_gemm) &
        pare_float_conv,
    &ref_conv, NULL};
const pare_kernel *const pare_cpu_conv_transpose[] = {&ref_conv_transpose, NULL};
const pare_kernel *const pare_cpu_conv_integer[] = {&ref_conv_integer, NULL};
const pare_kernel *const pare_cpu_qlinear_conv[] = {&ref_qlinear_conv, NULL};
