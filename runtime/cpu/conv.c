/* SPDX-License-Identifier: Apache-2.0 */
/* Plan: one output channel is one task. For each tap the valid output rows and columns are found
   once; the inner loop runs along a row of y. Leading axes of length 1 make 1-D and 2-D the same.
 */
#include "runtime/cpu/conv.h"
#include "runtime/base/size.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"

#include <math.h>
#include <string.h>

pare_status pare_conv_read(const pare_node *node, const pare_view *x, const pare_view *w,
                           pare_conv *out)
{
    pare_shape shape = {.rank = x->rank};
    memcpy(shape.dim, x->dim, sizeof shape.dim);
    out->n = x->dim[0];
    out->c = x->dim[1];
    out->m = w->dim[0];
    out->group = pare_node_int(node, "group", 1);
    return pare_window_read(node, &shape, w->dim + 2, &out->window);
}

static int64_t volume(const int64_t d[3]) { return d[0] * d[1] * d[2]; }

pare_status pare_conv_room_of(pare_ctx *ctx, const pare_conv *conv, pare_conv_room *out)
{
    const pare_window *w = &conv->window;
    int64_t larger = conv->m > conv->c ? conv->m : conv->c, smaller = conv->m + conv->c - larger;
    int64_t weight[] = {larger, smaller, w->kernel[0], w->kernel[1], w->kernel[2]};
    int64_t x[] = {conv->c, w->in[0], w->in[1], w->in[2]};
    int64_t y[] = {conv->m, w->out[0], w->out[1], w->out[2]};
    int64_t nw, nx, ny;
    if (!pare_count_dims(weight, 5, &nw) || !pare_count_dims(x, 4, &nx) ||
        !pare_count_dims(y, 4, &ny) || nw / conv->group + nx + ny > INT64_MAX / 64)
        return PARE_FAIL(ctx, INPUT, "a convolution's dimensions overflow");
    out->w = 0;
    out->x = out->w + (size_t)(nw / conv->group);
    out->y = out->x + (size_t)nx;
    out->bytes = (out->y + (size_t)ny) * sizeof(double);
    return PARE_OK;
}

/* Output positions o of tap k with 0 <= o * stride + shift < size: [*from, *to). */
static int64_t valid(const pare_window *w, int i, int64_t tap, int64_t *from, int64_t *to)
{
    int64_t shift = tap * w->dilation[i] - w->begin[i], s = w->stride[i];
    *from = shift < 0 ? (-shift + s - 1) / s : 0;
    *to = w->in[i] > shift ? (w->in[i] - shift + s - 1) / s : 0;
    if (*to > w->out[i]) *to = w->out[i];
    return shift;
}

/* One (input channel, output channel) pair of planes: y += x * kernel. */
static void plane_forward(const pare_window *w, double *y, const double *x, const double *kernel)
{
    int64_t lo[3], hi[3], shift[3];
    for (int64_t kd = 0; kd < w->kernel[0]; kd++)
        for (int64_t kh = 0; kh < w->kernel[1]; kh++)
            for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
                double tap = *kernel++;
                shift[0] = valid(w, 0, kd, &lo[0], &hi[0]);
                shift[1] = valid(w, 1, kh, &lo[1], &hi[1]);
                shift[2] = valid(w, 2, kw, &lo[2], &hi[2]);
                for (int64_t d = lo[0]; d < hi[0]; d++)
                    for (int64_t h = lo[1]; h < hi[1]; h++) {
                        int64_t id = d * w->stride[0] + shift[0], ih = h * w->stride[1] + shift[1];
                        double *row = y + (d * w->out[1] + h) * w->out[2];
                        const double *from = x + (id * w->in[1] + ih) * w->in[2] + shift[2];
                        if (w->stride[2] == 1)
                            for (int64_t o = lo[2]; o < hi[2]; o++) row[o] += tap * from[o];
                        else
                            for (int64_t o = lo[2]; o < hi[2]; o++)
                                row[o] += tap * from[o * w->stride[2]];
                    }
            }
}

void pare_conv_image(const pare_conv *conv, double *y, const double *x, const double *w,
                     int threads)
{
    int64_t in = volume(conv->window.in), out = volume(conv->window.out);
    int64_t taps = volume(conv->window.kernel), c = conv->c / conv->group,
            m = conv->m / conv->group;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t o = 0; o < conv->m; o++) {
        double *plane = y + o * out;
        memset(plane, 0, (size_t)out * sizeof *plane);
        for (int64_t i = 0; i < c; i++)
            plane_forward(&conv->window, plane, x + (o / m * c + i) * in, w + (o * c + i) * taps);
    }
}

/* ConvTranspose 11: x at i adds w[k] to y at i * stride + k * dilation - pad. */
static void plane_transposed(const pare_window *w, double *y, const double *x, const double *kernel)
{
    for (int64_t kd = 0; kd < w->kernel[0]; kd++)
        for (int64_t kh = 0; kh < w->kernel[1]; kh++)
            for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
                double tap = *kernel++;
                const double *from = x;
                for (int64_t d = 0; d < w->in[0]; d++)
                    for (int64_t h = 0; h < w->in[1]; h++, from += w->in[2]) {
                        int64_t od = d * w->stride[0] + kd * w->dilation[0] - w->begin[0];
                        int64_t oh = h * w->stride[1] + kh * w->dilation[1] - w->begin[1];
                        if (od < 0 || od >= w->out[0] || oh < 0 || oh >= w->out[1]) continue;
                        double *row = y + (od * w->out[1] + oh) * w->out[2];
                        for (int64_t i = 0; i < w->in[2]; i++) {
                            int64_t o = i * w->stride[2] + kw * w->dilation[2] - w->begin[2];
                            if (o >= 0 && o < w->out[2]) row[o] += tap * from[i];
                        }
                    }
            }
}

void pare_conv_image_transposed(const pare_conv *conv, double *y, const double *x, const double *w,
                                int threads)
{
    int64_t in = volume(conv->window.in), out = volume(conv->window.out);
    int64_t taps = volume(conv->window.kernel), c = conv->c / conv->group,
            m = conv->m / conv->group;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t o = 0; o < conv->m; o++) {
        double *plane = y + o * out;
        memset(plane, 0, (size_t)out * sizeof *plane);
        for (int64_t i = o / m * c; i < (o / m + 1) * c; i++)
            plane_transposed(&conv->window, plane, x + i * in, w + (i * m + o % m) * taps);
    }
}

/* One tap of one pair of planes: the sum of x * dy over the output positions it reaches. */
static double tap_gradient(const pare_window *w, const double *dy, const double *x,
                           const int64_t tap[3])
{
    int64_t lo[3], hi[3], shift[3];
    double sum = 0;
    for (int i = 0; i < 3; i++) shift[i] = valid(w, i, tap[i], &lo[i], &hi[i]);
    for (int64_t d = lo[0]; d < hi[0]; d++)
        for (int64_t h = lo[1]; h < hi[1]; h++) {
            int64_t id = d * w->stride[0] + shift[0], ih = h * w->stride[1] + shift[1];
            const double *row = dy + (d * w->out[1] + h) * w->out[2];
            const double *from = x + (id * w->in[1] + ih) * w->in[2] + shift[2];
            for (int64_t o = lo[2]; o < hi[2]; o++) sum += row[o] * from[o * w->stride[2]];
        }
    return sum;
}

void pare_conv_image_weight(const pare_conv *conv, double *dw, const double *dy, const double *x,
                            int threads)
{
    const pare_window *w = &conv->window;
    int64_t in = volume(w->in), out = volume(w->out), taps = volume(w->kernel);
    int64_t c = conv->c / conv->group, m = conv->m / conv->group;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t o = 0; o < conv->m; o++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t t = 0; t < taps; t++) {
                const int64_t tap[3] = {t / (w->kernel[1] * w->kernel[2]),
                                        t / w->kernel[2] % w->kernel[1], t % w->kernel[2]};
                dw[(o * c + i) * taps + t] +=
                    tap_gradient(w, dy + o * out, x + (o / m * c + i) * in, tap);
            }
}

/* Plain C reference kernels of Conv (1, 11), ConvTranspose (1, 11), ConvInteger (10) and
   QLinearConv (10): y[n, m] = sum x[n, c, ...] * w[m, c, ...] + bias[m], summed exactly (dense.h),
   rounded once. */

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
