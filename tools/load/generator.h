/* SPDX-License-Identifier: Apache-2.0 */
/* The open loop: a request begins when it is due, whether or not earlier ones are over. Latency is
   counted from when it was due: a request that waits for a connection has waited, and a server that
   stalls is seen by all that came meanwhile (coordinated omission: Tene 2013, "How NOT to measure
   latency"). */
#ifndef PARE_TOOLS_LOAD_GENERATOR_H
#define PARE_TOOLS_LOAD_GENERATOR_H

#include "runtime/base/ctx.h"

typedef enum pare_load_end { PARE_LOAD_ANSWERED, PARE_LOAD_SHED, PARE_LOAD_FAILED } pare_load_end;

/* What carries requests, and the clock that it keeps; seconds. */
typedef struct pare_load_port {
    double (*now)(void *user);
    /* Begins a request on a connection that is free; it fails by itself at the deadline. */
    pare_status (*send)(void *user, int connection, size_t request, double deadline);
    /* Returns when a request is over, at this time, or a little earlier. */
    pare_status (*wait)(void *user, double until);
    /* The connection whose request is over; -1: none. */
    int (*next)(void *user, pare_load_end *end);
    void *user;
} pare_load_port;

typedef struct pare_load {
    const double *due; /* (count) seconds from the start, ascending */
    size_t count;
    double warm_up;  /* requests due before are sent and not counted */
    double duration; /* seconds after the warm-up in which requests are due */
    double timeout;  /* after a request was due, it has failed */
    int connections; /* requests that are under way at once, at most */
} pare_load;

/* What became of the requests that are counted. */
typedef struct pare_load_result {
    size_t due, sent, answered, shed, failed;
    size_t unsent;  /* of those that failed: no connection was free in time */
    size_t late;    /* of those sent: a connection was free, and the generator came 1 ms late */
    double *ms;     /* (answered) latencies in order of the answers; freed with pare_load_free */
    double seconds; /* from the end of the warm-up until the last answer, at least duration */
} pare_load_result;

/* Ends when all requests are over. After a failure of the port, or an interruption, the result
   holds what became of those that were over by then. */
PARE_NODISCARD pare_status pare_load_run(pare_ctx *ctx, pare_load_result *out,
                                         const pare_load *load, const pare_load_port *port);
void pare_load_free(pare_load_result *result);
#endif
