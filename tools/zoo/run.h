/* SPDX-License-Identifier: Apache-2.0 */
/* Does a zoo's work: its nodes, each in a process of its own, several at once, what is done never
   twice. */
#ifndef PARE_TOOLS_ZOO_RUN_H
#define PARE_TOOLS_ZOO_RUN_H

#include "tools/zoo/journal.h"

typedef struct pare_zoo_run_options {
    const char *folder; /* of the results; it is open (work.h) */
    int jobs;           /* nodes at once, at least 1 */
    double seconds;     /* limits of each node; 0: none */
    int64_t bytes;
    bool quiet;
    int task; /* do this one alone, beside processes that do others; -1: all */
    /* Runs a node's command line in its process: pare_run_argv, or a test's */
    pare_status (*step)(pare_ctx *ctx, char *const *words, int count);
} pare_zoo_run_options;

typedef struct pare_zoo_run_result {
    int done, failed, left; /* tasks; left: their turn did not come */
    int nodes;              /* that were run */
} pare_zoo_run_result;

/* Would another try come to the same? Bad models and unsupported operators are not tried again. */
bool pare_zoo_is_final(pare_outcome outcome);

/* Reads what the journals of the folder tell, does what is not done, and leaves all of it in the
   records. A node that fails ends the tasks that need it, which a warning tells, and no other.
   PARE_INTERRUPTED: ctx was; what ran was asked to stop and has ended. PARE_IO: the journal cannot
   be written, or no process started; what ran was killed. */
PARE_NODISCARD pare_status pare_zoo_run(pare_ctx *ctx, pare_zoo_run_result *result,
                                        pare_zoo_records *records, const pare_zoo *zoo,
                                        const pare_zoo_run_options *options);
#endif
