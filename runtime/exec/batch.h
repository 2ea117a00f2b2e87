/* SPDX-License-Identifier: Apache-2.0 */
/* The batch executor: a pool of replicas (runners of one plan) works through numbered items,
   several side by side. Items are handed out in order and by default taken in order, so that what
   is made of the results does not depend on the number of threads. Calibration, training,
   evaluation and measuring run here; an item is whatever the caller's functions make of its number.
 */
#ifndef PARE_RUNTIME_EXEC_BATCH_H
#define PARE_RUNTIME_EXEC_BATCH_H

#include "runtime/exec/chain.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_replicas pare_replicas;

/* One runner of the pool. Failures of its items are noted in its context. */
typedef struct pare_replica {
    pare_ctx ctx;
    pare_runner *runner; /* that has the inputs */
    pare_runner *last;   /* and the outputs: itself, or of a chain the last one */
    pare_chain *chain;   /* NULL: the runner has all of the model */
    int index;           /* in the pool */
    int worker; /* the thread that drives it now; 0 is the thread that called pare_replicas_run */
    void *own;  /* for the caller; NULL at first */
    int64_t item[2]; /* started and still in flight (overlap), in order */
    int flying;      /* so many of them */
} pare_replica;

typedef struct pare_replicas_options {
    int threads;   /* at most so many items side by side; 0: all cores */
    int64_t items; /* most items of a run; 0: not known. There are no more threads than items. */
    bool each;     /* a replica for each item (item i runs on replica i), so that the outputs of all
                      are valid until the next run; else one for each thread */
    bool share;    /* on a device: all replicas work in one stream, pare_replicas_stream */
    const pare_chain_plan *chain; /* on devices: replicas are chains of it, and the pool's plan is
                                     its first; without SliceSum nodes. NULL: runners of the plan */
    bool concurrent; /* on a device: threads as on the CPU, each with a replica; else one thread */
    bool overlap;    /* on a device: one replica, and from the second item on two items in flight;
                        while one computes, inputs of the next and outputs of the one before are copied
                        (run_ahead.c). Inputs are written anew for each. On the CPU, and where items
                        run together or in chains: nothing changes. */
    /* For SliceSum over the items of several pools, each in a process of its own: y, (count) in
       host memory, is this pool's sum and becomes that of all, the same in each. Called by the
       thread that runs the pool, in the same order in each. NULL: this pool has all items. */
    pare_status (*sum)(void *user, pare_dtype dtype, void *y, int64_t count);
    /* The same of y in the device's memory, with `share`, after what is in the stream. NULL: by
       way of the host. */
    pare_status (*sum_there)(void *user, pare_stream *stream, pare_dtype dtype, void *y,
                             int64_t count);
    void *sum_user;
} pare_replicas_options;

/* All cores, one replica for each. */
void pare_replicas_options_init(pare_replicas_options *out);

/* What is done with an item; each function may be NULL. A failure is noted in replica->ctx. */
typedef struct pare_batch_work {
    /* Sets the runner's inputs, all of them: the runner may have run another item. Called side by
       side, in any order. */
    pare_status (*load)(void *user, int64_t item, pare_replica *replica);
    /* In place of pare_replica_compute. Not with overlap, nor with SliceSum nodes. */
    pare_status (*run)(void *user, int64_t item, pare_replica *replica);
    /* The runner's outputs are the item's. In order of items and one at a time, or, with any_order,
       side by side. */
    pare_status (*take)(void *user, int64_t item, pare_replica *replica);
    bool any_order;
    bool in_flight; /* with overlap: do not wait for the last item; pare_replicas_finish, or a later
                       run, does, and takes it as that run's `work` says */
    void *user;
} pare_batch_work;

/* The plan must outlive the pool; where there is more than one thread it should be for one thread.

   A plan with pare.SliceSum nodes, as training has them, and more than one item (or a function for
   sums over several pools) runs `items` items together, the microbatches of a batch: the output of
   such a node is the sum over all items, in their tree (runtime/base/tree_sum.h), the same in each.
   It has a replica for each item and, on a device, a shared stream. PARE_UNSUPPORTED: a device that
   cannot sum. */
PARE_NODISCARD pare_status pare_replicas_new(pare_ctx *ctx, pare_replicas **out,
                                             const pare_plan *plan,
                                             const pare_replicas_options *options);
void pare_replicas_free(pare_replicas *replicas);

int pare_replicas_count(const pare_replicas *replicas);
int pare_replicas_threads(const pare_replicas *replicas); /* as many as are used */
pare_replica *pare_replicas_at(const pare_replicas *replicas, int i);
pare_stream *pare_replicas_stream(const pare_replicas *replicas); /* share; else NULL */

/* Runs items first .. first + count - 1. Of several that fail, the first in order gives status and
   message, whatever the threads; exactly the items before it have been taken, where that is in
   order; those after it are dropped. Stops where the context is interrupted. The pool can be run
   again after a failure. */
PARE_NODISCARD pare_status pare_replicas_run(pare_replicas *replicas, int64_t first, int64_t count,
                                             const pare_batch_work *work);
/* Waits for what is in flight of the items before `end`, and takes it. */
PARE_NODISCARD pare_status pare_replicas_finish(pare_replicas *replicas, int64_t end);

/* A run of the replica's runner or chain: what goes to and from it is the caller's. */
PARE_NODISCARD pare_status pare_replica_compute(pare_replica *replica);
/* Has all that runs on a GPU play again been recorded? (pare_runner_is_recorded) */
bool pare_replica_is_recorded(const pare_replica *replica);

/* Runs the items one after the other by this replica alone, on the calling thread, which shares it
   with no other; for work within the work of another pool. A failure is in replica->ctx. */
PARE_NODISCARD pare_status pare_replica_run(pare_replica *replica, int64_t first, int64_t count,
                                            const pare_batch_work *work);

#ifdef __cplusplus
}
#endif
#endif
