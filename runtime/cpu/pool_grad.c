/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of pools, any strides, f32 and f64:
     MaxPoolGrad (dY, X) -> dX      each dY goes to its window's first largest x (a NaN is largest)
     AveragePoolGrad (dY) -> dX     each dY is spread evenly over its window
   Windows are taken in order and images are independent, so that results do not depend on threads.
 */
#include "runtime/cpu/pool_grad.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/window.h"

#include <string.h>

pare_status pare_pool_grad_prepare(pare_prep *p)
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
                                              .prepare = pare_pool_grad_prepare,
                                              .run = max_run,
                                              .flags = PARE_KERNEL_REF};
static const pare_kernel ref_average_pool_grad = {.name = "ref_average_pool_grad",
                                                  .can = pare_ref_can_f32_f64,
                                                  .prepare = pare_pool_grad_prepare,
                                                  .run = average_run,
                                                  .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_max_pool_grad[] = {&pare_nhwc_max_pool_grad, &ref_max_pool_grad,
                                                     NULL};
const pare_kernel *const pare_cpu_average_pool_grad[] = {&pare_nhwc_average_pool_grad,
                                                         &ref_average_pool_grad, NULL};
