/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a replica pool, shared by batch.c, its threads in threads.c and microbatch.c. */
#ifndef PARE_RUNTIME_EXEC_REPLICAS_H
#define PARE_RUNTIME_EXEC_REPLICAS_H

#include "runtime/exec/batch.h"
#include "runtime/exec/runner.h"

#include <pthread.h>

/* Steps that an item runs to the end, and the SliceSum and AllGather steps after them, which are
   made for all items together. */
typedef struct pare_phase {
    int first, count;
    int joint;
} pare_phase;

typedef struct pare_workers pare_workers;

struct pare_replicas {
    pare_ctx *ctx;
    const pare_plan *plan;
    pare_replicas_options options;
    pare_replica *replica;
    int count, threads;
    bool single;         /* its runners are (runner.h) */
    bool overlaps;       /* items may be in flight */
    bool ahead, asked;   /* with it: two, and whether the runner was asked for that */
    pare_stream *stream; /* shared; NULL: each has its own */
    pare_phase *phase;
    int phases;                 /* 1: nothing is summed, and no part gathered */
    struct pare_gather *gather; /* NULL: the plan has all of its model */
    pare_runner **runner;       /* (replicas) with it */
    const void **from;          /* (items), where there are sums: the terms of one, */
    void **to;                  /* and where they go; */
    void *whole;                /* with a stream, and sums by way of the host: room for one */
    pare_workers *workers;      /* NULL: one thread */
    /* of one run */
    pare_batch_work work;
    int at;       /* phase */
    int64_t base; /* with phases: the first of the items that run together */
    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t turned;
    int64_t next, end;  /* item to be handed out; after the last */
    int64_t turn;       /* item to be taken */
    int64_t failed;     /* the first item that failed; INT64_MAX: none */
    pare_status status; /* of it */
    int failed_replica;
};

/* threads.c: `count` threads beside the caller's; started at the first round. */
PARE_NODISCARD pare_status pare_workers_new(pare_ctx *ctx, pare_workers **out, int count,
                                            void (*work)(void *user, int worker), void *user);
void pare_workers_free(pare_workers *workers);
/* Calls work on all threads, as worker 0 on this one, and waits for them. */
PARE_NODISCARD pare_status pare_workers_run(pare_ctx *ctx, pare_workers *workers);

/* microbatch.c */
PARE_NODISCARD pare_status pare_phases_make(pare_replicas *replicas);
/* An item's steps of the phase. */
PARE_NODISCARD pare_status pare_phase_run(const pare_replicas *replicas, pare_runner *runner);
/* What follows the phase for all items. */
PARE_NODISCARD pare_status pare_phase_join(pare_replicas *replicas);

#endif
