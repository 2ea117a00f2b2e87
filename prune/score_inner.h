/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of scores share: the rows of the table, trials of changed weights, elimination of
   a group's coupled sets. Private to prune/. */
#ifndef PARE_PRUNE_SCORE_INNER_H
#define PARE_PRUNE_SCORE_INNER_H

#include "prune/score.h"
#include "prune/unstructured.h"

/* The functions that the rows of scores.inc name. */
#define pare_weight_score_none pare_weight_score_none_ /* NULL in the table */
#define PARE_SCORE(id, name, needs, single, channel)                                               \
    PARE_NODISCARD pare_status pare_channel_score_##channel(pare_ctx *ctx, double *score,          \
                                                            const pare_score_request *request);    \
    PARE_NODISCARD pare_status pare_weight_score_##single(                                         \
        struct pare_prunables *all, pare_unstructured_score *score, const void **user);
#include "prune/scores.inc"
#undef PARE_SCORE
#undef pare_weight_score_none

/* Divides each group's scores by their mean. */
void pare_score_normalise(double *score, const pare_groups *groups);

/* Trials: what a change of some weights does to the outputs of a model. */

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

/* Eliminates the coupled sets of a group one after the other from the weights that read them. */

typedef struct pare_elimination pare_elimination;

/* refits: the other columns make up for what goes; else they stay as they are. */
PARE_NODISCARD pare_status pare_elimination_new(pare_ctx *ctx, pare_elimination **out,
                                                const pare_groups *groups, int group, bool refits,
                                                int threads);
void pare_elimination_free(pare_elimination *elimination);

/* A reader: moments of its inputs, the slot of its input channels; centred: a bias takes up the
   means. Its error counts `weight` times. The elimination keeps nothing of the observer. */
PARE_NODISCARD pare_status pare_elimination_add(pare_elimination *elimination,
                                                const pare_prunable *single, int slot,
                                                const pare_observer *observer, bool centred,
                                                double weight);

/* What is after some eliminations. */
typedef struct pare_elimination_state {
    int gone;               /* coupled sets */
    double cost, level;     /* their scores, added up; the last one's */
    const double *const *w; /* of each reader added, of each of its groups: (outputs, columns) */
} pare_elimination_state;

/* score: (coupled sets of the group) what each costs when its turn comes; without readers infinite.
   before: (coupled sets) gone before the first; or NULL. stops (ascending, stop_count): after so
   many eliminations visit is called. */
typedef pare_status (*pare_elimination_visit)(void *user, int stop,
                                              const pare_elimination_state *state);
PARE_NODISCARD pare_status pare_elimination_run(pare_elimination *elimination, double *score,
                                                const bool *before, const int *stops,
                                                int stop_count, pare_elimination_visit visit,
                                                void *user);

#endif
