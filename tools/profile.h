/* SPDX-License-Identifier: Apache-2.0 */
/* Per-step times of a runner as JSON and as a Chrome trace (chrome://tracing, Perfetto). */
#ifndef PARE_TOOLS_PROFILE_H
#define PARE_TOOLS_PROFILE_H

#include "runtime/exec/exec.h"

#include <jansson.h>

/* Runs the runner some more times with the clock on each step (on a device: with events around it)
   and writes medians over the runs; tools/facts.schema.json says what ("profile"). */
PARE_NODISCARD pare_status pare_profile_write(pare_ctx *ctx, pare_runner *runner, const char *model,
                                              const char *path);

/* The same medians as a list: [{node, op_type, ..., time_ms, share}]. */
PARE_NODISCARD pare_status pare_profile_steps(pare_ctx *ctx, pare_runner *runner, json_t **out);

/* Runs runners of one plan once more, all at once where they are on a device, step by step, and
   writes copies and steps as a Chrome trace (trace.h). */
PARE_NODISCARD pare_status pare_profile_trace(pare_ctx *ctx, pare_runner *const *runners, int count,
                                              const char *model, const char *path);
#endif
