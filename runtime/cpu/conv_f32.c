/* SPDX-License-Identifier: Apache-2.0 */
/* Conv and FusedConv in f32 (f16, bf16 and FP8 through f32) on float_gemm.h, over a picture
   (conv_picture.h) of floats. Depthwise convolutions fold their taps channel by channel instead. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv_picture.h"
#include "runtime/cpu/gemm/float_gemm.h"
#include "runtime/cpu/gemm/int8_rows.h"

#include <string.h>

typedef struct float_conv {
    pare_picture picture;
    pare_float_gemm gemm;
    const float *packed; /* one per group; depthwise: (taps, channels) */
} float_conv;

static bool is_float(pare_dtype t) { return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16; }

static bool can(const pare_prep *p)
{
    pare_dtype t = p->in[0].dtype;
    const pare_view *w = &p->in[1], *y = &p->out[0];
    const bool f8 = pare_type_is_f8(t) && (y->dtype == t || is_float(y->dtype));
    if (!(f8 || (is_float(t) && y->dtype == t)) || w->dtype != t || !w->data ||
        !pare_view_rowmajor(w))
        return false;
    for (int i = 2; !f8 && i < p->in_count && i < 4; i++)
        if (p->in[i].dtype != PARE_NOTYPE && p->in[i].dtype != t) return false;
    return p->in[0].rank >= 3 && p->in[0].rank <= 5;
}

/* The weight of one group as (runs x length, filters), then packed. */
static void pack_group(const float_conv *s, const pare_view *w, int64_t g, float *plain,
                       float *packed)
{
    const pare_conv_args *a = &s->picture.args;
    int64_t taps = s->picture.runs * s->picture.together;
    for (int64_t m = 0; m < a->mg; m++)
        for (int64_t c = 0; c < a->cg; c++)
            for (int64_t t = 0; t < taps; t++)
                plain[(t * a->cg + c) * a->mg + m] =
                    pare_float_at(w->data, w->dtype, pare_picture_weight(&s->picture, g, m, c, t));
    pare_float_pack(&s->gemm, packed, plain, PARE_f32, a->mg, 1);
}

static pare_status pack_depthwise(pare_prep *p, float_conv *s)
{
    const pare_view *w = &p->in[1];
    int64_t taps = s->picture.runs, channels = s->picture.args.c;
    float *packed = pare_arena_alloc(p->arena, (size_t)(taps * channels) + 1, sizeof *packed);
    if (!packed) return PARE_MEMORY;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < taps; t++)
            packed[t * channels + c] = pare_float_at(w->data, w->dtype, c * taps + t);
    s->packed = packed;
    return PARE_OK;
}

static pare_status pack_weight(pare_prep *p, float_conv *s)
{
    const pare_conv_args *a = &s->picture.args;
    size_t count = pare_float_packed_count(&s->gemm);
    float *packed = pare_arena_alloc(p->arena, count * (size_t)a->win.group + 1, sizeof *packed);
    float *plain = pare_alloc(p->ctx, (size_t)(s->gemm.depth * a->mg) + 1, sizeof *plain);
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
    (void)s;
    pare_float_row(dst, x->data, x->dtype, from, n, stride);
}

static void tile_run(const pare_picture *f, const void *tail, int64_t group, const pare_tile *tile)
{
    const float_conv *s = (const float_conv *)(const void *)f;
    const float *packed = s->packed + (size_t)group * pare_float_packed_count(&s->gemm);
    pare_float_job(&s->gemm, tile, packed, 0, f->args.mg, tail, group * f->args.mg);
}

PARE_CLONES_FMA static void fold_taps(float *acc, int64_t n, const float *x, const int64_t *run,
                                      int64_t runs, const float *w, int64_t channels)
{
    for (int64_t i = 0; i < n; i++) acc[i] = x[run[0] + i] * w[i];
    for (int64_t t = 1; t < runs; t++)
        for (int64_t i = 0; i < n; i++) acc[i] = fmaf(x[run[t] + i], w[t * channels + i], acc[i]);
}

static void depthwise_run(const pare_picture *f, const void *tail, int64_t group,
                          const pare_tile *tile)
{
    (void)group;
    const float_conv *s = (const float_conv *)(const void *)f;
    int64_t channels = f->args.c;
    float acc[PARE_TILE_ROWS][PARE_ROW];
    for (int64_t c = 0; c < channels; c += PARE_ROW) {
        int64_t n = channels - c < PARE_ROW ? channels - c : PARE_ROW;
        for (int r = 0; r < tile->count; r++)
            fold_taps(acc[r], n, (const float *)tile->row[r] + c, f->run, f->runs, s->packed + c,
                      channels);
        pare_float_finish(tail, c, n, acc[0], PARE_ROW, tile, c);
    }
}

static pare_status prepare(pare_prep *p)
{
    float_conv *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_picture *f = &s->picture;
    *f = (pare_picture){.element = sizeof(float), .unit = 1, .least = 1e5, .load = load};
    PARE_TRY(pare_picture_prepare(p, f));
    f->whole = f->args.win.group > 1 && f->args.cg == 1 && f->args.mg == 1;
    f->tile = f->whole ? depthwise_run : tile_run;
    pare_float_gemm_init(&s->gemm, pare_cpu_isa(), f->runs * f->length, f->args.mg);
    p->state = s;
    p->packed |= 1u << 1;
    return f->whole ? pack_depthwise(p, s) : pack_weight(p, s);
}

static pare_status run(const pare_call *c)
{
    const float_conv *s = c->state;
    const pare_conv_args *a = &s->picture.args;
    const pare_view *bias = pare_operand(c->in, c->in_count, a->at.bias);
    pare_float_tail tail = {.act = a->act,
                            .alpha = 1,
                            .beta = 1,
                            .type = c->out[0].dtype,
                            .bias = bias ? bias->data : NULL,
                            .bias_step = 1};
    if (a->f8) tail.f8 = &a->epilogue, tail.scale = a->scale, tail.bias = a->bias;
    pare_picture_run(&s->picture, c, &tail);
    return PARE_OK;
}

const pare_kernel pare_float_conv = {
    .name = "float_conv", .can = can, .prepare = prepare, .run = run};
