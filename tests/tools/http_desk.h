/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the server's, run by the test in its loop's place, and its client, over a pair of
   sockets. */
#ifndef PARE_TESTS_HTTP_DESK_H
#define PARE_TESTS_HTTP_DESK_H

#include "tools/serve/http/connection.h"

typedef struct http_desk {
    pare_http_common common;
    pare_connection *c;
    int client;
    size_t held;
    double now;
    bool answers_later;     /* requests stay in `waiting` */
    bool refuses;           /* no request is admitted */
    size_t reply_bytes;     /* of a reply; 0: it says what the request was */
    pare_exchange *waiting; /* NULL: none */
    int handled;            /* requests so far */
    pare_connection *returned;
    bool is_closed; /* the server's socket */
} http_desk;

/* limit, pending: as of the options. False: there are no sockets. */
bool http_desk_open(http_desk *d, int64_t limit, int64_t pending);
/* Whatever state it is in. */
void http_desk_close(http_desk *d);
/* Sends bytes and lets the server see it once, as epoll says it at a change. */
void http_desk_send(http_desk *d, const char *bytes, size_t count);
/* What has happened to the server's socket: bits of PARE_TURN_*. */
void http_desk_event(http_desk *d, unsigned events);
/* Makes the reply to the waiting request. */
void http_desk_answer(http_desk *d);
/* So many seconds later. */
void http_desk_pass(http_desk *d, double seconds);
/* The same for a text. */
void http_desk_say(http_desk *d, const char *text);
/* What has come to the client: at most size - 1 bytes, with a zero behind them. */
size_t http_desk_read(http_desk *d, char *out, size_t size);
/* The same without the lines that have the date; good until the next call. */
const char *http_desk_hear(http_desk *d);
#endif
