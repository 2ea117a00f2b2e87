/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 to one server, by libcurl: connections that are kept, and many requests at once from one
   thread. Nothing else here knows HTTP. */
#ifndef PARE_TOOLS_LOAD_CLIENT_H
#define PARE_TOOLS_LOAD_CLIENT_H

#include "runtime/base/ctx.h"

typedef struct pare_client pare_client;

typedef struct pare_client_options {
    const char *url;       /* "http://localhost:8000", with or without a path */
    const char *token;     /* Authorization: Bearer, or NULL */
    const char *authority; /* PEM file of certificates to trust with https, or NULL: the system's */
    int connections;
} pare_client_options;

/* PARE_USAGE: the url does not begin with http:// or https://. PARE_UNSUPPORTED: the build has no
   libcurl. Nothing is connected yet. */
PARE_NODISCARD pare_status pare_client_open(pare_ctx *ctx, pare_client **out,
                                            const pare_client_options *options);
/* NULL is fine. */
void pare_client_close(pare_client *client);

/* What came back; valid until the connection's next request. */
typedef struct pare_client_reply {
    int status;        /* of HTTP; 0: none came */
    const char *error; /* where status is 0: why */
    bool refused;      /* no one listens any more */
    bool timed_out;    /* none came in the request's seconds */
    const char *body;
    size_t bytes, json_bytes; /* json_bytes: Inference-Header-Content-Length; 0: there was none */
} pare_client_reply;

#define PARE_CLIENT_SECONDS 10.0 /* that pare_client_get waits at most */
/* Asks for a path ("/v2/models/mlp") and waits, on a connection of its own. PARE_IO: no reply came;
   the message names the url. Any status of HTTP is PARE_OK. */
PARE_NODISCARD pare_status pare_client_get(pare_client *client, const char *path,
                                           pare_client_reply *out);

/* An inference request to begin; body and path are borrowed until it is over. */
typedef struct pare_client_request {
    const char *path, *body;
    size_t bytes, json_bytes;
    double seconds; /* it may take at most */
} pare_client_request;
PARE_NODISCARD pare_status pare_client_send(pare_client *client, int connection,
                                            const pare_client_request *request);
/* Until a request is over or pare_seconds() reaches this time, or a little earlier. */
PARE_NODISCARD pare_status pare_client_wait(pare_client *client, double until);
/* The connection whose request is over; -1: none. */
int pare_client_next(pare_client *client, pare_client_reply *out);
/* Ends what is under way; no reply comes of it. */
void pare_client_stop(pare_client *client);

/* The error that a server gave in JSON ("{"error": "..."}"), or the first characters of another
   body; into text, which is returned. */
const char *pare_client_error(const pare_client_reply *reply, char *text, size_t size);
#endif
