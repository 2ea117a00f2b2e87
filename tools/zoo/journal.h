/* SPDX-License-Identifier: Apache-2.0 */
/* What a zoo's nodes have come to, as lines that are never changed: each process that runs nodes
   adds to a file of its own, out/journal/HOST-PID.jsonl, and readers take them all. */
#ifndef PARE_TOOLS_ZOO_JOURNAL_H
#define PARE_TOOLS_ZOO_JOURNAL_H

#include "tools/zoo/plan.h"
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

/* --- records --- */

typedef struct pare_zoo_record {
    pare_outcome outcome; /* COUNT: it has none yet */
    char *message;        /* of a failure, on the heap; NULL: none */
    double finished, seconds, cpu_seconds;
    int64_t peak_bytes;
    char model_hash[33], facts_hash[33]; /* "" where there is none */
} pare_zoo_record;

typedef struct pare_zoo_records {
    pare_zoo_record *of; /* one for each of the plan's nodes */
    int *by_key;         /* places in order of their keys */
    const pare_zoo_plan *plan;
    pare_ctx *ctx;
} pare_zoo_records;

/* Empty ones, in the arena but for messages. */
PARE_NODISCARD pare_status pare_zoo_records_init(pare_arena *arena, pare_zoo_records *records,
                                                 const pare_zoo_plan *plan);
void pare_zoo_records_free(pare_zoo_records *records);

/* From all journals of the folder; of several ends of a node the latest counts. */
PARE_NODISCARD pare_status pare_zoo_records_read(pare_zoo_records *records, const char *folder);

/* Takes the end of a node, if it is later than what is there. */
void pare_zoo_records_take(pare_zoo_records *records, const pare_journal_line *line);

/* Is the node done, and are its files those of its record? Where they are not, a warning names the
   file, and the record is emptied but for its hashes. */
bool pare_zoo_records_check(pare_zoo_records *records, int node);

/* Hash of a model and the external data beside it; hash of facts. "" where there is no file. */
PARE_NODISCARD pare_status pare_zoo_node_hashes(pare_ctx *ctx, const pare_zoo_node *node,
                                                char model[33], char facts[33]);
#endif
