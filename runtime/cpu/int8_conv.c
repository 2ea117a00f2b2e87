/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConv of 8-bit operands on the exact 16-bit products of int8_gemm.h: any strides, groups and
   one to three window axes. For 6 output positions at a time the taps are gathered and widened into
   a small matrix (positions, taps x channels), taps outside the tensor as zeros, and multiplied by
   the packed weight. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/int8_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/fused.h"

#include <omp.h>

typedef struct int8_conv {
    pare_conv_args args;
    pare_int8_gemm gemm;
    const int16_t *packed; /* one per group */
    int64_t positions;     /* outputs of the batch, channels apart */
    int threads;
    size_t room;           /* bytes of scratch per thread */
} int8_conv;

static bool can(const pare_prep *p)
{
    pare_dtype y = p->out[0].dtype;
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype) &&
           p->in[1].data && (pare_type_is_int8(y) || y == PARE_f32) && p->in[0].rank >= 3 &&
           p->in[0].rank <= 5;
}

/* The weight of one group as (taps x channels, filters), then packed. */
static void pack_group(const int8_conv *s, const pare_view *w, int64_t g, char *plain,
                       int16_t *packed)
{
    const pare_conv_args *a = &s->args;
    int64_t taps = a->win.kernel[0] * a->win.kernel[1] * a->win.kernel[2];
    for (int64_t m = 0; m < a->mg; m++)
        for (int64_t c = 0; c < a->cg; c++)
            for (int64_t t = 0; t < taps; t++)
                plain[(t * a->cg + c) * a->mg + m] =
                    ((const char *)w->data)[((g * a->mg + m) * a->cg + c) * taps + t];
    pare_int8_pack(&s->gemm, packed, plain, w->dtype, a->mg, 1, 0);
}

static pare_status pack_weight(pare_prep *p, int8_conv *s)
{
    const pare_conv_args *a = &s->args;
    size_t count = pare_int8_packed_count(&s->gemm);
    int16_t *packed = pare_arena_alloc(p->arena, count * (size_t)a->win.group + 1, sizeof *packed);
    char *plain = pare_alloc(p->ctx, (size_t)(s->gemm.depth * a->mg) + 1, 1);
    if (packed && plain)
        for (int64_t g = 0; g < a->win.group; g++)
            pack_group(s, &p->in[1], g, plain, packed + (size_t)g * count);
    pare_free(plain);
    s->packed = packed;
    return packed && plain ? PARE_OK : PARE_MEMORY;
}

static pare_status prepare(pare_prep *p)
{
    int8_conv *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_conv_args_read(p, &s->args));
    const pare_conv_args *a = &s->args;
    const pare_window *w = &a->win;
    int64_t depth = w->kernel[0] * w->kernel[1] * w->kernel[2] * a->cg;
    pare_int8_gemm_init(&s->gemm, pare_cpu_isa(), depth, a->mg);
    PARE_TRY(pack_weight(p, s));
    s->positions = a->n * w->out[0] * w->out[1] * w->out[2];
    double macs = (double)(s->positions * a->m) * (double)depth;
    s->threads = macs < 2e5 ? 1 : p->threads;
    s->room = ((size_t)(PARE_TILE_ROWS * s->gemm.pairs * 2) * sizeof(int16_t) + 127) / 64 * 64;
    p->scratch = s->room * (size_t)s->threads;
    p->state = s;
    return PARE_OK;
}

typedef struct job {
    const pare_call *call;
    const int8_conv *s;
    pare_int8_tail tail;
    const pare_view *z;
    int64_t group, first; /* first position of the tile */
    int64_t at[PARE_TILE_ROWS][4]; /* n and window position of each row */
} job;

static inline void widen(int16_t *dst, const char *src, pare_dtype type, int64_t n, int64_t stride,
                         int32_t zero)
{
    if (n >= 16) {
        pare_int8_widen(dst, src, type, n, stride, zero);
    } else if (type == PARE_s8) {
        const int8_t *x = (const int8_t *)src;
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)(x[i * stride] - zero);
    } else {
        const uint8_t *x = (const uint8_t *)src;
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)(x[i * stride] - zero);
    }
}

/* Strides of the last axes; leading unused ones 0. */
static void strides_of(const pare_view *v, int64_t s[3])
{
    for (int i = 0; i < 3; i++) {
        int axis = i - (5 - v->rank);
        s[i] = axis < 0 ? 0 : v->stride[2 + axis];
    }
}

/* The taps along the last axis of one row of the tensor; row NULL: all outside. Neighbouring taps
   that lie together in memory are widened at once. */
static int16_t *gather_row(const job *j, int16_t *to, const char *row, int64_t start,
                           int64_t w_stride)
{
    const pare_conv_args *a = &j->s->args;
    const pare_view *x = &j->call->in[0];
    int64_t taps = a->win.kernel[2], d = a->win.dilation[2], in = a->win.in[2], cg = a->cg;
    int64_t k0 = start < 0 ? (-start + d - 1) / d : 0, k1 = in > start ? (in - start + d - 1) / d : 0;
    if (k1 > taps) k1 = taps;
    if (!row || k1 <= k0) k0 = k1 = 0;
    memset(to, 0, (size_t)(k0 * cg) * sizeof *to);
    memset(to + k1 * cg, 0, (size_t)((taps - k1) * cg) * sizeof *to);
    bool together = d == 1 && x->stride[1] == 1 && w_stride == cg;
    int64_t step = together ? k1 - k0 : 1;
    for (int64_t k = k0; k < k1; k += step)
        widen(to + k * cg, row + (start + k * d) * w_stride, x->dtype, step * cg, x->stride[1],
              a->q.x_zero);
    return to + taps * cg;
}

static void gather(const job *j, int16_t *to, const int64_t *at)
{
    const pare_conv_args *a = &j->s->args;
    const pare_window *w = &a->win;
    const pare_view *x = &j->call->in[0];
    int64_t xs[3], start[3];
    strides_of(x, xs);
    for (int i = 0; i < 3; i++) start[i] = at[1 + i] * w->stride[i] - w->begin[i];
    const char *image = (const char *)x->data + at[0] * x->stride[0] + j->group * a->cg * x->stride[1];
    for (int64_t d = 0; d < w->kernel[0]; d++)
        for (int64_t h = 0; h < w->kernel[1]; h++) {
            int64_t pd = start[0] + d * w->dilation[0], ph = start[1] + h * w->dilation[1];
            bool inside = pd >= 0 && pd < w->in[0] && ph >= 0 && ph < w->in[1];
            to = gather_row(j, to, inside ? image + pd * xs[0] + ph * xs[1] : NULL, start[2], xs[2]);
        }
    if (j->s->gemm.depth % 2) *to = 0;
}

static int64_t offset_of(const pare_view *v, const int64_t *at, int64_t channel)
{
    int64_t s[3];
    strides_of(v, s);
    return at[0] * v->stride[0] + channel * v->stride[1] + at[1] * s[0] + at[2] * s[1] +
           at[3] * s[2];
}

static void finish(void *user, int row, int64_t from, int64_t n, const int32_t *acc)
{
    const job *j = user;
    const pare_view *y = &j->call->out[0], *z = j->z;
    int64_t channel = j->group * j->s->args.mg + from;
    const void *zp = z ? pare_element(z->data, z->dtype, offset_of(z, j->at[row], channel)) : NULL;
    pare_int8_finish(&j->tail, channel, n, acc, zp, z ? z->stride[1] : 0,
                     pare_element(y->data, y->dtype, offset_of(y, j->at[row], channel)),
                     y->stride[1]);
}

static void tile_run(const job *shared, int64_t index, int16_t *room)
{
    job j = *shared;
    const int8_conv *s = j.s;
    const int64_t *out = s->args.win.out;
    j.group = index % s->args.win.group;
    j.first = index / s->args.win.group * PARE_TILE_ROWS;
    int64_t left = s->positions - j.first;
    int rows = left < PARE_TILE_ROWS ? (int)left : PARE_TILE_ROWS;
    for (int i = 0; i < rows; i++) {
        int64_t at = j.first + i, *to = j.at[i];
        to[3] = at % out[2], at /= out[2];
        to[2] = at % out[1], at /= out[1];
        to[1] = at % out[0], to[0] = at / out[0];
        gather(&j, room + i * s->gemm.pairs * 2, to);
    }
    const int16_t *packed = s->packed + (size_t)j.group * pare_int8_packed_count(&s->gemm);
    pare_int8_job(&s->gemm, room, packed, rows, 0, s->args.mg, finish, &j);
}

static pare_status run(const pare_call *c)
{
    const int8_conv *s = c->state;
    const pare_conv_args *a = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, a->at.bias);
    job j = {.call = c, .s = s, .z = pare_operand(c->in, c->in_count, a->at.residual)};
    j.tail = (pare_int8_tail){.epilogue = &a->epilogue, .scale = a->scale,
                              .bias = bias ? bias->data : NULL, .bias_step = 1};
    int64_t jobs = (s->positions + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS * a->win.group;
    if (s->threads <= 1) {
        for (int64_t i = 0; i < jobs; i++) tile_run(&j, i, c->scratch);
        return PARE_OK;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < jobs; i++) {
        char *mine = (char *)c->scratch + (size_t)omp_get_thread_num() * s->room;
        tile_run(&j, i, (int16_t *)(void *)mine);
    }
    return PARE_OK;
}

const pare_kernel pare_int8_conv = {.name = "int8_conv", .can = can, .prepare = prepare,
                                    .run = run};
