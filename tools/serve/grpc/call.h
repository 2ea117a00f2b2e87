/* SPDX-License-Identifier: Apache-2.0 */
/* What the two parts of the transport share: grpc.c opens and ends it, call.c answers calls.
 */
#ifndef PARE_TOOLS_SERVE_GRPC_CALL_H
#define PARE_TOOLS_SERVE_GRPC_CALL_H
#ifdef PARE_GRPC

#include "tools/serve/grpc/grpc.h"
#include "tools/serve/grpc/library.h"

#include <pthread.h>
#include <stdatomic.h>

/* What the queue hands out: whom it concerns. */
typedef struct pare_grpc_event {
    void (*on)(void *user, bool ok);
    void *user;
} pare_grpc_event;

struct pare_grpc {
    pare_ctx ctx; /* of requests */
    pare_grpc_options options;
    pare_grpc_library lib;
    grpc_server *server;
    grpc_completion_queue *queue;
    pthread_t thread;
    bool is_running;               /* the thread */
    int port, listener;            /* listener: -1 where the library listens */
    grpc_server_credentials *open; /* those of connections without TLS; NULL: they have it */
    pthread_t acceptor;
    bool accepts; /* that thread */
    atomic_bool is_deaf;
    atomic_bool closed;   /* messages are refused, and counted only in `seen` */
    atomic_int calls;     /* that are there, and the one that is waited for */
    atomic_bool lacks;    /* none is waited for: it could not be asked for */
    atomic_int answering; /* messages whose reply was not made yet */
    atomic_int unsent;    /* replies that were not sent yet */
    atomic_uint seen;     /* messages so far */
    atomic_size_t unread; /* bytes of replies that were not sent yet */
    atomic_int sending;   /* threads that hand a reply over */
    atomic_bool ended;    /* the server has no calls any more */
    pare_grpc_event shutdown;
};

/* Waits for the next call, and answers it. Where that fails it is tried again when one that is
   there ends. */
void pare_grpc_expect_call(pare_grpc *grpc);
#endif
#endif
