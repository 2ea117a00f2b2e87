/* SPDX-License-Identifier: Apache-2.0 */
/* Views of a zoo's summary. summary: of pare_zoo_summary_read. */
#ifndef PARE_TOOLS_ZOO_VIEWS_H
#define PARE_TOOLS_ZOO_VIEWS_H

#include "tools/report/report.h"
#include "tools/text.h"

/* Ranking, then what failed, as text. */
void pare_zoo_print(pare_arena *arena, const json_t *summary, FILE *file);
/* The same as Markdown, with the best variant of each model. */
void pare_zoo_markdown(pare_text *t, pare_arena *arena, const json_t *summary);
/* The same as two parts of the report's page: ranking and best, which come before the verdicts, and
   what failed. */
void pare_zoo_section(pare_text *t, const json_t *summary);
void pare_zoo_failed_section(pare_text *t, const json_t *summary);
/* A row for each task, in the plan's order; what a stopwatch or a meter decides is in the last
   columns, from latency_ms on. folder: of the zoo; files in it are named from there. */
void pare_zoo_csv(pare_text *t, const json_t *summary, const char *folder);

/* "12 of 15 tasks reach the goals; 1 crash, 2 goal missed" into text; returns text. */
const char *pare_zoo_outcome(const json_t *summary, char *text, size_t size);
#endif
