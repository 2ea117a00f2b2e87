/* SPDX-License-Identifier: Apache-2.0 */
/* What pare zoo --slurm submits: the tasks that are still to be done, each the same command with
   --task, and the same command with --merge after them. */
#ifndef PARE_TOOLS_ZOO_SUBMIT_H
#define PARE_TOOLS_ZOO_SUBMIT_H

#include "tools/zoo/records.h"

/* The command line as it was given; NULL and 0: not given. */
typedef struct pare_zoo_submission {
    const pare_zoo *zoo;
    const char *file, *folder, *cache, *append, *device;
    const char *machine; /* name of the device that steps count as made on; NULL: the CPU */
    double time_limit;   /* seconds */
    int64_t memory_limit, threads;
    const char *const *words; /* for sbatch, after the file's */
    int word_count;
    const int *tasks; /* of pare_zoo_open_tasks, at least 1 */
    int task_count;
} pare_zoo_submission;

/* The tasks, ascending, that are not done and may yet be; in the arena. */
PARE_NODISCARD pare_status pare_zoo_open_tasks(pare_arena *arena, const int **tasks, int *count,
                                               const pare_zoo_records *records);

/* Submits them. The errors are pare_zoo_batch_submit's. */
PARE_NODISCARD pare_status pare_zoo_submit(pare_arena *arena, const pare_zoo_submission *s);
#endif
