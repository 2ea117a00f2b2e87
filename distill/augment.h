/* SPDX-License-Identifier: Apache-2.0 */
/* Augmentations of image inputs that need no labels, because the teacher sees the same image. What
   happens to a sample is a function of seed, epoch and sample (and, where images are mixed, of the
   sample opposite in the batch). */
#ifndef PARE_DISTILL_AUGMENT_H
#define PARE_DISTILL_AUGMENT_H

#include "distill/training.h"
#include "distill/loader.h"

/* The axes of one image. */
typedef struct pare_image_axes {
    int64_t channels, height, width;
    bool last; /* channels are the last axis, else the first */
} pare_image_axes;

/* How an input of this type and shape (axis 0 is the batch) holds images: f32, 4 axes, 1, 3 or 4
   channels on axis 1, or else on axis 3. PARE_INPUT naming the input where it does not, or where
   the shift leaves nothing of an image. */
PARE_NODISCARD pare_status pare_augment_fit(pare_ctx *ctx, pare_image_axes *out,
                                            const pare_augment *augment, const char *input,
                                            pare_dtype dtype, const pare_shape *shape);

/* The sample with which sample i of a batch is mixed: the one half a batch on. Itself in a batch of
   one, which stays as it is. */
int pare_augment_partner(int i, int count);
/* What sample i keeps of itself, 1 where nothing is mixed. In [0, 1]. */
double pare_augment_share(const pare_augment *augment, uint64_t seed,
                          const pare_loader_batch *batch, int i);

/* Sample i of one input of a batch, augmented, to out; both and scratch hold one image's floats.
   Any thread. */
void pare_augment_sample(const pare_augment *augment, const pare_image_axes *axes, uint64_t seed,
                         const pare_loader_batch *batch, int input, int i, float *scratch,
                         float *out);

typedef struct pare_augmented {
    pare_ctx *ctx;
    pare_augment augment;
    uint64_t seed;
    int inputs, microbatches;
    int first; /* the place in a batch of the first microbatch; 0 until it is set */
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
void pare_augmented_free(pare_augmented *augmented);

/* Augments a slice of a batch; input[i] then points to its images. Side by side for different
   microbatches. */
void pare_augmented_fill(const pare_augmented *augmented, const pare_loader_batch *batch, int slice,
                         const void **input);

#endif
