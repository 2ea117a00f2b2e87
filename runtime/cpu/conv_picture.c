/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/conv_picture.h"

#include <omp.h>

#include <string.h>

static pare_status runs_find(pare_prep *p, pare_picture *s)
{
    const pare_window *w = &s->args.win;
    int64_t c = s->args.c, pitch[3] = {s->size[1] * s->size[2] * c, s->size[2] * c, c};
    s->together = w->dilation[2] == 1 && w->group == 1 ? w->kernel[2] : 1;
    int64_t along = w->kernel[2] / s->together;
    s->runs = w->kernel[0] * w->kernel[1] * along;
    s->length = s->args.cg * s->together;
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

pare_status pare_picture_prepare(pare_prep *p, pare_picture *s)
{
    PARE_TRY(pare_conv_args_read(p, &s->args));
    const pare_conv_args *a = &s->args;
    const pare_window *w = &a->win;
    size_t count = (size_t)a->c;
    s->positions = 1;
    for (int i = 0; i < 3; i++) {
        s->size[i] = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
        count *= (size_t)s->size[i];
        s->positions *= w->out[i];
    }
    PARE_TRY(runs_find(p, s));
    double macs = (double)(a->n * s->positions * a->m) * (double)(s->runs * s->length);
    s->threads = macs < s->least ? 1 : p->threads;
    s->room = ((count + (size_t)s->slack) * s->element + 127) / 64 * 64;
    p->scratch = s->room * (size_t)(a->n >= s->threads ? s->threads : 1);
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

/* One row of the picture: the last axis and channels. */
static void row_fill(const pare_picture *s, const pare_view *x, int64_t n, int64_t row,
                     char *picture)
{
    const pare_window *w = &s->args.win;
    int64_t xs[3], c = s->args.c, width = s->size[2];
    size_t pixel = (size_t)c * s->element;
    strides_of(x, xs);
    int64_t d = row / s->size[1] - w->begin[0], h = row % s->size[1] - w->begin[1];
    char *to = picture + (size_t)(row * width) * pixel;
    int64_t first = w->begin[2] > 0 ? w->begin[2] : 0, last = w->in[2] + w->begin[2];
    if (last > width) last = width;
    if (d < 0 || d >= w->in[0] || h < 0 || h >= w->in[1] || last < first) first = last = 0;
    if (first > 0) memset(to, s->fill, (size_t)first * pixel);
    if (last < width) memset(to + (size_t)last * pixel, s->fill, (size_t)(width - last) * pixel);
    int64_t from = n * x->stride[0] + d * xs[0] + h * xs[1] + (first - w->begin[2]) * xs[2];
    to += (size_t)first * pixel;
    if (last > first && x->stride[1] == 1 && xs[2] == c) {
        s->load(s, to, x, from, (last - first) * c, 1);
        return;
    }
    for (int64_t k = first; k < last; k++, from += xs[2], to += pixel)
        s->load(s, to, x, from, c, x->stride[1]);
}

/* After the last row: what an odd run or a whole vector reads beyond. */
static void slack_fill(const pare_picture *s, char *picture)
{
    size_t count = (size_t)(s->size[0] * s->size[1] * s->size[2] * s->args.c);
    memset(picture + count * s->element, s->fill, (size_t)s->slack * s->element);
}

typedef struct job {
    const pare_picture *s;
    const pare_call *call;
    const void *tail;
    const pare_view *z;
    int64_t ys[3], zs[3];
} job;

/* An output position of image n and what belongs to it: its first tap in the picture, its channel 0
   in y and z. */
typedef struct place {
    int64_t n, p[3];
    int64_t x, y, z;
} place;

static void place_find(const job *j, place *at)
{
    const pare_picture *s = j->s;
    const pare_window *w = &s->args.win;
    const int64_t *p = at->p;
    int64_t row = p[0] * w->stride[0] * s->size[1] + p[1] * w->stride[1];
    at->x = (row * s->size[2] + p[2] * w->stride[2]) * s->args.c;
    at->y = at->n * j->call->out[0].stride[0] + p[0] * j->ys[0] + p[1] * j->ys[1] + p[2] * j->ys[2];
    if (!j->z) return;
    at->z = at->n * j->z->stride[0] + p[0] * j->zs[0] + p[1] * j->zs[1] + p[2] * j->zs[2];
}

static void place_set(const job *j, int64_t n, int64_t index, place *at)
{
    const int64_t *out = j->s->args.win.out;
    *at = (place){.n = n, .p = {index / out[2] / out[1], index / out[2] % out[1], index % out[2]}};
    place_find(j, at);
}

static void place_next_row(const job *j, place *at)
{
    at->p[2] = 0;
    if (++at->p[1] == j->s->args.win.out[1]) at->p[1] = 0, at->p[0]++;
    place_find(j, at);
}

/* The rows of a tile: the positions from a place on, which moves after them. */
static void rows_set(const job *j, place *at, const char *picture, pare_tile *tile)
{
    const pare_window *w = &j->s->args.win;
    int64_t element = (int64_t)j->s->element, out = w->out[2];
    int64_t xs = w->stride[2] * j->s->args.c, ys = j->ys[2], zs = j->zs[2];
    for (int i = 0; i < tile->count; i++) {
        tile->row[i] = picture + at->x * element;
        tile->y_at[i] = at->y;
        tile->z_at[i] = at->z;
        at->x += xs, at->y += ys, at->z += zs;
        if (++at->p[2] == out) place_next_row(j, at);
    }
}

/* Group after group of the same positions. */
static void groups_run(const job *j, pare_tile *tile)
{
    const pare_picture *s = j->s;
    const pare_conv_args *a = &s->args;
    int64_t groups = s->whole ? 1 : a->win.group;
    for (int64_t g = 0; g < groups; g++) {
        s->tile(s, j->tail, g, tile);
        for (int i = 0; i < tile->count && groups > 1; i++) {
            tile->row[i] = (const char *)tile->row[i] + (size_t)a->cg * s->element;
            tile->y_at[i] += a->mg * tile->y_step;
            tile->z_at[i] += a->mg * tile->z_step;
        }
    }
}

static void tiles_run(const job *j, int64_t n, int64_t first, int64_t last, const char *picture)
{
    const pare_picture *s = j->s;
    const pare_view *y = &j->call->out[0];
    pare_tile tile = {.run = s->run, .runs = s->runs, .step = 1};
    tile.length = (s->length + s->unit - 1) / s->unit;
    tile.y = y->data, tile.y_step = y->stride[1];
    if (j->z) tile.z = j->z->data, tile.z_step = j->z->stride[1];
    place at;
    if (first < last) place_set(j, n, first * PARE_TILE_ROWS, &at);
    for (int64_t t = first; t < last; t++) {
        int64_t left = s->positions - t * PARE_TILE_ROWS;
        tile.count = left < PARE_TILE_ROWS ? (int)left : PARE_TILE_ROWS;
        rows_set(j, &at, picture, &tile);
        groups_run(j, &tile);
    }
}

static int64_t tiles_of(const pare_picture *s)
{
    return (s->positions + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS;
}

static void image_run(const job *j, int64_t n, char *picture)
{
    const pare_picture *s = j->s;
    int64_t rows = s->size[0] * s->size[1];
    for (int64_t i = 0; i < rows; i++) row_fill(s, &j->call->in[0], n, i, picture);
    slack_fill(s, picture);
    tiles_run(j, n, 0, tiles_of(s), picture);
}

/* Few images: the threads share each. */
static void images_shared(const job *j)
{
    const pare_picture *s = j->s;
    char *picture = j->call->scratch;
    int64_t rows = s->size[0] * s->size[1], tiles = tiles_of(s);
    slack_fill(s, picture);
#pragma omp parallel num_threads(s->threads)
    for (int64_t n = 0; n < s->args.n; n++) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows; i++) row_fill(s, &j->call->in[0], n, i, picture);
        int64_t mine = omp_get_thread_num(), all = omp_get_num_threads();
        tiles_run(j, n, tiles * mine / all, tiles * (mine + 1) / all, picture);
#pragma omp barrier
    }
}

void pare_picture_run(const pare_picture *s, const pare_call *call, const void *tail)
{
    job j = {.s = s, .call = call, .tail = tail};
    j.z = pare_operand(call->in, call->in_count, s->args.at.residual);
    strides_of(&call->out[0], j.ys);
    if (j.z) strides_of(j.z, j.zs);
    if (s->threads <= 1) {
        for (int64_t n = 0; n < s->args.n; n++) image_run(&j, n, call->scratch);
        return;
    }
    if (s->args.n < s->threads) {
        images_shared(&j);
        return;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t n = 0; n < s->args.n; n++)
        image_run(&j, n, (char *)call->scratch + (size_t)omp_get_thread_num() * s->room);
}
