/* SPDX-License-Identifier: Apache-2.0 */
/* Did a variant reach what the zoo wants of it? */
#ifndef PARE_TOOLS_ZOO_GOALS_H
#define PARE_TOOLS_ZOO_GOALS_H

#include "tools/zoo/file.h"

/* Those that are set, as the zoo's file has them. */
json_t *pare_zoo_goals_json(const pare_zoo_goals *goals);

/* What was missed, [] where nothing was: [{goal, wanted, got, by}]; by: how far got is on the wrong
   side, above zero; got and by null: it was not measured. row: of pare_zoo_row. chain: the facts of
   the steps that made the variant; a pruning that could not reach its own target counts as goal
   "prune --macs" (--params, --size, --latency), in parts of the model before it. */
json_t *pare_zoo_goals_missed(const pare_zoo_goals *goals, const json_t *row, const json_t *chain);

/* "drop 0.83 points, at most 0.5 wanted (0.33 over)" of one that was missed; returns text. */
const char *pare_zoo_goal_text(const json_t *missed, char *text, size_t size);
#endif
