/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of our own convolutions, float and 8-bit: one image at a time is copied into a padded
   N, spatial, C picture of the kernel's element type, so that each output position is a row of a
   matrix product whose inner axis is in runs in that picture, one for each row of the window (one
   for each tap where taps do not touch: dilated, or several groups), and nothing is gathered. Any
   strides, groups, one to three window axes. Images are shared out over threads, or where there are
   too few, the positions of each. */
#ifndef PARE_RUNTIME_CPU_CONV_PICTURE_H
#define PARE_RUNTIME_CPU_CONV_PICTURE_H

#include "runtime/ops/product.h"
#include "runtime/cpu/gemm/tile.h"

/* The kernel sets the first block, pare_picture_prepare the second. A kernel's state begins with
   it. */
typedef struct pare_picture pare_picture;
struct pare_picture {
    size_t element; /* bytes of one element of the picture */
    int fill;       /* what each byte of a pad is */
    int64_t slack;  /* elements that may be read after the picture's end */
    int64_t unit;   /* elements that a tile's length counts in */
    bool whole;     /* a tile takes all groups at once (depthwise) */
    double least;   /* multiply-adds below which one thread serves */
    /* n elements of x from an offset on, to dst. */
    void (*load)(const pare_picture *s, void *dst, const pare_view *x, int64_t from, int64_t n,
                 int64_t stride);
    /* Sums and finishes the filters of one group for the tile's rows; tail: run's. */
    void (*tile)(const pare_picture *s, const void *tail, int64_t group, const pare_tile *tile);

    pare_conv_args args;
    int64_t size[3];   /* of the picture */
    int64_t positions; /* outputs of one image, channels apart */
    const int64_t *run;
    int64_t runs, length; /* elements of a run */
    int64_t together;     /* taps of a run */
    int threads;
    size_t room; /* bytes of one picture */
};

/* Reads the node and lays out picture and runs; sets the scratch it needs. */
PARE_NODISCARD pare_status pare_picture_prepare(pare_prep *p, pare_picture *s);

/* Where element (group g, filter m, channel c, tap t) is in a row-major weight. */
static inline int64_t pare_picture_weight(const pare_picture *s, int64_t g, int64_t m, int64_t c,
                                          int64_t t)
{
    const pare_conv_args *a = &s->args;
    return ((g * a->mg + m) * a->cg + c) * (s->runs * s->together) + t;
}

void pare_picture_run(const pare_picture *s, const pare_call *call, const void *tail);

#endif
