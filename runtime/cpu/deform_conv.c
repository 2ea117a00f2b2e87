/* SPDX-License-Identifier: Apache-2.0 */
/* DeformConv (22; Dai et al. 2017) of two spatial axes in double: each tap of the kernel reads the
   picture at a place of its own, between four pixels; what is outside counts as 0. */
#include "runtime/cpu/sample.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/sample.h"

#include <math.h>

typedef struct deform {
    pare_deform_conv d;
    int64_t taps; /* of the kernel */
    int64_t c, m; /* channels of X and of Y */
} deform;

static pare_status deform_conv_prepare(pare_prep *p)
{
    deform *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    const pare_view *x = &p->in[0], *w = &p->in[1];
    pare_shape shape = {.rank = 4};
    if (!s) return PARE_MEMORY;
    for (int i = 0; i < 4; i++) shape.dim[i] = x->dim[i];
    PARE_TRY(pare_deform_conv_of(p->node, &shape, w->dim + 2, &s->d));
    s->taps = w->dim[2] * w->dim[3];
    s->c = x->dim[1];
    s->m = w->dim[0];
    p->state = s;
    p->scratch =
        ((size_t)p->threads * (size_t)(s->c * s->taps + s->m) + (size_t)pare_view_count(w)) *
        sizeof(double);
    return PARE_OK;
}

/* The pixels around (row, column) with their weights; how many are inside. */
static int32_t around(const pare_view *x, double row, double column, double scale,
                      pare_pixel out[4])
{
    const int64_t height = x->dim[2], width = x->dim[3];
    int32_t count = 0;
    if (!(row > -1 && column > -1 && row < (double)height && column < (double)width)) return 0;
    const double y = floor(row), z = floor(column), dy = row - y, dx = column - z;
    for (int i = 0; i < 4; i++) {
        const int64_t r = (int64_t)y + i / 2, k = (int64_t)z + i % 2;
        if (r < 0 || k < 0 || r >= height || k >= width) continue;
        out[count++] =
            (pare_pixel){r * width + k, (i / 2 ? dy : 1 - dy) * (i % 2 ? dx : 1 - dx) * scale};
    }
    return count;
}

/* What the kernel's taps read at one place of Y, all channels: (c, taps) doubles. */
static void read_column(const pare_call *c, int64_t n, int64_t row, int64_t column, double *to)
{
    const deform *s = c->state;
    const pare_window *w = &s->d.window;
    const pare_view *x = &c->in[0], *offset = &c->in[2];
    const pare_view *mask = c->in_count > 4 && c->in[4].dtype ? &c->in[4] : NULL;
    const int64_t groups = s->d.offset_groups, each = s->c / groups, plane = x->dim[2] * x->dim[3];
    const int64_t places = w->out[1] * w->out[2], place = row * w->out[2] + column;
    for (int64_t i = 0; i < groups * s->taps; i++) {
        const int64_t tap = i % s->taps, at = (n * groups * s->taps + i) * places + place;
        const int64_t shift = (n * 2 * groups * s->taps + 2 * i) * places + place;
        const double y =
            (double)(row * w->stride[1] - w->begin[1] + tap / w->kernel[2] * w->dilation[1]);
        const double z =
            (double)(column * w->stride[2] - w->begin[2] + tap % w->kernel[2] * w->dilation[2]);
        pare_pixel pixel[4];
        const int32_t first[2] = {0, around(x, y + pare_ref_get(offset, shift),
                                            z + pare_ref_get(offset, shift + places),
                                            mask ? pare_ref_get(mask, at) : 1, pixel)};
        for (int64_t k = i / s->taps * each; k < (i / s->taps + 1) * each; k++) {
            double sum = 0;
            for (int32_t q = 0; q < first[1]; q++)
                sum += pixel[q].weight * pare_ref_get(x, (n * s->c + k) * plane + pixel[q].at);
            to[k * s->taps + tap] = sum;
        }
    }
}

/* W as (groups, taps of all its channels, channels of Y in a group), so that the channels of Y are
   summed side by side. */
static void turn_weight(const pare_call *c, double *to)
{
    const deform *s = c->state;
    const pare_view *w = &c->in[1];
    const int64_t n_in = w->dim[1] * s->taps, each = s->m / (s->c / w->dim[1]);
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t k = 0; k < n_in; k++)
            to[(m / each * n_in + k) * each + m % each] = pare_ref_get(w, m * n_in + k);
}

/* sums: (m) of scratch. */
static void write_column(const pare_call *c, int64_t n, int64_t place, const double *from,
                         const double *weight, double *sums)
{
    const deform *s = c->state;
    const pare_window *win = &s->d.window;
    const pare_view *w = &c->in[1], *y = &c->out[0];
    const pare_view *bias = c->in_count > 3 && c->in[3].dtype ? &c->in[3] : NULL;
    const int64_t groups = s->c / w->dim[1], each = s->m / groups, n_in = w->dim[1] * s->taps;
    const int64_t places = win->out[1] * win->out[2];
    for (int64_t m = 0; m < s->m; m++) sums[m] = bias ? pare_ref_get(bias, m) : 0;
    for (int64_t k = 0; k < groups * n_in; k++) {
        double *sum = sums + k / n_in * each;
        for (int64_t m = 0; m < each; m++) sum[m] += from[k] * weight[k * each + m];
    }
    for (int64_t m = 0; m < s->m; m++) pare_ref_set(y, (n * s->m + m) * places + place, sums[m]);
}

static pare_status deform_conv_run(const pare_call *c)
{
    const deform *s = c->state;
    const int64_t columns = s->d.window.out[2], places = s->d.window.out[1] * columns;
    const int64_t all = c->out[0].dim[0] * places, size = s->c * s->taps;
    const int64_t parts = c->threads < all ? c->threads : all;
    double *weight = (double *)c->scratch + c->threads * (size + s->m);
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    turn_weight(c, weight);
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int64_t part = 0; part < parts; part++) {
        double *column = (double *)c->scratch + part * (size + s->m);
        for (int64_t i = all * part / parts; i < all * (part + 1) / parts; i++) {
            const int64_t place = i % places;
            read_column(c, i / places, place / columns, place % columns, column);
            write_column(c, i / places, place, column, weight, column + size);
        }
    }
    return PARE_OK;
}

static const pare_kernel ref_deform_conv = {.name = "ref_deform_conv",
                                            .can = pare_ref_can_floats,
                                            .prepare = deform_conv_prepare,
                                            .run = deform_conv_run,
                                            .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_deform_conv[] = {&ref_deform_conv, NULL};
