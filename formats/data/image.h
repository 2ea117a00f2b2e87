/* SPDX-License-Identifier: Apache-2.0 */
/* Images in memory: 8-bit RGB, rows from the top (internal to formats/). */
#ifndef PARE_FORMATS_DATA_IMAGE_H
#define PARE_FORMATS_DATA_IMAGE_H

#include "formats/picture.h"

typedef struct pare_image {
    int width, height;
    uint8_t *rgb; /* (height, width, 3) */
} pare_image;

/* Pixels that an image may have. */
int64_t pare_picture_pixels(const pare_picture_options *options);

/* The first part of pare_picture_decode: options' limits hold, nothing is resized. Free rgb with
   pare_free. */
PARE_NODISCARD pare_status pare_image_decode(pare_ctx *ctx, pare_image *out, const char *what,
                                             const void *data, size_t bytes,
                                             const pare_picture_options *options);

/* Resizes to exactly these sides: bilinear, antialiased (a triangle as wide as the source's pixels
   are many), first along rows, then along columns, rounded to 8 bits after each. */
PARE_NODISCARD pare_status pare_image_resize(pare_ctx *ctx, pare_image *out, const pare_image *in,
                                             int width, int height);

#endif
