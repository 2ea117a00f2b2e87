/* SPDX-License-Identifier: Apache-2.0 */
/* The table of scores, made of scores.inc. */
#include "prune/score_inner.h"

#include <string.h>

#define pare_weight_score_none NULL

const pare_score_row pare_scores[PARE_SCORE_COUNT] = {
    [PARE_SCORE_BEST] = {.name = "best"},
#define PARE_SCORE(id, text, wants, single, channel)                                               \
    [PARE_SCORE_##id] = {.name = text,                                                             \
                         .needs = PARE_SCORE_NEEDS_##wants,                                        \
                         .weights = pare_weight_score_##single,                                    \
                         .channels = pare_channel_score_##channel},
#include "prune/scores.inc"
#undef PARE_SCORE
};

const char pare_score_names[] = ""
#define PARE_SCORE(id, text, wants, single, channel) "|" text
#include "prune/scores.inc"
#undef PARE_SCORE
    ;

const pare_score_row *pare_score_find(const char *name)
{
    for (int i = PARE_SCORE_BEST + 1; i < PARE_SCORE_COUNT; i++)
        if (!strcmp(pare_scores[i].name, name)) return &pare_scores[i];
    return NULL;
}

pare_score pare_score_of_channels(pare_score score, bool has_data)
{
    if (score != PARE_SCORE_BEST) return score;
    return has_data ? PARE_SCORE_ACTIVATION : PARE_SCORE_L2;
}

pare_status pare_score_channels(pare_ctx *ctx, double *score, pare_score kind,
                                const pare_score_request *request)
{
    kind = pare_score_of_channels(kind, request->data != NULL);
    const pare_score_row *row = &pare_scores[kind];
    if (row->needs != PARE_SCORE_NEEDS_WEIGHTS && !request->data)
        return PARE_FAIL(ctx, USAGE, "%s: score %s needs data, expected samples to run",
                         request->groups->model->path, row->name);
    return row->channels(ctx, score, request);
}
