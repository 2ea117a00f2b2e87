/* SPDX-License-Identifier: Apache-2.0 */
/* Several runners of one plan at work at once: on a device each has its own queue, on the CPU its
   own team of threads; constants are shared. */
#ifndef PARE_TOOLS_STREAMS_H
#define PARE_TOOLS_STREAMS_H

#include "runtime/exec/batch.h"
#include "tools/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_streams pare_streams;

/* Makes `count` runners with their inputs filled. plan must outlive them. */
PARE_NODISCARD pare_status pare_streams_new(pare_ctx *ctx, pare_streams **out,
                                            const pare_plan *plan, int count);
void pare_streams_free(pare_streams *streams);
int pare_streams_count(const pare_streams *streams);
pare_runner *pare_streams_runner(const pare_streams *streams, int i);

/* Runners fail in contexts of their own: the status again, with the message of the one that has
 * any. */
PARE_NODISCARD pare_status pare_streams_status(const pare_streams *streams, pare_status status);

/* One thread drives each runner; all begin to be timed when the last is warm. Measured are at least
   three windows of a third of the duration and the iterations each, until each stream's last three
   agree, at most nine; without a duration it is one window. */
PARE_NODISCARD pare_status pare_streams_measure(pare_streams *streams,
                                                const pare_measure_options *options);

/* As pare_times_json: latencies over the runs of all streams, throughput of all together; with more
   than one of them also streams: [{latency_ms, runs, throughput_per_s}]. */
json_t *pare_streams_json(pare_streams *streams, double batch, const double *percentiles,
                          int percentile_count);

#ifdef __cplusplus
}
#endif
#endif
