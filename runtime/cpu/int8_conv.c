/* SPDX-License-Identifier: Apache-2.0 */
/* FusedConv of 8-bit operands on the exact 16-bit products of int8_gemm.h: any strides, groups and
   one to three window axes.

   One image at a time is widened into a padded N, spatial, C picture of 16-bit numbers less the
   zero point, so that a pad is a zero and adds nothing. Then each output position is a row of a
   matrix product whose inner axis lies in runs in that picture, one for each row of the window (one
   for each tap where taps do not touch: dilated, or several groups), and nothing is gathered. A run
   of odd length reads one number more, against a weight of zero. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/int8_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/fused.h"

#include <omp.h>

typedef struct int8_conv {
    pare_conv_args args;
    pare_int8_gemm gemm;
    const int16_t *packed; /* one per group */
    const int64_t *run;    /* starts of the runs from a position's first tap */
    int64_t runs, pairs;   /* pairs of one run */
    int64_t size[3];       /* of the picture */
    int64_t positions;     /* outputs of one image, channels apart */
    bool joined;           /* a run is a row of the window, not a tap */
    int threads;
    size_t room; /* bytes of one picture */
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
    const pare_conv_args *a = &s->args;
    const int64_t *k = a->win.kernel;
    int64_t taps = k[0] * k[1] * k[2], together = s->joined ? k[2] : 1;
    memset(plain, 0, (size_t)(s->gemm.pairs * 2 * a->mg));
    for (int64_t m = 0; m < a->mg; m++)
        for (int64_t c = 0; c < a->cg; c++)
            for (int64_t t = 0; t < taps; t++) {
                int64_t row = t / together * s->pairs * 2 + t % together * a->cg + c;
                plain[row * a->mg + m] =
                    ((const char *)w->data)[((g * a->mg + m) * a->cg + c) * taps + t];
            }
    pare_int8_pack(&s->gemm, packed, plain, w->dtype, s->gemm.pairs * 2, a->mg, 1, 0);
}

static pare_status pack_weight(pare_prep *p, int8_conv *s)
{
    const pare_conv_args *a = &s->args;
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

static pare_status runs_find(pare_prep *p, int8_conv *s)
{
    const pare_window *w = &s->args.win;
    int64_t c = s->args.c, pitch[3] = {s->size[1] * s->size[2] * c, s->size[2] * c, c};
    s->joined = w->dilation[2] == 1 && w->group == 1;
    int64_t along = s->joined ? 1 : w->kernel[2];
    s->runs = w->kernel[0] * w->kernel[1] * along;
    s->pairs = (s->args.cg * (s->joined ? w->kernel[2] : 1) + 1) / 2;
    int64_t *run = pare_arena_alloc(p->arena, (size_t)s->runs, sizeof *run), i = 0;
    if (!run) return PARE_MEMORY;
    for (int64_t d = 0; d < w->kernel[0]; d++)
        for (int64_t h = 0; h < w->kernel[1]; h++)
            for (int64_t k = 0; k < along; k++)
                run[i++] = d * w->dilation[0] * pitch[0] + h * w->dilation[1] * pitch[1] +
                           k * w->dilation[2] * pitch[2];
    s->run = run;
    return PARE_OK;
}

static pare_status prepare(pare_prep *p)
{
    int8_conv *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_conv_args_read(p, &s->args));
    const pare_conv_args *a = &s->args;
    const pare_window *w = &a->win;
    size_t count = (size_t)a->c, taps = 1;
    s->positions = 1;
    for (int i = 0; i < 3; i++) {
        s->size[i] = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
        count *= (size_t)s->size[i], taps *= (size_t)w->kernel[i];
        s->positions *= w->out[i];
    }
    PARE_TRY(runs_find(p, s));
    pare_int8_gemm_init(&s->gemm, pare_cpu_isa(), s->runs * s->pairs, a->mg);
    PARE_TRY(pack_weight(p, s));
    double macs = (double)(a->n * s->positions * a->m) * (double)taps * (double)a->cg;
    s->threads = macs < 2e5 ? 1 : p->threads;
    s->room = ((count + 2) * sizeof(int16_t) + 63) / 64 * 64;
    p->scratch = s->room * (size_t)(a->n >= s->threads ? s->threads : 1);
    p->state = s;
    return PARE_OK;
}

/* Strides of the window's axes; unused leading ones 0. */
static void strides_of(const pare_view *v, int64_t s[3])
{
    for (int i = 0; i < 3; i++) {
        int axis = i - (5 - v->rank);
        s[i] = axis < 0 ? 0 : v->stride[2 + axis];
    }
}

/* One row of the picture (the last axis and channels); rows of pad are zeros. */
static void picture_row(const int8_conv *s, const pare_view *x, const char *image, int64_t row,
                        int16_t *picture)
{
    const pare_window *w = &s->args.win;
    int64_t xs[3], c = s->args.c, width = s->size[2];
    strides_of(x, xs);
    int64_t d = row / s->size[1] - w->begin[0], h = row % s->size[1] - w->begin[1];
    int16_t *to = picture + row * width * c;
    int64_t first = w->begin[2] > 0 ? w->begin[2] : 0, last = w->in[2] + w->begin[2];
    if (last > width) last = width;
    if (d < 0 || d >= w->in[0] || h < 0 || h >= w->in[1] || last < first) first = last = 0;
    if (first > 0) memset(to, 0, (size_t)(first * c) * sizeof *to);
    if (last < width) memset(to + last * c, 0, (size_t)((width - last) * c) * sizeof *to);
    const char *from = image + d * xs[0] + h * xs[1] + (first - w->begin[2]) * xs[2];
    if (last > first && x->stride[1] == 1 && xs[2] == c) {
        pare_int8_widen(to + first * c, from, x->dtype, (last - first) * c, 1, s->args.q.x_zero);
        return;
    }
    for (int64_t k = first; k < last; k++, from += xs[2])
        pare_int8_widen(to + k * c, from, x->dtype, c, x->stride[1], s->args.q.x_zero);
}

typedef struct job {
    const pare_call *call;
    const int8_conv *s;
    pare_int8_tail tail;
    const pare_view *z;
    int64_t ys[3], zs[3];
} job;

/* Up to six positions of one image, one group. */
static void tile_run(const job *j, int64_t n, int64_t index, const int16_t *picture)
{
    const int8_conv *s = j->s;
    const pare_conv_args *a = &s->args;
    const pare_window *w = &a->win;
    const pare_view *y = &j->call->out[0], *z = j->z;
    int64_t group = index % w->group, first = index / w->group * PARE_TILE_ROWS;
    int64_t left = s->positions - first, channel = group * a->mg;
    pare_int8_rows in = {.run = s->run,
                         .runs = s->runs,
                         .pairs = s->pairs,
                         .count = left < PARE_TILE_ROWS ? (int)left : PARE_TILE_ROWS};
    pare_int8_target to = {.y = y->data, .y_step = y->stride[1]};
    if (z) to.z = z->data, to.z_step = z->stride[1];
    for (int i = 0; i < in.count; i++) {
        int64_t p = first + i, p2 = p % w->out[2], p1 = p / w->out[2] % w->out[1];
        int64_t p0 = p / w->out[2] / w->out[1];
        int64_t at = (p0 * w->stride[0] * s->size[1] + p1 * w->stride[1]) * s->size[2];
        in.row[i] = picture + (at + p2 * w->stride[2]) * a->c + group * a->cg;
        to.y_at[i] = n * y->stride[0] + channel * y->stride[1] + p0 * j->ys[0] + p1 * j->ys[1] +
                     p2 * j->ys[2];
        if (z)
            to.z_at[i] = n * z->stride[0] + channel * z->stride[1] + p0 * j->zs[0] + p1 * j->zs[1] +
                         p2 * j->zs[2];
    }
    const int16_t *packed = s->packed + (size_t)group * pare_int8_packed_count(&s->gemm);
    pare_int8_job(&s->gemm, &in, packed, 0, a->mg, &j->tail, channel, &to);
}

static const char *image_of(const job *j, int64_t n)
{
    return (const char *)j->call->in[0].data + n * j->call->in[0].stride[0];
}

static void image_run(const job *j, int64_t n, int16_t *picture)
{
    const int8_conv *s = j->s;
    int64_t rows = s->size[0] * s->size[1], group = s->args.win.group;
    for (int64_t i = 0; i < rows; i++) picture_row(s, &j->call->in[0], image_of(j, n), i, picture);
    picture[rows * s->size[2] * s->args.c] = 0;
    int64_t tiles = (s->positions + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS * group;
    for (int64_t i = 0; i < tiles; i++) tile_run(j, n, i, picture);
}

/* Few images: the threads share each. */
static void images_shared(const job *j)
{
    const int8_conv *s = j->s;
    int16_t *picture = j->call->scratch;
    int64_t rows = s->size[0] * s->size[1], group = s->args.win.group;
    int64_t tiles = (s->positions + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS * group;
    picture[rows * s->size[2] * s->args.c] = 0;
#pragma omp parallel num_threads(s->threads)
    for (int64_t n = 0; n < s->args.n; n++) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows; i++)
            picture_row(s, &j->call->in[0], image_of(j, n), i, picture);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < tiles; i++) tile_run(j, n, i, picture);
    }
}

static pare_status run(const pare_call *c)
{
    const int8_conv *s = c->state;
    const pare_conv_args *a = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, a->at.bias);
    job j = {.call = c, .s = s, .z = pare_operand(c->in, c->in_count, a->at.residual)};
    pare_int8_tail_init(&j.tail, s->gemm.isa, &a->epilogue, a->scale, bias ? bias->data : NULL, 1);
    strides_of(&c->out[0], j.ys);
    if (j.z) strides_of(j.z, j.zs);
    if (s->threads <= 1) {
        for (int64_t n = 0; n < a->n; n++) image_run(&j, n, c->scratch);
        return PARE_OK;
    }
    if (a->n < s->threads) {
        images_shared(&j);
        return PARE_OK;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t n = 0; n < a->n; n++) {
        char *mine = (char *)c->scratch + (size_t)omp_get_thread_num() * s->room;
        image_run(&j, n, (int16_t *)(void *)mine);
    }
    return PARE_OK;
}

const pare_kernel pare_int8_conv = {
    .name = "int8_conv", .can = can, .prepare = prepare, .run = run};
