/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise FusedConv of 8-bit operands over a picture (conv_picture.h) of the bytes themselves,
   whose pads are zero points and so add nothing once the zero point's part is taken off. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv_picture.h"
#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/cpu/gemm/int8_rows.h"

#include <string.h>

typedef struct depthwise {
    pare_picture picture;
    pare_int8_dw dw;
    pare_isa isa;
} depthwise;

static bool can(const pare_prep *p)
{
    const pare_view *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    if (!pare_type_is_int8(x->dtype) || w->dtype != PARE_s8 || !w->data) return false;
    if (!pare_type_is_int8(y->dtype) && y->dtype != PARE_f32) return false;
    int64_t group = pare_node_int(p->node, "group", 1);
    return group > 1 && group == x->dim[1] && w->dim[0] == group && w->dim[1] == 1 &&
           x->rank >= 3 && x->rank <= 5 && pare_view_rowmajor(w);
}

static void load(const pare_picture *s, void *dst, const pare_view *x, int64_t from, int64_t n,
                 int64_t stride)
{
    (void)s;
    const char *src = (const char *)x->data + from;
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++) ((char *)dst)[i] = src[i * stride];
}

static void tile_run(const pare_picture *f, const void *tail, int64_t group, const pare_tile *tile)
{
    (void)group;
    const depthwise *s = (const depthwise *)(const void *)f;
    int64_t channels = f->args.c;
    enum { STEP = PARE_ROW + PARE_DW_LANES_MOST };
    _Alignas(64) int32_t acc[PARE_TILE_ROWS][STEP];
    for (int64_t from = 0; from < channels; from += PARE_ROW) {
        int64_t n = channels - from < PARE_ROW ? channels - from : PARE_ROW;
        s->dw.sums(&s->dw, acc[0], STEP, tile, from, n);
        pare_int8_finish(tail, from, n, acc[0], STEP, tile, from);
    }
}

static pare_status prepare(pare_prep *p)
{
    depthwise *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->picture = (pare_picture){.element = 1,
                                .slack = PARE_DW_LANES_MOST,
                                .unit = 1,
                                .whole = true,
                                .least = 1e5,
                                .load = load,
                                .tile = tile_run};
    PARE_TRY(pare_picture_prepare(p, &s->picture));
    const pare_conv_args *a = &s->picture.args;
    s->picture.fill = a->q.x_zero;
    s->isa = pare_cpu_isa();
    p->state = s;
    return pare_int8_dw_init(&s->dw, p->arena, s->isa, p->in[0].dtype, a->q.x_zero, p->in[1].data,
                             a->c, s->picture.runs);
}

static pare_status run(const pare_call *c)
{
    const depthwise *s = c->state;
    const pare_conv_args *a = &s->picture.args;
    pare_int8_tail tail;
    pare_int8_tail_init(&tail, s->isa, &a->epilogue, a->scale, a->bias);
    pare_picture_run(&s->picture, c, &tail);
    return PARE_OK;
}

const pare_kernel pare_int8_depthwise = {
    .name = "int8_depthwise", .can = can, .prepare = prepare, .run = run};
