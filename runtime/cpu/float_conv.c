/* SPDX-License-Identifier: Apache-2.0 */
/* Conv and FusedConv in f32 (f16 and bf16 through f32) on float_gemm.h, as int8_conv.c does it: one
   image at a time lies in a padded N, spatial, C picture of floats, whose rows of taps are the runs
   of a matrix product. Any strides, groups, one to three window axes; depthwise convolutions fold
   their taps channel by channel instead. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/fused.h"

#include <omp.h>

typedef struct float_conv {
    pare_conv_args args;
    pare_float_gemm gemm;
    const float *packed; /* one per group; depthwise: (taps, channels) */
    const int64_t *run;
    int64_t runs, length;
    int64_t size[3], positions;
    bool joined, depthwise;
    int threads;
    size_t room; /* bytes of one picture */
} float_conv;

static bool is_float(pare_dtype t)
{
    return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16;
}

static bool can(const pare_prep *p)
{
    pare_dtype t = p->in[0].dtype;
    const pare_view *w = &p->in[1], *y = &p->out[0];
    if (!is_float(t) || w->dtype != t || y->dtype != t || !w->data || !pare_view_rowmajor(w))
        return false;
    for (int i = 2; i < p->in_count && i < 4; i++)
        if (p->in[i].dtype != PARE_NOTYPE && p->in[i].dtype != t) return false;
    return p->in[0].rank >= 3 && p->in[0].rank <= 5;
}

static inline float number_at(const void *data, pare_dtype type, int64_t i)
{
    if (type == PARE_f32) return ((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    return type == PARE_f16 ? pare_f16_to_f32(half) : pare_bf16_to_f32(half);
}

/* The weight of one group as (runs x length, filters), then packed. */
static void pack_group(const float_conv *s, const pare_view *w, int64_t g, float *plain,
                       float *packed)
{
    const pare_conv_args *a = &s->args;
    int64_t taps = a->win.kernel[0] * a->win.kernel[1] * a->win.kernel[2];
    for (int64_t m = 0; m < a->mg; m++)
        for (int64_t c = 0; c < a->cg; c++)
            for (int64_t t = 0; t < taps; t++)
                plain[(t * a->cg + c) * a->mg + m] =
                    number_at(w->data, w->dtype, ((g * a->mg + m) * a->cg + c) * taps + t);
    pare_float_pack(&s->gemm, packed, plain, PARE_f32, a->mg, 1);
}

static pare_status pack_weight(pare_prep *p, float_conv *s)
{
    const pare_conv_args *a = &s->args;
    const pare_view *w = &p->in[1];
    if (s->depthwise) {
        float *packed = pare_arena_alloc(p->arena, (size_t)(s->runs * a->c) + 1, sizeof *packed);
        if (!packed) return PARE_MEMORY;
        for (int64_t c = 0; c < a->c; c++)
            for (int64_t t = 0; t < s->runs; t++)
                packed[t * a->c + c] = number_at(w->data, w->dtype, c * s->runs + t);
        s->packed = packed;
        return PARE_OK;
    }
    size_t count = pare_float_packed_count(&s->gemm);
    float *packed = pare_arena_alloc(p->arena, count * (size_t)a->win.group + 1, sizeof *packed);
    float *plain = pare_alloc(p->ctx, (size_t)(s->gemm.depth * a->mg) + 1, sizeof *plain);
    if (packed && plain)
        for (int64_t g = 0; g < a->win.group; g++)
            pack_group(s, w, g, plain, packed + (size_t)g * count);
    pare_free(plain);
    s->packed = packed;
    return packed && plain ? PARE_OK : PARE_MEMORY;
}

static pare_status runs_find(pare_prep *p, float_conv *s)
{
    const pare_window *w = &s->args.win;
    int64_t c = s->args.c, pitch[3] = {s->size[1] * s->size[2] * c, s->size[2] * c, c};
    s->joined = w->dilation[2] == 1 && w->group == 1;
    int64_t along = s->joined ? 1 : w->kernel[2];
    s->runs = w->kernel[0] * w->kernel[1] * along;
    s->length = s->args.cg * (s->joined ? w->kernel[2] : 1);
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
    float_conv *s = pare_arena_alloc(p->arena, 1, sizeof *s);
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
    s->depthwise = w->group > 1 && a->cg == 1 && a->mg == 1;
    PARE_TRY(runs_find(p, s));
    pare_float_gemm_init(&s->gemm, pare_cpu_isa(), s->runs * s->length, a->mg);
    PARE_TRY(pack_weight(p, s));
    double macs = (double)(a->n * s->positions * a->m) * (double)taps * (double)a->cg;
    s->threads = macs < 1e5 ? 1 : p->threads;
    s->room = (count * sizeof(float) + 127) / 64 * 64;
    p->scratch = s->room * (size_t)(a->n >= s->threads ? s->threads : 1);
    p->state = s;
    return PARE_OK;
}

static void strides_of(const pare_view *v, int64_t s[3])
{
    for (int i = 0; i < 3; i++) {
        int axis = i - (5 - v->rank);
        s[i] = axis < 0 ? 0 : v->stride[2 + axis];
    }
}

/* One row of the picture (the last axis and channels); rows of pad are zeros. */
static void picture_row(const float_conv *s, const pare_view *x, int64_t n, int64_t row,
                        float *picture)
{
    const pare_window *w = &s->args.win;
    int64_t xs[3], c = s->args.c, width = s->size[2];
    strides_of(x, xs);
    int64_t d = row / s->size[1] - w->begin[0], h = row % s->size[1] - w->begin[1];
    float *to = picture + row * width * c;
    int64_t first = w->begin[2] > 0 ? w->begin[2] : 0, last = w->in[2] + w->begin[2];
    if (last > width) last = width;
    if (d < 0 || d >= w->in[0] || h < 0 || h >= w->in[1] || last < first) first = last = 0;
    memset(to, 0, (size_t)(first * c) * sizeof *to);
    memset(to + last * c, 0, (size_t)((width - last) * c) * sizeof *to);
    int64_t from = n * x->stride[0] + d * xs[0] + h * xs[1] + (first - w->begin[2]) * xs[2];
    if (last > first && x->dtype == PARE_f32 && x->stride[1] == 1 && xs[2] == c) {
        memcpy(to + first * c, (const float *)x->data + from, (size_t)((last - first) * c) * 4);
        return;
    }
    for (int64_t k = first; k < last; k++, from += xs[2])
        for (int64_t i = 0; i < c; i++)
            to[k * c + i] = number_at(x->data, x->dtype, from + i * x->stride[1]);
}

typedef struct job {
    const pare_call *call;
    const float_conv *s;
    pare_float_tail tail;
    const pare_view *z;
    int64_t ys[3], zs[3];
} job;

PARE_CLONES_FMA static void fold_taps(float *acc, int64_t n, const float *x, const int64_t *run,
                                      int64_t runs, const float *w, int64_t channels)
{
    for (int64_t i = 0; i < n; i++) acc[i] = x[run[0] + i] * w[i];
    for (int64_t t = 1; t < runs; t++)
        for (int64_t i = 0; i < n; i++) acc[i] = fmaf(x[run[t] + i], w[t * channels + i], acc[i]);
}

static void depthwise_run(const job *j, const float *x, int64_t y_at, int64_t z_at)
{
    const float_conv *s = j->s;
    const pare_view *y = &j->call->out[0], *z = j->z;
    int64_t size = y->dtype == PARE_f32 ? 4 : 2, channels = s->args.c;
    float acc[PARE_ROW];
    for (int64_t c = 0; c < channels; c += PARE_ROW) {
        int64_t n = channels - c < PARE_ROW ? channels - c : PARE_ROW;
        fold_taps(acc, n, x + c, s->run, s->runs, s->packed + c, channels);
        pare_float_finish(&j->tail, c, n, acc,
                          z ? (const char *)z->data + (z_at + c * z->stride[1]) * size : NULL,
                          z ? z->stride[1] : 0, (char *)y->data + (y_at + c * y->stride[1]) * size,
                          y->stride[1]);
    }
}

/* Up to six positions of one image, one group. */
static void tile_run(const job *j, int64_t n, int64_t index, const float *picture)
{
    const float_conv *s = j->s;
    const pare_conv_args *a = &s->args;
    const pare_window *w = &a->win;
    const pare_view *y = &j->call->out[0], *z = j->z;
    int64_t groups = s->depthwise ? 1 : w->group, group = index % groups;
    int64_t first = index / groups * PARE_FLOAT_ROWS, left = s->positions - first;
    int64_t channel = group * a->mg;
    pare_float_rows in = {.run = s->run,
                          .runs = s->runs,
                          .length = s->length,
                          .step = 1,
                          .count = left < PARE_FLOAT_ROWS ? (int)left : PARE_FLOAT_ROWS};
    pare_float_target to = {.y = y->data, .y_step = y->stride[1]};
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
        if (s->depthwise) depthwise_run(j, in.row[i], to.y_at[i], to.z_at[i]);
    }
    if (s->depthwise) return;
    const float *packed = s->packed + (size_t)group * pare_float_packed_count(&s->gemm);
    pare_float_job(&s->gemm, &in, packed, 0, a->mg, &j->tail, channel, &to);
}

static int64_t tiles_of(const float_conv *s)
{
    int64_t tiles = (s->positions + PARE_FLOAT_ROWS - 1) / PARE_FLOAT_ROWS;
    return s->depthwise ? tiles : tiles * s->args.win.group;
}

static void image_run(const job *j, int64_t n, float *picture)
{
    const float_conv *s = j->s;
    int64_t rows = s->size[0] * s->size[1], tiles = tiles_of(s);
    for (int64_t i = 0; i < rows; i++) picture_row(s, &j->call->in[0], n, i, picture);
    for (int64_t i = 0; i < tiles; i++) tile_run(j, n, i, picture);
}

/* Few images: the threads share each. */
static void images_shared(const job *j)
{
    const float_conv *s = j->s;
    float *picture = j->call->scratch;
    int64_t rows = s->size[0] * s->size[1], tiles = tiles_of(s);
#pragma omp parallel num_threads(s->threads)
    for (int64_t n = 0; n < s->args.n; n++) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows; i++) picture_row(s, &j->call->in[0], n, i, picture);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < tiles; i++) tile_run(j, n, i, picture);
    }
}

static pare_status run(const pare_call *c)
{
    const float_conv *s = c->state;
    const pare_conv_args *a = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, a->at.bias);
    job j = {.call = c, .s = s, .z = pare_operand(c->in, c->in_count, a->at.residual)};
    j.tail = (pare_float_tail){.act = a->act,
                               .alpha = 1,
                               .beta = 1,
                               .type = c->out[0].dtype,
                               .bias = bias ? bias->data : NULL,
                               .bias_step = 1};
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
        image_run(&j, n, (float *)(void *)mine);
    }
    return PARE_OK;
}

const pare_kernel pare_float_conv = {
    .name = "float_conv", .can = can, .prepare = prepare, .run = run};
