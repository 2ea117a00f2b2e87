/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning to a latency: the dense model's plan and times, the search by them, and what the smaller
   model takes. Private to prune/. */
#ifndef PARE_PRUNE_LATENCY_SEARCH_H
#define PARE_PRUNE_LATENCY_SEARCH_H

#include "prune/latency.h"
#include "prune/pruner.h"

typedef struct pare_latency_search pare_latency_search;

/* Compiles the dense model on the device, and times it. progress: shapes measured. */
PARE_NODISCARD pare_status
pare_latency_search_new(pare_ctx *ctx, pare_latency_search **out, const pare_groups *groups,
                        const pare_pruner_options *options,
                        void (*progress)(void *user, int64_t done, int64_t all), void *user);
void pare_latency_search_free(pare_latency_search *search); /* NULL is fine */

/* The part of the dense model's time that so many seconds are. PARE_INPUT: it takes less. */
PARE_NODISCARD pare_status pare_latency_search_part(const pare_latency_search *search,
                                                    double seconds, double *part);
/* Makes the cost of a target seconds, and its rounding what kernels prefer. */
void pare_latency_search_aim(pare_latency_search *search, pare_prune_target *target);
/* As pare_target_reach, target->goal a cost. last: measured and corrected until it is near. */
PARE_NODISCARD pare_status pare_latency_search_reach(pare_latency_search *search,
                                                     pare_prune_plan *removal, const double *score,
                                                     const pare_prune_target *target, bool last,
                                                     double *reached);
/* Times the model that was made against the dense one, and each step of both. */
PARE_NODISCARD pare_status pare_latency_search_time(pare_latency_search *search,
                                                    const pare_model *smaller,
                                                    pare_pruner_latency *out);
/* Seconds of the node's step in both plans, or false. */
bool pare_latency_search_step(const pare_latency_search *search, const pare_node *node,
                              double *before, double *after);
#endif
