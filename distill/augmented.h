/* SPDX-License-Identifier: Apache-2.0 */
/* The microbatches of a batch with their images augmented (internal to distill/). */
#ifndef PARE_DISTILL_AUGMENTED_H
#define PARE_DISTILL_AUGMENTED_H

#include "distill/augment.h"

typedef struct pare_augmented {
    pare_ctx *ctx;
    pare_augment augment;
    uint64_t seed;
    int inputs, microbatches;
    int64_t rows;
    pare_image_axes *axes; /* (inputs) */
    size_t *floats;        /* (inputs): of an image */
    float **image; /* (microbatches, inputs): rows of images and one more, which is scratch */
} pare_augmented;

/* Nothing is augmented where augment asks for nothing. PARE_INPUT: an input holds no images. */
PARE_NODISCARD pare_status pare_augmented_open(pare_ctx *ctx, pare_augmented *out,
                                               const pare_augment *augment, uint64_t seed,
                                               const pare_model *student, const pare_data *data,
                                               int microbatches, int64_t rows);
void pare_augmented_free(pare_augmented *pictures);

/* Augments a slice of a batch; input[i] then points to its images. Side by side for different
   microbatches. */
void pare_augmented_fill(const pare_augmented *pictures, const pare_loader_batch *batch, int slice,
                         const void **input);

#endif
