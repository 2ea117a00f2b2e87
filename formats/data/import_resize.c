/* SPDX-License-Identifier: Apache-2.0 */
/* Bilinear resizing with antialiasing: out(i) = sum over j of w((j + 0.5 - centre) / scale) in(j),
   centre = (i + 0.5) * ratio, scale = max(ratio, 1), w the triangle on [-1, 1], weights scaled to
   sum 1. Rounded to 8 bits after each direction, as common image libraries do. */
#include "formats/data/image.h"

#include <math.h>
#include <string.h>

/* The weights of one output position: taps of them from position first. */
typedef struct filter {
    int taps; /* room for each position */
    int *first, *count;
    float *weight; /* (positions, taps) */
} filter;

static void filter_free(filter *f)
{
    pare_free(f->first);
    pare_free(f->count);
    pare_free(f->weight);
}

static void filter_fill(filter *f, int from, int to)
{
    double ratio = (double)from / to, scale = ratio > 1 ? ratio : 1;
    for (int i = 0; i < to; i++) {
        double centre = (i + 0.5) * ratio, sum = 0;
        int first = (int)(centre - scale + 0.5), last = (int)(centre + scale + 0.5);
        first = first < 0 ? 0 : first;
        last = last > from ? from : last;
        float *weight = f->weight + (size_t)i * (size_t)f->taps;
        for (int j = first; j < last; j++) {
            double w = 1 - fabs((j + 0.5 - centre) / scale);
            weight[j - first] = (float)(w > 0 ? w : 0);
            sum += w > 0 ? w : 0;
        }
        for (int j = 0; j < last - first; j++) weight[j] = (float)(weight[j] / sum);
        f->first[i] = first;
        f->count[i] = last - first;
    }
}

static pare_status filter_make(pare_ctx *ctx, filter *f, int from, int to)
{
    double ratio = (double)from / to;
    f->taps = 2 * (int)ceil(ratio > 1 ? ratio : 1) + 2;
    f->first = pare_alloc(ctx, (size_t)to, sizeof *f->first);
    f->count = pare_alloc(ctx, (size_t)to, sizeof *f->count);
    f->weight = pare_alloc(ctx, (size_t)to * (size_t)f->taps, sizeof *f->weight);
    if (!f->first || !f->count || !f->weight) return PARE_MEMORY;
    filter_fill(f, from, to);
    return PARE_OK;
}

static uint8_t round_pixel(float v) { return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5f); }

/* (height, from, 3) -> (height, to, 3) */
static void resize_rows(const filter *f, const uint8_t *in, int height, int from, int to,
                        uint8_t *out)
{
    for (int y = 0; y < height; y++, in += 3 * (size_t)from)
        for (int i = 0; i < to; i++, out += 3) {
            const uint8_t *p = in + 3 * (size_t)f->first[i];
            const float *w = f->weight + (size_t)i * (size_t)f->taps;
            float sum[3] = {0};
            for (int j = 0; j < f->count[i]; j++, p += 3)
                for (int c = 0; c < 3; c++) sum[c] += w[j] * (float)p[c];
            for (int c = 0; c < 3; c++) out[c] = round_pixel(sum[c]);
        }
}

/* (from, line) -> (to, line); sum: line floats */
static void resize_columns(const filter *f, const uint8_t *in, int to, size_t line, float *sum,
                           uint8_t *out)
{
    for (int i = 0; i < to; i++, out += line) {
        const float *w = f->weight + (size_t)i * (size_t)f->taps;
        memset(sum, 0, line * sizeof *sum);
        for (int j = 0; j < f->count[i]; j++) {
            const uint8_t *p = in + (size_t)(f->first[i] + j) * line;
            for (size_t x = 0; x < line; x++) sum[x] += w[j] * (float)p[x];
        }
        for (size_t x = 0; x < line; x++) out[x] = round_pixel(sum[x]);
    }
}

pare_status pare_image_resize(pare_ctx *ctx, pare_image *out, const pare_image *in, int width,
                              int height)
{
    filter across = {0}, down = {0};
    size_t line = 3 * (size_t)width;
    *out = (pare_image){.width = width, .height = height};
    uint8_t *middle = pare_alloc(ctx, (size_t)in->height, line);
    float *sum = pare_alloc(ctx, line, sizeof *sum);
    out->rgb = pare_alloc(ctx, (size_t)height, line);
    pare_status st = middle && sum && out->rgb ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) st = filter_make(ctx, &across, in->width, width);
    if (st == PARE_OK) st = filter_make(ctx, &down, in->height, height);
    if (st == PARE_OK) {
        resize_rows(&across, in->rgb, in->height, in->width, width, middle);
        resize_columns(&down, middle, height, line, sum, out->rgb);
    } else {
        pare_free(out->rgb);
        out->rgb = NULL;
    }
    filter_free(&across);
    filter_free(&down);
    pare_free(middle);
    pare_free(sum);
    return st;
}
