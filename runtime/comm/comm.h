/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator: the processes (ranks) that work on one job, as MPI starts them. MPI's library is
   opened when a launcher started more than one process, else never. A NULL communicator is a job of
   one process: rank 0 of 1.

   All ranks call the same functions in the same order. Each of them begins by asking whether a rank
   has failed: a rank that fails calls pare_comm_settle with its status, once, and the others have
   that failure in place of what they asked for. Nothing waits for ever for a rank that gave up.
   Between two of them pare_comm_listen hears of it. */
#ifndef PARE_RUNTIME_COMM_COMM_H
#define PARE_RUNTIME_COMM_COMM_H

#include "runtime/base/ctx.h"
#include "runtime/base/hash.h"
#include "runtime/comm/scaling.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_comm pare_comm;

/* What a launcher (mpirun, mpiexec, srun) says of this process by its environment; 0 of 1 without
   one. No library is opened. */
int pare_comm_launched_rank(void);
int pare_comm_launched_size(void);

/* Joins the processes that were launched together; *out is NULL where it is one. PARE_UNSUPPORTED:
   there are more, but this build has no MPI, its library does not open, or it does not see them.
   The context, which later failures are written into, must outlive the communicator. Once a
   process; a program that has called MPI_Init_thread with MPI_THREAD_SERIALIZED itself ends MPI
   itself. */
PARE_NODISCARD pare_status pare_comm_open(pare_ctx *ctx, pare_comm **out);
/* Leaves them. After a failure of MPI itself, or pare_comm_break, it ends all of them. */
void pare_comm_close(pare_comm *comm);

int pare_comm_rank(const pare_comm *comm);
int pare_comm_size(const pare_comm *comm);
/* The place of this process among the job's on its machine, which GPU it takes by. */
int pare_comm_local_rank(const pare_comm *comm);
/* Threads that keep this process's cores busy: those it may use, shared among the ranks of its
   machine that may use the same ones. */
int pare_comm_threads(const pare_comm *comm);
/* "Open MPI v4.1.4". */
const char *pare_comm_library(const pare_comm *comm);

/* Gives every rank the status and message of the lowest rank that failed, here or before; PARE_OK
   where none did. A message of another rank than 0 begins with it: "rank 2 (node7): ". */
PARE_NODISCARD pare_status pare_comm_settle(pare_comm *comm, pare_status status);
/* For work between two collectives: has another rank failed in the meantime? PARE_INTERRUPTED,
   noted in ctx, where one has; whatever status this rank then settles with, it gets that rank's
   failure. Cheap: it looks some times a second. By one thread at a time. */
PARE_NODISCARD pare_status pare_comm_listen(pare_comm *comm, pare_ctx *ctx);
/* Logs how far this rank's work had come where that was heard, else nothing. */
void pare_comm_log_heard(const pare_comm *comm, int64_t done, int64_t all);
/* Is there a failure that all ranks have? */
bool pare_comm_failed(const pare_comm *comm);
/* Has MPI itself failed? Then nothing reaches the others. */
bool pare_comm_is_broken(const pare_comm *comm);
/* Goes on after a failure that all ranks have and that ends no job: a stop that was asked for. Its
   message is the context's until pare_ctx_clear. Nothing after a failure of MPI itself. */
void pare_comm_forget(pare_comm *comm);

/* A failure of what ranks do together beside this communicator, in this rank: the others may wait
   for it there, and are not told. Closing ends all of them, as after a failure of MPI. The
   message says whose it is as pare_comm_settle's does. Returns status. */
pare_status pare_comm_break(pare_comm *comm, pare_status status);

/* PARE_INPUT in all ranks where one has other bytes than rank 0: "has another WHAT than rank 0". */
PARE_NODISCARD pare_status pare_comm_same(pare_comm *comm, const char *what, const void *data,
                                          size_t bytes);

/* Element by element over all ranks, whatever their order; the result is in every rank. */
typedef enum pare_comm_op {
    PARE_COMM_SUM_U64, /* modulo 2^64 */
    PARE_COMM_MAX_I64,
    PARE_COMM_MAX_F32 /* of numbers other than NaN */
} pare_comm_op;
PARE_NODISCARD pare_status pare_comm_allreduce(pare_comm *comm, void *data, size_t count,
                                               pare_comm_op op);

/* The sum of float arrays over all ranks, in every rank, in the order of a fixed tree: neighbours
   (rank 0 + rank 1), then pairs of neighbours, and so on; a rest joins at its level. In a job whose
   size is a power of two each rank sends and receives about 2 * count numbers. */
PARE_NODISCARD pare_status pare_comm_sum_f32(pare_comm *comm, float *data, size_t count);
PARE_NODISCARD pare_status pare_comm_sum_f64(pare_comm *comm, double *data, size_t count);

/* Whole numbers of 128 bits, in place. *fits: false where a sum has more, and is then without its
   highest bits. */
__extension__ typedef __int128 pare_int128;
PARE_NODISCARD pare_status pare_comm_sum_i128(pare_comm *comm, pare_int128 *x, size_t count,
                                              bool *fits);

/* The sum of hashes (pare_hash_sum) over all ranks, in every rank. */
PARE_NODISCARD pare_status pare_comm_sum_hash(pare_comm *comm, pare_hash *hash);

/* Copies of the root's bytes in all ranks. */
PARE_NODISCARD pare_status pare_comm_broadcast(pare_comm *comm, void *data, size_t bytes, int root);

/* Rank 0 gets what every rank has, in their order: all (size * bytes), else NULL. */
PARE_NODISCARD pare_status pare_comm_gather(pare_comm *comm, const void *mine, size_t bytes,
                                            void *all);

/* Rank 0 gets in `out` what rank `from` has in `mine`; the others return at once. No collective: it
   asks for no failure, so that many may follow one pare_comm_settle. A rank that fails in between
   goes on, and settles behind them. */
PARE_NODISCARD pare_status pare_comm_bring(pare_comm *comm, const void *mine, size_t bytes,
                                           int from, void *out);

/* Every rank gets what every rank has, in their order: `mine` of rank r has bytes[r] bytes (size,
   the same in each), and all has room for their sum. PARE_UNSUPPORTED: more than 1 GiB. A job of
   one copies. */
PARE_NODISCARD pare_status pare_comm_all_gather(pare_comm *comm, const void *mine,
                                                const size_t *bytes, void *all);

/* The network between rank 0 and the last one, in every rank: what messages of 8 bytes and of 16
   MiB take, the quickest of some. A job of one has none: 0 and 0. */
PARE_NODISCARD pare_status pare_comm_measure(pare_comm *comm, pare_network *out);
/* --- channels: messages from one rank to another, in their order. Two buffers at each end: one
   message is on its way while the caller works with the one before. Nothing asks for failures in
   between, so every message says whether there is one: a rank that fails sends its messages on as
   PARE_CHANNEL_FAILED until it is sent PARE_CHANNEL_END, and then calls pare_comm_settle. --- */

typedef struct pare_channel pare_channel;

typedef enum pare_channel_kind {
    PARE_CHANNEL_DATA,
    PARE_CHANNEL_FAILED, /* nothing came of it: this rank or one before it failed */
    PARE_CHANNEL_END     /* the last one */
} pare_channel_kind;

/* Opens one end, in rank `from` or in rank `to`, of a communicator that is not NULL; exchanges
   nothing. bytes: of a message at most.
   PARE_UNSUPPORTED: more than 1 GiB. */
PARE_NODISCARD pare_status pare_channel_open(pare_comm *comm, pare_channel **out, int from, int to,
                                             size_t bytes);
/* After the end was sent or received it returns when all has left; NULL is fine. */
void pare_channel_close(pare_channel *channel);

/* The memory of its two messages; of NULL none. */
size_t pare_channel_bytes(const pare_channel *channel);

/* The memory of the next message to send, at a multiple of 64. Waits until what was sent two
   messages before has left. */
PARE_NODISCARD pare_status pare_channel_next(pare_channel *channel, void **data);
/* Sends that memory (of DATA, the first `bytes` of it), with a number of the caller. */
PARE_NODISCARD pare_status pare_channel_send(pare_channel *channel, pare_channel_kind kind,
                                             size_t bytes, int64_t number);
/* Waits for the next message, whose data are valid until the next call. Not after the end. */
PARE_NODISCARD pare_status pare_channel_receive(pare_channel *channel, pare_channel_kind *kind,
                                                int64_t *number, const void **data);

#ifdef __cplusplus
}
#endif
#endif
