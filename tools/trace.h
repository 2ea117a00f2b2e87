/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline as a Chrome trace (chrome://tracing, Perfetto). */
#ifndef PARE_TOOLS_TRACE_H
#define PARE_TOOLS_TRACE_H

#include "runtime/exec/exec.h"

#include <jansson.h>

/* All spans of a timeline that was read, in microseconds, one named lane for each stream and kind
   of work. plan says what the steps are; NULL: their names alone. The first returns NULL where
   memory is out. */
json_t *pare_trace_json(const char *title, const pare_timeline *timeline, const pare_plan *plan);
PARE_NODISCARD pare_status pare_trace_write(pare_ctx *ctx, const char *path, const char *title,
                                            const pare_timeline *timeline, const pare_plan *plan);

/* "copy in", "compute" ... */
const char *pare_lane_name(pare_lane lane);
#endif
