/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/ctx.h"
#include "runtime/base/size.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *pare_status_text(pare_status status)
{
    static const char *const text[] = {
#define X(code, exit_code, words) words,
        PARE_STATUS_LIST(X)
#undef X
    };
    return (size_t)status < sizeof text / sizeof *text ? text[status] : "unknown status";
}

int pare_status_exit_code(pare_status status)
{
    static const int code[] = {
#define X(name, exit_code, words) exit_code,
        PARE_STATUS_LIST(X)
#undef X
    };
    return (size_t)status < sizeof code / sizeof *code ? code[status] : 1;
}

void pare_ctx_init(pare_ctx *ctx)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->fail_after = -1;
}

void pare_ctx_child(pare_ctx *child, const pare_ctx *parent)
{
    *child = *parent;
    child->message[0] = 0;
}

void pare_ctx_clear(pare_ctx *ctx) { ctx->message[0] = 0; }

pare_status pare_fail(pare_ctx *ctx, pare_status status, const char *format, ...)
{
    if (!ctx->message[0]) {
        va_list args;
        va_start(args, format);
        pare_text_format(ctx->message, sizeof ctx->message, 0, format, args);
        va_end(args);
    }
    return status;
}

/* The old message, which is escaped, cut at a whole character where it does not fit. */
static void end_message(char *out, size_t size, const char *old)
{
    size_t n = strlen(old);
    if (n >= size)
        for (n = size - 1; n && ((unsigned char)old[n] & 0xc0) == 0x80; n--) continue;
    memcpy(out, old, n);
    out[n] = 0;
}

pare_status pare_fail_prefix(pare_ctx *ctx, pare_status status, const char *format, ...)
{
    char old[sizeof ctx->message];
    memcpy(old, ctx->message, sizeof old);
    va_list args;
    va_start(args, format);
    const size_t used = pare_text_format(ctx->message, sizeof ctx->message, 0, format, args);
    va_end(args);
    const size_t room = used < sizeof ctx->message ? sizeof ctx->message - used : 0;
    if (room > 3) {
        memcpy(ctx->message + used, ": ", 2);
        end_message(ctx->message + used + 2, room - 2, old);
    }
    return status;
}

pare_status pare_ctx_poll(pare_ctx *ctx)
{
    if (ctx->interrupted && *ctx->interrupted) return PARE_FAIL(ctx, INTERRUPTED, "interrupted");
    return PARE_OK;
}

void pare_log(pare_ctx *ctx, pare_log_level level, const char *format, ...)
{
    if (!ctx->log) return;
    char line[2048];
    va_list args;
    va_start(args, format);
    pare_text_format(line, sizeof line, 0, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}

void *pare_alloc(pare_ctx *ctx, size_t count, size_t size)
{
    size_t bytes;
    void *memory = NULL;
    if (pare_mul_size(count, size, &bytes) && ctx->fail_after != 0) {
        if (ctx->fail_after > 0) ctx->fail_after--;
        memory = calloc(1, bytes ? bytes : 1);
    }
    if (!memory)
        (void)PARE_FAIL(ctx, MEMORY, "out of memory: %zu x %zu bytes were not granted", count,
                        size);
    return memory;
}

bool pare_grow(pare_ctx *ctx, void *items, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) return true;
    size_t more = *capacity ? 2 * *capacity : 8;
    void *old, *fresh = pare_alloc(ctx, more, size);
    if (!fresh) return false;
    memcpy(&old, items, sizeof old); /* items is a T ** */
    if (old) memcpy(fresh, old, count * size);
    free(old);
    memcpy(items, &fresh, sizeof fresh);
    *capacity = more;
    return true;
}

void pare_free(void *memory) { free(memory); }

char *pare_strdup(pare_ctx *ctx, const char *text)
{
    size_t n = strlen(text);
    char *copy = pare_alloc(ctx, n + 1, 1);
    if (copy) memcpy(copy, text, n);
    return copy;
}
