/* SPDX-License-Identifier: Apache-2.0 */
/* --latency of pare prune: the dense model's plan and times, the search by them, and what the
   smaller model really takes. */
#ifndef PARE_TOOLS_PRUNE_LATENCY_H
#define PARE_TOOLS_PRUNE_LATENCY_H

#include "prune/latency.h"
#include "tools/progress.h"
#include "tools/prune/prune.h"

#include <jansson.h>

typedef struct pare_prune_latency pare_prune_latency;

/* "0.6" is a fraction that is kept (0 to 1), "3.2ms" a time (us, ms, s): one of the two is above 0
   then. */
PARE_NODISCARD pare_status pare_prune_parse_latency(pare_ctx *ctx, const char *text,
                                                    double *fraction, double *seconds);

/* Compiles the dense model on the tool's device, and times it. */
PARE_NODISCARD pare_status pare_prune_latency_open(pare_tool *tool, pare_prune_latency **out,
                                                   const pare_prune_options *o,
                                                   const pare_groups *groups);
void pare_prune_latency_close(pare_prune_latency *l); /* NULL is fine */

/* The part of the dense model's time that is to be kept. PARE_INPUT: it takes less already. */
PARE_NODISCARD pare_status pare_prune_latency_ratio(const pare_prune_latency *l, double *ratio);
/* Makes the cost of a target seconds, and its rounding what kernels like. */
void pare_prune_latency_aim(pare_prune_latency *l, pare_prune_target *target);
/* As pare_target_reach, target->goal a cost. last: measured and corrected until it is near. */
PARE_NODISCARD pare_status pare_prune_latency_reach(pare_prune_latency *l, pare_prune_plan *removal,
                                                    const double *score,
                                                    const pare_prune_target *target, bool last,
                                                    double *reached);

/* Times the model that was made against the dense one, and each step of both. */
PARE_NODISCARD pare_status pare_prune_latency_compare(pare_prune_latency *l,
                                                      const pare_model *smaller);
/* For people, on standard error, with the layers that took most; row: the facts of the smaller
   model. And a warning where the goal was missed. */
void pare_prune_latency_log(const pare_prune_latency *l, const json_t *row);
/* The facts of the smaller model: "latency"; NULL with the message set. */
json_t *pare_prune_latency_facts(const pare_prune_latency *l);
/* Adds "time_ms" to the row of a layer where its step is known in both plans. */
void pare_prune_latency_layer(const pare_prune_latency *l, const pare_node *node, json_t *row);
#endif
