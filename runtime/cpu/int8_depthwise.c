/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise FusedConv of 8-bit operands, N, H, W, C: each output position multiplies its taps
   channel by channel, 16 channels and two taps at a time (int8_gemm.h). A tap outside the tensor
   reads a row of zero points, which adds nothing. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/int8_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/fused.h"

#include <omp.h>

enum { MOST_TAPS = 128 };

typedef struct depthwise {
    pare_conv_args args;
    pare_isa isa;
    pare_int8_dw_fn sums;
    const int16_t *packed;
    const void *outside; /* (channels) zero points */
    int taps, even;      /* even: with a tap outside added where the number is odd */
    int threads;
} depthwise;

static bool can(const pare_prep *p)
{
    const pare_view *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    if (!pare_type_is_int8(x->dtype) || w->dtype != PARE_s8 || !w->data || x->rank != 4)
        return false;
    if (!pare_type_is_int8(y->dtype) && y->dtype != PARE_f32) return false;
    int64_t group = pare_node_int(p->node, "group", 1);
    return group > 1 && group == x->dim[1] && w->dim[0] == group && w->dim[1] == 1 &&
           w->dim[2] * w->dim[3] < MOST_TAPS && pare_view_nhwc(x) && pare_view_nhwc(y) &&
           pare_view_rowmajor(w);
}

static pare_status prepare(pare_prep *p)
{
    depthwise *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_conv_args_read(p, &s->args));
    const pare_conv_args *a = &s->args;
    s->taps = (int)(a->win.kernel[1] * a->win.kernel[2]);
    s->even = s->taps + s->taps % 2;
    s->isa = pare_cpu_isa();
    s->sums = pare_int8_dw(s->isa);
    size_t count = pare_int8_dw_count(a->c, s->even);
    int16_t *packed = pare_arena_alloc(p->arena, count + 1, sizeof *packed);
    char *outside = pare_arena_alloc(p->arena, (size_t)a->c + PARE_DW_LANES, 1);
    if (!packed || !outside) return PARE_MEMORY;
    pare_int8_dw_pack(packed, p->in[1].data, a->c, s->even, s->taps);
    memset(outside, a->q.x_zero, (size_t)a->c + PARE_DW_LANES);
    s->packed = packed;
    s->outside = outside;
    double macs = (double)(a->n * a->m * s->taps) * (double)(a->win.out[1] * a->win.out[2]);
    s->threads = macs < 1e5 ? 1 : p->threads;
    p->state = s;
    return PARE_OK;
}

typedef struct position {
    const void *tap[MOST_TAPS];
    int64_t y, z;
} position;

/* Rows of the tensor that one row of outputs reads; NULL outside. */
static void rows_find(const pare_call *c, int64_t n, int64_t oh, const char *row[MOST_TAPS])
{
    const depthwise *s = c->state;
    const pare_window *w = &s->args.win;
    const pare_view *x = &c->in[0];
    for (int64_t h = 0; h < w->kernel[1]; h++) {
        int64_t ph = oh * w->stride[1] - w->begin[1] + h * w->dilation[1];
        bool inside = ph >= 0 && ph < w->in[1];
        row[h] = inside ? (const char *)x->data + n * x->stride[0] + ph * x->stride[2] : NULL;
    }
}

static void taps_find(const depthwise *s, const char *const *row, int64_t ow, int64_t pitch,
                      position *out)
{
    const pare_window *w = &s->args.win;
    int64_t start = ow * w->stride[2] - w->begin[2], last = (w->kernel[2] - 1) * w->dilation[2];
    bool whole = start >= 0 && start + last < w->in[2];
    const void **tap = out->tap;
    for (int64_t h = 0; h < w->kernel[1]; h++)
        for (int64_t k = 0, pw = start; k < w->kernel[2]; k++, pw += w->dilation[2]) {
            bool inside = row[h] && (whole || (pw >= 0 && pw < w->in[2]));
            *tap++ = inside ? row[h] + pw * pitch : s->outside;
        }
    if (s->taps < s->even) *tap = s->outside;
}

/* Channels behind the last whole group are copied out first: vectors read 16 at a time. */
static void last_group(const depthwise *s, const position *at, int64_t from, int64_t n,
                       pare_dtype type, int32_t *acc)
{
    char room[MOST_TAPS][PARE_DW_LANES] = {{0}};
    const void *tap[MOST_TAPS];
    for (int t = 0; t < s->even; t++) {
        memcpy(room[t], (const char *)at->tap[t] + from, (size_t)n);
        tap[t] = room[t];
    }
    s->sums(acc, n, tap, type, s->even, s->args.q.x_zero, s->packed + from * s->even, n);
}

static void position_run(const pare_call *c, const pare_int8_tail *tail, const pare_view *z,
                         const position *at)
{
    const depthwise *s = c->state;
    const pare_view *y = &c->out[0];
    pare_dtype type = c->in[0].dtype;
    int64_t channels = s->args.c, zs = z ? z->stride[1] : 0;
    int32_t acc[PARE_ROW + PARE_DW_LANES];
    for (int64_t from = 0; from < channels; from += PARE_ROW) {
        int64_t n = channels - from < PARE_ROW ? channels - from : PARE_ROW;
        int64_t whole = n / PARE_DW_LANES * PARE_DW_LANES;
        const void *moved[MOST_TAPS], *const *tap = at->tap;
        for (int t = 0; from && t < s->even; t++) moved[t] = (const char *)at->tap[t] + from;
        if (from) tap = moved;
        if (whole)
            s->sums(acc, whole, tap, type, s->even, s->args.q.x_zero, s->packed + from * s->even,
                    channels);
        if (n > whole) last_group(s, at, from + whole, n - whole, type, acc + whole);
        pare_int8_finish(tail, from, n, acc,
                         z ? pare_element(z->data, z->dtype, at->z + from * zs) : NULL, zs,
                         pare_element(y->data, y->dtype, at->y + from), 1);
    }
}

static void row_run(const pare_call *c, const pare_int8_tail *tail, const pare_view *z, int64_t row)
{
    const depthwise *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t n = row / s->args.win.out[1], oh = row % s->args.win.out[1];
    const char *from[MOST_TAPS];
    position at = {.y = n * y->stride[0] + oh * y->stride[2]};
    if (z) at.z = n * z->stride[0] + oh * z->stride[2];
    rows_find(c, n, oh, from);
    for (int64_t ow = 0; ow < s->args.win.out[2]; ow++) {
        taps_find(s, from, ow, x->stride[3], &at);
        position_run(c, tail, z, &at);
        at.y += y->stride[3];
        if (z) at.z += z->stride[3];
    }
}

static pare_status run(const pare_call *c)
{
    const depthwise *s = c->state;
    const pare_conv_args *a = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, a->at.bias);
    const pare_view *z = pare_operand(c->in, c->in_count, a->at.residual);
    pare_int8_tail tail;
    pare_int8_tail_init(&tail, s->isa, &a->epilogue, a->scale, bias ? bias->data : NULL, 1);
    int64_t rows = a->n * a->win.out[1];
    if (s->threads <= 1) {
        for (int64_t i = 0; i < rows; i++) row_run(c, &tail, z, i);
        return PARE_OK;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) row_run(c, &tail, z, i);
    return PARE_OK;
}

const pare_kernel pare_int8_depthwise = {
    .name = "int8_depthwise", .can = can, .prepare = prepare, .run = run};
