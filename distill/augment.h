/* SPDX-License-Identifier: Apache-2.0 */
/* Augmentations of image inputs that need no labels, for the teacher sees the same image. What
   happens to a sample is a function of seed, epoch and sample (and, where images are mixed, of who
   is opposite in the batch). */
#ifndef PARE_DISTILL_AUGMENT_H
#define PARE_DISTILL_AUGMENT_H

#include "distill/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_augment {
    bool flip; /* left to right, every other time */
    int shift; /* up to so many pixels along either axis, evenly; the edge's pixels repeat, which
                  needs no word about what a black pixel is after normalisation. 0: none */
    double
        mixup; /* x = share * x_i + (1 - share) * x_j, share ~ Beta(mixup, mixup) (Zhang et al.
                  2018, "mixup: Beyond Empirical Risk Minimization", arXiv 1710.09412). 0: none */
} pare_augment;

/* "flip,shift:PIXELS,mixup:ALPHA", each at most once. PARE_USAGE: anything else. */
PARE_NODISCARD pare_status pare_augment_parse(pare_ctx *ctx, pare_augment *out, const char *text);

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

#ifdef __cplusplus
}
#endif
#endif
