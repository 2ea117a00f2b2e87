/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of scores share. */
#ifndef PARE_PRUNE_SCORE_INNER_H
#define PARE_PRUNE_SCORE_INNER_H

#include "prune/score.h"

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

/* score_fpgm.c: adds to each component its distance to the others. */
PARE_NODISCARD pare_status pare_score_distances(pare_ctx *ctx, double *score,
                                                const pare_groups *groups);

#endif
