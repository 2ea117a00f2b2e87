/* SPDX-License-Identifier: Apache-2.0 */
/* What became of every task of a zoo: out/tasks.json, from which tables and report are made. */
#ifndef PARE_TOOLS_ZOO_TASKS_H
#define PARE_TOOLS_ZOO_TASKS_H

#include "tools/zoo/records.h"

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
#endif
