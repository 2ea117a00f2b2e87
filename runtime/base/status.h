/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes. Every function that can fail returns one; the words live in the context (ctx.h). */
#ifndef PARE_RUNTIME_BASE_STATUS_H
#define PARE_RUNTIME_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/*      code         exit  text */
#define PARE_STATUS_LIST(X)                                                                        \
    X(OK, 0, "ok")                                                                                 \
    X(USAGE, 2, "bad usage")                                                                       \
    X(INPUT, 1, "bad input")                                                                       \
    X(UNSUPPORTED, 1, "unsupported")                                                               \
    X(IO, 1, "input or output failed")                                                             \
    X(MEMORY, 1, "out of memory")                                                                  \
    X(DEVICE, 1, "device error")                                                                   \
    X(INTERRUPTED, 1, "interrupted")

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

#ifdef __cplusplus
}
#endif
#endif
