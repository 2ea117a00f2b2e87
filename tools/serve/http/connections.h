/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a transport, to close those on which no request will come any more: whose
   client is gone, or has sent nothing for long. */
#ifndef PARE_TOOLS_SERVE_CONNECTIONS_H
#define PARE_TOOLS_SERVE_CONNECTIONS_H

#include <pthread.h>

/* How far the request is that a connection has: none has begun, it comes, or it is whole and its
   reply not sent yet. */
enum { PARE_CONNECTION_IDLE, PARE_CONNECTION_COMES, PARE_CONNECTION_WHOLE };

typedef struct pare_connection pare_connection;

typedef struct pare_connections {
    pthread_mutex_t lock;
    pare_connection *first;
} pare_connections;

void pare_connections_init(pare_connections *all);
/* Takes a socket that stays the caller's. NULL: memory is out. */
pare_connection *pare_connections_add(pare_connections *all, int fd);
/* Before the socket is closed. NULL is fine. */
void pare_connections_remove(pare_connections *all, pare_connection *c);
/* Something of a request has come, or its reply was sent, and this is how far it is. NULL is fine.
 */
void pare_connection_note(pare_connection *c, int state);
/* Shuts down those without a whole request whose client has closed, as this and the last sweep
   found with nothing noted in between, or of which nothing was noted for `idle` seconds, for
   `stalled` where a request comes, and nothing waits to be read; `now` is in seconds, above 0. A
   client that closes its side behind a whole request is answered. */
void pare_connections_sweep(pare_connections *all, double now, double idle, double stalled);
/* None is left by now. */
void pare_connections_free(pare_connections *all);
#endif
