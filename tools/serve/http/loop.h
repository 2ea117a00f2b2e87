/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that wait for what happens to connections, each for its own; the first also accepts them
   and shares them out. */
#ifndef PARE_TOOLS_SERVE_HTTP_LOOP_H
#define PARE_TOOLS_SERVE_HTTP_LOOP_H
#ifdef PARE_HTTP

#include "tools/serve/http/connection.h"

typedef struct pare_loops pare_loops;

/* Takes connections from the listening socket, which it closes at the end, and sets
   common->give_back. most: connections at once; more wait to be accepted. PARE_IO, PARE_MEMORY. */
PARE_NODISCARD pare_status pare_loops_new(pare_ctx *ctx, pare_loops **out, pare_http_common *common,
                                          int listener, int threads, int most);
/* common->draining is set: accepts what waits to be, nothing more, and returns when every
   connection has ended. */
void pare_loops_drain(pare_loops *loops);
/* After pare_loops_drain, and when no one makes a reply any more. NULL is fine. */
void pare_loops_free(pare_loops *loops);
#endif
#endif
