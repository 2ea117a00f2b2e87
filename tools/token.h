/* SPDX-License-Identifier: Apache-2.0 */
/* The word that lets a client in, from a file. */
#ifndef PARE_TOOLS_TOKEN_H
#define PARE_TOOLS_TOKEN_H

#include "runtime/base/arena.h"

/* The one word of the file, in the arena; path NULL: *out is NULL. PARE_INPUT: the file holds no
   word or more than one. */
PARE_NODISCARD pare_status pare_token_read(pare_arena *arena, const char **out, const char *path);
#endif
