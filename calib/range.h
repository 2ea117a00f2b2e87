/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges from histograms: what each method computes, and what a range costs (internal to calib/).
 */
#ifndef PARE_CALIB_RANGE_H
#define PARE_CALIB_RANGE_H

#include "calib/histogram.h"
#include "runtime/device/range.h"

/* --- entropy (range_entropy.c) --- */

/* What the method cannot see: the divergence compares how often values occur, not how far they are
   moved, and clipped mass that joins a bin with much of its own changes little. On spiky tensors it
   clips at the spike. Fashion-MNIST's normalized pixels (512 images, 241 of 2,048 bins in use, half
   of all values the background's -0.810): the divergence is 0.021 with the end at 0.811, which
   clips 28 % of the values and leaves 8.5 dB, and 0.349 at the largest value, 2.023, which
   leaves 48.5 dB. A plain search of the definition, bin by bin, finds the same ends; `auto` sees
   the error and takes min-max there. */

/* Counts in PARE_GRID_BINS uniform bins of [0, 2^j), 2^j just above the largest magnitude: an exact
   regrouping. sign 0: positive, 1: negative, -1: both. Returns the width of a bin. */
double pare_grid_make(const pare_histogram *h, int sign, double *bins);

/* Fills in the sums of s->bin. */
void pare_entropy_prepare(pare_entropy_sums *sums);

PARE_NODISCARD pare_status pare_range_entropy(pare_ctx *ctx, const pare_histogram *h,
                                              bool symmetric, pare_range *out);

/* --- mean squared error (range_mse.c) --- */

PARE_NODISCARD pare_status pare_error_sums_new(pare_ctx *ctx, pare_error_sums *out,
                                               const pare_histogram *h);
void pare_error_sums_free(pare_error_sums *sums);

/* What `auto` weighs clipping with: rounding errors are as often up as down and cancel in a sum of
   products, clipped values all err to the same side. Of 1 to 16 the best on training images that
   calibrated nothing, over five nets. A macro, for it is no integer. */
#define PARE_AUTO_CLIP_WEIGHT 4.0

/* The falls of candidates, (PARE_RANGE_DECAY). */
void pare_range_decay(double *fall);

/* The range of least error among all candidates of the five highest octaves. */
void pare_range_least_error(const pare_error_sums *sums, bool symmetric, double clip_weight,
                            pare_range *out);

/* --- all methods of one tensor (range.c) --- */

/* What several methods of one tensor share, made when first needed. */
typedef struct pare_range_work {
    const pare_histogram *histogram;
    bool symmetric;
    pare_error_sums sums; /* count NULL: not made yet */
    pare_range entropy;
    bool has_entropy;
} pare_range_work;

/* As pare_range_choose; rule->symmetric is the work's. Free with pare_error_sums_free(&work.sums).
 */
PARE_NODISCARD pare_status pare_range_choose_with(pare_ctx *ctx, pare_range_work *work,
                                                  const pare_range_rule *rule, pare_range *out);
#endif
