/* SPDX-License-Identifier: Apache-2.0 */
/* How stored pixels become a model's floats: element i of a sample is
   table[i / inner % channels][raw[place of i]]; the place is i, or where rows > 0 that of the
   transposed matrix, i % rows * columns + i / rows. */
#ifndef PARE_RUNTIME_BASE_PIXELS_H
#define PARE_RUNTIME_BASE_PIXELS_H

#include <stdint.h>

typedef struct pare_pixels {
    const float *table; /* (channels, 256) */
    int64_t channels, inner, rows, columns;
    int64_t count; /* elements of a sample, a byte each */
} pare_pixels;

#endif
