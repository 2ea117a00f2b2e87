/* SPDX-License-Identifier: Apache-2.0 */
/* Encoded pictures as the pixels of a model's input. What an importer writes to a data set
   (import.h) and what is made of a picture that a request brings are the same bytes. */
#ifndef PARE_FORMATS_PICTURE_H
#define PARE_FORMATS_PICTURE_H

#include "runtime/base/ctx.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_PICTURE_MOST_PIXELS = 1 << 28, PARE_PICTURE_MOST_SIDE = 16384 };

typedef struct pare_picture_options {
    int resize, crop;   /* shorter side after resizing, side of the centre square */
    bool last;          /* channels come last */
    int64_t pixels;     /* of a picture at most, as it comes and resized; 0: as many as may be,
                           PARE_PICTURE_MOST_PIXELS */
    const char *advice; /* ends the message about a picture that is wrong; NULL: nothing */
    /* Asked before so many bytes are taken, which are free again when the call ends. What it
       returns is returned. NULL: no one is asked. */
    pare_status (*hold)(void *user, size_t bytes);
    void *user;
} pare_picture_options;

/* PARE_USAGE: not 1 <= crop <= resize <= PARE_PICTURE_MOST_SIDE. */
PARE_NODISCARD pare_status pare_picture_check(pare_ctx *ctx, const pare_picture_options *options);

/* Decodes a PNG or JPEG, which its content tells, to 8-bit RGB: alpha is dropped, grey and palettes
   become RGB. The shorter side is resized (bilinear, antialiased), the centre is cut out.
   out: (3, crop, crop), or (crop, crop, 3). what: begins a message.
   PARE_INPUT: neither PNG nor JPEG, damaged, cut, too large. The options have been checked. */
PARE_NODISCARD pare_status pare_picture_decode(pare_ctx *ctx, uint8_t *out, const char *what,
                                               const void *data, size_t bytes,
                                               const pare_picture_options *options);

/* What the values of a channel mean: table[v] = (v / 255 - mean) / std, in float as image pipelines
   compute it. table: (256) */
void pare_picture_table(float *table, float mean, float std);

#ifdef __cplusplus
}
#endif
#endif
