/* SPDX-License-Identifier: Apache-2.0 */
/* Trials: what a change of some weights does to the outputs of a model. */
#ifndef PARE_PRUNE_SCORE_TRIAL_H
#define PARE_PRUNE_SCORE_TRIAL_H

#include "prune/score.h"
#include "prune/unstructured.h"

typedef struct pare_trial pare_trial;

/* Runs the model on some of the data's samples. *out is NULL where it has no f32 output. */
PARE_NODISCARD pare_status pare_trial_new(pare_ctx *ctx, pare_trial **out, const pare_model *model,
                                          const pare_score_data *data);
void pare_trial_free(pare_trial *trial);

/* From now on only weights of these layers are put: what does not follow from theirs is computed
   once, and trials begin there. Nothing may be put at this moment. */
PARE_NODISCARD pare_status pare_trial_begin(pare_trial *trial, const pare_prunable *const *layers,
                                            int count);
/* Puts new rows in place of a layer's weight; w[g] (outputs, columns) of group g. moments of its
   inputs: where the layer's end has a bias, that takes up the change of the mean. NULL: no bias
   changes. */
PARE_NODISCARD pare_status pare_trial_put(pare_trial *trial, const pare_prunable *single,
                                          const pare_unstructured_end *end, const double *const *w,
                                          const pare_observer *moments);
/* Squared error of the outputs as a part of their variance over the samples. */
PARE_NODISCARD pare_status pare_trial_run(pare_trial *trial, double *damage);
/* Takes all back that was put. */
PARE_NODISCARD pare_status pare_trial_reset(pare_trial *trial);

#endif
