/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune --latency: the option's text, and what is said of the times of the smaller model. */
#ifndef PARE_TOOLS_PRUNE_LATENCY_H
#define PARE_TOOLS_PRUNE_LATENCY_H

#include "tools/prune/structured.h"

#include <jansson.h>

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
