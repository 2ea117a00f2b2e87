/* SPDX-License-Identifier: Apache-2.0 */
/* What a zoo's nodes have come to, as lines that are never changed: each process that runs nodes
   adds to a file of its own, out/journal/HOST-PID.jsonl, and readers take them all. */
#ifndef PARE_TOOLS_ZOO_JOURNAL_H
#define PARE_TOOLS_ZOO_JOURNAL_H

#include "tools/zoo/process.h"

/* The end of a node. */
typedef struct pare_journal_line {
    const char *key, *verb;
    pare_outcome outcome;
    const char *message; /* "" where done */
    double finished;     /* seconds since 1970 */
    double seconds, cpu_seconds;
    int64_t peak_bytes;
    const char *model_hash, *facts_hash; /* 32 hex digits, or "" where there is no such file */
    const char *command;                 /* reproduces it */
} pare_journal_line;

typedef struct pare_journal {
    char *path;
    int fd;
    bool cut; /* the file's last line is unfinished */
} pare_journal;

/* Seconds since 1970, as journals have them. */
double pare_journal_now(void);

/* Makes folder and file where they are missing. An unfinished last line, of a process of this
   number that was killed, is ended first. */
PARE_NODISCARD pare_status pare_journal_open(pare_ctx *ctx, pare_journal *journal,
                                             const char *folder);
void pare_journal_close(pare_journal *journal);

/* One line, written at once. PARE_IO names the file and the reason. */
PARE_NODISCARD pare_status pare_journal_start(pare_ctx *ctx, pare_journal *journal, const char *key,
                                              const char *verb);
PARE_NODISCARD pare_status pare_journal_finish(pare_ctx *ctx, pare_journal *journal,
                                               const pare_journal_line *line);

/* Hands each end of a node in all files of the folder to take, in no order; what a line points to
   lives until take returns. Lines that are cut or are none count as if they were not there, which a
   warning says. No folder: no lines. */
PARE_NODISCARD pare_status pare_journal_read(pare_ctx *ctx, const char *folder,
                                             void (*take)(void *user,
                                                          const pare_journal_line *line),
                                             void *user);
#endif
