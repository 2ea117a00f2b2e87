/* SPDX-License-Identifier: Apache-2.0 */
/* A command line that grows in an arena. */
#ifndef PARE_TOOLS_ZOO_ARGV_H
#define PARE_TOOLS_ZOO_ARGV_H

#include "runtime/base/arena.h"

/* Begins with its arena and zeros. After a failed allocation calls do nothing. */
typedef struct pare_zoo_argv {
    pare_arena *arena;
    const char **item;
    size_t count, capacity;
    bool failed;
} pare_zoo_argv;

/* One word or two; the second NULL: none. The first is NULL where its allocation failed. */
void pare_zoo_argv_add(pare_zoo_argv *words, const char *first, const char *second);

/* The words with a NULL after them. PARE_MEMORY where one call failed. */
PARE_NODISCARD pare_status pare_zoo_argv_end(pare_zoo_argv *words, const char ***out, int *count);
#endif
