/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of a plan have come to, in memory: as journals tell it, and whether the files are
   still those that they tell of. */
#ifndef PARE_TOOLS_ZOO_RECORDS_H
#define PARE_TOOLS_ZOO_RECORDS_H

#include "tools/zoo/journal.h"
#include "tools/zoo/plan.h"

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
