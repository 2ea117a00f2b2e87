/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks reach each other (internal to comm/): a table of functions, behind which a library's
   own data are. Messages of failures go into the context that it was opened with. */
#ifndef PARE_RUNTIME_COMM_TRANSPORT_H
#define PARE_RUNTIME_COMM_TRANSPORT_H

#include "runtime/comm/comm.h"

typedef struct pare_transport pare_transport;

/* A message on its way; what it is inside is the transport's. */
typedef struct pare_request {
    void *handle;
} pare_request;

struct pare_transport {
    int rank, size, local_rank; /* local_rank: among the ranks of this machine */
    const char *library;
    /* all: ends the other processes, too. */
    void (*close)(pare_transport *t, bool all);
    pare_status (*allreduce)(pare_transport *t, void *data, size_t count, pare_comm_op op);
    pare_status (*broadcast)(pare_transport *t, void *data, size_t bytes, int root);
    pare_status (*gather)(pare_transport *t, const void *mine, size_t bytes, void *all);
    /* Of rank r bytes[r] bytes, in the order of the ranks; together at most 1 GiB. */
    pare_status (*all_gather)(pare_transport *t, const void *mine, const size_t *bytes, void *all);
    pare_status (*send)(pare_transport *t, const void *data, size_t bytes, int to);
    pare_status (*receive)(pare_transport *t, void *data, size_t bytes, int from);
    /* Both at once with one other rank; each side sends what the other receives. */
    pare_status (*exchange)(pare_transport *t, const void *out, size_t out_bytes, void *in,
                            size_t in_bytes, int other);
    /* Begin, and return before the message is there; the bytes (at most 1 GiB) stay untouched until
       wait. Messages to a rank arrive in their order. A receiver may have room for more. */
    pare_status (*start_send)(pare_transport *t, const void *data, size_t bytes, int to,
                              pare_request *request);
    pare_status (*start_receive)(pare_transport *t, void *data, size_t bytes, int from,
                                 pare_request *request);
    pare_status (*wait)(pare_transport *t, pare_request *request);
    /* An alarm is an empty message to every other rank, apart from all others. raise returns before
       it is there; raised says whether one waits here; clear takes `count` of them and waits until
       this rank's own are taken. */
    pare_status (*raise)(pare_transport *t);
    pare_status (*raised)(pare_transport *t, bool *out);
    pare_status (*clear)(pare_transport *t, int64_t count);
};

struct pare_comm {
    pare_ctx *ctx;
    pare_transport *transport;
    int rank, size, threads;
    pare_status failed; /* of a rank: what all of them have from then on */
    bool broken;        /* the transport failed: the others cannot be told */
    bool heard;         /* another rank has failed, and waits for this one to settle */
    double looked;      /* when pare_comm_listen looked last, seconds */
};

/* A transport that failed leaves nothing to agree by; returns st. */
pare_status pare_comm_checked(pare_comm *comm, pare_status st);

/* MPI (mpi.c): opens its library and joins. PARE_UNSUPPORTED: this build has none. */
PARE_NODISCARD pare_status pare_mpi_open(pare_ctx *ctx, pare_transport **out);
#endif
