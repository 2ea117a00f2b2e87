/* SPDX-License-Identifier: Apache-2.0 */
/* A transport: gRPC over HTTP/2 by gRPC's own library. One thread reads requests; who makes a reply
   sends it. */
#ifndef PARE_TOOLS_SERVE_GRPC_GRPC_H
#define PARE_TOOLS_SERVE_GRPC_GRPC_H

#include "tools/serve/grpc/methods.h"

typedef struct pare_grpc pare_grpc;

typedef struct pare_grpc_options {
    const char *host;              /* address or name to listen on */
    int port;                      /* 0: any that is free */
    int64_t limit;                 /* bytes of a message at most */
    int64_t pending;               /* bytes of requests and replies on their way */
    size_t *held;                  /* they are counted here, atomically */
    const char *certificate, *key; /* PEM text, with which TLS is spoken; NULL: it is not */
    pare_api *api;
} pare_grpc_options;

/* PARE_IO: the address cannot be listened on. PARE_INPUT: certificate and key cannot be used.
   PARE_UNSUPPORTED: the build has no gRPC, or its library is not there. */
PARE_NODISCARD pare_status pare_grpc_open(pare_ctx *ctx, pare_grpc **out,
                                          const pare_grpc_options *options);
/* The port that it listens on. */
int pare_grpc_port(const pare_grpc *grpc);
/* Answers what has come, and ends the calls of what comes as unavailable, for 5 s at most, whatever
   clients go on sending; then ends connections and streams. NULL is fine. */
void pare_grpc_drain(pare_grpc *grpc);
/* After pare_grpc_drain. NULL is fine. */
void pare_grpc_close(pare_grpc *grpc);
#endif
