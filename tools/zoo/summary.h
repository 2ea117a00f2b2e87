/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a zoo, as one JSON object: summary.json, from which all its views are made, and
   which --diff reads again. */
#ifndef PARE_TOOLS_ZOO_SUMMARY_H
#define PARE_TOOLS_ZOO_SUMMARY_H

#include "tools/zoo/file.h"

/* The summary's row of a task: what tasks.json says of it, and of one that is done what validate
   measured: model and variant as words, file, hash, bytes, smaller (times), top1, drop, sqnr_db,
   latency_ms, speed_up ... with their intervals. A goal that was missed makes its class "goal
   missed", with the goals and a message. task: of tasks.json. chain: the facts of its steps,
   validate's last; NULL or empty: it is not done. */
json_t *pare_zoo_row(const pare_zoo_goals *goals, const json_t *task, const json_t *chain);

/* [{model, best: variant or null}] in the order of rows, whose best ones get best: true. A row is
   good where it reaches all goals and, where none says how much may be lost, does not surely miss
   the report's floor. The best of a model is the fastest of the good ones; of those whose speed-up
   intervals reach the fastest's the one that drops least, then the smallest. Without latencies it
   is the smallest, then the one that drops least. */
json_t *pare_zoo_best(json_t *rows, const pare_zoo_goals *goals);

/* The variants over all models, the best first: by how many rows are good, then by size, then by
   mean drop, then in the order of the zoo's file: no time decides. rows: with best already marked.
   Each {variant, tasks, done, met, mean_drop, worst_drop, worst_model, mean_sqnr_db, smaller,
   speed_up, best, seconds, peak_bytes}. done: measured; met: good; smaller and speed_up: geometric
   means; best: of how many models it is the best; seconds: mean; peak_bytes: the highest. */
json_t *pare_zoo_ranking(const json_t *rows, const pare_zoo_goals *goals);

/* Reads a folder's summary.json. PARE_INPUT: there is none, it is cut, or of another schema. */
PARE_NODISCARD pare_status pare_zoo_summary_read(pare_ctx *ctx, json_t **out, const char *folder);
#endif
