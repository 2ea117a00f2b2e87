/* SPDX-License-Identifier: Apache-2.0 */
/* Results that grow: one CSV file that every validate and bench may add rows to, several at once.
   Its first line names the columns, the first of which says the schema: "pare_results_1". Fields
   are those of RFC 4180; an empty one was not measured. */
#ifndef PARE_TOOLS_RESULTS_H
#define PARE_TOOLS_RESULTS_H

#include "runtime/base/ctx.h"

#include "tools/text.h"

#include <jansson.h>

/* The first line and a row for each model of each of the facts (an array); written: the column of
   that name. */
void pare_results_table(pare_text *text, const json_t *facts, const char *written);

/* Can rows be added, as far as is known before the work? PARE_INPUT: the file is there and begins
   with other columns, or is none. path NULL is fine. */
PARE_NODISCARD pare_status pare_results_check(pare_ctx *ctx, const char *path);

/* Adds a row for each model of validate's or bench's facts. The file is locked (flock) while its
   first line is read and the rows go to its end in one write: rows of several writers are whole,
   one after the other. Where that write fails the file is as before; a line that a dead writer left
   unfinished is cut off, which a warning says. path NULL: nothing is done. */
PARE_NODISCARD pare_status pare_results_append(pare_ctx *ctx, const char *path,
                                               const json_t *facts);
#endif
