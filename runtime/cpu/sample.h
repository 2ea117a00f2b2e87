/* SPDX-License-Identifier: Apache-2.0 */
/* Weighted sums of pixels: what the sampling kernels make once for all channels of a picture. */
#ifndef PARE_RUNTIME_CPU_SAMPLE_H
#define PARE_RUNTIME_CPU_SAMPLE_H

#include "runtime/cpu/ref.h"

typedef struct pare_pixel {
    int64_t at; /* in the plane */
    double weight;
} pare_pixel;

/* Values: number i has the pixels first[i] .. first[i + 1] - 1. */
typedef struct pare_pixels_of {
    const pare_pixel *pixel;
    const int32_t *first;
    int64_t count;
} pare_pixels_of;

/* y[i * step] for every value, from the plane x. */
typedef void (*pare_sample_fn)(const pare_pixels_of *p, const void *x, void *y, int64_t step);
/* For floats of this type, else NULL. */
pare_sample_fn pare_sample_for(pare_dtype type);

#endif
