/* SPDX-License-Identifier: Apache-2.0 */
/* --max-drop: as few nodes stay float as the asked accuracy needs. */
#ifndef PARE_TOOLS_MAX_DROP_H
#define PARE_TOOLS_MAX_DROP_H

#include "quant/quant.h"
#include "tools/source.h"

typedef struct pare_max_drop {
    double points;       /* that may be lost, at most; negative: nothing was asked */
    const char *data;    /* file of the samples that judge, for messages */
    pare_source *source; /* these samples, opened; and how they are read: */
    int batch;
    /* out */
    bool labels;     /* points are of top-1; else of the agreement with the float model */
    double drop;     /* of the model with options->keep */
    int64_t samples; /* that judged */
    double mixed;    /* the part of the work and of the weights that stays float, at most */
} pare_max_drop;

/* Sets options->keep so that the quantized model loses at most asked->points on the samples that
   judge: of some budgets for what stays float the smallest that does, then finer ones between it
   and the next smaller one. Where none does, the one that loses least. search: the samples that
   were calibrated on. PARE_INPUT: the model is no classifier, or it guesses. */
PARE_NODISCARD pare_status pare_max_drop_find(pare_tool *tool, pare_model *prepared,
                                              const pare_ranges *ranges,
                                              pare_quant_options *options,
                                              const pare_quant_search *search,
                                              pare_max_drop *asked);

/* Judges what the options make as they are: sets asked->drop. */
PARE_NODISCARD pare_status pare_max_drop_judge(pare_tool *tool, pare_model *prepared,
                                               const pare_ranges *ranges,
                                               const pare_quant_options *options,
                                               pare_max_drop *asked);

/* Before hours of calibration: PARE_INPUT where the model is no classifier. One run says it. */
PARE_NODISCARD pare_status pare_max_drop_check(pare_tool *tool, pare_model *prepared,
                                               pare_max_drop *asked);

/* What was found, for facts; and PARE_MISSED with its message where it loses more than asked. */
json_t *pare_max_drop_json(const pare_max_drop *asked);
PARE_NODISCARD pare_status pare_max_drop_verdict(pare_ctx *ctx, const pare_max_drop *asked,
                                                 const char *output);
#endif
