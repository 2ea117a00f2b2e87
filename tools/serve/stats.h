/* SPDX-License-Identifier: Apache-2.0 */
/* What a served model has done: counts and times, as the protocol's statistics extension and
   OpenMetrics show them. Any thread may call. */
#ifndef PARE_TOOLS_SERVE_STATS_H
#define PARE_TOOLS_SERVE_STATS_H

#include "runtime/base/ctx.h"

#include <jansson.h>
#include <pthread.h>

/* Parts of a request's life. */
typedef enum pare_stage {
    PARE_STAGE_REQUEST, /* from its arrival to its reply */
    PARE_STAGE_QUEUE,
    PARE_STAGE_INPUT, /* its inputs are put where the runner reads them */
    PARE_STAGE_INFER,
    PARE_STAGE_OUTPUT, /* the reply is made of the runner's outputs */
    PARE_STAGES
} pare_stage;

/* Word of a stage for labels: "request", "queue", "compute_input", ... */
const char *pare_stage_name(pare_stage stage);

typedef struct pare_tally {
    uint64_t count, ns;
} pare_tally;

/* Runs of one size. */
typedef struct pare_size_tally {
    int64_t rows;
    uint64_t runs;
    uint64_t ns[PARE_STAGES];
} pare_size_tally;

typedef struct pare_served_stats {
    pthread_mutex_t lock;
    pare_tally stage[PARE_STAGES]; /* of requests that were answered well */
    pare_tally failed;
    uint64_t shed, rows, runs; /* shed: refused because the queue was full; rows: samples */
    double last;               /* seconds since 1970 of the last request; 0: none */
    pare_size_tally *size;
    size_t size_count, size_capacity;
} pare_served_stats;

void pare_served_stats_init(pare_served_stats *stats);
void pare_served_stats_free(pare_served_stats *stats);

/* A request was answered; seconds: (PARE_STAGES). */
void pare_served_stats_answer(pare_served_stats *stats, const double *seconds);
/* A request was not, after so many seconds. */
void pare_served_stats_failure(pare_served_stats *stats, double seconds);
void pare_served_stats_shed(pare_served_stats *stats);
/* A run of so many samples ended; seconds: (PARE_STAGES), of which the three that compute count. */
void pare_served_stats_run(pare_served_stats *stats, int64_t rows, const double *seconds);

/* A copy without sizes, taken at once. */
void pare_served_stats_read(pare_served_stats *stats, pare_served_stats *out);
/* An entry of "model_stats"; NULL: memory is out. */
json_t *pare_served_stats_json(pare_served_stats *stats, const char *name, int64_t version);
#endif
