/* SPDX-License-Identifier: Apache-2.0 */
/* What changed from one run of a zoo to another. */
#ifndef PARE_TOOLS_ZOO_DIFF_H
#define PARE_TOOLS_ZOO_DIFF_H

#include "tools/options.h"

/* Two summaries (of pare_zoo_summary_read), task by task: {regressions, improvements: [{model,
   variant, what, text}], only_before, only_after: [{model, variant}], equal, failing, notes:
   [text]}. what: "class" (a failure now, or no more), "goal", "drop" and "sqnr_db" (outside the
   interval it had), "latency_ms" (the intervals do not touch), "bytes". Findings are in that
   order, those of one kind in that of the tasks. equal: tasks without a finding; failing: those of
   them that fail in both. Accuracy on other data, latency on another device and goals that were
   changed are not compared, which notes say. NULL: out of memory. */
json_t *pare_zoo_compare(const json_t *before, const json_t *after);

/* Regressions first; before and after: the folders' names. */
void pare_zoo_diff_print(pare_arena *arena, const json_t *diff, const char *before,
                         const char *after, FILE *file);

/* pare zoo --diff: prints, puts {before, after, diff} into the tool's facts. PARE_INPUT where there
   are regressions (the facts of --json are written all the same), or a folder holds no whole
   summary of this schema. */
PARE_NODISCARD pare_status pare_zoo_diff(pare_tool *tool, const char *before, const char *after);
#endif
