/* SPDX-License-Identifier: Apache-2.0 */
/* The slices of a batch with their images augmented (internal to distill/). */
#ifndef PARE_DISTILL_PICTURES_H
#define PARE_DISTILL_PICTURES_H

#include "distill/augment.h"

typedef struct pare_pictures {
    pare_ctx *ctx;
    pare_augment augment;
    uint64_t seed;
    int inputs, slices;
    int64_t rows;
    pare_image_axes *axes; /* (inputs) */
    size_t *floats;        /* (inputs): of an image */
    float **image;         /* (slices, inputs): rows of images and one more, which is scratch */
} pare_pictures;

/* Nothing is augmented where augment asks for nothing. PARE_INPUT: an input holds no images. */
PARE_NODISCARD pare_status pare_pictures_open(pare_ctx *ctx, pare_pictures *out,
                                              const pare_augment *augment, uint64_t seed,
                                              const pare_model *student, const pare_data *data,
                                              int slices, int64_t rows);
void pare_pictures_free(pare_pictures *pictures);

/* Augments a slice of a batch; input[i] then points to its images. Side by side for different
   slices. */
void pare_pictures_fill(const pare_pictures *pictures, const pare_stream_batch *batch, int slice,
                        const void **input);

#endif
