/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a zoo: what its tasks found becomes tables and one report. */
#ifndef PARE_TOOLS_ZOO_MERGE_H
#define PARE_TOOLS_ZOO_MERGE_H

#include "tools/zoo/file.h"
#include "tools/zoo/journal.h"

/* The node that ended a task, or its last; *outcome: done, what that node came to, or stopped where
   the task's turn has not come. */
int pare_zoo_task_end(const pare_zoo_records *records, const pare_zoo_task *task,
                      pare_outcome *outcome);

/* {schema, zoo, version, tasks: [{model, variant, class, message, command, seconds, cpu_seconds,
   peak_bytes, bytes, facts: [paths]}]} in the plan's order, and the links of those that are done.
   command: of the node that failed; of a done task all of them. seconds and cpu_seconds are sums,
   peak_bytes the most; bytes: of the variant's file. */
PARE_NODISCARD pare_status pare_zoo_tasks_write(pare_ctx *ctx, const pare_zoo *zoo,
                                                const pare_zoo_records *records,
                                                const char *folder);

/* Reads tasks.json of the zoo's folder and the facts it names, and writes summary.json,
   results.csv, report.md and report.html beside it. They depend on the facts alone, not on the
   order in which they came to be. The tables go to file, NULL: nowhere: what pare report prints,
   then the ranking, then what failed. Facts that cannot be read make their task "failed" and no
   other. PARE_INPUT: tasks.json is no list of tasks of this zoo. */
PARE_NODISCARD pare_status pare_zoo_merge(pare_ctx *ctx, const pare_zoo *zoo, const char *folder,
                                          FILE *file);
#endif
