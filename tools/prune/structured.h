/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of pare prune to a target share. */
#ifndef PARE_TOOLS_PRUNE_STRUCTURED_H
#define PARE_TOOLS_PRUNE_STRUCTURED_H

#include "prune/pruner.h"
#include "tools/progress.h"
#include "tools/prune/prune.h"
#include "tools/prune/tune.h"

#include <jansson.h>

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

/* pare prune --latency: the option's text, and what is said of the times of the smaller model. */

/* "0.6" is a fraction that is kept (0 to 1), "3.2ms" a time (us, ms, s): one of the two is above 0
   then. */
PARE_NODISCARD pare_status pare_prune_parse_latency(pare_ctx *ctx, const char *text,
                                                    double *fraction, double *seconds);

/* For people, on standard error, with the layers that took most; row: the facts of the smaller
   model. And a warning where the goal was missed. */
void pare_prune_latency_log(const pare_structured *s, const json_t *row);
/* The facts of the smaller model: "latency"; NULL: out of memory. */
json_t *pare_prune_latency_json(const pare_structured *s);
/* Adds "time_ms" to the row of a layer where its step is known in both plans. */
void pare_prune_latency_layer(const pare_pruner *pruner, const pare_node *node, json_t *row);
#endif
