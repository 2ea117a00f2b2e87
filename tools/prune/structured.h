/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of pare prune to a target share. */
#ifndef PARE_TOOLS_PRUNE_STRUCTURED_H
#define PARE_TOOLS_PRUNE_STRUCTURED_H

#include "prune/refit.h"
#include "prune/target.h"
#include "tools/progress.h"
#include "tools/prune/latency.h"
#include "tools/prune/prune.h"
#include "tools/prune/tune.h"

/* One model on its way. */
typedef struct pare_structured {
    pare_tool *tool;
    const pare_prune_options *o;
    pare_model *model; /* prepared; its weights change with every refit */
    pare_model *dense; /* as prepared; NULL: nothing is refitted or trained */
    bool refits;
    pare_model *trained; /* what the model was when training ended last, which refits then go by */
    pare_tuning tuning;
    pare_groups *groups;
    bool *kept;           /* (nodes of the model's graph): what --keep names */
    pare_score_data data; /* data.data NULL: none given */
    pare_source source;
    pare_progress bar;
    double *score; /* (components) */
    bool scored;   /* score is of the dense model */
    pare_prune_target target;
    const char *kind;             /* of the target: "macs" */
    pare_prune_latency *latency;  /* NULL: no such target */
    double frame;                 /* bytes of the file that are no payload */
    char hash[33], data_hash[33]; /* data_hash "": nothing was read for the weights */
    uint64_t bytes;               /* of the file */
    json_t *list;                 /* a row per model written */
    /* of the model in work */
    pare_prune_plan *removal;
    pare_prune_cost before; /* of the dense model */
    double cost_before, reached;
    pare_unstructured_facts fitted;
} pare_structured;

pare_score pare_structured_score(const pare_structured *s);

/* The written file into the list, and a line for people. */
PARE_NODISCARD pare_status pare_structured_report(pare_structured *s, const char *path);
/* The recipe in words, for the manifest; NULL with the message set. */
const char *pare_structured_recipe(const pare_structured *s);

#endif
