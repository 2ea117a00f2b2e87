/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/arena.h"
#include "runtime/base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pare_arena_block {
    pare_arena_block *next;
    size_t used, size; /* of the bytes after the header */
};

/* Blocks grow with what was taken: most arenas of short lives stay small. */
enum { FIRST_BLOCK = 4 << 10, BLOCK = 64 << 10, HEADER = 64 };
_Static_assert(sizeof(pare_arena_block) <= HEADER, "payload starts 64 bytes into the block");

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1 /* clang's way to say it */
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
enum { ONE_BLOCK_EACH = 1 };
#else
enum { ONE_BLOCK_EACH = 0 };
#endif

void pare_arena_init(pare_arena *arena, pare_ctx *ctx) { *arena = (pare_arena){.ctx = ctx}; }

void pare_arena_free(pare_arena *arena)
{
    for (pare_arena_block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    arena->blocks = NULL;
    arena->bytes = 0;
}

static pare_arena_block *block_new(pare_arena *arena, size_t bytes)
{
    size_t total;
    pare_ctx *ctx = arena->ctx;
    pare_arena_block *b = NULL;
    if (pare_add_size(bytes, HEADER + 63, &total) && ctx->fail_after != 0) {
        if (ctx->fail_after > 0) ctx->fail_after--;
        b = aligned_alloc(64, pare_align_up(total - 63, 64));
    }
    if (!b) {
        (void)PARE_FAIL(ctx, MEMORY, "out of memory: %zu bytes were not granted", bytes);
        return NULL;
    }
    *b = (pare_arena_block){.next = arena->blocks, .size = bytes};
    arena->blocks = b;
    return b;
}

static size_t block_size(const pare_arena *arena)
{
    if (arena->bytes < FIRST_BLOCK) return FIRST_BLOCK;
    return arena->bytes < BLOCK ? arena->bytes : BLOCK;
}

void *pare_arena_alloc(pare_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!pare_mul_size(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        (void)PARE_FAIL(arena->ctx, MEMORY, "out of memory: %zu x %zu bytes", count, size);
        return NULL;
    }
    size_t align = bytes >= 64 ? 64 : 16;
    pare_arena_block *b = arena->blocks;
    size_t at = b ? pare_align_up(b->used, align) : 0;
    if (!b || at > b->size || b->size - at < bytes || ONE_BLOCK_EACH) {
        const size_t block = block_size(arena);
        b = block_new(arena, bytes > block / 4 || ONE_BLOCK_EACH ? bytes : block);
        if (!b) return NULL;
        at = 0;
        /* a large block of its own goes after the current one, which still has room */
        if (b->size == bytes && b->next && !ONE_BLOCK_EACH) {
            arena->blocks = b->next;
            b->next = arena->blocks->next;
            arena->blocks->next = b;
        }
    }
    b->used = at + bytes;
    arena->bytes += bytes;
    void *p = (char *)b + HEADER + at;
    memset(p, 0, bytes);
    return p;
}

bool pare_arena_grow(pare_arena *arena, void *items, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) return true;
    size_t more = *capacity ? 2 * *capacity : 4;
    void *old, *fresh = pare_arena_alloc(arena, more, size);
    if (!fresh) return false;
    memcpy(&old, items, sizeof old); /* items is a T ** */
    if (old) memcpy(fresh, old, count * size);
    memcpy(items, &fresh, sizeof fresh);
    *capacity = more;
    return true;
}

char *pare_arena_strndup(pare_arena *arena, const char *text, size_t n)
{
    char *copy = pare_arena_alloc(arena, n + 1, 1);
    if (copy && n) memcpy(copy, text, n);
    return copy;
}

char *pare_arena_strdup(pare_arena *arena, const char *text)
{
    return text ? pare_arena_strndup(arena, text, strlen(text)) : NULL;
}

char *pare_arena_printf(pare_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = pare_arena_alloc(arena, (size_t)(n < 0 ? 0 : n) + 1, 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)(n < 0 ? 0 : n) + 1, format, args);
    va_end(args);
    return text;
}

void *pare_arena_memdup(pare_arena *arena, const void *data, size_t bytes)
{
    void *copy = pare_arena_alloc(arena, bytes, 1);
    if (copy && bytes) memcpy(copy, data, bytes);
    return copy;
}
