/* SPDX-License-Identifier: Apache-2.0 */
/* An arena: many small allocations of one lifetime, freed together.
   In builds with the address sanitizer each allocation is its own block, so that overruns are seen.
 */
#ifndef PARE_RUNTIME_BASE_ARENA_H
#define PARE_RUNTIME_BASE_ARENA_H

#include "runtime/base/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_arena_block pare_arena_block;

typedef struct pare_arena {
    pare_ctx *ctx;
    pare_arena_block *blocks;
    size_t bytes; /* handed out so far */
} pare_arena;

void pare_arena_init(pare_arena *arena, pare_ctx *ctx);
void pare_arena_free(pare_arena *arena);

/* Zeroed memory for count items of size bytes, 64-byte aligned where the total is 64 or more, else
   16; or NULL with the context's message set. */
void *pare_arena_alloc(pare_arena *arena, size_t count, size_t size);

/* Grows *items (a T **) so that one more than count fits; the old array stays in the arena.
   False with the message set. */
bool pare_arena_grow(pare_arena *arena, void *items, size_t *capacity, size_t count, size_t size);

/* Copies of text (NULL gives NULL without failing: callers that need text check it before). */
char *pare_arena_strdup(pare_arena *arena, const char *text);
char *pare_arena_strndup(pare_arena *arena, const char *text, size_t n);
char *pare_arena_printf(pare_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *pare_arena_memdup(pare_arena *arena, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
