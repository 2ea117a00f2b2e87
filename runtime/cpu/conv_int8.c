/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConv of 8-bit operands on the exact 16-bit products of int8_gemm.h, over a picture
   (conv_picture.h) of 16-bit numbers less the zero point, so that a pad is a zero and adds nothing.
   A run of odd length reads one number more, against a weight of zero. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv_picture.h"
#include "runtime/cpu/gemm/int8_gemm.h"

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
