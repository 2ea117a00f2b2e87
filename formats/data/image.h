/* SPDX-License-Identifier: Apache-2.0 */
/* Images in memory: 8-bit RGB, rows from the top (internal to formats/). */
#ifndef PARE_FORMATS_DATA_IMAGE_H
#define PARE_FORMATS_DATA_IMAGE_H

#include "runtime/base/ctx.h"

typedef struct pare_image {
    int width, height;
    uint8_t *rgb; /* (height, width, 3) */
} pare_image;

/* Decodes a PNG or JPEG file (told by its content). Alpha is dropped, grey and palettes become RGB.
   A file that is neither, cut or damaged: PARE_INPUT naming it. Free rgb with pare_free. */
PARE_NODISCARD pare_status pare_image_read(pare_ctx *ctx, pare_image *out, const char *path);

/* Resizes to exactly these sides: bilinear, antialiased (a triangle as wide as the source's pixels
   are many), first along rows, then along columns, rounded to 8 bits after each. */
PARE_NODISCARD pare_status pare_image_resize(pare_ctx *ctx, pare_image *out, const pare_image *in,
                                             int width, int height);

enum { PARE_IMAGE_MAX_PIXELS = 1 << 28 };

#endif
