/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConvPool in plain C: FusedConv's definition into scratch, then MaxPool's. A maximum is the
   first of the largest; NaN is larger than all. */
#include "runtime/cpu/fast.h"
#include "runtime/base/size.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/conv_pool.h"

#include <math.h>

typedef struct conv_pool {
    void *conv; /* the state of FusedConv's kernel */
    pare_window window;
    pare_view made; /* what the convolution makes, row-major */
} conv_pool;

static pare_status conv_pool_prepare(pare_prep *p)
{
    conv_pool *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_ref_fused_conv.prepare(p));
    const pare_conv_args *a = p->state;
    PARE_TRY(pare_conv_pool_read(p->node, &a->win, &s->window));
    const pare_shape shape = {.rank = 4, .dim = {a->n, a->m, a->win.out[1], a->win.out[2]}};
    pare_view_set(&s->made, p->out[0].dtype, &shape, false);
    p->scratch += pare_align_up(pare_view_bytes(&s->made), 64);
    s->conv = p->state;
    p->state = s;
    return PARE_OK;
}

/* Offset of the largest element of a plane's window at (h, w) of Y. */
static int64_t window_max(const conv_pool *s, const pare_view *from, int64_t plane, int64_t h,
                          int64_t w)
{
    const pare_taps rows = pare_window_taps(&s->window, 1, h),
                    pixels = pare_window_taps(&s->window, 2, w);
    int64_t best = -1;
    double most = -INFINITY;
    for (int64_t r = 0; r < rows.count; r++)
        for (int64_t k = 0; k < pixels.count; k++) {
            const int64_t at =
                (plane * s->window.in[1] + rows.first + r) * s->window.in[2] + pixels.first + k;
            const double v = pare_ref_get(from, at);
            if (best >= 0 && !(v > most || (isnan(v) && !isnan(most)))) continue;
            best = at, most = v;
        }
    return best;
}

static pare_status conv_pool_run(const pare_call *c)
{
    const conv_pool *s = c->state;
    const pare_view *y = &c->out[0];
    pare_view made = s->made;
    pare_call conv = *c;
    made.data = c->scratch;
    conv.state = s->conv;
    conv.out = &made;
    PARE_TRY(pare_ref_fused_conv.run(&conv));
    for (int64_t plane = 0; plane < y->dim[0] * y->dim[1]; plane++)
        for (int64_t h = 0; h < y->dim[2]; h++)
            for (int64_t w = 0; w < y->dim[3]; w++) {
                const int64_t best = window_max(s, &made, plane, h, w);
                const int64_t to = plane / y->dim[1] * y->stride[0] +
                                   plane % y->dim[1] * y->stride[1] + h * y->stride[2] +
                                   w * y->stride[3];
                pare_ref_set(y, to, best < 0 ? -INFINITY : pare_ref_get(&made, best));
            }
    return PARE_OK;
}

static const pare_kernel ref_fused_conv_pool = {.name = "ref_fused_conv_pool",
                                                .prepare = conv_pool_prepare,
                                                .run = conv_pool_run,
                                                .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_fused_conv_pool[] = {&ref_fused_conv_pool, NULL};
