/* SPDX-License-Identifier: Apache-2.0 */
/* Measured times as facts, with the reasons to distrust them. */
#ifndef PARE_TOOLS_TIMES_H
#define PARE_TOOLS_TIMES_H

#include "runtime/eval/eval.h"

#include <jansson.h>

enum { PARE_PERCENTILES = 16 };
/* "90,99" of --percentile into out (PARE_PERCENTILES). PARE_USAGE: one is no number in [0, 100], or
   there are too many. */
PARE_NODISCARD pare_status pare_percentiles_parse(pare_ctx *ctx, const char *text, double *out,
                                                  int *count);

/* {median, mean, min, max, p90, ...} of n ascending values; percentiles: (count), of which those
   that need more values (pare_stats_needed) are left out, and a note says how many they need; unit:
   what the values are of, "runs". */
json_t *pare_latency_json(const double *sorted, size_t n, const char *unit,
                          const double *percentiles, int count, json_t *notes);

/* {latency_ms: {median, mean, min, max, p90, p95, p99, ...}, latency_interval, runs,
   throughput_per_s, coefficient_of_variation, drift, stable, notes: [...]}, of windows also windows
   and settled; percentiles: (count) in [0, 100], of which those are left out that need more runs
   (pare_stats_needed; a note says how many). latency_interval: of the median
   (pare_resample_median), where there are enough runs. NULL with the message set. */
json_t *pare_times_json(pare_ctx *ctx, const pare_times *times, double batch,
                        const double *percentiles, int percentile_count);

/* As pare_times_json: latencies over the runs of all streams, throughput of all together; with more
   than one of them also streams: [{latency_ms, runs, throughput_per_s}]. */
json_t *pare_streams_json(pare_ctx *ctx, const pare_streams *streams, double batch,
                          const double *percentiles, int percentile_count);
#endif
