/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a model: requests wait in order of priority and arrival, and are handed to the
   model's instances in batches. */
#ifndef PARE_TOOLS_SERVE_BATCHER_H
#define PARE_TOOLS_SERVE_BATCHER_H

#include "runtime/base/ctx.h"

/* The priority of what no one waits for. */
#define PARE_BACKGROUND INT64_MAX

/* A request that waits. */
typedef struct pare_job {
    struct pare_job *next;
    int64_t rows;     /* samples it brings, at least 1 */
    int64_t priority; /* lower ones go first, PARE_BACKGROUND last */
    double queued;    /* pare_seconds, when it came */
    double deadline;  /* it is not begun after this time; INFINITY: it may wait for ever */
} pare_job;

enum { PARE_MOST_PREFERRED = 16 };
typedef struct pare_batcher_options {
    int64_t rows;  /* of a batch at most; a request that has more is a batch of its own */
    bool merge;    /* false: each request is a batch of its own */
    int64_t limit; /* requests that may wait, beside those of PARE_BACKGROUND */
    double wait;   /* seconds that a request may be expected to wait for a batch; 0: any */
    int instances; /* that take batches */
    double delay;  /* seconds that a request waits for others at most */
    int64_t preferred[PARE_MOST_PREFERRED]; /* (preferred_count) rows, ascending, for which a batch
                                               does not wait any longer; none: `rows` alone */
    int preferred_count;
    /* Can both be in one batch? */
    bool (*alike)(const pare_job *a, const pare_job *b);
} pare_batcher_options;

/* What an instance is given: each list is linked by `next`. */
typedef struct pare_jobs {
    pare_job *jobs; /* a batch; NULL: none */
    int64_t rows;   /* of them together */
    pare_job *late; /* their deadline has passed */
} pare_jobs;

typedef struct pare_batcher pare_batcher;
PARE_NODISCARD pare_status pare_batcher_new(pare_ctx *ctx, pare_batcher **out,
                                            const pare_batcher_options *options);
void pare_batcher_free(pare_batcher *batcher); /* empty, or NULL */

/* False: as many as may are waiting already, or *wait, the seconds that it would be expected to
   wait, is more than it may; else *wait is 0. */
bool pare_batcher_push(pare_batcher *batcher, pare_job *job, double *wait);
/* Jobs of `take` that who took them cannot run: each is where it was, however many wait. */
void pare_batcher_put_back(pare_batcher *batcher, pare_job *jobs);
/* A run of so many rows took so many seconds. By such runs waiting is foreseen. */
void pare_batcher_ran(pare_batcher *batcher, int64_t rows, double seconds);
/* Waits for a batch or late jobs. False: the queue was closed and is empty. */
bool pare_batcher_take(pare_batcher *batcher, pare_jobs *out);
/* What take would hand out at this time; false: it would wait until *until (INFINITY: for the next
   push). */
bool pare_batcher_choose(pare_batcher *batcher, double now, pare_jobs *out, double *until);
/* From now on no request waits for others. */
void pare_batcher_hurry(pare_batcher *batcher);
/* Lets those who take end when nothing waits any more, and no request wait for others. */
void pare_batcher_close(pare_batcher *batcher);
/* Requests that wait. */
int64_t pare_batcher_waiting(pare_batcher *batcher);
#endif
