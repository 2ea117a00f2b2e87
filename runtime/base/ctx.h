/* SPDX-License-Identifier: Apache-2.0 */
/* The context: the message of the last failure, the log, the allocator. No globals, no
   thread-locals; one thread at a time may fail in a context, so worker threads get one each
   (pare_ctx_child). */
#ifndef PARE_RUNTIME_BASE_CTX_H
#define PARE_RUNTIME_BASE_CTX_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- status codes: every function that can fail returns one --- */

/*      code         exit  text */
#define PARE_STATUS_LIST(X)                                                                        \
    X(OK, 0, "ok")                                                                                 \
    X(USAGE, 2, "bad usage")                                                                       \
    X(INPUT, 1, "bad input")                                                                       \
    X(UNSUPPORTED, 1, "unsupported")                                                               \
    X(IO, 1, "input or output failed")                                                             \
    X(MEMORY, 1, "out of memory")                                                                  \
    X(DEVICE, 1, "device error")                                                                   \
    X(INTERRUPTED, 1, "interrupted")                                                               \
    X(MISSED, 3, "done, but short of what was asked")

typedef enum pare_status {
#define X(code, exit_code, text) PARE_##code,
    PARE_STATUS_LIST(X)
#undef X
} pare_status;

#define PARE_NODISCARD __attribute__((warn_unused_result))

/* The one control-flow macro: hands a failure to the caller. */
#define PARE_TRY(call)                                                                             \
    do {                                                                                           \
        pare_status try_status_ = (call);                                                          \
        if (try_status_ != PARE_OK) return try_status_;                                            \
    } while (0)

/* "bad input" and so on; never NULL. */
const char *pare_status_text(pare_status status);

/* The exit code of a program that ends with this status: 0, 1 or 2. */
int pare_status_exit_code(pare_status status);

/* --- context --- */

typedef enum pare_log_level { PARE_LOG_WARNING, PARE_LOG_INFO, PARE_LOG_DEBUG } pare_log_level;

/* Receives one line without its newline. */
typedef void (*pare_log_fn)(void *user, pare_log_level level, const char *line);

typedef struct pare_ctx {
    char message[2048]; /* of the first failure since pare_ctx_clear; "" where none */
    pare_log_fn log;    /* NULL: silent */
    void *log_user;
    const volatile int
        *interrupted; /* set non-zero (by a signal handler) to stop long work; or NULL */
    long fail_after;  /* tests: allocations that still succeed; negative: no limit */
} pare_ctx;

/* A context that is silent and has no limit. */
void pare_ctx_init(pare_ctx *ctx);

/* A worker's context: same log, interruption and (not shared) allocation limit; empty message. */
void pare_ctx_child(pare_ctx *child, const pare_ctx *parent);

/* Forgets the message. */
void pare_ctx_clear(pare_ctx *ctx);

/* Writes the message where it is still empty and returns the status. Form of a message:
   "file: node 'name' (Op): fact, expected". Text arguments are escaped (runtime/base/text.h), so a
   name from a damaged file cannot reach a terminal as control characters. */
pare_status pare_fail(pare_ctx *ctx, pare_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message (a file, a node), and returns the status. */
pare_status pare_fail_prefix(pare_ctx *ctx, pare_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define PARE_FAIL(ctx, code, ...) pare_fail((ctx), PARE_##code, __VA_ARGS__)

/* PARE_INTERRUPTED with its message when someone asked for a stop, else PARE_OK. */
PARE_NODISCARD pare_status pare_ctx_poll(pare_ctx *ctx);

void pare_log(pare_ctx *ctx, pare_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Zeroed memory of count * size bytes (at least 1), or NULL with the message set.
   Freed with pare_free. */
void *pare_alloc(pare_ctx *ctx, size_t count, size_t size);

/* Grows *items (count, capacity) so that one more fits; false with the message set. */
bool pare_grow(pare_ctx *ctx, void *items, size_t *capacity, size_t count, size_t size);

void pare_free(void *memory);

/* A heap copy of a string, or NULL with the message set. */
char *pare_strdup(pare_ctx *ctx, const char *text);

#ifdef __cplusplus
}
#endif
#endif
