/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of scores share. */
#ifndef PARE_PRUNE_SCORE_INNER_H
#define PARE_PRUNE_SCORE_INNER_H

#include "prune/score.h"

/* Divides each group's scores by their mean. */
void pare_score_normalise(double *score, const pare_groups *groups);

/* score_fpgm.c: adds to each component its distance to the others. */
PARE_NODISCARD pare_status pare_score_distances(pare_ctx *ctx, double *score,
                                                const pare_groups *groups);

#endif
