/* SPDX-License-Identifier: Apache-2.0 */
/* What a load found: facts of each rate, the knee, and the table of both. */
#ifndef PARE_TOOLS_LOAD_RESULTS_H
#define PARE_TOOLS_LOAD_RESULTS_H

#include "tools/load/generator.h"
#include "tools/load/requests.h"
#include "tools/table.h"

#include <jansson.h>

/* One rate. */
typedef struct pare_load_row {
    double offered;          /* requests a second */
    pare_load_result result; /* its ms are sorted by pare_load_row_json */
    pare_load_work work;     /* the server's meanwhile, with the warm-up's; NAN: not known */
    pare_load_top1 top1;     /* samples 0: no labels */
    char error[512];         /* of the first request that failed; "": none did */
    bool is_partial;         /* it was cut short */
} pare_load_row;

/* {offered_per_s, due, sent, answered, shed, failed, throughput_per_s, latency_ms, ..., notes}, see
   facts.schema.json; percentiles: (count), as pare_latency_json takes them. NULL: memory is out. */
json_t *pare_load_row_json(pare_load_row *row, const double *percentiles, int count);

/* {offered_per_s, highest, text}: the highest rate of which 99 % were answered, none was shed, and
   the 99th percentile of the latency is at most twice that of the lowest rate. offered_per_s is
   left out where there is none, or it is not known because a 99th percentile is not; text says
   which. rows: (count) after pare_load_row_json. */
json_t *pare_load_knee(const pare_load_row *rows, int count);

/* {rate_per_s, servers, at_most, text}: how many such servers a rate needs where each is given what
   the knee is; at_most: the knee was not reached, so that fewer may do. servers is left out where
   there is no knee. */
json_t *pare_load_plan(const json_t *knee, double rate_per_s);

/* Columns of "rates", and which parts of them such rows have. */
extern const pare_column pare_load_columns[];
unsigned pare_load_parts(const json_t *rates);

/* The table, a row a rate, then notes, knee and plan, of a command's facts, to standard output;
   quiet: no notes. */
void pare_load_print(pare_arena *arena, const json_t *facts, bool quiet);
#endif
