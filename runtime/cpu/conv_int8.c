/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConv of 8-bit operands on the exact 16-bit products of int8_gemm.h, over a picture
   (conv_picture.h) of 16-bit numbers less the zero point, so that a pad is a zero and adds nothing.
   A run of odd length reads one number more, against a weight of zero. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv_picture.h"
#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/cpu/gemm/int8_rows.h"

#include <string.h>

typedef struct int8_conv {
    pare_picture picture;
    pare_int8_gemm gemm;
    const int16_t *packed; /* one per group */
} int8_conv;

static bool can(const pare_prep *p)
{
    pare_dtype y = p->out[0].dtype;
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype) &&
           p->in[1].data && pare_view_rowmajor(&p->in[1]) &&
           (pare_type_is_int8(y) || y == PARE_f32) && p->in[0].rank >= 3 && p->in[0].rank <= 5;
}

/* The weight of one group as (runs x 2 * pairs, filters), then packed. */
static void pack_group(const int8_conv *s, const pare_view *w, int64_t g, char *plain,
                       int16_t *packed)
{
    const pare_picture *f = &s->picture;
    const pare_conv_args *a = &f->args;
    const char *from = w->data;
    int64_t taps = f->runs * f->together, even = (f->length + 1) / 2 * 2;
    memset(plain, 0, (size_t)(s->gemm.pairs * 2 * a->mg));
    for (int64_t m = 0; m < a->mg; m++)
        for (int64_t c = 0; c < a->cg; c++)
            for (int64_t t = 0; t < taps; t++) {
                int64_t row = t / f->together * even + t % f->together * a->cg + c;
                plain[row * a->mg + m] = from[pare_picture_weight(f, g, m, c, t)];
            }
    pare_int8_pack(&s->gemm, packed, plain, w->dtype, s->gemm.pairs * 2, a->mg, 1, 0);
}

static pare_status pack_weight(pare_prep *p, int8_conv *s)
{
    const pare_conv_args *a = &s->picture.args;
    size_t count = pare_int8_packed_count(&s->gemm);
    int16_t *packed = pare_arena_alloc(p->arena, count * (size_t)a->win.group + 1, sizeof *packed);
    char *plain = pare_alloc(p->ctx, (size_t)(s->gemm.pairs * 2 * a->mg) + 1, 1);
    if (packed && plain)
        for (int64_t g = 0; g < a->win.group; g++)
            pack_group(s, &p->in[1], g, plain, packed + (size_t)g * count);
    pare_free(plain);
    s->packed = packed;
    return packed && plain ? PARE_OK : PARE_MEMORY;
}

static void load(const pare_picture *s, void *dst, const pare_view *x, int64_t from, int64_t n,
                 int64_t stride)
{
    pare_int8_widen(dst, (const char *)x->data + from, x->dtype, n, stride, s->args.q.x_zero);
}

static void tile_run(const pare_picture *f, const void *tail, int64_t group, const pare_tile *tile)
{
    const int8_conv *s = (const int8_conv *)(const void *)f;
    const int16_t *packed = s->packed + (size_t)group * pare_int8_packed_count(&s->gemm);
    pare_int8_job(&s->gemm, tile, packed, 0, f->args.mg, tail, group * f->args.mg);
}

static pare_status prepare(pare_prep *p)
{
    int8_conv *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->picture = (pare_picture){.element = sizeof(int16_t),
                                .slack = 1,
                                .unit = 2,
                                .least = 2e5,
                                .load = load,
                                .tile = tile_run};
    PARE_TRY(pare_picture_prepare(p, &s->picture));
    int64_t pairs = s->picture.runs * ((s->picture.length + 1) / 2);
    pare_int8_gemm_init(&s->gemm, pare_cpu_isa(), pairs, s->picture.args.mg);
    PARE_TRY(pack_weight(p, s));
    p->packed |= 1u << 1;
    p->state = s;
    return PARE_OK;
}

static pare_status run(const pare_call *c)
{
    const int8_conv *s = c->state;
    const pare_conv_args *a = &s->picture.args;
    pare_int8_tail tail;
    pare_int8_tail_init(&tail, s->gemm.isa, &a->epilogue, a->scale, a->bias);
    pare_picture_run(&s->picture, c, &tail);
    return PARE_OK;
}

const pare_kernel pare_int8_conv = {
    .name = "int8_conv", .can = can, .prepare = prepare, .run = run};

/* Depthwise FusedConv of 8-bit operands over a picture (conv_picture.h) of the bytes themselves,
   whose pads are zero points and so add nothing once the zero point's part is taken off. */

typedef struct depthwise {
    pare_picture picture;
    pare_int8_dw dw;
    pare_isa isa;
} depthwise;

static bool depthwise_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    if (!pare_type_is_int8(x->dtype) || w->dtype != PARE_s8 || !w->data) return false;
    if (!pare_type_is_int8(y->dtype) && y->dtype != PARE_f32) return false;
    int64_t group = pare_node_int(p->node, "group", 1);
    return group > 1 && group == x->dim[1] && w->dim[0] == group && w->dim[1] == 1 &&
           x->rank >= 3 && x->rank <= 5 && pare_view_rowmajor(w);
}

static void depthwise_load(const pare_picture *s, void *dst, const pare_view *x, int64_t from,
                           int64_t n, int64_t stride)
{
    (void)s;
    const char *src = (const char *)x->data + from;
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++) ((char *)dst)[i] = src[i * stride];
}

static void depthwise_tile_run(const pare_picture *f, const void *tail, int64_t group,
                               const pare_tile *tile)
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

static pare_status depthwise_prepare(pare_prep *p)
{
    depthwise *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->picture = (pare_picture){.element = 1,
                                .slack = PARE_DW_LANES_MOST,
                                .unit = 1,
                                .whole = true,
                                .least = 1e5,
                                .load = depthwise_load,
                                .tile = depthwise_tile_run};
    PARE_TRY(pare_picture_prepare(p, &s->picture));
    const pare_conv_args *a = &s->picture.args;
    s->picture.fill = a->q.x_zero;
    s->isa = pare_cpu_isa();
    p->state = s;
    return pare_int8_dw_init(&s->dw, p->arena, s->isa, p->in[0].dtype, a->q.x_zero, p->in[1].data,
                             a->c, s->picture.runs);
}

static pare_status depthwise_run(const pare_call *c)
{
    const depthwise *s = c->state;
    const pare_conv_args *a = &s->picture.args;
    pare_int8_tail tail;
    pare_int8_tail_init(&tail, s->isa, &a->epilogue, a->scale, a->bias);
    pare_picture_run(&s->picture, c, &tail);
    return PARE_OK;
}

const pare_kernel pare_int8_depthwise = {.name = "int8_depthwise",
                                         .can = depthwise_can,
                                         .prepare = depthwise_prepare,
                                         .run = depthwise_run};
