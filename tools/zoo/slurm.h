/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's tasks as jobs of Slurm: an array of them, each of which runs one task by 'pare zoo
   --task', and a job after it that makes the tables. They share nothing but the file system. */
#ifndef PARE_TOOLS_ZOO_SLURM_H
#define PARE_TOOLS_ZOO_SLURM_H

#include "tools/options.h"
#include "tools/zoo/journal.h"

typedef struct pare_zoo_batch {
    const char *name;   /* of the zoo */
    const char *folder; /* of results; logs go to its slurm/ */
    const int *tasks;   /* to submit, ascending */
    int task_count;     /* at least 1 */
    const char **ask;   /* (task_count) words of sbatch for a task's ranks, "" where it has one */
    const char **words; /* for sbatch, as they were given: each may hold several, separated by
                           spaces */
    int word_count;
    bool exclusive;        /* latency is measured: no one else on the machine, unless words say */
    const char *task_run;  /* command line of a task, as a shell takes it, but for its number, which
                              is put after it */
    const char *merge_run; /* command line that makes the tables */
} pare_zoo_batch;

/* Submits, and prints the numbers of the jobs and how to watch them. An array holds as many tasks
   as Slurm allows, all of the same number of ranks, GPUs and nodes; there are as many arrays as
   that takes. PARE_UNSUPPORTED: Slurm is not there or
   its controller does not answer; PARE_INPUT: it refused a job, with its words; none is left
   submitted. */
PARE_NODISCARD pare_status pare_zoo_batch_submit(pare_arena *arena, const pare_zoo_batch *batch);

/* "0-3,7,9" of ascending numbers less offset, in the arena; NULL with the message set. */
const char *pare_zoo_batch_ranges(pare_arena *arena, const int *numbers, int count, int offset);

/* --- what pare zoo --slurm submits --- */

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
