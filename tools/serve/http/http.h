/* SPDX-License-Identifier: Apache-2.0 */
/* The transport: HTTP/1.1. Threads of its own read requests, each those of its connections; who
   makes a reply sends it. What the replies are is decided elsewhere. */
#ifndef PARE_TOOLS_SERVE_HTTP_H
#define PARE_TOOLS_SERVE_HTTP_H

#include "tools/serve/bodies.h"
#include "tools/serve/exchange.h"

typedef struct pare_http pare_http;

typedef struct pare_http_options {
    const char *host;              /* address or name to listen on */
    int port;                      /* 0: any that is free */
    int threads;                   /* that read requests */
    int64_t limit;                 /* bytes of a request's body at most */
    int64_t pending;               /* bytes of requests and replies on their way */
    size_t *held;                  /* they are counted here, atomically */
    const char *certificate, *key; /* PEM text, with which TLS is spoken; NULL: it is not */
    /* Called by any of the threads. Is the request taken, whose body has not been read? Else it
       makes the reply. */
    bool (*admit)(void *user, pare_exchange *x);
    /* Called for a request with a large body that is taken: of which its memory is; NULL, also in
       place of the function: of the transport's own. */
    pare_bodies *(*bodies)(void *user, pare_exchange *x);
    /* Makes the exchange's reply and calls its done, now or later. */
    void (*handle)(void *user, pare_exchange *x);
    void *user;
} pare_http_options;

/* PARE_IO: the address cannot be listened on. PARE_INPUT: certificate and key cannot be used.
   PARE_UNSUPPORTED: the build has no parser of HTTP, or no TLS. */
PARE_NODISCARD pare_status pare_http_open(pare_ctx *ctx, pare_http **out,
                                          const pare_http_options *options);
/* The port that it listens on. */
int pare_http_port(const pare_http *http);
/* Accepts no connection any more, answers every request that has come or is coming on those that
   are there, and ends them: what comes or is read by a client for more than 30 s, or stops in the
   middle for 5 s, is lost. */
void pare_http_drain(pare_http *http);
/* After pare_http_drain. NULL is fine. */
void pare_http_close(pare_http *http);
#endif
