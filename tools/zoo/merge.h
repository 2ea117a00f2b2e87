/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a zoo: what its tasks found becomes tables and one report. */
#ifndef PARE_TOOLS_ZOO_MERGE_H
#define PARE_TOOLS_ZOO_MERGE_H

#include "tools/zoo/file.h"

/* Reads tasks.json of the zoo's folder and the facts it names, and writes summary.json,
   results.csv, report.md and report.html beside it. They depend on the facts alone, not on the
   order in which they came to be. The tables go to file, NULL: nowhere: what pare report prints,
   then the ranking, then what failed. Facts that cannot be read make their task "failed" and no
   other. PARE_INPUT: tasks.json is no list of tasks of this zoo. */
PARE_NODISCARD pare_status pare_zoo_merge(pare_ctx *ctx, const pare_zoo *zoo, const char *folder,
                                          FILE *file);
#endif
