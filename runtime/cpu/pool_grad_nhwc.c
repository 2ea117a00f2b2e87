/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of pools in f32 where channels are together: a window's channels are worked on at once,
   windows in order, so that every element is the plain kernels' to the bit. */
#include "runtime/base/clones.h"
#include "runtime/cpu/pool_grad.h"
#include "runtime/ops/window.h"

#include <string.h>

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

static void image(const pare_call *c, int64_t n, give_fn give)
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

static pare_status run(const pare_call *c, give_fn give)
{
    memset(c->out[0].data, 0, pare_view_bytes(&c->out[0]));
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->threads > 1)
    for (int64_t n = 0; n < c->out[0].dim[0]; n++) image(c, n, give);
    return PARE_OK;
}

static pare_status max_run(const pare_call *c) { return run(c, give_max); }

static pare_status average_run(const pare_call *c) { return run(c, give_average); }

static bool can(const pare_prep *p)
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

const pare_kernel pare_nhwc_max_pool_grad = {
    .name = "nhwc_max_pool_grad", .can = can, .prepare = pare_pool_grad_prepare, .run = max_run};
const pare_kernel pare_nhwc_average_pool_grad = {.name = "nhwc_average_pool_grad",
                                                 .can = can,
                                                 .prepare = pare_pool_grad_prepare,
                                                 .run = average_run};
