/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of pare prune to a target share. */
#ifndef PARE_TOOLS_PRUNE_STRUCTURED_H
#define PARE_TOOLS_PRUNE_STRUCTURED_H

#include "prune/pruner.h"
#include "tools/progress.h"
#include "tools/prune/prune.h"
#include "tools/prune/tune.h"

typedef struct pare_structured {
    pare_tool *tool;
    const pare_prune_options *o;
    pare_model *model; /* prepared */
    pare_tuning tuning;
    pare_pruner_options options;
    pare_pruner *pruner;
    const pare_pruner_facts *facts; /* of the pruner's last run */
    pare_source source;
    pare_progress bar;
    const char *kind; /* of the target: "macs" */
    char hash[33];    /* of the model's file */
    uint64_t bytes;   /* of the file */
    json_t *list;     /* a row per model written */
} pare_structured;

/* The written file into the list, and a line for people. */
PARE_NODISCARD pare_status pare_structured_report(pare_structured *s, const char *path);
/* The recipe in words, for the manifest; NULL with the message set. */
const char *pare_structured_recipe(const pare_structured *s);

#endif
