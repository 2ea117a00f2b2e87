/* SPDX-License-Identifier: Apache-2.0 */
/* Work in a process of its own, with limits. The caller's process forks and does not exec: it must
   have no threads, and have used neither oneDNN, HDF5 nor CUDA. */
#ifndef PARE_TOOLS_ZOO_PROCESS_H
#define PARE_TOOLS_ZOO_PROCESS_H

#include "runtime/base/ctx.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What became of work, and the word for it in journals and tables. */
#define PARE_OUTCOMES(X)                                                                           \
    X(DONE, "done")                                                                                \
    X(BAD_MODEL, "bad model")                                                                      \
    X(UNSUPPORTED, "unsupported operator")                                                         \
    X(MEMORY, "out of memory")                                                                     \
    X(TIME, "time")                                                                                \
    X(CRASH, "crash")                                                                              \
    X(FAILED, "failed")                                                                            \
    X(STOPPED, "stopped")

typedef enum pare_outcome {
#define X(code, text) PARE_OUTCOME_##code,
    PARE_OUTCOMES(X)
#undef X
        PARE_OUTCOME_COUNT
} pare_outcome;

const char *pare_outcome_text(pare_outcome outcome);
/* The outcome of this word; PARE_OUTCOME_COUNT where there is none. */
pare_outcome pare_outcome_find(const char *text);

typedef struct pare_process_job {
    pare_status (*work)(pare_ctx *ctx, void *user); /* runs in the new process */
    void *user;
    const char *log; /* file that takes its standard output and error; NULL: the caller's */
    double seconds;  /* elapsed at most; 0: no limit */
    int64_t bytes;   /* resident memory at most, of the process and those it forks; 0: no limit */
} pare_process_job;

typedef struct pare_process_result {
    pare_outcome outcome;
    char message[sizeof((pare_ctx *)0)->message]; /* what the work left in its context */
    double seconds; /* elapsed in the work; from start to end where it could not tell */
    double cpu_seconds;
    int64_t peak_bytes; /* resident at most, as far as seen */
} pare_process_result;

typedef struct pare_process {
    pid_t pid; /* 0: none */
    int pipe;  /* the result comes out here */
    pare_process_job job;
    double start, look;  /* look: when its memory is looked at next */
    int64_t peak;        /* bytes, of the whole session */
    long oom_kills;      /* of the machine at the start */
    pare_outcome killed; /* for which limit; DONE: for none */
    bool asked;          /* to stop */
} pare_process;

/* Once before the first: this process adopts and reaps whatever its processes leave behind, and
   hears of their ends in pare_process_wait. */
void pare_process_prepare(void);

/* Starts work in a process that leads a session of its own and dies with the caller. It has no open
   files but /dev/null as standard input, the log, and the pipe of its result; signals are as in a
   program that starts, and SIGTERM sets ctx->interrupted. PARE_IO: there is no process to be had.
 */
PARE_NODISCARD pare_status pare_process_start(pare_ctx *ctx, pare_process *process,
                                              const pare_process_job *job);

/* True once the process has ended; the result is filled then. Otherwise looks at its limits, and
   kills the whole session of one that is over. Does not wait. */
bool pare_process_poll(pare_process *process, pare_process_result *result);

/* Starts work, waits for its end, and ends what it left behind. PARE_INTERRUPTED: ctx was, and the
   process was killed. */
PARE_NODISCARD pare_status pare_process_run(pare_ctx *ctx, const pare_process_job *job,
                                            pare_process_result *result);

/* Ends and reaps what processes that have ended forked and left behind; all: every process of the
   caller's, running or not. */
void pare_process_sweep(const pare_process *all, int count);

/* Waits until a process ends or a signal comes, at most this long. */
void pare_process_wait(double seconds);

/* Asks for an end (SIGTERM), which makes the outcome "stopped"; or kills the session. */
void pare_process_stop(pare_process *process);
void pare_process_kill(pare_process *process);

/* --- the processes of a session, as /proc tells of them (session.c) --- */

/* Resident bytes of all processes of a session (pages they share count in each). */
int64_t pare_session_bytes(pid_t session);

/* Resident bytes of one process; 0 where it is gone. */
int64_t pare_session_process_bytes(pid_t pid);

/* SIGKILL to every process of a session but the caller, until none is left that lives. */
void pare_session_kill(pid_t session);

/* Kills and reaps what the caller's processes left behind, which was given to it: children that are
   neither of these running ones nor in the session that one of them leads. */
void pare_session_sweep(const pid_t *running, int count);

/* How often the kernel has killed for want of memory since the start; -1: it does not tell. */
long pare_session_oom_kills(void);
#endif
