/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/picture.h"

#include "formats/data/image.h"

#include <math.h>
#include <string.h>

pare_status pare_picture_check(pare_ctx *ctx, const pare_picture_options *o)
{
    if (o->resize >= 1 && o->crop >= 1 && o->crop <= o->resize &&
        o->resize <= PARE_PICTURE_MOST_SIDE)
        return PARE_OK;
    return PARE_FAIL(ctx, USAGE, "resize %d and crop %d: expected 1 <= crop <= resize <= %d",
                     o->resize, o->crop, PARE_PICTURE_MOST_SIDE);
}

void pare_picture_table(float *table, float mean, float std)
{
    for (int v = 0; v < 256; v++) table[v] = ((float)v / 255.0f - mean) / std;
}

/* Round half to even, as image pipelines cut their centre. */
static int centre(int have, int want) { return (int)nearbyint((have - want) / 2.0); }

static void cut_centre(const pare_image *in, int side, bool last, uint8_t *out)
{
    int left = centre(in->width, side), top = centre(in->height, side);
    for (int y = 0; y < side; y++) {
        const uint8_t *row = in->rgb + 3 * ((size_t)(top + y) * (size_t)in->width + (size_t)left);
        if (last) {
            memcpy(out + 3 * (size_t)y * (size_t)side, row, 3 * (size_t)side);
            continue;
        }
        for (int c = 0; c < 3; c++)
            for (int x = 0; x < side; x++)
                out[((size_t)c * (size_t)side + (size_t)y) * (size_t)side + (size_t)x] =
                    row[3 * x + c];
    }
}

/* The shorter side becomes o->resize. */
static pare_status shrink(pare_ctx *ctx, pare_image *out, const char *what, const pare_image *in,
                          const pare_picture_options *o)
{
    const bool wide = in->width >= in->height;
    const int64_t side = o->resize;
    const int64_t width = wide ? side * in->width / in->height : side;
    const int64_t height = wide ? side : side * in->height / in->width;
    if (width > pare_picture_pixels(o) / height)
        return PARE_FAIL(ctx, INPUT, "%s: is %d x %d, too narrow to be resized%s", what, in->width,
                         in->height, o->advice ? o->advice : "");
    if (o->hold) PARE_TRY(o->hold(o->user, 3 * (size_t)width * (size_t)(height + in->height)));
    return pare_image_resize(ctx, out, in, (int)width, (int)height);
}

pare_status pare_picture_decode(pare_ctx *ctx, uint8_t *out, const char *what, const void *data,
                                size_t bytes, const pare_picture_options *o)
{
    pare_image image, small;
    PARE_TRY(pare_image_decode(ctx, &image, what, data, bytes, o));
    const pare_status st = shrink(ctx, &small, what, &image, o);
    pare_free(image.rgb);
    if (st != PARE_OK) return st;
    cut_centre(&small, o->crop, o->last, out);
    pare_free(small.rgb);
    return PARE_OK;
}
