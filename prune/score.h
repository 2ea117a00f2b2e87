/* SPDX-License-Identifier: Apache-2.0 */
/* How much each coupled set matters: one number per coupled set, the least go first. */
#ifndef PARE_PRUNE_SCORE_H
#define PARE_PRUNE_SCORE_H

#include "calib/gradients.h"
#include "prune/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights are the group's constants of rank 2 and more, those that make its channels and those that
   read them. L1, L2, BN, FPGM and RANDOM are divided by their mean over the group, so that groups
   of wide and narrow layers compare; TAYLOR and ACTIVATION are in channels of the loss or of the
   output and stay as they are.

   BN: PARE_INPUT naming the first group without BatchNormalization. FPGM (He et al. 2019, "Filter
   Pruning via Geometric Median", arXiv 1811.00250): of the weight that makes the group. */
/* TAYLOR, to first order, of the weights that read a coupled set; options->by is not read. The
   result depends on model and samples alone. Failures are pare_gradients_new's: PARE_INPUT where
   the output is no classifier's. */
PARE_NODISCARD pare_status pare_score_from_gradients(pare_ctx *ctx, double *score,
                                                     const pare_groups *groups, pare_data *data,
                                                     const pare_gradients_options *options);

/* The same for single weights: score[k] (elements of options->by[k], f32 constants of the model) is
   the mean over runs of |w * dloss/dw|. */
PARE_NODISCARD pare_status pare_score_weights_from_gradients(pare_ctx *ctx, double *const *score,
                                                             const pare_model *model,
                                                             pare_data *data,
                                                             const pare_gradients_options *options);

/* Bytes that are touched beyond what is resident before, at most: scores: by
   pare_score_from_data; channels: layers are refitted to a removal, else to single weights. */
PARE_NODISCARD pare_status pare_prune_memory(pare_ctx *ctx, const pare_model *model,
                                             const pare_score_data *data, bool scores,
                                             bool channels, size_t *out);

/* ACTIVATION: what the outputs' squared error is, as a part of their variance, where the coupled
   set goes and the weights that read it beside others are refitted; coupled sets in the order of a
   group's scores have those before them gone already, and first of all those of the removal (NULL:
   none), whose own scores mean nothing. Infinite where no weight reads the group. */
PARE_NODISCARD pare_status pare_score_from_data(pare_ctx *ctx, double *score,
                                                const pare_groups *groups,
                                                const pare_prune_plan *removal,
                                                const pare_score_data *data);

/* Elements first .. first + count - 1 of a constant as f32 numbers; its payload is at any address
   and is of any float type. */
void pare_score_read(float *out, const pare_tensor *tensor, int64_t first, int64_t count);

/* Adds fn(element) over each channel of a slot of a constant: sum (extent). value: as many numbers
   as the constant has elements, in its order. */
void pare_score_add_channels(double *sum, const pare_channel_axis *slot, const float *value,
                             double (*fn)(double));

#ifdef __cplusplus
}
#endif
#endif
