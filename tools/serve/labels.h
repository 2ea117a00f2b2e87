/* SPDX-License-Identifier: Apache-2.0 */
/* Names of an output's classes: a file with one on each line. */
#ifndef PARE_TOOLS_SERVE_LABELS_H
#define PARE_TOOLS_SERVE_LABELS_H

#include "runtime/base/arena.h"

typedef struct pare_labels {
    const char *file; /* as config.pbtxt names it */
    const char **text;
    int64_t count;
} pare_labels;

/* Reads the file at this path; all lives in the arena. PARE_INPUT: it is no text in UTF-8.
   PARE_IO. */
PARE_NODISCARD pare_status pare_labels_read(pare_arena *arena, pare_labels **out, const char *path,
                                            const char *file);

/* Of the class with this number; NULL: it has none. labels NULL: no class has. */
const char *pare_labels_at(const pare_labels *labels, int64_t class);
#endif
