/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of pools, any strides, f32 and f64, and by way of f32 f16 and bf16:
     MaxPoolGrad (dY, X) -> dX      each dY goes to its window's first largest x (a NaN is largest)
     AveragePoolGrad (dY) -> dX     each dY is spread evenly over its window
   Windows are taken in order and images are independent, so that results do not depend on threads.
 */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"
#include "runtime/base/clones.h"
#include "runtime/ops/window.h"

#include <string.h>

/* What the plain and the fast gradients of pools share. */

/* grad_pool_nhwc.c */
extern const pare_kernel pare_nhwc_max_pool_grad, pare_nhwc_average_pool_grad;

static pare_status prepare(pare_prep *p)
{
    pare_window *w = pare_arena_alloc(p->arena, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    pare_shape x = {.rank = p->out[0].rank};
    memcpy(x.dim, p->out[0].dim, sizeof x.dim);
    PARE_TRY(pare_window_read(p->node, &x, NULL, w));
    bool fits =
        p->in[0].rank == x.rank && p->in[0].dim[0] == x.dim[0] && p->in[0].dim[1] == x.dim[1];
    for (int i = 0; fits && i < w->nd; i++) fits = p->in[0].dim[2 + i] == w->out[3 - w->nd + i];
    if (!fits) return PARE_FAIL_NODE(p->node, INPUT, "its tensors' shapes contradict each other");
    p->state = w;
    return PARE_OK;
}

/* One window: offsets are in elements of one channel. */
typedef struct place {
    pare_taps at[3];
    int64_t x_stride[3], dx_stride[3];
} place;

typedef void (*window_fn)(const place *p, const pare_window *w, const void *x, void *dx,
                          const void *dy, int64_t count);

#define WINDOWS(type, ctype)                                                                       \
    static void max_##type(const place *p, const pare_window *w, const void *x_, void *dx_,        \
                           const void *dy, int64_t count)                                          \
    {                                                                                              \
        const ctype *x = x_;                                                                       \
        ctype best = 0;                                                                            \
        int64_t to = -1;                                                                           \
        (void)count;                                                                               \
        for (int64_t d = 0; d < p->at[0].count; d++)                                               \
            for (int64_t h = 0; h < p->at[1].count; h++)                                           \
                for (int64_t k = 0; k < p->at[2].count; k++) {                                     \
                    const int64_t at[3] = {p->at[0].first + d * w->dilation[0],                    \
                                           p->at[1].first + h * w->dilation[1],                    \
                                           p->at[2].first + k * w->dilation[2]};                   \
                    const ctype v = x[at[0] * p->x_stride[0] + at[1] * p->x_stride[1] +            \
                                      at[2] * p->x_stride[2]];                                     \
                    if (to >= 0 && !(v > best || (v != v && best == best))) continue;              \
                    best = v;                                                                      \
                    to = at[0] * p->dx_stride[0] + at[1] * p->dx_stride[1] +                       \
                         at[2] * p->dx_stride[2];                                                  \
                }                                                                                  \
        if (to >= 0) ((ctype *)dx_)[to] += *(const ctype *)dy;                                     \
    }                                                                                              \
    static void average_##type(const place *p, const pare_window *w, const void *x, void *dx_,     \
                               const void *dy, int64_t count)                                      \
    {                                                                                              \
        const ctype part = *(const ctype *)dy / (ctype)count;                                      \
        ctype *dx = dx_;                                                                           \
        (void)x;                                                                                   \
        for (int64_t d = 0; d < p->at[0].count; d++)                                               \
            for (int64_t h = 0; h < p->at[1].count; h++)                                           \
                for (int64_t k = 0; k < p->at[2].count; k++)                                       \
                    dx[(p->at[0].first + d * w->dilation[0]) * p->dx_stride[0] +                   \
                       (p->at[1].first + h * w->dilation[1]) * p->dx_stride[1] +                   \
                       (p->at[2].first + k * w->dilation[2]) * p->dx_stride[2]] += part;           \
    }
WINDOWS(f32, float)
WINDOWS(f64, double)

/* Strides of the spatial axes as the window's three. */
static void strides_of(const pare_view *v, int nd, int64_t out[3])
{
    for (int i = 0; i < 3; i++) out[i] = i < 3 - nd ? 0 : v->stride[2 + i - (3 - nd)];
}

/* One image: windows in order, the channels of each one after the other. */
static void image(const pare_call *c, int64_t n, window_fn fn)
{
    const pare_window *w = c->state;
    const pare_view *dy = &c->in[0], *x = &c->in[c->in_count - 1], *dx = &c->out[0];
    int64_t step[3], o[3];
    place p;
    strides_of(dy, w->nd, step);
    strides_of(x, w->nd, p.x_stride);
    strides_of(dx, w->nd, p.dx_stride);
    for (o[0] = 0; o[0] < w->out[0]; o[0]++)
        for (o[1] = 0; o[1] < w->out[1]; o[1]++)
            for (o[2] = 0; o[2] < w->out[2]; o[2]++) {
                int64_t count = 1, from = n * dy->stride[0];
                for (int i = 0; i < 3; i++) {
                    p.at[i] = pare_window_taps(w, i, o[i]);
                    count *= w->include_pad ? p.at[i].padded : p.at[i].count;
                    from += o[i] * step[i];
                }
                for (int64_t k = 0; k < dx->dim[1]; k++)
                    fn(&p, w, pare_ref_at(x, n * x->stride[0] + k * x->stride[1]),
                       pare_ref_at(dx, n * dx->stride[0] + k * dx->stride[1]),
                       pare_ref_at(dy, from + k * dy->stride[1]), count);
            }
}

static pare_status run(const pare_call *c, window_fn fn)
{
    memset(c->out[0].data, 0, pare_view_bytes(&c->out[0]));
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->threads > 1)
    for (int64_t n = 0; n < c->out[0].dim[0]; n++) image(c, n, fn);
    return PARE_OK;
}

static pare_status max_run(const pare_call *c)
{
    return run(c, c->out[0].dtype == PARE_f64 ? max_f64 : max_f32);
}

static pare_status average_run(const pare_call *c)
{
    return run(c, c->out[0].dtype == PARE_f64 ? average_f64 : average_f32);
}

static const pare_kernel ref_max_pool_grad = {.name = "ref_max_pool_grad",
                                              .can = pare_ref_can_f32_f64,
                                              .prepare = prepare,
                                              .run = max_run,
                                              .flags = PARE_KERNEL_REF};
static const pare_kernel ref_average_pool_grad = {.name = "ref_average_pool_grad",
                                                  .can = pare_ref_can_f32_f64,
                                                  .prepare = prepare,
                                                  .run = average_run,
                                                  .flags = PARE_KERNEL_REF};

/* Gradients of pools in f32 where channels are together: a window's channels are worked on at once,
   windows in order, so that every element is the plain kernels' to the bit. */

enum { MOST_TAPS = 256, LANES = 8 };

/* A window: offsets of its taps in an image. */
typedef struct taps {
    int64_t at[MOST_TAPS];
    int count;
    int64_t divisor;
} taps;

typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(LANES * sizeof(float))));

static void give_one(float *dx, const float *x, float dy, const taps *t)
{
    int64_t to = t->at[0];
    for (int k = 1; k < t->count; k++) {
        const float v = x[t->at[k]], best = x[to];
        if (v > best || (v != v && best == best)) to = t->at[k];
    }
    dx[to] += dy;
}

/* dx[first largest tap] += dy, for n channels; a NaN is largest. */
PARE_CLONES static void give_max(float *dx, const float *x, const float *dy, int64_t n,
                                 const taps *t)
{
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        floats best, v;
        ints at = {0};
        memcpy(&best, x + t->at[0] + c, sizeof best);
        for (int k = 1; k < t->count; k++) {
            memcpy(&v, x + t->at[k] + c, sizeof v);
            const ints take = (v > best) | ((v != v) & (best == best));
            best = (floats)(((ints)v & take) | ((ints)best & ~take));
            at = (take & k) | (at & ~take);
        }
        memcpy(&best, dy + c, sizeof best);
        for (int k = 0; k < t->count; k++) {
            float *to = dx + t->at[k] + c;
            memcpy(&v, to, sizeof v);
            v += (floats)((ints)best & (at == k));
            memcpy(to, &v, sizeof v);
        }
    }
    for (; c < n; c++) give_one(dx + c, x + c, dy[c], t);
}

PARE_CLONES static void give_average(float *dx, const float *x, const float *dy, int64_t n,
                                     const taps *t)
{
    const float divisor = (float)t->divisor;
    (void)x;
    for (int k = 0; k < t->count; k++) {
        float *to = dx + t->at[k];
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] += dy[i] / divisor;
    }
}

typedef void (*give_fn)(float *dx, const float *x, const float *dy, int64_t n, const taps *t);

static void taps_of(const pare_window *w, int64_t oh, int64_t ow, const pare_view *dx, taps *out)
{
    const pare_taps high = pare_window_taps(w, 1, oh), wide = pare_window_taps(w, 2, ow);
    out->count = 0;
    for (int64_t a = 0; a < high.count; a++)
        for (int64_t b = 0; b < wide.count; b++)
            out->at[out->count++] = (high.first + a * w->dilation[1]) * dx->stride[2] +
                                    (wide.first + b * w->dilation[2]) * dx->stride[3];
    out->divisor = w->include_pad ? high.padded * wide.padded : out->count;
}

static void nhwc_image(const pare_call *c, int64_t n, give_fn give)
{
    const pare_window *w = c->state;
    const pare_view *dy = &c->in[0], *x = &c->in[c->in_count - 1], *dx = &c->out[0];
    const float *from = (const float *)x->data + n * x->stride[0];
    const float *given = (const float *)dy->data + n * dy->stride[0];
    float *to = (float *)dx->data + n * dx->stride[0];
    taps t;
    for (int64_t oh = 0; oh < w->out[1]; oh++)
        for (int64_t ow = 0; ow < w->out[2]; ow++) {
            taps_of(w, oh, ow, dx, &t);
            if (!t.count) continue;
            give(to, from, given + oh * dy->stride[2] + ow * dy->stride[3], dx->dim[1], &t);
        }
}

static pare_status nhwc_run(const pare_call *c, give_fn give)
{
    memset(c->out[0].data, 0, pare_view_bytes(&c->out[0]));
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->threads > 1)
    for (int64_t n = 0; n < c->out[0].dim[0]; n++) nhwc_image(c, n, give);
    return PARE_OK;
}

static pare_status nhwc_max_run(const pare_call *c) { return nhwc_run(c, give_max); }

static pare_status nhwc_average_run(const pare_call *c) { return nhwc_run(c, give_average); }

static bool nhwc_can(const pare_prep *p)
{
    int count;
    const int64_t *kernel = pare_node_ints(p->node, "kernel_shape", &count);
    if (!kernel || count != 2 || kernel[0] > MOST_TAPS || kernel[1] > MOST_TAPS ||
        kernel[0] * kernel[1] > MOST_TAPS)
        return false;
    for (int i = 0; i < p->in_count; i++)
        if (p->in[i].dtype != PARE_f32 || !pare_view_nhwc(&p->in[i])) return false;
    return p->out[0].dtype == PARE_f32 && pare_view_nhwc(&p->out[0]);
}

static const pare_kernel nhwc_max_pool_grad = {
    .name = "nhwc_max_pool_grad", .can = nhwc_can, .prepare = prepare, .run = nhwc_max_run};
static const pare_kernel nhwc_average_pool_grad = {
    .name = "nhwc_average_pool_grad", .can = nhwc_can, .prepare = prepare, .run = nhwc_average_run};
const pare_kernel *const pare_cpu_max_pool_grad[] = {&nhwc_max_pool_grad, &pare_widened,
                                                     &ref_max_pool_grad, NULL};
const pare_kernel *const pare_cpu_average_pool_grad[] = {&nhwc_average_pool_grad, &pare_widened,
                                                         &ref_average_pool_grad, NULL};
